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
 * What a message carries in its metadata under `flotilla`, beside what its author put there: user
 * interfaces show by it who speaks and whether an answer is whole, and know what they have read.
 */
export type EntryNote = {
  /** The place of the newest entry of this message. */
  readonly seq: number;
  readonly author: string;
  readonly atMs: number;
  readonly outcome?: ReplyOutcome;
  readonly error?: EntryError;
  /** Of an answer that was stopped: who did so, and when. */
  readonly stopped?: { readonly author: string; readonly by: Stop["by"]; readonly atMs: number };
};

export type ViewOptions = {
  /** Only messages that have changed behind this place. */
  readonly after?: number;
};

/**
 * What a log shows, as `useChat` takes it: each message once, at the place where it was first said, as
 * its newest entry has it and with what clients said of its calls since. Summaries aren't shown, and
 * who has stopped an answer is a note of that answer.
 * Where the log is given from its middle, what was said before is known by its message id.
 */
export function viewOf(entries: readonly Entry[], { after = 0 }: ViewOptions = {}): UIMessage[] {
  const view = createMessageView();
  for (const entry of entries) view.add(entry);
  return view.messages(after);
}

/** The same of a log that grows: each entry costs its own size, however many there are. */
export type MessageView = {
  add(entry: Entry): void;
  /** A list of its own. Messages that haven't changed are the same objects each time. */
  messages(after?: number): UIMessage[];
  /** Where in the list a message is; -1 if it isn't. */
  indexOf(messageId: string): number;
};

export function createMessageView(): MessageView {
  const items: ViewItem[] = [];
  const bySeq = new Map<number, ViewItem>();
  const byMessage = new Map<string, ViewItem>();
  /** By the turn: what was stopped is stored behind what says so. */
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

/** Metadata that is no object can't stand beside ours, and goes by the name `value`. */
function ownMetadata(metadata: Entry["metadata"]): object {
  if (metadata === undefined || metadata === null) return {};
  return typeof metadata === "object" && !Array.isArray(metadata) ? metadata : { value: metadata };
}

/**
 * Parts with what clients said of their calls. The first word on a call counts: one that has its
 * output, or was allowed or refused already, stays as it is, whoever else answers.
 */
export function applyToolResults(parts: readonly Part[], results: readonly ToolResult[]): Part[] {
  const applied = [...parts];
  for (const result of results) {
    // The same id may stand for calls in several steps; it is the last one that waits.
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
  // A call that was never allowed but has an output doesn't wait for anybody any more.
  const { approval: _, ...call } = part;
  const allowed: Part = approval?.approved === true ? part : call;
  return "output" in result
    ? { ...allowed, state: "output-available", output: result.output }
    : { ...allowed, state: "output-error", errorText: result.errorText };
}
