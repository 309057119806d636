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
 * The ceiling's controller, which also shrinks: by how far latency is above its tolerance, and by how
 * fast errors rise. Where less load doesn't make the downstream faster, its latency becomes the
 * baseline, because it can't come from us.
 */
export type GradientMemory = {
  readonly algorithm: "gradient";
  readonly ceiling: CeilingMemory;
  /** The slowness and the limit when it began to shrink. */
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
/** If the limit fell to this share and the slowness only to that, load isn't the cause. */
const muchLess = 0.8;
const asSlow = 0.9;

export function decideGradient(
  memory: GradientMemory,
  evidence: Evidence,
): LimitDecision<GradientMemory> {
  if (evidence.struck === null && evidence.proven) {
    if (evidence.slowness !== null && isSlow(evidence))
      return slowed(memory, evidence, evidence.slowness);
    if (evidence.errorRise > 0) {
      const back = brakedMemory(ceilingOf(memory.ceiling, evidence.limit), 1);
      return shrink(evidence, 1 - errorGain * evidence.errorRise, { ...memory, ceiling: back });
    }
  }
  const { memory: ceiling, ...move } = decideCeiling(memory.ceiling, evidence);
  const shrunk = evidence.proven && !isSlow(evidence) ? null : memory.shrunk;
  return { ...move, memory: { algorithm: "gradient", ceiling, shrunk } };
}

function slowed(
  memory: GradientMemory,
  evidence: Evidence,
  slowness: number,
): LimitDecision<GradientMemory> {
  const { limit } = evidence;
  const since = memory.shrunk ?? { slowness, limit };
  if (limit <= since.limit * muchLess && slowness >= since.slowness * asSlow) {
    const ceiling = brakedMemory(since.limit, 1);
    return { limit, memory: { ...memory, ceiling, shrunk: null }, rebase: true };
  }
  const ceiling = holdingMemory(probeWaitMs);
  return shrink(evidence, evidence.tolerance / slowness, { ...memory, ceiling, shrunk: since });
}

function shrink(
  { limit }: Evidence,
  factor: number,
  memory: GradientMemory,
): LimitDecision<GradientMemory> {
  const next = Math.floor(limit * Math.max(smallestFactor, factor));
  return { limit: Math.min(limit - 1, next), memory };
}
