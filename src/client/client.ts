import { systemClock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { type Random, systemRandom } from "../base/random.ts";
import {
  type AgentCalls,
  agentCalls,
  type RunCalls,
  runCalls,
  type SessionCalls,
  sessionCalls,
  type TaskCalls,
  taskCalls,
} from "./calls.ts";
import type { ConnectionState } from "./socket/status.ts";
import { createClientCredentials, createHttp } from "./http.ts";
import type { Inbox } from "./inbox.ts";
import type { ClientOptions } from "./options.ts";
import type { Session } from "./session/session.ts";
import type { Store } from "./observable.ts";
import { serverUrl, defaultFetch, defaultNetwork, defaultSocketClass } from "./environment.ts";
import { createMultiplexer } from "./socket/multiplexer.ts";
import { createWatchFactory } from "./watch.ts";

/** A client of a server: calls over HTTP, and one socket for all that is followed and sent. */
export type Client = {
  /** The same handle each time. It sends nothing by itself. */
  session(sessionId: string): Session;
  inbox(): Inbox;
  readonly sessions: SessionCalls;
  readonly tasks: TaskCalls;
  readonly runs: RunCalls;
  readonly agents: AgentCalls;
  readonly connection: Store<ConnectionState>;
  /** Connects now instead of after the backoff, also where credentials were refused. */
  reconnect(): void;
  /** Ends everything: what isn't acked is rejected with `closed`. */
  close(): void;
};

export function createClient(options: ClientOptions = {}): Client {
  const { user, tenant, clock = systemClock, random = systemRandom } = options;
  const { fetch = defaultFetch, network = defaultNetwork, maxUnacked = 256 } = options;
  const { newId = () => randomId(random) } = options;
  const parts = {
    url: () => serverUrl(options.url),
    WebSocket: () => options.WebSocket ?? defaultSocketClass(),
    credentials: createClientCredentials(options.token),
    user,
    tenant,
    fetch,
    network,
    clock,
    random,
    newId,
    maxUnacked,
  };
  const http = createHttp(parts);
  const multiplexer = createMultiplexer({ ...parts, http });
  const watches = createWatchFactory(parts);
  return {
    session: multiplexer.session,
    inbox: () => multiplexer.inbox,
    sessions: sessionCalls(http, newId, multiplexer.revive, parts.url),
    tasks: taskCalls(http, watches.watch),
    runs: runCalls(http, watches.watch),
    agents: agentCalls(http),
    connection: multiplexer.connection,
    reconnect: multiplexer.reconnect,
    close() {
      const error = new FlotillaError("closed", "the client was closed");
      multiplexer.close(error);
      watches.end(error);
    },
  };
}

/** 128 random bits, practically unique. */
export const randomId = (random: Random): string =>
  [0, 0, 0, 0].map(() => random.uint32().toString(16).padStart(8, "0")).join("");
