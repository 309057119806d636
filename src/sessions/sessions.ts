import { FlotillaError } from "../base/errors.ts";
import type { Json } from "../base/json.ts";
import { checkOptions } from "../base/options.ts";
import type { TraceHeaders } from "../base/trace-context.ts";
import type { FilePart } from "../protocol/file.ts";
import type { Person } from "../protocol/frames.ts";
import type { Entry, Part, ToolResult, UIMessage, WakeView } from "../protocol/message.ts";
import { viewOf } from "../protocol/view.ts";
import type { TaskToStart } from "../tasks/enqueue/logged-tasks.ts";
import {
  eventsOf,
  inboxEventsOf,
  presenceOf,
  type ChatEvent,
  type EventsOptions,
} from "./events.ts";
import { lookWhoIsThere } from "./people/attend.ts";
import type {
  ChangeMembers,
  EntriesQuery,
  EntriesPage,
  FileContent,
  ForkSession,
  ForksPage,
  ForksQuery,
  InboxEvent,
  ListSessions,
  Sent,
  SessionPage,
  SessionService,
  SessionView,
  SetWake,
  SignalSent,
  StartedTasks,
  TurnPage,
  TurnsQuery,
  WakeSet,
} from "./service.ts";

/** Conversations with agents, for code in pods, web processes, tasks and tests. */
export type Sessions = {
  /** Starts a conversation. With a `sessionId`, starting it again returns the existing one. */
  create(agents: AgentsNamed, options?: CreateOptions): Promise<Chat>;
  /** Opens an existing conversation. Nothing is read before it is used. */
  open(sessionId: string, options?: OpenOptions): Chat;
  list(options?: ListSessions & { tenant?: string }): Promise<SessionPage>;
  /** A user's sessions with unread counts, then their changes. Ends with the loop or the signal. */
  inbox(user: string, options?: InboxOptions): AsyncIterableIterator<InboxEvent>;
};

/** An agent, by name or as `agent(…)` returns it; or several, of which the first answers by default. */
export type AgentsNamed = AgentNamed | readonly AgentNamed[] | null;
export type AgentNamed = string | { readonly name: string };

export type CreateOptions = {
  /** Default: a new id. Creating it again with the same id returns the existing session. */
  sessionId?: string;
  /** A member, and the default author of `send`. */
  user?: string;
  /** Further members. */
  users?: readonly string[];
  metadata?: Json;
  /** Default `default`. */
  tenant?: string;
};

export type InboxOptions = {
  /** Default `default`. */
  tenant?: string;
  signal?: AbortSignal;
};

export type OpenOptions = {
  /** The default author of `send`. Default `user`. */
  user?: string;
  /** Default `default`. */
  tenant?: string;
};

export type SendOptions = {
  /** Sending again with the same id stores nothing new. Default: a new id. */
  id?: string;
  author?: string;
  role?: Entry["role"];
  /** The agent to ask, if there are several. */
  to?: string;
  metadata?: Json;
  /** How much of a model's context it takes. Default: an estimate. */
  tokens?: number;
  /** The W3C trace context of the turn, if no OpenTelemetry span is active. */
  trace?: TraceHeaders;
  /** Tasks and runs that start when the message is stored: both are stored, or neither. */
  tasks?: readonly TaskToStart[];
};

/** One conversation. */
export type Chat = {
  readonly sessionId: string;
  /** Resolves once the message is stored. */
  send(message: string | readonly Part[], options?: SendOptions): Promise<Sent>;
  /**
   * Stores a file, whose part a message may have then: `send([part, { type: "text", text: "…" }])`. One that
   * no message has within an hour is deleted.
   */
  upload(content: UploadedContent, options?: UploadFileOptions): Promise<FilePart>;
  /** Sends a message, and returns the answer to it once that is stored, whatever its outcome. */
  ask(message: string | readonly Part[], options?: AskOptions): Promise<Entry>;
  /** All entries after a seq, in order, then everything as it happens. Ends with the loop or the signal. */
  events(options?: EventsOptions): AsyncIterableIterator<ChatEvent>;
  /** The messages that the conversation shows now, as `useChat` takes them. */
  messages(): Promise<UIMessage[]>;
  /**
   * The users who have it open in a client and say so, and whether they type: at once, and as it changes.
   * Nothing of it is stored. Ends with the loop, the signal or the session.
   */
  presence(options?: { signal?: AbortSignal }): AsyncIterableIterator<readonly Person[]>;
  entries(page?: EntriesQuery): Promise<EntriesPage>;
  /** The attempts at its turns, the newest first: when, on which pod, how they ended, and their tokens. */
  turns(page?: TurnsQuery): Promise<TurnPage>;
  /** The first tasks and runs that its turns have started. */
  started(): Promise<StartedTasks>;
  view(): Promise<SessionView>;
  /**
   * A conversation that begins with the same entries up to `atSeq`, shared and not copied, and then goes its
   * own way. Default of its members: the user of this one.
   */
  fork(options: ForkSession): Promise<Chat>;
  /** Forks before a user's message, and says it anew there. Both are stored, or neither. */
  edit(
    messageId: string,
    message: string | readonly Part[],
    options?: EditOptions,
  ): Promise<EditedChat>;
  /** Its forks, in the order of their places. */
  forks(query?: ForksQuery): Promise<ForksPage>;
  /**
   * True if there was an answer to stop. Its partial content is kept, and the log records who stopped it:
   * the user `author`, or a program if there is none.
   */
  stop(options?: { epoch?: number; author?: string }): Promise<boolean>;
  /** Makes a new version of an answer. Default: the last one. */
  regenerate(options?: { id?: string; messageId?: string }): Promise<Sent>;
  /** Stores the results of calls that the client runs, or its approval of calls. */
  toolResult(
    messageId: string,
    results: readonly ToolResult[],
    options?: { id?: string; author?: string },
  ): Promise<Sent>;
  /**
   * Gives the payload to the tool call that waits for this signal, by `later({ signal })`. Resolves once it
   * is stored. Refused if nothing waits for it, or if its schema refuses the payload.
   */
  signal(
    name: string,
    payload?: Json,
    options?: { id?: string; author?: string },
  ): Promise<SignalSent>;
  /**
   * Has the agent asked at a time, whether or not a client is there then. Setting one again with its key
   * takes the place of the first.
   */
  wake(wake: WakeOptions): Promise<WakeSet>;
  /** The wakes that are set, the next one first. */
  wakes(): Promise<readonly WakeView[]>;
  /** False if no wake of this key is set. */
  cancelWake(key: string, options?: { author?: string }): Promise<boolean>;
  read(seq: number, options?: { user?: string }): Promise<void>;
  setMetadata(
    metadata: Json,
    options?: { ifVersion?: number },
  ): Promise<{ metadataVersion: number }>;
  members(change: ChangeMembers): Promise<void>;
  compact(): Promise<boolean>;
  archive(): Promise<void>;
  unarchive(): Promise<void>;
  remove(): Promise<void>;
};

/** The bytes of a file, whole or as they come. */
export type UploadedContent = Uint8Array | Blob | AsyncIterable<Uint8Array>;

export type UploadFileOptions = {
  /** Default: that of a `File`. */
  filename?: string;
  /** Default: that of a `Blob`, else unknown. */
  mediaType?: string;
};

export type WakeOptions = Omit<SetWake, "author"> & { author?: string };
export type EditOptions = Omit<ForkSession, "atSeq"> & {
  author?: string;
  /** Of the message. */
  messageMetadata?: Json;
};

/** The fork, and where the message is in it. */
export type EditedChat = Sent & { readonly chat: Chat };

export type AskOptions = Omit<SendOptions, "role"> & { signal?: AbortSignal };

const defaultTenant = "default";
const createNames = ["sessionId", "user", "users", "metadata", "tenant"];
const sendNames = ["id", "author", "role", "to", "metadata", "tokens", "trace", "tasks"];

export function createSessions(service: SessionService): Sessions {
  const open = (sessionId: string, options: OpenOptions = {}) => {
    checkOptions("sessions.open", options, ["user", "tenant"]);
    const { tenant = defaultTenant, user = "user" } = options;
    return createChat(service, { sessionId, tenant, user });
  };
  return {
    open,
    async create(agents, options = {}) {
      checkOptions("sessions.create", options, createNames);
      const { sessionId, user, users = [], metadata, tenant = defaultTenant } = options;
      const all = user === undefined ? users : [...new Set([user, ...users])];
      const created = await service.create(tenant, {
        agents: namesOf(agents),
        users: all,
        ...(sessionId !== undefined && { sessionId }),
        ...(metadata !== undefined && { metadata }),
      });
      return open(created.sessionId, { tenant, ...(user !== undefined && { user }) });
    },
    list: ({ tenant = defaultTenant, ...options } = {}) => service.list(tenant, options),
    inbox: (user, { tenant = defaultTenant, ...options } = {}) =>
      inboxEventsOf((sink) => service.inbox(tenant, user, sink), options),
  };
}

function createChat(
  service: SessionService,
  { sessionId, tenant, user }: { sessionId: string; tenant: string; user: string },
): Chat {
  const send: Chat["send"] = async (message, options = {}) => {
    checkOptions("send", options, sendNames);
    const { author = user, ...rest } = options;
    return service.send(tenant, sessionId, { ...rest, author, parts: partsOf(message) });
  };
  const events: Chat["events"] = (options = {}) =>
    eventsOf((position, sink) => service.join(tenant, sessionId, position, sink), options);
  const entries: Chat["entries"] = (page = {}) => service.entries(tenant, sessionId, page);

  return {
    sessionId,
    send,
    events,
    entries,
    presence: (options = {}) =>
      presenceOf((sink) => lookWhoIsThere(service, { tenant, sessionId }, sink), options),
    async upload(content, options = {}) {
      checkOptions("upload", options, ["filename", "mediaType"]);
      return service.upload(tenant, sessionId, piecesOf(content), {
        ...labelOf(content),
        ...options,
      });
    },
    async ask(message, { signal, ...options } = {}) {
      const agent = options.to ?? (await service.get(tenant, sessionId)).agents[0];
      if (agent === undefined) {
        throw new FlotillaError(
          "invalid_input",
          "the session has no agent to ask: name one in `to`, or add one",
        );
      }
      const { seq } = await send(message, options);
      // Earlier messages may still be being answered, also by other agents.
      const isAnswer = ({ author, upToSeq = 0 }: Entry) => author === agent && upToSeq >= seq;
      for await (const event of events({ after: seq, ...(signal && { signal }) })) {
        if (event.type === "entry" && isAnswer(event.entry)) return event.entry;
      }
      throw new FlotillaError("cancelled", "the wait for the answer was cancelled");
    },
    async messages() {
      const all: Entry[] = [];
      for (let after = 0; ;) {
        const page = await entries({ after, limit: 1_000 });
        all.push(...page.entries);
        after = page.entries.at(-1)?.seq ?? after;
        if (page.entries.length === 0 || after >= page.lastSeq) return viewOf(all);
      }
    },
    turns: (page) => service.turns(tenant, sessionId, page),
    started: () => service.started(tenant, sessionId),
    view: () => service.get(tenant, sessionId),
    async fork(options) {
      const { sessionId: id } = await service.fork(tenant, sessionId, {
        users: [user],
        ...options,
      });
      return createChat(service, { sessionId: id, tenant, user });
    },
    async edit(messageId, message, options = {}) {
      const { author = user, users = [author], ...rest } = options;
      const said = { ...rest, users, messageId, author, parts: partsOf(message) };
      const { session, ...sent } = await service.edit(tenant, sessionId, said);
      return { ...sent, chat: createChat(service, { sessionId: session.sessionId, tenant, user }) };
    },
    forks: (query) => service.forks(tenant, sessionId, query),
    stop: ({ epoch, author } = {}) =>
      service.stop(tenant, sessionId, {
        ...(epoch !== undefined && { epoch }),
        ...(author !== undefined && { author, by: "user" }),
      }),
    regenerate: (options = {}) => service.regenerate(tenant, sessionId, options),
    toolResult: (messageId, results, { author = user, ...options } = {}) =>
      service.toolResult(tenant, sessionId, { ...options, author, messageId, results }),
    async signal(name, payload = null, options = {}) {
      checkOptions("signal", options, ["id", "author"]);
      const { author = user, ...rest } = options;
      return service.signal(tenant, sessionId, { ...rest, author, name, payload });
    },
    wake: ({ author = user, ...wake }) => service.wake(tenant, sessionId, { ...wake, author }),
    wakes: () => service.wakes(tenant, sessionId),
    cancelWake: (key, { author = user } = {}) =>
      service.cancelWake(tenant, sessionId, { key, author }),
    read: (seq, options = {}) =>
      service.read(tenant, sessionId, { user: options.user ?? user, seq }),
    setMetadata: (metadata, options) => service.setMetadata(tenant, sessionId, metadata, options),
    members: (change) => service.changeMembers(tenant, sessionId, change),
    compact: () => service.compact(tenant, sessionId),
    archive: () => service.archive(tenant, sessionId),
    unarchive: () => service.unarchive(tenant, sessionId),
    remove: () => service.remove(tenant, sessionId),
  };
}

function piecesOf(content: UploadedContent): FileContent {
  if (content instanceof Uint8Array) return [content];
  if (content instanceof Blob) return content.stream();
  if (typeof content?.[Symbol.asyncIterator] === "function") return content;
  const message = "upload takes a Uint8Array, a Blob, or a stream of them";
  throw new FlotillaError("invalid_input", message);
}

/** What a `Blob` or a `File` says of itself. */
function labelOf(content: UploadedContent): UploadFileOptions {
  if (!(content instanceof Blob)) return {};
  const { type: mediaType, name: filename } = content as Blob & { readonly name?: string };
  return { mediaType, ...(filename !== undefined && { filename }) };
}

function partsOf(message: string | readonly Part[]): readonly Part[] {
  return typeof message === "string" ? [{ type: "text", text: message }] : message;
}

function namesOf(agents: AgentsNamed): string[] {
  if (agents === null) return [];
  const all = Array.isArray(agents) ? (agents as readonly AgentNamed[]) : [agents as AgentNamed];
  return all.map((each) => (typeof each === "string" ? each : each?.name));
}
