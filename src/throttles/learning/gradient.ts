import {
  brakedMemory,
  type CeilingMemory,
  decideCeiling,
  ceilingOf,
  firstCeilingMemory,
  holdingMemory,
  probeWaitMs,
} from "./ceiling.ts";
import { type Evidence, isSlow, type LimitDecision } from "./evidence.ts";

/**
 * The ceiling's controller, which also shrinks: by how far latency is above what is tolerated, and by
 * how fast errors rise. Where less load doesn't make the downstream faster, its latency is taken for
 * usual, since it can't come from us.
 */
export type GradientMemory = {
  readonly algorithm: "gradient";
  readonly ceiling: CeilingMemory;
  /** How slow it was, and at which limit, when it began to shrink. */
  readonly shrunk: { readonly slowness: number; readonly limit: number } | null;
};

export const firstGradientMemory: GradientMemory = {
  algorithm: "gradient",
  ceiling: firstCeilingMemory,
  shrunk: null,
};

/** One step never takes more than the brake does. */
const smallestFactor = 0.5;
/** A rise of errors by a tenth of all calls takes four tenths of the limit. */
const errorGain = 4;
/** With this much of the limit gone and nearly all of the slowness left, the load isn't its cause. */
const muchLess = 0.8;
const asSlow = 0.9;

export function decideGradient(
  memory: GradientMemory,
  seen: Evidence,
): LimitDecision<GradientMemory> {
  if (seen.struck === null && seen.proven) {
    if (seen.slowness !== null && isSlow(seen)) return slowed(memory, seen, seen.slowness);
    if (seen.errorRise > 0) {
      const back = brakedMemory(ceilingOf(memory.ceiling, seen.limit), 1);
      return shrink(seen, 1 - errorGain * seen.errorRise, { ...memory, ceiling: back });
    }
  }
  const { memory: ceiling, ...move } = decideCeiling(memory.ceiling, seen);
  const shrunk = seen.proven && !isSlow(seen) ? null : memory.shrunk;
  return { ...move, memory: { algorithm: "gradient", ceiling, shrunk } };
}

function slowed(
  memory: GradientMemory,
  seen: Evidence,
  slowness: number,
): LimitDecision<GradientMemory> {
  const { limit } = seen;
  const since = memory.shrunk ?? { slowness, limit };
  if (limit <= since.limit * muchLess && slowness >= since.slowness * asSlow) {
    const ceiling = brakedMemory(since.limit, 1);
    return { limit, memory: { ...memory, ceiling, shrunk: null }, rebase: true };
  }
  const ceiling = holdingMemory(probeWaitMs);
  return shrink(seen, seen.tolerance / slowness, { ...memory, ceiling, shrunk: since });
}

function shrink(
  { limit }: Evidence,
  factor: number,
  memory: GradientMemory,
): LimitDecision<GradientMemory> {
  const next = Math.floor(limit * Math.max(smallestFactor, factor));
  return { limit: Math.min(limit - 1, next), memory };
}
