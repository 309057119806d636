import type { BulkFacts } from "../../asks/tasks.ts";
import { counted, exactCount } from "../spans.ts";

/** How an act on all that match stands, for people. */
export type BulkProgress = {
  readonly title: string;
  /** How much of it is done, of 1; undefined if how much there is isn't known. */
  readonly share: number | undefined;
};

const verbs: Readonly<Record<BulkFacts["action"], readonly [string, string]>> = {
  cancel: ["Cancelling", "Cancelled"],
  retry: ["Retrying", "Retried"],
  delete: ["Deleting", "Deleted"],
  signal: ["Signalling", "Signalled"],
  resume: ["Resuming", "Resumed"],
};

export function bulkProgress(bulk: BulkFacts): BulkProgress {
  const { action, state, matched, isExact, filter, lastTaskId } = bulk;
  const [doing, done] = verbs[action];
  const what = filter.name === undefined ? "all that match" : `all of ${filter.name} that match`;
  const title = state === "running" ? `${doing} ${what}` : `${done} ${what}`;
  if (state === "done") return { title, share: 1 };
  const through = bulk.done + bulk.skipped + bulk.refused;
  if (lastTaskId === null) return { title, share: state === "running" ? undefined : 0 };
  // More may match than were counted, and fewer may be left when it comes to them.
  if (!isExact && state === "running") return { title, share: undefined };
  return { title, share: Math.min(1, through / Math.max(1, matched, through)) };
}

/** What became of each kind, in one line. */
export function bulkOutcome(bulk: BulkFacts): string {
  const { state, done, skipped, refused, matched, isExact, lastTaskId } = bulk;
  if (state === "running" && lastTaskId === null) return "waits for the leader to begin";
  const of = `${exactCount(matched)}${isExact ? "" : "+"}`;
  return [
    state === "done" ? `${counted(done, "task")} done` : `${exactCount(done)} of ${of} done`,
    ...(skipped > 0 ? [`${exactCount(skipped)} skipped, because they had changed`] : []),
    ...(refused > 0 ? [`${exactCount(refused)} refused, because it wasn't possible`] : []),
    ...(state === "stopped" ? ["stopped"] : []),
  ].join(", ");
}
