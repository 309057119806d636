import { dayMs } from "../../base/durations.ts";
import { checkNumber, checkOptions } from "../../base/options.ts";

/** How long tasks are kept once they have ended, in milliseconds, by how they ended. */
export type Retention = {
  readonly completed: number;
  readonly failed: number;
  readonly cancelled: number;
};

const usualMs = 7 * dayMs;
// Somebody may still ask how a task ended, or be about to wait for it.
const range = { min: 60_000, max: 3_650 * dayMs };

/** One number for all outcomes, or a number for some and the default for the others. */
export function retentionOf(given: number | Partial<Retention> = {}): Retention {
  if (typeof given !== "object" || given === null) {
    const keptMs = checkNumber("retentionMs", given, range);
    return { completed: keptMs, failed: keptMs, cancelled: keptMs };
  }
  checkOptions("retentionMs", given, ["completed", "failed", "cancelled"]);
  const { completed = usualMs, failed = usualMs, cancelled = usualMs } = given;
  return {
    completed: checkNumber("retentionMs.completed", completed, range),
    failed: checkNumber("retentionMs.failed", failed, range),
    cancelled: checkNumber("retentionMs.cancelled", cancelled, range),
  };
}

/** The outcome that is kept the shortest says how soon there is something to delete again. */
export function shortestMs({ completed, failed, cancelled }: Retention): number {
  return Math.min(completed, failed, cancelled);
}
