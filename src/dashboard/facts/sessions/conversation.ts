import { isOpenCall, laterOf } from "../../../protocol/later.ts";
import type { Entry, Part, ToolResult } from "../../../protocol/message.ts";
import { applyToolResults } from "../../../protocol/view.ts";
import type { AnswerSoFar } from "./tail.ts";

/** Results that were sent for calls of a message. */
export type SentResult = {
  readonly seq: number;
  readonly author: string;
  readonly atMs: number;
  readonly results: readonly ToolResult[];
};

/** A message as participants see it: its newest content, with the results since. */
export type MessageItem = {
  readonly type: "message";
  readonly key: string;
  /** Its newest entry. */
  readonly entry: Entry;
  readonly parts: readonly Part[];
  readonly sent: readonly SentResult[];
  readonly stoppedBy: string | undefined;
  /** It is being made. */
  readonly isLive: boolean;
};

/** A place in the conversation. A summary stands for what was before it, to the agent alone. */
export type ConversationItem =
  | MessageItem
  | { readonly type: "summary"; readonly key: string; readonly entry: Entry }
  /** The answer that is being made, without an entry yet. */
  | { readonly type: "answer"; readonly key: string; readonly answer: AnswerSoFar };

type Draft = { -readonly [Field in keyof MessageItem]: MessageItem[Field] };

/**
 * The entries of a log as a conversation: each message once, at its first place, with its newest content.
 * If the log begins in the middle, results for messages before it aren't shown.
 */
export function conversationOf(
  entries: readonly Entry[],
  answer: AnswerSoFar | undefined,
): ConversationItem[] {
  const items: (Draft | Exclude<ConversationItem, MessageItem>)[] = [];
  const byMessage = new Map<string, Draft>();
  const stops = new Map<number, string>();
  for (const entry of entries) {
    if (entry.stop) {
      stops.set(entry.stop.epoch, entry.author);
    } else if (entry.kind === "summary") {
      items.push({ type: "summary", key: `summary ${entry.seq}`, entry });
    } else if (entry.kind === "tool_result") {
      const about = byMessage.get(entry.results?.messageId ?? "");
      const { seq, author, atMs, results } = entry;
      if (!about || !results) continue;
      about.parts = applyToolResults(about.parts, results.results);
      about.sent = [...about.sent, { seq, author, atMs, results: results.results }];
    } else if (entry.kind === "message") {
      const { parts, epoch = 0, outcome } = entry;
      const stoppedBy = outcome === "stopped" ? stops.get(epoch) : undefined;
      const before = byMessage.get(entry.messageId);
      if (before) {
        Object.assign(before, { entry, parts, stoppedBy });
        continue;
      }
      const item: Draft = {
        type: "message",
        key: entry.messageId,
        entry,
        parts,
        sent: [],
        stoppedBy,
        isLive: false,
      };
      items.push(item);
      byMessage.set(entry.messageId, item);
    }
  }
  if (!answer) return items;
  const continued = byMessage.get(answer.messageId);
  if (continued) Object.assign(continued, { parts: answer.parts, isLive: true });
  else items.push({ type: "answer", key: answer.messageId, answer });
  return items;
}

/** A call of a message that waits for a person. */
export type OpenCall = {
  readonly messageId: string;
  readonly toolCallId: string;
  readonly tool: string;
  readonly approvalId?: string | undefined;
  /** The signal that it waits for; undefined of a call that is to be approved. */
  readonly signal?: string | undefined;
};

/** The call of a part, if a person may decide on it. */
export function openCallOf(part: Part, messageId: string): OpenCall | undefined {
  if (!isOpenCall(part)) return undefined;
  const call = { messageId, toolCallId: String(part["toolCallId"]), tool: toolNameOf(part) };
  if (part["state"] === "approval-requested") {
    const { id } = (part["approval"] ?? {}) as { readonly id?: unknown };
    return { ...call, ...(typeof id === "string" && { approvalId: id }) };
  }
  const signal = laterOf(part)?.signal;
  return typeof signal === "string" ? { ...call, signal } : undefined;
}

/** Whether a part is a call of a tool. */
export function isToolPart({ type }: Part): boolean {
  return type === "dynamic-tool" || type.startsWith("tool-");
}

export function toolNameOf({ type, toolName }: Part): string {
  return type === "dynamic-tool" ? String(toolName) : type.slice("tool-".length);
}

const callStates: Readonly<Record<string, readonly [string, string]>> = {
  "input-streaming": ["is being asked", "plain"],
  "input-available": ["no result yet", "plain"],
  "approval-requested": ["waits for a decision", "warn"],
  "output-available": ["done", "plain"],
  "output-error": ["failed", "wrong"],
  "output-denied": ["denied", "wrong"],
};

/** The state of a call in words, with its tone. */
export function callStateOf(part: Part): readonly [string, string] {
  const { state, approval } = part;
  if (state === "approval-responded") {
    const isApproved = (approval as { readonly approved?: unknown } | undefined)?.approved === true;
    return isApproved ? ["approved", "accent"] : ["denied", "wrong"];
  }
  if (state === "input-available" && laterOf(part)?.signal !== undefined)
    return ["waits for a signal", "warn"];
  if (state === "input-available" && laterOf(part)?.task !== undefined)
    return ["waits for a task", "plain"];
  return callStates[String(state)] ?? [String(state), "plain"];
}
