import type { ErrorCode } from "../../base/errors.ts";
import { estimateMessageTokens, type Part } from "../../protocol/message.ts";
import type {
  CommandResult,
  DecidedEntry,
  CommandDecision,
  SessionEffect,
  Facts,
} from "./command.ts";
import { approvalsAt } from "./approvals.ts";
import type { Header, WokenBy } from "./header.ts";

/** A decision in progress. Each function returns a new draft and leaves its argument unchanged. */
export type ConversationDraft = {
  readonly header: Header;
  readonly entries: readonly DecidedEntry[];
  readonly effects: readonly SessionEffect[];
};

export type Decided = Extract<CommandDecision, { type: "decided" }>;

const previewChars = 80;
// Enough text to find that many characters in, despite runs of white space.
const previewScan = 1_000;

export function startDraft(header: Header): ConversationDraft {
  return { header, entries: [], effects: [] };
}

export function withHeader(draft: ConversationDraft, change: Partial<Header>): ConversationDraft {
  return { ...draft, header: { ...draft.header, ...change } };
}

export function withEffect(draft: ConversationDraft, effect: SessionEffect): ConversationDraft {
  return { ...draft, effects: [...draft.effects, effect] };
}

/** Appends an entry. Pods' clocks differ, so `activeAtMs` never goes back. */
export function appendEntry(
  draft: ConversationDraft,
  entry: Omit<DecidedEntry, "seq" | "atMs">,
  { nowMs }: Facts,
): ConversationDraft {
  const { header } = draft;
  const seq = header.lastSeq + 1;
  const preview = entry.kind === "message" ? previewOf(entry.parts) : "";
  return {
    ...draft,
    entries: [...draft.entries, { ...entry, seq, atMs: nowMs }],
    header: {
      ...header,
      lastSeq: seq,
      tokens: header.tokens + entry.tokens,
      activeAtMs: Math.max(header.activeAtMs, nowMs),
      ...approvalsAt(header, seq),
      ...(preview !== "" && { preview: preview, previewAuthor: entry.author }),
    },
  };
}

/** The entry that says what the answer or failure after it follows, with the message that was asked. */
export function appendFired(
  draft: ConversationDraft,
  { key, atMs, author, message }: WokenBy,
  { agent, upToSeq }: { readonly agent: string; readonly upToSeq?: number },
  facts: Facts,
): ConversationDraft {
  const parts = message === undefined ? [] : [{ type: "text", text: message }];
  return appendEntry(
    draft,
    {
      kind: "wake",
      role: "user",
      author,
      messageId: facts.newId(),
      wake: { event: "fired", key, agent, atMs },
      ...(upToSeq !== undefined && { upToSeq }),
      tokens: estimateMessageTokens(parts),
      parts,
      clientId: null,
    },
    facts,
  );
}

export function decided(draft: ConversationDraft, answer: Omit<CommandResult, "lastSeq">): Decided {
  return { type: "decided", ...draft, answer: { lastSeq: draft.header.lastSeq, ...answer } };
}

/** Changes nothing: the command is already in effect, or came too late. */
export function unchanged(header: Header, answer: Omit<CommandResult, "lastSeq">): Decided {
  return decided(startDraft(header), answer);
}

export function refuseCommand(code: ErrorCode, message: string): CommandDecision {
  return { type: "refused", code, message };
}

/** The beginning of its text, empty if it has none. */
export function previewOf(parts: readonly Part[]): string {
  for (const { type, text } of parts) {
    if (type !== "text" || typeof text !== "string") continue;
    const line = text.slice(0, previewScan).replace(/\s+/g, " ").trim();
    // The cut may split a surrogate pair.
    if (line !== "") return line.slice(0, previewChars).replace(/[\uD800-\uDBFF]$/, "");
  }
  return "";
}

/**
 * True for an answer that shows nothing: no text, file, data or source, and no call that waits. Reasoning
 * and calls that have ended are how its agent found out that there is nothing to say.
 */
export function saysNothing(parts: readonly Part[]): boolean {
  return parts.every((part) => {
    const { type, text, state } = part;
    if (type === "step-start" || type === "reasoning") return true;
    if (type === "text") return typeof text === "string" && text.trim() === "";
    const isCall = type === "dynamic-tool" || type.startsWith("tool-");
    return isCall && typeof state === "string" && endedCallStates.has(state);
  });
}

const endedCallStates: ReadonlySet<string> = new Set([
  "output-available",
  "output-error",
  "output-denied",
]);
