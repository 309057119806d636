import type { Entry } from "../../protocol/message.ts";

/** Texts that were made before their entries are stored. An entry never changes. */
const made = new WeakMap<Entry, string>();

/** Fields that no query filters on are stored together as one text, which costs less than a column each. */
export function entryBody(entry: Entry): string {
  return made.get(entry) ?? textOf(entry);
}

/** How many bytes the text of an entry has. It isn't made again when the entry is stored. */
export function entryBodyBytes(entry: Entry): number {
  const text = textOf(entry);
  made.set(entry, text);
  return Buffer.byteLength(text);
}

function textOf(entry: Entry): string {
  const { epoch, upToSeq, beganSeq, outcome, error, tokens, parts, metadata } = entry;
  const { results, tasks, throughSeq, stop, wake } = entry;
  return JSON.stringify({
    epoch,
    upToSeq,
    beganSeq,
    outcome,
    error,
    tokens,
    parts,
    metadata,
    results,
    tasks,
    throughSeq,
    stop,
    wake,
  });
}
