import type { Json } from "../base/json.ts";
import type { TraceHeaders } from "../base/trace-context.ts";
import type { NewFile } from "../files/files.ts";
import type { Chunk } from "../protocol/chunk.ts";
import type { FilePart } from "../protocol/file.ts";
import type { Person } from "../protocol/frames.ts";
import type {
  Entry,
  InboxItem,
  Part,
  SessionState,
  SessionView,
  ToolResult,
  TurnView,
  WakeView,
} from "../protocol/message.ts";
import type { Started } from "../links/links.ts";
import type { TaskToStart } from "../tasks/enqueue/logged-tasks.ts";
import type { StoppedBy } from "./conversation/command.ts";

export type { InboxItem, SessionView } from "../protocol/message.ts";

/**
 * Everything that code, HTTP and sockets can do with sessions. Every call names the tenant, and finds
 * nothing of other tenants. Failures reject with a `FlotillaError`.
 */
export type SessionService = {
  create(tenant: string, input: CreateSession): Promise<SessionView>;
  get(tenant: string, sessionId: string, options?: GetOptions): Promise<SessionView>;
  list(tenant: string, options: ListSessionsAmong): Promise<SessionPage>;
  entries(tenant: string, sessionId: string, page: EntriesQuery): Promise<EntriesPage>;
  /** The attempts at its turns, the newest first. */
  turns(tenant: string, sessionId: string, page?: TurnsQuery): Promise<TurnPage>;
  /** The first tasks and runs that its turns have started. */
  started(tenant: string, sessionId: string): Promise<StartedTasks>;
  /** Whether a command with this id is stored already, so that it adds nothing when it is sent again. */
  isStored(tenant: string, sessionId: string, id: string): Promise<boolean>;
  /** Creates a session that begins with the same entries, up to a place. They are shared, not copied. */
  fork(tenant: string, sessionId: string, input: ForkSession): Promise<SessionView>;
  /** Forks before a message, and says it anew there: both are stored, or neither. */
  edit(tenant: string, sessionId: string, input: EditMessage): Promise<Edited>;
  /** The forks of a session, in the order of their places. */
  forks(tenant: string, sessionId: string, query?: ForksQuery): Promise<ForksPage>;
  /** Stores a file, and has the session refer to it. What it returns is a part for a message. */
  upload(
    tenant: string,
    sessionId: string,
    content: FileContent,
    file?: NewFile,
  ): Promise<FilePart>;
  send(tenant: string, sessionId: string, message: SendMessage): Promise<Sent>;
  toolResult(tenant: string, sessionId: string, result: SendToolResult): Promise<Sent>;
  /** Gives its payload to the call that waits for the signal. */
  signal(tenant: string, sessionId: string, signal: SendSignal): Promise<SignalSent>;
  /**
   * Brings an output that a call has waited for. `under_way` if the call's turn has not ended yet. It is
   * `dropped` if the call has a result already, or nothing is left that waits for it.
   */
  bring(
    tenant: string,
    sessionId: string,
    late: LateResult,
  ): Promise<"stored" | "dropped" | "under_way">;
  /** Has an agent asked at a time, or again and again. */
  wake(tenant: string, sessionId: string, wake: SetWake): Promise<WakeSet>;
  /** The wakes that are set, the next one first. */
  wakes(tenant: string, sessionId: string): Promise<readonly WakeView[]>;
  /** False if no wake of this key is set. */
  cancelWake(
    tenant: string,
    sessionId: string,
    wake: { key: string; author: string },
  ): Promise<boolean>;
  /** Asks the agent of the wake whose task this is. False if that has happened, or it is set no longer. */
  fireWake(tenant: string, taskId: string, due: DueWake): Promise<boolean>;
  regenerate(tenant: string, sessionId: string, request: RegenerateAnswer): Promise<Sent>;
  /** True if there was a turn to stop. The log records who stopped it. */
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
  /** Deletes the session and all its entries for good. */
  remove(tenant: string, sessionId: string): Promise<void>;
  /** All entries after the client's position, in order, then everything as it happens. */
  join(tenant: string, sessionId: string, position: JoinPosition, sink: Sink<FeedEvent>): Joined;
  /**
   * Who has the session open and who types, at once and as it changes. A `user` is shown as there until it
   * leaves. The caller sees to it that only members get it.
   */
  presence(
    tenant: string,
    sessionId: string,
    user: string | undefined,
    sink: Sink<PresenceEvent>,
  ): Attendance;
  /** A snapshot of a user's sessions, then their changes. */
  inbox(tenant: string, user: string, sink: Sink<InboxEvent>): Joined;
};

export type GetOptions = {
  /** It tries again while the store is unreachable, as commands do. */
  retries?: boolean;
  /**
   * Leaves the metadata out, where that saves a read: a log that is ahead of the store has everything else of
   * a session while the store is away.
   */
  withoutMetadata?: boolean;
};

export type CreateSession = {
  /** Default: a new id. Creating it again with the same id returns the existing session. */
  sessionId?: string;
  /** The agents that answer; the first answers messages that name none. */
  agents?: readonly string[];
  users?: readonly string[];
  metadata?: Json;
};

export type ForkSession = {
  /** The last entry that both have. */
  atSeq: number;
  /** The id of the new session. Asking again with the same id returns the same fork. Default: a new id. */
  id?: string;
  /** Default: those of the session that is forked. */
  agents?: readonly string[];
  users?: readonly string[];
  /** Of the new session. Default: none. */
  metadata?: Json;
};
export type EditMessage = Omit<ForkSession, "atSeq"> & {
  /** The user's message to say anew. It has the same id in the fork. */
  messageId: string;
  author: string;
  parts: readonly Part[];
  /** Of the message. */
  messageMetadata?: Json;
  /** The W3C trace context of the turn, if no OpenTelemetry span is active. */
  trace?: TraceHeaders;
};
export type Edited = Sent & { readonly session: SessionView };
export type ForksQuery = {
  /** Only those of this place. */
  atSeq?: number;
  /** Only those that this user is a member of. */
  user?: string;
  cursor?: string;
  /** Default 50, at most 200. */
  limit?: number;
};
export type ForksPage = {
  readonly forks: readonly SessionView[];
  /** The cursor of the next page. A page may be empty and have one. */
  readonly next: string | null;
};

export type ListSessions = {
  user?: string;
  agent?: string;
  status?: "active" | "archived";
  state?: SessionState["state"];
  /** Values of the metadata, by paths such as `ticket.id`. Needs a store without a codec. */
  metadata?: Readonly<Record<string, string | number | boolean | null>>;
  cursor?: string;
  /** Default 50, at most 1,000. */
  limit?: number;
};
/** For callers that may see only these sessions. */
export type ListSessionsAmong = ListSessions & { readonly only?: readonly string[] };
export type SessionPage = {
  readonly sessions: readonly SessionView[];
  /** The cursor of the next page. A page may be empty and have one. */
  readonly next: string | null;
  /** Up to which time of their last activity sessions were searched so far; null if all were. */
  readonly lookedBackTo: number | null;
  /** Where logs are ahead of the database: when that had everything, in milliseconds. Absent: it does now. */
  readonly asOf?: number;
};

export type EntriesQuery = { after?: number; limit?: number };
export type EntriesPage = {
  readonly entries: readonly Entry[];
  /** The `after` of the next page; null if this is the last. */
  readonly next: number | null;
  readonly lastSeq: number;
  readonly incarnation: string;
};

export type TurnsQuery = {
  cursor?: string;
  /** Default 100, at most 1,000. */
  limit?: number;
};
export type TurnPage = {
  readonly turns: readonly TurnView[];
  /** The cursor of the next page; null if this is the last. */
  readonly next: string | null;
};
export type StartedTasks = {
  readonly started: readonly Started[];
  readonly hasMore: boolean;
};

/** The bytes of a file, piece by piece. */
export type FileContent = AsyncIterable<Uint8Array> | Iterable<Uint8Array>;

export type StopTurn = {
  /** Only this turn. Default: the turn that runs now. */
  epoch?: number;
} & StoppedBy;

export type SendMessage = {
  /** Sending again with the same id stores nothing new. Default: a new id. */
  id?: string;
  /** Default `user`. Only a `user`'s message starts a turn. */
  role?: Entry["role"];
  author: string;
  parts: readonly Part[];
  metadata?: Json;
  /** The agent to ask, if the session has several. */
  to?: string;
  /** How much of a model's context it takes. Default: an estimate. */
  tokens?: number;
  /** The W3C trace context of the turn, if no OpenTelemetry span is active. */
  trace?: TraceHeaders;
  /** Tasks and runs that start when the message is stored: both are stored, or neither. */
  tasks?: readonly TaskToStart[];
};
export type Sent = {
  readonly seq: number;
  readonly messageId: string;
  readonly duplicate: boolean;
  /** The tasks and runs that were stored with the message, in the given order; absent if it has none. */
  readonly tasks?: readonly { readonly taskId: string }[];
};
export type SendToolResult = {
  id?: string;
  author: string;
  /** The message that contains the calls. */
  messageId: string;
  results: readonly ToolResult[];
  trace?: TraceHeaders;
};
export type SendSignal = {
  /** Sending again with the same id stores nothing new. Default: a new id. */
  id?: string;
  /** Default `program`. */
  author?: string;
  name: string;
  /** Default null. */
  payload?: Json;
  trace?: TraceHeaders;
};
export type SignalSent = Pick<Sent, "seq" | "duplicate">;
export type LateResult = {
  /** Bringing it again with the same id stores nothing new. */
  id: string;
  /** The turn whose tool waits. */
  epoch: number;
  author: string;
  messageId: string;
  result: ToolResult;
};
/** When an agent is asked: once, at a time or after one, or again and again. */
export type SetWake = {
  /** Sending again with the same id sets nothing new. Default: a new id. */
  id?: string;
  /** Names it in its session. Another one with the same key takes its place. */
  key: string;
  /** A time that is over is due at once. */
  at?: Date | string | number;
  afterMs?: number;
  /** As schedules have it. At least a minute is between its times. */
  cron?: string;
  /** The zone of the pattern. Default UTC. */
  timezone?: string;
  /** What the agent is asked, as the newest message. Without it the agent gets the conversation as it is. */
  message?: string;
  /** The agent, if the session has several. */
  to?: string;
  author: string;
};

export type WakeSet = {
  readonly key: string;
  /** When the agent is asked first. */
  readonly atMs: number;
  readonly seq: number;
  readonly duplicate: boolean;
};

/** What the task of a wake has to bring. */
export type DueWake = {
  readonly sessionId: string;
  readonly key: string;
  readonly message?: string;
  readonly cron?: string;
  readonly timezone?: string;
};
export type RegenerateAnswer = {
  id?: string;
  /** The answer to make again. Default: the last one. */
  messageId?: string;
  trace?: TraceHeaders;
};
export type ChangeMembers = {
  addUsers?: readonly string[];
  removeUsers?: readonly string[];
  agents?: readonly string[];
};

/** A client's position: the last entry it has, the log's incarnation, and that entry's message id. */
export type JoinPosition = { lastSeq: number; incarnation?: string; lastMessageId?: string };

export type Joined = {
  /** Resolves when the client has received everything that existed when it joined. */
  readonly ready: Promise<void>;
  leave(): void;
};

export type Attendance = Joined & {
  /** Ends by itself after seconds. */
  typing(isTyping: boolean): void;
};

/** Everyone, each time. */
export type PresenceEvent = { readonly type: "presence"; readonly people: readonly Person[] };

/**
 * Receives events. `push` must not throw. It returns false if its reader is too slow, and then gets no
 * further events. `fail` is called when this side ends the subscription, with the reason.
 */
export type Sink<Event> = {
  push(event: Event): boolean;
  fail(error: unknown): void;
  /**
   * Resolves when the reader has caught up. A replay waits for it between pages, so that a long history
   * makes no reader too slow. Live events never wait.
   */
  drained?(): Promise<void>;
};

export type FeedEvent =
  /** Comes first. */
  | {
      readonly type: "joined";
      readonly lastSeq: number;
      readonly incarnation: string;
      readonly state: SessionState;
    }
  /**
   * The position is not in this log: the client discards what it has, and gets everything from the start.
   */
  | { readonly type: "reset"; readonly reason: "ahead" | "incarnation" | "mismatch" }
  | { readonly type: "entries"; readonly entries: readonly Entry[] }
  | { readonly type: "state"; readonly state: SessionState }
  /**
   * Chunks of the answer in progress; `index` is the number of the first. Chunks of a lower (epoch,
   * attempt) than before are never sent. A higher one, or index 0, begins the answer again. With
   * `nextIndex`, these few chunks replace all of the agent's chunks before that index.
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
  | { readonly type: "snapshot"; readonly sessions: readonly InboxItem[]; readonly asOf?: number }
  /** New and changed sessions. There may be none, where only `asOf` has come, changed or gone. */
  | { readonly type: "changed"; readonly sessions: readonly InboxItem[]; readonly asOf?: number }
  | { readonly type: "removed"; readonly sessionIds: readonly string[] };
