import { FlotillaError } from "../base/errors.ts";
import type { AgentCalls } from "./calls/agents.ts";
import type { RunCalls } from "./calls/runs.ts";
import type { SessionCalls } from "./calls/sessions.ts";
import type { TaskCalls } from "./calls/tasks.ts";
import type { ConnectionState } from "./connection.ts";
import type { Inbox } from "./inbox.ts";
import type { ClientOptions } from "./options.ts";
import type { Session } from "./session.ts";
import type { Store } from "./store.ts";

/** A server as its users have it: calls over HTTP, and one socket for all that is followed and sent. */
export type Client = {
  /** The same handle each time. It asks nothing by itself. */
  session(sessionId: string): Session;
  inbox(): Inbox;
  readonly sessions: SessionCalls;
  readonly tasks: TaskCalls;
  readonly runs: RunCalls;
  readonly agents: AgentCalls;
  readonly connection: Store<ConnectionState>;
  /** Connects now, without waiting, also where credentials were refused. */
  reconnect(): void;
  /** Ends everything: what isn't acked is rejected with `closed`. */
  close(): void;
};

export function createClient(_options: ClientOptions = {}): Client {
  throw new FlotillaError("unsupported", "the client isn't there yet");
}
