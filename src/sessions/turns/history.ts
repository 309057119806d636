import { FlotillaError } from "../../base/errors.ts";
import { isWaitingCall } from "../../protocol/later.ts";
import { jsonBytes } from "../../protocol/limits.ts";
import type { Entry, Part, UIMessage } from "../../protocol/message.ts";
import { type EntryNote, viewOf } from "../../protocol/view.ts";
import type { Header, Turn, WokenBy } from "../conversation/header.ts";
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
  const target = continues(turn) ? turn.messageId : undefined;
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
  const asked = turn.wake && askedBy(turn.wake, turn);
  const summary = summarySeq > 0 ? await readSummary(journal, header) : undefined;
  const all = asked ? [...messages, asked] : messages;
  const kept = applyPolicy(all, { history, context });
  const last = kept.findLast(({ role }) => role === "user");
  const user = last && noteOf(last)?.author;
  return {
    messages: asHeard(summary ? [summary, ...kept] : kept),
    ...(summary && { summary: textOf(summary) }),
    ...(user !== undefined && { user }),
    ...(continued && { continued }),
  };
}

/** A message that has come while a turn works. */
export type Heard = { readonly seq: number; readonly message: UIMessage };

/**
 * Reads the messages with these seqs, in their order, without the parts that the agent's policy leaves out.
 * Ends early once they have so many bytes.
 */
export async function readHeard(
  journal: Pick<Reads, "entries">,
  sessionId: string,
  seqs: readonly number[],
  { context, maxBytes }: Pick<AgentSpec, "context"> & { readonly maxBytes: number },
): Promise<Heard[]> {
  const heard: Heard[] = [];
  let bytes = 0;
  for (let at = 0; at < seqs.length && bytes < maxBytes;) {
    // Those of one run are read together.
    const first = seqs[at]!;
    let limit = 1;
    while (seqs[at + limit] === first + limit) limit++;
    const left = Math.min(maxHistoryBytes, maxBytes - bytes);
    const page = await journal.entries(sessionId, { after: first - 1, limit, maxBytes: left });
    if (page.length === 0) throw missingEntry(sessionId, first);
    for (const entry of page) {
      bytes += jsonBytes(entry.parts);
      const [message] = viewOf([entry]);
      const parts = message?.parts.filter(({ type }) => !isSkipped(type, context.skipParts));
      if (message && parts) heard.push({ seq: entry.seq, message: { ...message, parts } });
    }
    at += page.length;
  }
  return heard;
}

function missingEntry(sessionId: string, seq: number): FlotillaError {
  return new FlotillaError("unavailable", `entry ${seq} of session ${sessionId} can't be read yet`);
}

/**
 * The messages with each that was heard during an answer where it was heard: behind what its agent had said
 * by then, and before what it said next. The last piece of an answer keeps its id.
 */
function asHeard(messages: readonly UIMessage[]): readonly UIMessage[] {
  const heardIds = new Set(messages.flatMap(heardIn).map(({ id }) => id));
  if (heardIds.size === 0) return messages;
  const own = new Map(messages.map((message) => [message.id, message]));
  return messages.flatMap((message) => {
    if (heardIds.has(message.id) && message.role === "user") return [];
    const heard = heardIn(message);
    if (heard.length === 0) return [message];
    const pieces: UIMessage[] = [];
    let parts: Part[] = [];
    const end = (id: string) => {
      if (parts.some(({ type }) => type !== "step-start")) pieces.push({ ...message, id, parts });
      parts = [];
    };
    for (const part of message.parts) {
      const at = heard.findIndex((each) => each.part === part);
      if (at === -1) parts.push(part);
      else {
        end(`${message.id}/${at + 1}`);
        const { id, parts: said } = heard[at]!;
        const stored = own.get(id);
        pieces.push(stored?.role === "user" ? stored : { id, role: "user", parts: said });
      }
    }
    end(message.id);
    return pieces;
  });
}

/** The messages that an answer has heard. */
function heardIn({ role, parts }: UIMessage): { id: string; parts: Part[]; part: Part }[] {
  if (role !== "assistant") return [];
  return parts.flatMap((part) => {
    const { type, id, parts: said } = part;
    const isHeard = type === "steering-message" && typeof id === "string" && Array.isArray(said);
    return isHeard ? [{ id, parts: said as Part[], part }] : [];
  });
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
    messages: asHeard(applyPolicy(messages, all)),
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
    entries = [...page.map(asAsked), ...entries];
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
  for (const { kind, replaces, messageId, seq, upToSeq, beganSeq = upToSeq } of entries) {
    if (kind !== "message" || replaces !== undefined) continue;
    positions.set(messageId, beganSeq === undefined ? seq : beganSeq + 0.5);
  }
  // What an answer has heard belongs before it, also once the answer is made anew.
  for (const { messageId, parts, role } of entries) {
    for (const { id } of heardIn({ id: messageId, role, parts })) {
      const at = positions.get(messageId);
      if (at !== undefined && positions.has(id)) positions.set(id, at - 0.25);
    }
  }
  return positions;
}

/** True for a turn about an earlier answer. */
function continues({ trigger }: Turn): boolean {
  return trigger === "regenerate" || trigger === "tool_result";
}

/** What an agent is asked by a wake, before anything of it is stored. */
function askedBy(
  { key, atMs, author, message }: WokenBy,
  { messageId }: Turn,
): UIMessage | undefined {
  if (message === undefined) return undefined;
  const metadata = { flotilla: { author, atMs, wake: key } };
  return {
    id: `${messageId}/wake`,
    role: "user",
    metadata,
    parts: [{ type: "text", text: message }],
  };
}

/** What a wake has asked is a message to agents, and none that user interfaces show. */
function asAsked(entry: Entry): Entry {
  const isAsked = entry.wake?.event === "fired" && entry.parts.length > 0;
  return isAsked ? { ...entry, kind: "message" } : entry;
}

/** A regeneration gets the messages before the target; a continuation gets the target last. */
function upToTarget(
  messages: readonly UIMessage[],
  turn: Turn,
): { messages: readonly UIMessage[]; continued?: UIMessage } {
  const { trigger, messageId } = turn;
  if (!continues(turn)) return { messages };
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
