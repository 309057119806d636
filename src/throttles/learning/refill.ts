import type { BucketSettings } from "../settings.ts";

/**
 * How many units per second the downstream grants, as far as is known: lowered when it says that its rate
 * was exceeded, raised while all goes well and the rate is what holds calls back.
 */
export type Refill = {
  /** Null as long as the downstream never spoke of a rate, and none was given. */
  readonly perS: number | null;
  /** What was used lately, and in what time. */
  readonly used: number;
  readonly spanMs: number;
  /** For how long the rate has been used up with no complaint. */
  readonly goodMs: number;
};

export function firstRefill(settings: BucketSettings): Refill {
  return { perS: settings.refillPerS, used: 0, spanMs: 0, goodMs: 0 };
}

const decrease = 0.9;
/** One complaint takes no more than half, as what was used in a short span is a rough measure. */
const largestDecrease = 0.5;
/** A step of a hundredth every two seconds makes up for a decrease within about twenty. */
const increase = 0.01;
const increaseAfterMs = 2_000;
/** The rate is what holds calls back when this much of it is used. */
const usedShare = 0.9;
const memoryMs = 5_000;

export type RefillEvidence = {
  readonly elapsedMs: number;
  readonly used: number;
  /** Calls of the present epoch were refused because of the rate. */
  readonly limited: boolean;
};

export function nextRefill(before: Refill, settings: BucketSettings, seen: RefillEvidence): Refill {
  const kept = Math.exp(-seen.elapsedMs / memoryMs);
  const used = before.used * kept + seen.used;
  const spanMs = before.spanMs * kept + seen.elapsedMs;
  const usedPerS = spanMs > 0 ? (used / spanMs) * 1_000 : 0;
  const clamped = (perS: number) => Math.min(settings.maxPerS, Math.max(settings.minPerS, perS));

  if (seen.limited) {
    const { perS } = before;
    const next =
      perS === null
        ? usedPerS * decrease
        : Math.max(perS * largestDecrease, Math.min(perS * decrease, usedPerS));
    return { perS: clamped(next), used, spanMs, goodMs: 0 };
  }
  if (before.perS === null) return { perS: null, used, spanMs, goodMs: 0 };

  const full = usedPerS >= before.perS * usedShare;
  const goodMs = full ? before.goodMs + seen.elapsedMs : 0;
  if (goodMs < increaseAfterMs) return { perS: before.perS, used, spanMs, goodMs };
  return { perS: clamped(before.perS * (1 + increase)), used, spanMs, goodMs: 0 };
}
