import type { CompactionFacts } from "./command.ts";
import type { Compaction, Header } from "./header.ts";

/**
 * Whether so much was said since the last summary that it should be summed up. After a compaction that
 * failed, a tenth of the budget more has to be said first, and twice as much after each that fails too:
 * there is no clock here, and nothing new is said to a session that is left alone.
 */
export function isDue(header: Header, { tokenBudget, triggerRatio }: CompactionFacts): boolean {
  const { tokens, compactionFailures, failedAtTokens } = header;
  if (tokens < triggerRatio * tokenBudget) return false;
  if (failedAtTokens === 0) return true;
  const doublings = Math.min(Math.max(compactionFailures - 1, 0), 10);
  return tokens >= failedAtTokens + 0.1 * tokenBudget * 2 ** doublings;
}

/**
 * What a summary made now would stand for: everything before the first entry that waits for its answer,
 * since an agent has to see in full what it is to answer. Undefined where that is nothing new.
 */
export function rangeOf(header: Header): Pick<Compaction, "toSeq" | "tokens"> | undefined {
  const { lastSeq, compactedSeq, summarySeq, tokens, pending } = header;
  let range = { toSeq: lastSeq, tokens };
  for (const { fromSeq, tokensBefore } of pending) {
    if (fromSeq <= range.toSeq) range = { toSeq: fromSeq - 1, tokens: tokensBefore };
  }
  // The last summary stands behind its own range, among what came later.
  const isSummaryWithin = summarySeq > compactedSeq && summarySeq <= range.toSeq;
  const newEntries = range.toSeq - compactedSeq - (isSummaryWithin ? 1 : 0);
  return newEntries > 0 ? range : undefined;
}
