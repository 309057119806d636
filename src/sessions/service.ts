import type { Json } from "../base/json.ts";
import type { TraceHeaders } from "../base/trace-context.ts";
import type { Chunk } from "../protocol/chunk.ts";
import type {
  Entry,
  InboxItem,
  Part,
  SessionState,
  SessionView,
  ToolResult,
} from "../protocol/message.ts";
import type { StoppedBy } from "./conversation/command.ts";

export type { InboxItem, SessionView } from "../protocol/message.ts";

/**
 * All that code, HTTP and sockets can ask about sessions, alike. Every call names the tenant, and finds
 * nothing of another's. What fails rejects with a `FlotillaError`.
 */
export type SessionService = {
  create(tenant: string, input: CreateSession): Promise<SessionView>;
  /** With `patient` it waits for a store that is away, as what is asked of a session does. */
  get(tenant: string, sessionId: string, options?: { patient?: boolean }): Promise<SessionView>;
  list(tenant: string, options: ListSessionsAmong): Promise<SessionPage>;
  entries(tenant: string, sessionId: string, page: EntriesQuery): Promise<EntriesPage>;
  send(tenant: string, sessionId: string, message: SendMessage): Promise<Sent>;
  toolResult(tenant: string, sessionId: string, result: SendToolResult): Promise<Sent>;
  regenerate(tenant: string, sessionId: string, request: RegenerateAnswer): Promise<Sent>;
  /** True where a turn was there to be stopped. Who stopped it is an entry of the log. */
  stop(tenant: string, sessionId: string, options?: StopTurn): Promise<boolean>;
  read(tenant: string, sessionId: string, upTo: { user: string; seq: number }): Promise<void>;
  setMetadata(
    tenant: string,
    sessionId: string,
    metadata: Json,
    options?: { ifVersion?: number },
  ): Promise<{ metadataVersion: number }>;
  changeMembers(tenant: string, sessionId: string, change: ChangeMembers): Promise<void>;
  compact(tenant: string, sessionId: string): Promise<boolean>;
  archive(tenant: string, sessionId: string): Promise<void>;
  unarchive(tenant: string, sessionId: string): Promise<void>;
  /** Deletes what was said, for good. */
  remove(tenant: string, sessionId: string): Promise<void>;
  /** Everything after the client's place, in order, then everything as it happens. */
  join(tenant: string, sessionId: string, position: JoinPosition, sink: Sink<FeedEvent>): Joined;
  /** A snapshot of a user's sessions, then what changes in them. */
  inbox(tenant: string, user: string, sink: Sink<InboxEvent>): Joined;
};

export type CreateSession = {
  /** Default: a fresh one. Creating it again with the same gives what there is. */
  sessionId?: string;
  /** Who answers; the first where a message names none. */
  agents?: readonly string[];
  users?: readonly string[];
  metadata?: Json;
};

export type ListSessions = {
  user?: string;
  agent?: string;
  status?: "active" | "archived";
  state?: SessionState["state"];
  cursor?: string;
  /** Default 50, at most 1,000. */
  limit?: number;
};
/** For callers that may see these sessions alone, as far as they exist. */
export type ListSessionsAmong = ListSessions & { readonly only?: readonly string[] };
export type SessionPage = {
  readonly sessions: readonly SessionView[];
  readonly next: string | null;
};

export type EntriesQuery = { after?: number; limit?: number };
export type EntriesPage = {
  readonly entries: readonly Entry[];
  /** The `after` of the page that follows; null where these are the last. */
  readonly next: number | null;
  readonly lastSeq: number;
  readonly incarnation: string;
};

export type StopTurn = {
  /** Only this turn. Default: whatever runs now. */
  epoch?: number;
} & StoppedBy;

export type SendMessage = {
  /** Sending again with the same id stores nothing new. Default: a fresh one. */
  id?: string;
  /** Default `user`. Only a `user`'s message starts a turn. */
  role?: Entry["role"];
  author: string;
  parts: readonly Part[];
  metadata?: Json;
  /** The agent that is asked, where the session has several. */
  to?: string;
  /** What it takes of a model's context. Default: an estimate. */
  tokens?: number;
  /** The W3C trace context that its turn belongs to, where no span of OpenTelemetry's is active. */
  trace?: TraceHeaders;
};
export type Sent = {
  readonly seq: number;
  readonly messageId: string;
  readonly duplicate: boolean;
};
export type SendToolResult = {
  id?: string;
  author: string;
  /** The message whose calls these are. */
  messageId: string;
  results: readonly ToolResult[];
  trace?: TraceHeaders;
};
export type RegenerateAnswer = {
  id?: string;
  /** The answer to make anew. Default: the last one. */
  messageId?: string;
  trace?: TraceHeaders;
};
export type ChangeMembers = {
  addUsers?: readonly string[];
  removeUsers?: readonly string[];
  agents?: readonly string[];
};

/** Where a client stands: the last entry it has, of which log, and that entry's message id. */
export type JoinPosition = { lastSeq: number; incarnation?: string; lastMessageId?: string };

export type Joined = {
  /** Resolves when the client has been told all that there was when it joined. */
  readonly ready: Promise<void>;
  leave(): void;
};

/**
 * Where events go. `push` must not throw; it returns false where its reader is too slow, and is then
 * told no more. `fail` says that it was ended by this side, and why.
 */
export type Sink<Event> = {
  push(event: Event): boolean;
  fail(error: unknown): void;
  /**
   * Resolves when its reader has caught up. A replay waits for it between pages, so that a long history
   * doesn't make a slow reader of everybody; what is live never waits.
   */
  drained?(): Promise<void>;
};

export type FeedEvent =
  /** First of all. */
  | {
      readonly type: "joined";
      readonly lastSeq: number;
      readonly incarnation: string;
      readonly state: SessionState;
    }
  /** The client's place isn't in this log: it forgets what it has, and gets everything from the start. */
  | { readonly type: "reset"; readonly reason: "ahead" | "incarnation" | "mismatch" }
  | { readonly type: "entries"; readonly entries: readonly Entry[] }
  | { readonly type: "state"; readonly state: SessionState }
  /**
   * Parts of the answer that is being made, `index` being the number of the first. Those of a lower
   * (epoch, attempt) than seen before are never sent; of a higher one, they begin the answer anew. So
   * does index 0. With `nextIndex`, these few chunks stand for all of the agent's before that one.
   */
  | {
      readonly type: "chunks";
      readonly epoch: number;
      readonly attempt: number;
      readonly index: number;
      readonly nextIndex?: number;
      readonly chunks: readonly Chunk[];
    }
  /** The session was deleted. */
  | { readonly type: "deleted" };

export type InboxEvent =
  | { readonly type: "snapshot"; readonly sessions: readonly InboxItem[] }
  | { readonly type: "changed"; readonly sessions: readonly InboxItem[] }
  | { readonly type: "removed"; readonly sessionIds: readonly string[] };
