import { FlotillaError } from "../base/errors.ts";
import type { Json } from "../base/json.ts";
import { checkOptions } from "../base/options.ts";
import type { TraceHeaders } from "../base/trace-context.ts";
import type { Entry, Part, ToolResult, UIMessage } from "../protocol/message.ts";
import { viewOf } from "../protocol/view.ts";
import type { TaskToStart } from "../tasks/enqueue/logged-tasks.ts";
import { eventsOf, inboxEventsOf, type ChatEvent, type EventsOptions } from "./events.ts";
import type {
  ChangeMembers,
  EntriesQuery,
  EntriesPage,
  InboxEvent,
  ListSessions,
  Sent,
  SessionPage,
  SessionService,
  SessionView,
  SignalSent,
  StartedTasks,
  TurnPage,
  TurnsQuery,
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
  /** Sends a message, and returns the answer to it once that is stored, whatever its outcome. */
  ask(message: string | readonly Part[], options?: AskOptions): Promise<Entry>;
  /** All entries after a seq, in order, then everything as it happens. Ends with the loop or the signal. */
  events(options?: EventsOptions): AsyncIterableIterator<ChatEvent>;
  /** The messages that the conversation shows now, as `useChat` takes them. */
  messages(): Promise<UIMessage[]>;
  entries(page?: EntriesQuery): Promise<EntriesPage>;
  /** The attempts at its turns, the newest first: when, on which pod, how they ended, and their tokens. */
  turns(page?: TurnsQuery): Promise<TurnPage>;
  /** The first tasks and runs that its turns have started. */
  started(): Promise<StartedTasks>;
  view(): Promise<SessionView>;
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

function partsOf(message: string | readonly Part[]): readonly Part[] {
  return typeof message === "string" ? [{ type: "text", text: message }] : message;
}

function namesOf(agents: AgentsNamed): string[] {
  if (agents === null) return [];
  const all = Array.isArray(agents) ? (agents as readonly AgentNamed[]) : [agents as AgentNamed];
  return all.map((each) => (typeof each === "string" ? each : each?.name));
}
