import type { Json } from "../base/json.ts";

/** One part of a message, as in the AI SDK's `UIMessage`. Unknown types pass through. */
export type Part = { readonly type: string; readonly [field: string]: unknown };

/** A message as `useChat` shows it and agents receive it. */
export type UIMessage = {
  readonly id: string;
  readonly role: "system" | "user" | "assistant";
  readonly metadata?: unknown;
  readonly parts: readonly Part[];
};

/**
 * How an answer ended: `completed` by its agent, `stopped` by a caller, `cut` by a failure after it had
 * begun, `failed` before there was any content.
 */
export type ReplyOutcome = "completed" | "stopped" | "cut" | "failed";

/**
 * How an attempt at a turn ended: with an answer, or `dropped` because the turn was replaced, `released` by
 * a pod that shut down, `lost` with its pod. Another attempt follows the last two.
 */
export type TurnOutcome = ReplyOutcome | "dropped" | "released" | "lost";

/** The tokens of an answer, as `usage` in its metadata has them. */
export type Usage = {
  /** All tokens of the input, those from a cache too. */
  readonly input: number;
  readonly output: number;
  readonly cached: number;
  /** The models, the one with the most tokens first, with a comma between them; null if none was named. */
  readonly model: string | null;
  /** In the currency of the config's `prices`; null if the price of a model isn't known. */
  readonly cost: number | null;
  /** How many durable calls to models it took, and how long these were; none where there were no such calls. */
  readonly calls?: number;
  readonly ms?: number;
};

/** An attempt at a turn, as `GET /v1/sessions/{sessionId}/turns` lists it. */
export type TurnView = {
  readonly epoch: number;
  readonly attempt: number;
  readonly agent: string;
  /** The pod that ran it; null if none was found. */
  readonly podId: string | null;
  readonly beganAtMs: number;
  readonly firstChunkAtMs: number | null;
  /** Null while it is under way. */
  readonly endedAtMs: number | null;
  readonly outcome: TurnOutcome | null;
  /** Null where nothing reported any tokens. */
  readonly usage: Usage | null;
};

/** One entry of a session's log, at a fixed position. Later entries may replace what it shows. */
export type Entry = {
  /** Its position in the session: 1…n without gaps. */
  readonly seq: number;
  /**
   * `message` is a message. `tool_result` holds results of calls in an earlier message. `summary` replaces
   * everything before it when an agent is called. `stop` records who stopped an answer; the partial answer
   * follows as a message. `wake` records that a wake was set or cancelled, or which one an answer follows.
   */
  readonly kind: "message" | "tool_result" | "summary" | "stop" | "wake";
  readonly role: "system" | "user" | "assistant";
  /** The author: a user's id, or an agent's name; for a `stop`, the caller that `stop.by` describes. */
  readonly author: string;
  /** The message id in user interfaces. An entry that replaces another has the same. */
  readonly messageId: string;
  /** The seq of the entry that this one replaces in the view. */
  readonly replaces?: number;
  /** The epoch of the turn that made it. */
  readonly epoch?: number;
  /** For an answer to users' messages: the last entry that it answers. */
  readonly upToSeq?: number;
  /** For an answer that messages have reached while it was made: the last entry before it began. */
  readonly beganSeq?: number;
  readonly outcome?: ReplyOutcome;
  readonly error?: EntryError;
  /** How much of a model's context it takes, estimated or as given by the client. */
  readonly tokens: number;
  readonly parts: readonly Part[];
  readonly metadata?: Json;
  /** For a `tool_result`: the message it is about, and the results of its calls. */
  readonly results?: ToolResults;
  /** The ids of the tasks and runs that were stored with it. */
  readonly tasks?: readonly string[];
  /** For a `summary`: the last entry that it covers. */
  readonly throughSeq?: number;
  /** For a `stop`: the answer it is about, and the kind of its author. */
  readonly stop?: Stop;
  /** For a `wake`: which, and what became of it. Its message is in the parts. */
  readonly wake?: WakeNote;
  readonly atMs: number;
};

/** What an entry says of a wake: that it was set, that it was cancelled, or that an answer follows it. */
export type WakeNote = {
  readonly event: "set" | "cancelled" | "fired";
  readonly key: string;
  /** The agent that is asked. */
  readonly agent: string;
  /** When: the next time where it is set, else the time that it was set for. */
  readonly atMs: number;
  /** For one that comes again: its pattern, and the zone of that. */
  readonly cron?: string;
  readonly timezone?: string;
};

/** A wake that is set: at its time the agent is asked. */
export type WakeView = {
  readonly key: string;
  readonly agent: string;
  /** When the agent is asked next. Past while that is late. */
  readonly atMs: number;
  readonly cron?: string;
  readonly timezone?: string;
  /** The beginning of what the agent is asked; absent if it is asked without a message. */
  readonly preview?: string;
  /** The user or agent that set it, when, and the entry that says so. */
  readonly author: string;
  readonly setAtMs: number;
  readonly setSeq: number;
};

export type Stop = {
  /** The turn that was stopped, and the message id of its answer. */
  readonly epoch: number;
  readonly messageId: string;
  /** A user, a server key without a user, or code that uses the store directly. */
  readonly by: "user" | "key" | "program";
};

export type EntryError = { readonly code: string; readonly message: string };

export type ToolResults = {
  readonly messageId: string;
  readonly results: readonly ToolResult[];
};

/** A client's result for a call that it ran, or its approval of a call. */
export type ToolResult = { readonly toolCallId: string } & (
  | { readonly output: Json }
  | { readonly errorText: string }
  | { readonly approved: boolean; readonly approvalId?: string; readonly reason?: string }
);

/** The current state of a session, as clients see it. */
export type SessionState =
  | { readonly state: "idle" }
  | {
      /** `waiting`: the agent's throttle has no permit for the turn yet. */
      readonly state: "catching_up" | "waiting";
      readonly epoch: number;
      readonly attempt: number;
      readonly agent: string;
      readonly messageId: string;
      /** Entries up to here are being answered; later ones are pending. */
      readonly upToSeq: number;
      readonly stopping: boolean;
    }
  | { readonly state: "compacting"; readonly epoch: number };

/** A turn is in progress: its answer is being made, or it waits for a permit of its agent's throttle. */
export type TurnState = Extract<SessionState, { readonly messageId: string }>;

/** A session in a member's inbox. */
export type InboxItem = {
  readonly sessionId: string;
  readonly agents: readonly string[];
  readonly status: "active" | "archived";
  readonly state: SessionState["state"];
  readonly lastSeq: number;
  readonly readSeq: number;
  /** How many messages by others follow the read position. */
  readonly unread: number;
  readonly preview: string;
  readonly previewAuthor: string;
  readonly activeAtMs: number;
};

/** The current view of a session. */
export type SessionView = {
  readonly sessionId: string;
  readonly tenant: string;
  /** The agents that answer; the first answers messages that name none. */
  readonly agents: readonly string[];
  readonly users: readonly string[];
  readonly status: "active" | "archived";
  readonly state: SessionState;
  /** The session that it was forked from: its entries up to `atSeq` are that one's. */
  readonly parent?: { readonly sessionId: string; readonly atSeq: number };
  readonly lastSeq: number;
  /** Tokens since the last summary, and whether a manual compaction is due. */
  readonly tokens: number;
  readonly needsCompaction: boolean;
  readonly metadata: Json;
  readonly metadataVersion: number;
  readonly preview: string;
  readonly previewAuthor: string;
  readonly createdAtMs: number;
  readonly activeAtMs: number;
};

/** A rough size of an image or a document page. Its URL or content does not tell. */
export const fileTokens = 1_000;

export function isTurn(state: SessionState): state is TurnState {
  return state.state === "catching_up" || state.state === "waiting";
}

/** The text of a message or entry, without reasoning, tools and files. */
export function textOf({ parts }: { readonly parts: readonly Part[] }): string {
  return parts.map(({ type, text }) => (type === "text" ? String(text) : "")).join("");
}

/**
 * Estimates how much of a model's context parts take, at four characters to a token. Only what agents pass
 * on to models counts, not sources, steps and data parts.
 */
export function estimateMessageTokens(parts: readonly Part[]): number {
  let characters = 0;
  let files = 0;
  for (const part of parts) {
    if (part.type === "file" || part.type === "reasoning-file") files++;
    else if (part.type === "text" || part.type === "reasoning") {
      characters += lengthOf(part["text"]);
    } else if (part.type === "dynamic-tool" || part.type.startsWith("tool-")) {
      characters += part.type.length + lengthOf(part["input"]);
      characters += lengthOf(part["output"]) + lengthOf(part["errorText"]);
    } else if (part.type === "steering-message" && Array.isArray(part["parts"])) {
      files += estimateMessageTokens(part["parts"] as Part[]) / fileTokens;
    }
  }
  return Math.ceil(characters / 4 + files * fileTokens);
}

/** The approximate number of characters of a value as JSON. */
function lengthOf(value: unknown): number {
  if (typeof value === "string") return value.length;
  let length = 0;
  const left: unknown[] = [value];
  while (left.length > 0) {
    const next = left.pop();
    if (typeof next === "string") length += next.length + 2;
    else if (typeof next === "number" || typeof next === "boolean") length += String(next).length;
    else if (typeof next === "object" && next !== null) {
      length += 2;
      if (Array.isArray(next)) for (const item of next) left.push(item);
      else {
        for (const [key, field] of Object.entries(next)) {
          length += key.length + 4;
          left.push(field);
        }
      }
    }
  }
  return length;
}
