import type { Entry, EntryError, Part, ReplyOutcome, UIMessage } from "./message.ts";
import { applyToolResults } from "./tool-results.ts";

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
};

export type ViewOptions = {
  /** Only messages that have changed behind this place. */
  readonly after?: number;
};

/**
 * What a log shows, as `useChat` takes it: each message once, at the place where it was first said, as
 * its newest entry has it and with what clients said of its calls since. Summaries aren't shown.
 * Where the log is given from its middle, what was said before is known by its message id.
 */
export function viewOf(entries: readonly Entry[], { after = 0 }: ViewOptions = {}): UIMessage[] {
  const shown: Shown[] = [];
  const bySeq = new Map<number, Shown>();
  const byMessage = new Map<string, Shown>();
  for (const entry of entries) {
    const before =
      (entry.replaces === undefined ? undefined : bySeq.get(entry.replaces)) ??
      byMessage.get(entry.results?.messageId ?? entry.messageId);
    if (entry.kind === "tool_result") {
      if (before === undefined || entry.results === undefined) continue;
      before.parts = applyToolResults(before.parts, entry.results.results);
      before.changedSeq = entry.seq;
    } else if (entry.kind === "message") {
      const next = before ?? { entry, parts: entry.parts, changedSeq: entry.seq };
      if (before === undefined) shown.push(next);
      next.entry = entry;
      next.parts = entry.parts;
      next.changedSeq = entry.seq;
      bySeq.set(entry.seq, next);
      byMessage.set(entry.messageId, next);
    }
  }
  return shown.filter(({ changedSeq }) => changedSeq > after).map(messageOf);
}

type Shown = { entry: Entry; parts: readonly Part[]; changedSeq: number };

function messageOf({ entry, parts }: Shown): UIMessage {
  const { seq, author, atMs, outcome, error } = entry;
  const flotilla: EntryNote = {
    seq,
    author,
    atMs,
    ...(outcome === undefined ? {} : { outcome }),
    ...(error === undefined ? {} : { error }),
  };
  const metadata = { ...ownMetadata(entry.metadata), flotilla };
  return { id: entry.messageId, role: entry.role, metadata, parts };
}

/** Metadata that is no object can't stand beside ours, and goes by the name `value`. */
function ownMetadata(metadata: Entry["metadata"]): object {
  if (metadata === undefined || metadata === null) return {};
  return typeof metadata === "object" && !Array.isArray(metadata) ? metadata : { value: metadata };
}
