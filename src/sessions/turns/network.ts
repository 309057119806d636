import { type LookupAddress, lookup as systemLookup, type LookupOptions } from "node:dns";
import type { Agent, request } from "undici";
import { checkAgentUrl, isAllowedAddress, whyRefused } from "../agents/address.ts";
import { AgentFailure } from "./failure.ts";

/** The way to agents at URLs. */
export type AgentNetwork = {
  /** Rejects where no answer came at all; one with any status is an answer. */
  post(request: PostRequest): Promise<PostResponse>;
  close(): Promise<void>;
};

export type PostRequest = {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly allowPrivate: boolean;
  /** Closes the connection, also in the middle of the answer. */
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
 * Requests to where agents may be, and nowhere else. A name is looked up once, all of its addresses are
 * checked, and the connection is made to one of those: what the name means a moment later is of no
 * consequence. Nothing is followed anywhere else, and how long things may take is for the caller to say.
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
      if (closed) throw new Error("the way to agents was closed");
      const { sendRequest, publicOnly, alsoPrivate } = await (dispatchers ??=
        openDispatchers(lookup));
      const answer = await sendRequest(url, {
        dispatcher: allowPrivate ? alsoPrivate : publicOnly,
        method: "POST",
        headers,
        body,
        signal,
      });
      // Whoever reads it hears of errors; one that comes when nobody does must not end the process.
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

/** Loads what it takes only now: every program would take a fifth longer to start by it. */
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

/** Where agents are is for the log: whoever takes part in a session sees only that one can't be asked. */
function forbidden(cause: Error): AgentFailure {
  const message = "the agent is at an address where none may be; the pod's log says which";
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
