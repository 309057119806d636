import type { Json } from "../base/json.ts";

/** One part of a message, as the AI SDK's `UIMessage` has it. What we don't know passes through. */
export type Part = { readonly type: string; readonly [field: string]: unknown };

/** A message as `useChat` shows it and agents get it. */
export type UIMessage = {
  readonly id: string;
  readonly role: "system" | "user" | "assistant";
  readonly metadata?: unknown;
  readonly parts: readonly Part[];
};

/**
 * How an answer ended: `completed` as its agent meant it, `stopped` by somebody, `cut` half-way by
 * trouble, `failed` before there was anything of it.
 */
export type ReplyOutcome = "completed" | "stopped" | "cut" | "failed";

/** One entry of a session's log, at its place for ever. Later entries may replace what it shows. */
export type Entry = {
  /** Its place in the session: 1…n without gaps. */
  readonly seq: number;
  /**
   * `message` is something said. `tool_result` says what became of calls in an earlier message.
   * `summary` stands for everything before it when an agent is asked. `stop` says who has stopped an
   * answer; what there is of that follows as a message.
   */
  readonly kind: "message" | "tool_result" | "summary" | "stop";
  readonly role: "system" | "user" | "assistant";
  /** Who wrote it: a user's id, or an agent's name; of a `stop`, the caller that `stop.by` names. */
  readonly author: string;
  /** The id of the message in user interfaces. An entry that replaces another has the same. */
  readonly messageId: string;
  /** The seq of the entry in whose place this one is shown. */
  readonly replaces?: number;
  /** The turn that made it. */
  readonly epoch?: number;
  /** Of an answer to what users said: the last entry that it answers. */
  readonly upToSeq?: number;
  readonly outcome?: ReplyOutcome;
  readonly error?: EntryError;
  /** What it takes of a model's context, by estimate or by what the client said. */
  readonly tokens: number;
  readonly parts: readonly Part[];
  readonly metadata?: Json;
  /** Of a `tool_result`: which message it is about, and what it says of its calls. */
  readonly results?: ToolResults;
  /** Of a `summary`: the last entry that it stands for. */
  readonly throughSeq?: number;
  /** Of a `stop`: which answer it is about, and what its author is. */
  readonly stop?: Stop;
  readonly atMs: number;
};

export type Stop = {
  /** The turn that was stopped, and the id that its answer was to have. */
  readonly epoch: number;
  readonly messageId: string;
  /** A user, a key of the server that spoke for no user, or code that uses the store itself. */
  readonly by: "user" | "key" | "program";
};

export type EntryError = { readonly code: string; readonly message: string };

export type ToolResults = {
  readonly messageId: string;
  readonly results: readonly ToolResult[];
};

/** What a client says of a call that it ran itself, or was asked to allow. */
export type ToolResult = { readonly toolCallId: string } & (
  | { readonly output: Json }
  | { readonly errorText: string }
  | { readonly approved: boolean; readonly approvalId?: string; readonly reason?: string }
);

/** What goes on in a session right now, as everybody may see it. */
export type SessionState =
  | { readonly state: "idle" }
  | {
      /** `waiting`: its agent isn't asked before the agent's throttle has a permit. */
      readonly state: "catching_up" | "waiting";
      readonly epoch: number;
      readonly attempt: number;
      readonly agent: string;
      readonly messageId: string;
      /** What was said up to here is being answered; what came later waits. */
      readonly upToSeq: number;
      readonly stopping: boolean;
    }
  | { readonly state: "compacting"; readonly epoch: number };

/** A session in the inbox of one who takes part in it. */
export type InboxItem = {
  readonly sessionId: string;
  readonly agents: readonly string[];
  readonly status: "active" | "archived";
  readonly state: SessionState["state"];
  readonly lastSeq: number;
  readonly readSeq: number;
  /** What others have said since the user has read. */
  readonly unread: number;
  readonly preview: string;
  readonly previewAuthor: string;
  readonly activeAtMs: number;
};

/** A session as it is now. */
export type SessionView = {
  readonly sessionId: string;
  readonly tenant: string;
  /** Who answers; the first where a message names none. */
  readonly agents: readonly string[];
  readonly users: readonly string[];
  readonly status: "active" | "archived";
  readonly state: SessionState;
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

/** The text of a message or an entry, without reasoning, tools and files. */
export function textOf({ parts }: { readonly parts: readonly Part[] }): string {
  return parts.map(({ type, text }) => (type === "text" ? String(text) : "")).join("");
}

/** About what an image or a page of a document takes. Its address or content says nothing of that. */
export const fileTokens = 1_000;

/**
 * About what parts take of a model's context, four characters to a token. Only what agents pass on to
 * models counts: sources, steps and data parts aren't.
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

/** The characters of a value as JSON, or nearly. */
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

/** A turn is under way: its answer is made, or it waits for a permit of its agent's throttle. */
export type TurnState = Extract<SessionState, { readonly messageId: string }>;

export function isTurn(state: SessionState): state is TurnState {
  return state.state === "catching_up" || state.state === "waiting";
}
