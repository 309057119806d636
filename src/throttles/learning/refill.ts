import type { BucketSettings } from "../settings.ts";

/**
 * The learned rate of a bucket, in units per second. It is lowered when the downstream reports that its
 * rate was exceeded, and raised while calls succeed and the rate is what limits them.
 */
export type Refill = {
  /** Null until the downstream reports a rate limit, where the settings have no rate. */
  readonly perS: number | null;
  /** Recently used units, and their time span. Both decay. */
  readonly used: number;
  readonly spanMs: number;
  /** How long the rate has been used up without a refusal. */
  readonly goodMs: number;
};

export function firstRefill(settings: BucketSettings): Refill {
  return { perS: settings.refillPerS, used: 0, spanMs: 0, goodMs: 0 };
}

const decrease = 0.9;
/** One refusal takes no more than half, because the use in a short span is a rough measure. */
const largestDecrease = 0.5;
/** A step of a hundredth every two seconds makes up for a decrease within about twenty. */
const increase = 0.01;
const increaseAfterMs = 2_000;
/** The rate is what limits calls when this much of it is used. */
const usedShare = 0.9;
const memoryMs = 5_000;

export type RefillEvidence = {
  readonly elapsedMs: number;
  readonly used: number;
  /** Calls of the present epoch were refused because of the rate. */
  readonly limited: boolean;
};

export function nextRefill(
  before: Refill,
  settings: BucketSettings,
  evidence: RefillEvidence,
): Refill {
  const kept = Math.exp(-evidence.elapsedMs / memoryMs);
  const used = before.used * kept + evidence.used;
  const spanMs = before.spanMs * kept + evidence.elapsedMs;
  const usedPerS = spanMs > 0 ? (used / spanMs) * 1_000 : 0;
  const clamped = (perS: number) => Math.min(settings.maxPerS, Math.max(settings.minPerS, perS));

  if (evidence.limited) {
    const { perS } = before;
    const next =
      perS === null
        ? usedPerS * decrease
        : Math.max(perS * largestDecrease, Math.min(perS * decrease, usedPerS));
    return { perS: clamped(next), used, spanMs, goodMs: 0 };
  }
  if (before.perS === null) return { perS: null, used, spanMs, goodMs: 0 };

  const full = usedPerS >= before.perS * usedShare;
  const goodMs = full ? before.goodMs + evidence.elapsedMs : 0;
  if (goodMs < increaseAfterMs) return { perS: before.perS, used, spanMs, goodMs };
  return { perS: clamped(before.perS * (1 + increase)), used, spanMs, goodMs: 0 };
}
