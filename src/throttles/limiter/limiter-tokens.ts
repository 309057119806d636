import { type Bucket, type BucketRate, filledBucket, fullBucket, settle, take } from "./bucket.ts";
import type { BucketSettings } from "../settings.ts";

export type TokensSnapshot = {
  readonly unit: "requests" | "tokens";
  /** What is there to be used now; below zero where calls cost more than was thought. */
  readonly available?: number;
  /** What comes in per second. Not there while nothing bounds it. */
  readonly refillPerS?: number;
};

/** A pod's own part of the bucket. Undefined where the throttle has none. */
export function createTokens(settings: BucketSettings | null, startMs: number) {
  if (!settings) return undefined;
  const { unit, burstS } = settings;
  // Nothing bounds it until somebody says what comes in.
  let rate: BucketRate | undefined;
  let bucket: Bucket = { units: 0 };
  let filledMs = startMs;

  const fill = (nowMs: number) => {
    if (rate) bucket = filledBucket(bucket, rate, nowMs - filledMs);
    filledMs = nowMs;
  };

  return {
    refill(perS: number | undefined, nowMs: number): void {
      if (perS === rate?.perS) return;
      fill(nowMs);
      const next = perS === undefined ? undefined : { perS, burstS };
      if (!rate && next) bucket = fullBucket(next);
      rate = next;
    },

    /** How long until there is enough for such a call. */
    waitMs(units: number, nowMs: number): number {
      if (!rate) return 0;
      const taken = take(bucket, rate, { units, elapsedMs: nowMs - filledMs });
      return taken.taken ? 0 : taken.waitMs;
    },

    /** For how many such calls there is enough, one after the other; at least one where it waits for none. */
    countOf(units: number, nowMs: number): number {
      fill(nowMs);
      return !rate || units <= 0 ? Infinity : Math.max(1, Math.floor(bucket.units / units));
    },

    take(units: number, nowMs: number): void {
      fill(nowMs);
      bucket = { units: bucket.units - units };
    },

    settle(estimated: number, used: number | undefined, nowMs: number): void {
      if (used === undefined || !rate) return;
      fill(nowMs);
      bucket = settle(bucket, rate, { estimated, used });
    },

    snapshot(nowMs: number): TokensSnapshot {
      fill(nowMs);
      return { unit, ...(rate && { available: bucket.units, refillPerS: rate.perS }) };
    },
  };
}
