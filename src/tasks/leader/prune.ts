import { type ActParts, beginAct, continued, endAct, writeAct } from "../../audit/act.ts";
import { dayMs } from "../../base/durations.ts";
import { checkChoice, checkNumber, checkOptions } from "../../base/options.ts";
import { untilKnown } from "../../store/retry.ts";
import { readTaskStates } from "../sql/finish.ts";
import { deleteFinished, sweep } from "../sql/recover.ts";
import type { Retention } from "../rows.ts";

export type PruneOptions = {
  /**
   * Only tasks that ended this long ago. At least a minute, because callers may still wait for
   * them.
   */
  olderThanMs: number;
  /** Only tasks with this outcome. Default: any outcome. */
  status?: keyof Retention;
  signal?: AbortSignal;
  /** Called after each part of the table. */
  onProgress?: (pruned: Pruned) => void;
};

export type Pruned = {
  /** How many tasks were deleted. */
  readonly deleted: number;
  /** How many tasks were scanned. */
  readonly seen: number;
};

const outcomes = ["completed", "failed", "cancelled"] as const;
const pageTasks = 10_000;
const deleteTogether = 500;
// No task is as old as this.
const neverMs = 1e15;
const defaultRetentionMs = 7 * dayMs;
// Callers may still read how a task ended, or be about to wait for it.
const retentionRange = { min: 60_000, max: 3_650 * dayMs };

/** Deletes finished tasks now, as the leader does gradually. Tasks with open dependents stay. */
export async function prune(parts: ActParts, options: PruneOptions): Promise<Pruned> {
  checkOptions("prune", options, ["olderThanMs", "status", "signal", "onProgress"]);
  const { olderThanMs, status, signal, onProgress } = options;
  checkNumber("olderThanMs", olderThanMs, retentionRange);
  if (status !== undefined) checkChoice("status", status, outcomes);
  const keptMs = (outcome: keyof Retention) =>
    status === undefined || status === outcome ? olderThanMs : neverMs;
  const kept: Retention = {
    completed: keptMs("completed"),
    failed: keptMs("failed"),
    cancelled: keptMs("cancelled"),
  };
  const { database } = parts;
  const filter = { olderThanMs, ...(status !== undefined && { status }) };
  const act = await beginAct(parts, { action: "tasks.prune", filter });
  if (act.stored) return { deleted: act.stored.count, seen: act.stored.count };
  let [deleted, seen, after] = [0, 0, ""];
  for (;;) {
    const page = await database.read(sweep(after, pageTasks, kept));
    const old = page.filter((row) => Number(row["old"]) === 1);
    for (let at = 0; at < old.length && !signal?.aborted; at += deleteTogether) {
      const ids = old.slice(at, at + deleteTogether).map((row) => row["task_id"] as string);
      const { tables, stored } = await writeAct(
        parts,
        continued(act, deleted),
        { statements: (_, entry) => [...deleteFinished(ids, kept, entry), readTaskStates(ids)] },
        untilKnown,
      );
      // Another call with the id of this act goes on with it, and counts what it deletes.
      if (stored && stored.id !== act.id) return { deleted: stored.count, seen: stored.count };
      deleted += ids.length - tables.at(-1)!.length;
      onProgress?.({ deleted, seen: seen + Math.floor((at / old.length) * pageTasks) });
    }
    const last = page.find((row) => Number(row["old"]) === 0);
    seen += pageTasks;
    onProgress?.({ deleted, seen });
    if (!last || signal?.aborted) break;
    after = last["task_id"] as string;
  }
  if (deleted > 0) await endAct(parts, act);
  return { deleted, seen };
}

/** One number for all outcomes, or a number for some and the default for the others. */
export function retentionOf(given: number | Partial<Retention> = {}): Retention {
  if (typeof given !== "object" || given === null) {
    const keptMs = checkNumber("retentionMs", given, retentionRange);
    return { completed: keptMs, failed: keptMs, cancelled: keptMs };
  }
  checkOptions("retentionMs", given, ["completed", "failed", "cancelled"]);
  const {
    completed = defaultRetentionMs,
    failed = defaultRetentionMs,
    cancelled = defaultRetentionMs,
  } = given;
  return {
    completed: checkNumber("retentionMs.completed", completed, retentionRange),
    failed: checkNumber("retentionMs.failed", failed, retentionRange),
    cancelled: checkNumber("retentionMs.cancelled", cancelled, retentionRange),
  };
}

/** The shortest retention decides how soon there is something to delete again. */
export function shortestMs({ completed, failed, cancelled }: Retention): number {
  return Math.min(completed, failed, cancelled);
}
