import type {
  Entry,
  EntryError,
  Part,
  ReplyOutcome,
  Stop,
  ToolResult,
  UIMessage,
} from "./message.ts";

/**
 * What a message carries under `flotilla` in its metadata, beside its author's own metadata. User
 * interfaces use it to show the author and the outcome, and to track read positions.
 */
export type EntryNote = {
  /** The seq of the newest entry of this message. */
  readonly seq: number;
  readonly author: string;
  readonly atMs: number;
  readonly outcome?: ReplyOutcome;
  readonly error?: EntryError;
  /** Who stopped the answer, and when. */
  readonly stopped?: { readonly author: string; readonly by: Stop["by"]; readonly atMs: number };
};

export type ViewOptions = {
  /** Only messages that changed after this seq. */
  readonly after?: number;
};

/**
 * The messages of a log, as `useChat` takes them. Each message appears once, at its first position, with
 * its newest content and the tool results since. Summaries are not shown, and a stop becomes metadata of
 * its answer. If the log starts in the middle, earlier messages are recognised by their message id.
 */
export function viewOf(entries: readonly Entry[], { after = 0 }: ViewOptions = {}): UIMessage[] {
  const view = createMessageView();
  for (const entry of entries) view.add(entry);
  return view.messages(after);
}

/** The same for a log that grows: each entry costs its own size, however long the log is. */
export type MessageView = {
  add(entry: Entry): void;
  /** Returns a new list. Messages that have not changed are the same objects each time. */
  messages(after?: number): UIMessage[];
  /** The index of a message in the list; -1 if it is not there. */
  indexOf(messageId: string): number;
};

export function createMessageView(): MessageView {
  const items: ViewItem[] = [];
  const bySeq = new Map<number, ViewItem>();
  const byMessage = new Map<string, ViewItem>();
  /** By epoch: the stop is stored before the answer that it stopped. */
  const stops = new Map<number, EntryNote["stopped"]>();
  return {
    add(entry) {
      const { stop } = entry;
      if (stop) {
        const { author, atMs } = entry;
        stops.set(stop.epoch, { author, by: stop.by, atMs });
        return;
      }
      const before =
        (entry.replaces === undefined ? undefined : bySeq.get(entry.replaces)) ??
        byMessage.get(entry.results?.messageId ?? entry.messageId);
      if (entry.kind === "tool_result") {
        if (before === undefined || entry.results === undefined) return;
        before.parts = applyToolResults(before.parts, entry.results.results);
        before.changedSeq = entry.seq;
        before.message = undefined;
      } else if (entry.kind === "message") {
        const { parts, seq: changedSeq, outcome, epoch = 0 } = entry;
        const stopped = outcome === "stopped" ? stops.get(epoch) : undefined;
        const next: ViewItem = before ?? { index: items.length, entry, parts, changedSeq };
        if (before === undefined) items.push(next);
        Object.assign(next, { entry, parts, changedSeq, stopped, message: undefined });
        bySeq.set(entry.seq, next);
        byMessage.set(entry.messageId, next);
      }
    },
    messages(after = 0) {
      const changed = after === 0 ? items : items.filter(({ changedSeq }) => changedSeq > after);
      return changed.map((each) => (each.message ??= messageOf(each)));
    },
    indexOf: (messageId) => byMessage.get(messageId)?.index ?? -1,
  };
}

type ViewItem = {
  readonly index: number;
  entry: Entry;
  parts: readonly Part[];
  changedSeq: number;
  stopped?: EntryNote["stopped"];
  message?: UIMessage | undefined;
};

function messageOf({ entry, parts, stopped }: ViewItem): UIMessage {
  const { seq, author, atMs, outcome, error } = entry;
  const flotilla: EntryNote = {
    seq,
    author,
    atMs,
    ...(outcome && { outcome }),
    ...(error && { error }),
    ...(stopped && { stopped }),
  };
  const metadata = { ...ownMetadata(entry.metadata), flotilla };
  return { id: entry.messageId, role: entry.role, metadata, parts };
}

/** Metadata that is not an object cannot be merged with ours, and goes under `value`. */
function ownMetadata(metadata: Entry["metadata"]): object {
  if (metadata === undefined || metadata === null) return {};
  return typeof metadata === "object" && !Array.isArray(metadata) ? metadata : { value: metadata };
}

/**
 * Applies tool results to parts. The first result of a call counts: a call that has an output, or was
 * approved or denied, stays as it is.
 */
export function applyToolResults(parts: readonly Part[], results: readonly ToolResult[]): Part[] {
  const applied = [...parts];
  for (const result of results) {
    // The same id may occur in several steps; the last one is the open call.
    const index = applied.findLastIndex((part) => isAbout(part, result));
    const part = applied[index];
    if (part !== undefined) applied[index] = withResult(part, result);
  }
  return applied;
}

function isAbout(part: Part, result: ToolResult): boolean {
  if (part.type !== "dynamic-tool" && !part.type.startsWith("tool-")) return false;
  if (part["toolCallId"] !== result.toolCallId) return false;
  const approvalId = "approvalId" in result ? result.approvalId : undefined;
  const approval = part["approval"] as { readonly id?: unknown } | undefined;
  return approvalId === undefined || approval?.id === approvalId;
}

function withResult(part: Part, result: ToolResult): Part {
  const state = part["state"];
  const approval = part["approval"] as { readonly approved?: unknown } | undefined;
  if ("approved" in result) {
    if (state !== "approval-requested") return part;
    const { approved, reason } = result;
    const answered = { ...approval, approved, ...(reason === undefined ? {} : { reason }) };
    return { ...part, state: "approval-responded", approval: answered };
  }
  if (
    state !== "input-available" &&
    state !== "approval-requested" &&
    state !== "approval-responded"
  ) {
    return part;
  }
  // A call with an output no longer waits for approval.
  const { approval: _, ...call } = part;
  const allowed: Part = approval?.approved === true ? part : call;
  return "output" in result
    ? { ...allowed, state: "output-available", output: result.output }
    : { ...allowed, state: "output-error", errorText: result.errorText };
}
