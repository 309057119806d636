import { isWaitingCall } from "../../protocol/later.ts";
import { jsonBytes } from "../../protocol/limits.ts";
import type { Entry, Part, UIMessage } from "../../protocol/message.ts";
import { type EntryNote, viewOf } from "../../protocol/view.ts";
import type { Header, Turn } from "../conversation/header.ts";
import type { Reads } from "../log/journal.ts";
import type { AgentSpec, ContextPolicy, HistoryMode } from "../agents/spec.ts";

/** The part of a conversation that an agent gets with a request. */
export type History = {
  readonly messages: readonly UIMessage[];
  /** A summary of what came before the messages. */
  readonly summary?: string;
  /** The author of the last user message among them. */
  readonly user?: string;
  /** The message that the answer continues. */
  readonly continued?: UIMessage;
};

type EntryReads = Pick<Reads, "tail" | "entries">;

type Range = {
  readonly sessionId: string;
  readonly after: number;
  readonly upTo: number;
  /** True when no earlier messages are needed. */
  readonly isEnough: (messages: readonly UIMessage[]) => boolean;
  /** The message that must be among those read. */
  readonly target: string | undefined;
};

type LoadedMessages = {
  readonly messages: readonly UIMessage[];
  /** True when the target's first entry is among them. */
  readonly found: boolean;
};

// Bounds what is held in memory and sent in one request.
const maxHistoryEntries = 10_000;
const maxHistoryBytes = 32 * 1024 * 1024;
const firstPageEntries = 100;
const maxPageEntries = 1_000;

/** Reads the messages that an agent gets with a request. */
export async function readHistory(
  journal: EntryReads,
  header: Header,
  turn: Turn,
  { history, context }: Pick<AgentSpec, "history" | "context">,
): Promise<History> {
  const target = turn.trigger === "submit" ? undefined : turn.messageId;
  const isEnough = (messages: readonly UIMessage[]) =>
    history.mode !== "entire" &&
    applyPolicy(upToTarget(messages, turn).messages, { history, context }).length >= history.count;
  const range = { sessionId: header.sessionId, upTo: turn.upToSeq, isEnough, target };
  const read = (after: number) => readBack(journal, { ...range, after });
  let loaded = await read(header.compactedSeq);
  let summarySeq = history.mode === "last" ? 0 : header.summarySeq;
  if (target !== undefined && !loaded.found && header.compactedSeq > 0) {
    // The target was summarised since, and a summary cannot replace it.
    loaded = await read(0);
    summarySeq = 0;
  }
  const { messages, continued } = upToTarget(loaded.messages, turn);
  const summary = summarySeq > 0 ? await readSummary(journal, header) : undefined;
  const kept = applyPolicy(messages, { history, context });
  const last = kept.findLast(({ role }) => role === "user");
  const user = last && noteOf(last)?.author;
  return {
    messages: summary ? [summary, ...kept] : kept,
    ...(summary && { summary: textOf(summary) }),
    ...(user !== undefined && { user }),
    ...(continued && { continued }),
  };
}

/** Reads everything that a compactor has to summarise. */
export async function readRange(
  journal: EntryReads,
  header: Header,
  toSeq: number,
): Promise<{ messages: readonly UIMessage[]; summary?: string }> {
  const { sessionId, compactedSeq } = header;
  const range = { sessionId, after: compactedSeq, upTo: toSeq, isEnough: () => false };
  const { messages } = await readBack(journal, { ...range, target: undefined });
  const summary = header.summarySeq > 0 ? await readSummary(journal, header) : undefined;
  const all = { history: { mode: "entire" }, context: { skipParts: [], lastN: null } } as const;
  return {
    messages: applyPolicy(messages, all),
    ...(summary && { summary: textOf(summary) }),
  };
}

/** Reads backwards from the newest entry, until there are enough messages before the answer's position. */
async function readBack(
  journal: EntryReads,
  { sessionId, after, upTo, isEnough, target }: Range,
): Promise<LoadedMessages> {
  let entries: Entry[] = [];
  let bytes = 0;
  let limit = firstPageEntries;
  for (let oldest = upTo + 1; ;) {
    const left = { limit, maxBytes: maxHistoryBytes - bytes };
    const page = await journal.tail(sessionId, { after, upTo: oldest - 1, ...left });
    entries = [...page, ...entries];
    oldest = page[0]?.seq ?? after + 1;
    for (const { parts } of page) bytes += jsonBytes(parts);
    const first = positionsOf(entries);
    const found = target === undefined || first.has(target);
    // A message of which only a replacement was read has its position further back.
    const messages = viewOf(entries)
      .filter(({ id }) => first.has(id))
      .toSorted((a, b) => first.get(a.id)! - first.get(b.id)!);
    const end = oldest <= after + 1 || page.length === 0;
    if (
      (found && isEnough(messages)) ||
      end ||
      entries.length >= maxHistoryEntries ||
      bytes >= maxHistoryBytes
    ) {
      return { messages, found };
    }
    limit = Math.min(maxPageEntries, limit * 2, maxHistoryEntries - entries.length);
  }
}

/**
 * The position of each message for an agent that continues from them. An answer comes right after what it
 * answers. Otherwise a message that arrived while the answer was made would come before it, and the agent
 * would get its own last answer last.
 */
function positionsOf(entries: readonly Entry[]): Map<string, number> {
  const positions = new Map<string, number>();
  for (const { kind, replaces, messageId, seq, upToSeq } of entries) {
    if (kind !== "message" || replaces !== undefined) continue;
    positions.set(messageId, upToSeq === undefined ? seq : upToSeq + 0.5);
  }
  return positions;
}

/** A regeneration gets the messages before the target; a continuation gets the target last. */
function upToTarget(
  messages: readonly UIMessage[],
  { trigger, messageId }: Turn,
): { messages: readonly UIMessage[]; continued?: UIMessage } {
  if (trigger === "submit") return { messages };
  const at = messages.findIndex(({ id }) => id === messageId);
  if (at === -1) return { messages };
  if (trigger === "regenerate") return { messages: messages.slice(0, at) };
  return { messages: messages.slice(0, at + 1), continued: withoutNote(messages[at]!) };
}

/** The message without Flotilla's metadata, as its agent made it. */
function withoutNote(message: UIMessage): UIMessage {
  const { flotilla: _, ...metadata } = (message.metadata ?? {}) as Record<string, unknown>;
  const { metadata: __, ...rest } = message;
  return Object.keys(metadata).length === 0 ? rest : { ...rest, metadata };
}

async function readSummary(journal: EntryReads, header: Header): Promise<UIMessage | undefined> {
  const { sessionId, summarySeq } = header;
  const [entry] = await journal.entries(sessionId, { after: summarySeq - 1, limit: 1 });
  if (entry?.kind !== "summary") return undefined;
  return { id: entry.messageId, role: "system", parts: entry.parts };
}

function textOf({ parts }: UIMessage): string {
  const texts = parts.map(({ type, text }) => (type === "text" ? text : undefined));
  return texts.filter((text) => typeof text === "string" && text !== "").join("\n");
}

/** The newest messages that an agent gets, without the parts that its policy leaves out. */
function applyPolicy(
  messages: readonly UIMessage[],
  { history, context }: { readonly history: HistoryMode; readonly context: ContextPolicy },
): readonly UIMessage[] {
  const selected: UIMessage[] = [];
  for (const message of messages) {
    const outcome = noteOf(message)?.outcome;
    const isBroken = outcome === "cut" || outcome === "stopped";
    const kept = message.parts.filter(
      (part) => !isSkipped(part.type, context.skipParts) && !isOpen(part, isBroken),
    );
    // Failed answers, and answers with no parts left, are of no use to an agent.
    if (kept.every(({ type }) => type === "step-start")) continue;
    const waits = kept.some(isWaitingCall);
    const parts = waits ? kept.map((part) => (isWaitingCall(part) ? unended(part) : part)) : kept;
    const isWhole = !waits && parts.length === message.parts.length;
    selected.push(isWhole ? message : { ...message, parts });
  }
  const maxMessages = history.mode === "entire" ? Infinity : history.count;
  const count = Math.min(maxMessages, context.lastN ?? Infinity, selected.length);
  return selected.slice(selected.length - count);
}

/** Flotilla's own metadata of a message. */
function noteOf({ metadata }: UIMessage): EntryNote | undefined {
  return (metadata as { flotilla?: EntryNote } | undefined)?.flotilla;
}

function isSkipped(type: string, skipParts: readonly string[]): boolean {
  return skipParts.some((kind) =>
    kind.endsWith("*") ? type.startsWith(kind.slice(0, -1)) : type === kind,
  );
}

/** True for a tool call that never ended: models refuse a call without a result. */
function isOpen(part: Part, wasCut: boolean): boolean {
  if (typeof part["toolCallId"] !== "string") return false;
  return part["state"] === "input-streaming" || (wasCut && part["state"] === "input-available");
}

/**
 * A call whose output comes later, as an agent sees it that is asked about something else meanwhile.
 * Models refuse a call without a result, and this one tells them not to call it again.
 */
function unended(part: Part): Part {
  const errorText = "This call has not ended yet. Its output comes later: don't call it again.";
  return { ...part, state: "output-error", errorText };
}
