import { type LookupAddress, lookup as systemLookup, type LookupOptions } from "node:dns";
import type { Agent, request } from "undici";
import { checkAgentUrl, isAllowedAddress, whyRefused } from "../agents/address.ts";
import { AgentFailure } from "./failure.ts";

/** Sends requests to agents at URLs. */
export type AgentNetwork = {
  /** Rejects if there was no response at all; a response with any status resolves. */
  post(request: PostRequest): Promise<PostResponse>;
  close(): Promise<void>;
};

export type PostRequest = {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly allowPrivate: boolean;
  /** Closes the connection, even in the middle of the response. */
  readonly signal: AbortSignal;
};

export type PostResponse = {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: AsyncIterable<Uint8Array>;
};

type LookupCallback = (error: NodeJS.ErrnoException | null, found: LookupAddress[]) => void;
export type Lookup = (
  host: string,
  options: LookupOptions & { readonly all: true },
  callback: LookupCallback,
) => void;

const connectTimeoutMs = 10_000;

/**
 * Sends requests only to addresses where agents may be. A name is resolved once, all its addresses are
 * checked, and the connection goes to one of them. So it does not matter if the name resolves differently
 * a moment later. Redirects are not followed, and the caller sets all timeouts.
 */
export function createAgentNetwork({
  lookup = systemLookup as Lookup,
}: { lookup?: Lookup } = {}): AgentNetwork {
  let dispatchers: Promise<Dispatchers> | undefined;
  let closed = false;
  return {
    async post({ url, headers, body, allowPrivate, signal }) {
      try {
        checkAgentUrl("the agent's URL", url, allowPrivate);
      } catch (error) {
        throw forbidden(error as Error);
      }
      if (closed) throw new Error("the agent network is closed");
      const { sendRequest, publicOnly, alsoPrivate } = await (dispatchers ??=
        openDispatchers(lookup));
      const answer = await sendRequest(url, {
        dispatcher: allowPrivate ? alsoPrivate : publicOnly,
        method: "POST",
        headers,
        body,
        signal,
      });
      // The reader gets errors. One without a reader must not end the process.
      answer.body.on("error", () => {});
      return { status: answer.statusCode, headers: answer.headers, body: answer.body };
    },
    async close() {
      closed = true;
      const opened = await dispatchers;
      await Promise.all([opened?.publicOnly.destroy(), opened?.alsoPrivate.destroy()]);
    },
  };
}

type Dispatchers = {
  readonly sendRequest: typeof request;
  readonly publicOnly: Agent;
  readonly alsoPrivate: Agent;
};

/** Loads undici on first use, because every program would take a fifth longer to start. */
async function openDispatchers(lookup: Lookup): Promise<Dispatchers> {
  const undici = await import("undici");
  const open = (allowPrivate: boolean) =>
    new undici.Agent({
      connect: { lookup: guardedLookup(lookup, allowPrivate), timeout: connectTimeoutMs },
      headersTimeout: 0,
      bodyTimeout: 0,
    });
  return { sendRequest: undici.request, publicOnly: open(false), alsoPrivate: open(true) };
}

/** Addresses go to the log only: members of a session just learn that the agent cannot be called. */
function forbidden(cause: Error): AgentFailure {
  const message = "the agent's address is not allowed: see the pod's log for details";
  return new AgentFailure("agent_forbidden", message, { cause });
}

type ConnectCallback = (
  error: Error | null,
  address: string | LookupAddress[],
  family?: number,
) => void;

function guardedLookup(lookup: Lookup, allowPrivate: boolean) {
  return (host: string, options: LookupOptions, found: ConnectCallback): void => {
    lookup(host, { ...options, all: true }, (error, addresses) => {
      if (error) return found(error, []);
      const first = addresses[0];
      if (!first || !addresses.every(({ address }) => isAllowedAddress(address, allowPrivate))) {
        return found(forbidden(new Error(`${host} ${whyRefused(allowPrivate)}`)), []);
      }
      if (options.all) found(null, addresses);
      else found(null, first.address, first.family);
    });
  };
}
