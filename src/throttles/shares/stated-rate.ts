import type { Database } from "../../store/database.ts";
import { withDuration } from "../learning/histogram.ts";
import { allowanceOf, initialState, step } from "../learning/limit-controller.ts";
import { emptySample } from "../learning/sample.ts";
import type { StatedRate } from "../limiter/limiter.ts";
import { type LearnedRow, type LearnedState, toLearnedRow } from "./fleet-learning.ts";
import {
  type CallConstraints,
  changeLearned,
  getThrottles,
  type Learned,
  noteChange,
  type ThrottleId,
} from "./sql.ts";

// Pods that write the same row at once retry. The leader's next pass does the same as this write.
const maxTries = 5;

/**
 * Raises a throttle's bound to what the downstream's first answer states, by the pod that has read it. All
 * pods then grow within a fraction of a second. The leader would do the same, up to two seconds later.
 */
export async function raiseToRate(
  database: Database,
  throttleId: ThrottleId,
  rate: StatedRate,
): Promise<void> {
  for (let attempt = 1; attempt <= maxTries; attempt++) {
    const [stored] = await database.read(getThrottles([throttleId]));
    const row = stored && toLearnedRow(stored);
    const raised = row && raisedByRate(row, rate);
    if (!raised) return;
    const { bound, epoch } = raised;
    const change = { cause: "promised", breaker: "closed", bound, epoch } as const;
    const tables = await database.write([
      ...noteChange(throttleId, row.rev, change),
      changeLearned(throttleId, row.rev, raised),
    ]);
    if (tables.at(-1)!.length > 0) return;
  }
}

/**
 * Pure: what is learned from a stated rate and the duration of one call. Undefined where that raises nothing,
 * and wherever there is more to consider than the rate: the leader does that, with the reports of all pods.
 * No report is counted here, so that the leader counts all of them.
 */
export function raisedByRate(
  row: LearnedRow,
  { perS, latencyMs }: StatedRate,
): Learned | undefined {
  const { settings, stored, stats } = row;
  const last = stored?.controller ?? initialState(settings);
  // Constraints that are written again would count again from then on.
  const constrained = last.holdMs > 0 || last.breaker.state !== "closed" || stored?.silent;
  if (settings.pinned !== null || constrained) return undefined;
  const before = { ...last, epoch: Math.max(last.epoch, row.epoch) };
  const latencies = withDuration([], latencyMs);
  const sample = { ...emptySample(before.epoch), latencies, promisedPerS: perS };
  const controller = step(settings, before, { elapsedMs: 0, restrained: true, sample });
  const { limit, epoch, holdMs, breaker, refillPerS } = allowanceOf(settings, controller);
  if (limit <= Math.max(row.bound, last.limit)) return undefined;
  const constraints: CallConstraints = {
    holdMs,
    breaker,
    ...(refillPerS !== undefined && { refillPerS }),
  };
  return {
    bound: limit,
    epoch,
    constraints: JSON.stringify(constraints),
    state: JSON.stringify({ seen: {}, ...stored, controller } satisfies LearnedState),
    stats: JSON.stringify(stats),
  };
}
