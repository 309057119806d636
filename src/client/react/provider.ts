import { createContext, createElement, type ReactNode, useContext } from "react";
import { FlotillaError } from "../../base/errors.ts";
import type { Client } from "../client.ts";

const ClientContext = createContext<Client | undefined>(undefined);

/** Provides a client to the hooks below it. */
export function FlotillaProvider({ client, children }: { client: Client; children?: ReactNode }) {
  return createElement(ClientContext.Provider, { value: client }, children);
}

/** The client of a hook: its option, else that of the provider above. */
export function useClient(own?: Client): Client {
  const provided = useContext(ClientContext);
  const client = own ?? provided;
  if (client) return client;
  throw new FlotillaError(
    "invalid_input",
    "there is no client: put <FlotillaProvider client={client}> around this component",
  );
}
