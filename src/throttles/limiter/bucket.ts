import type { BucketSettings } from "../settings.ts";

/**
 * One pod's token bucket. It fills with time, and a call takes its estimate out. The real use is settled
 * when it is known, which may leave the bucket in debt. Unused units are saved up, to allow a burst.
 */
type Bucket = { readonly units: number };

type BucketRate = { readonly perS: number; readonly burstS: number };

/** A bucket begins full, like one that was idle. */
export function fullBucket(rate: BucketRate): Bucket {
  return { units: maxUnits(rate) };
}

/** Never less than one unit, or a slow rate would never let a call pass. */
function maxUnits({ perS, burstS }: BucketRate): number {
  return Math.max(1, perS * burstS);
}

function filledBucket(bucket: Bucket, rate: BucketRate, elapsedMs: number): Bucket {
  const units = bucket.units + (rate.perS * Math.max(0, elapsedMs)) / 1_000;
  return { units: Math.min(maxUnits(rate), units) };
}

type TakeResult =
  | { readonly taken: true; readonly bucket: Bucket }
  | { readonly taken: false; readonly bucket: Bucket; readonly waitMs: number };

/**
 * Takes `units` after `elapsedMs`, or returns how long to wait for them. A call that is larger than the
 * bucket needs a full one, and leaves the rest as a debt; otherwise it could never pass.
 */
export function takeUnits(
  bucket: Bucket,
  rate: BucketRate,
  { units, elapsedMs }: { units: number; elapsedMs: number },
): TakeResult {
  const filled = filledBucket(bucket, rate, elapsedMs);
  const needed = Math.min(units, maxUnits(rate));
  if (filled.units >= needed) return { taken: true, bucket: { units: filled.units - units } };
  const waitMs = Math.ceil(((needed - filled.units) / rate.perS) * 1_000);
  return { taken: false, bucket: filled, waitMs };
}

/** Corrects an estimate by the real use. */
export function settleEstimate(
  bucket: Bucket,
  rate: BucketRate,
  { estimated, used }: { estimated: number; used: number },
): Bucket {
  return { units: Math.min(maxUnits(rate), bucket.units + estimated - used) };
}

export type BucketSnapshot = {
  readonly unit: "requests" | "tokens";
  /** Units available now; below zero where calls cost more than estimated. */
  readonly available?: number;
  /** Units per second. Absent while the rate is unbounded. */
  readonly refillPerS?: number;
};

/** A pod's share of the bucket. Undefined where the throttle has no bucket. */
export function createPodBucket(settings: BucketSettings | null, startMs: number) {
  if (!settings) return undefined;
  const { unit, burstS } = settings;
  // Unbounded until a rate is known.
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

    /** How long until there is enough for a call of so many units. */
    waitMs(units: number, nowMs: number): number {
      if (!rate) return 0;
      const result = takeUnits(bucket, rate, { units, elapsedMs: nowMs - filledMs });
      return result.taken ? 0 : result.waitMs;
    },

    /** For how many calls of so many units there is enough. At least one: the caller has checked `waitMs`. */
    affordableCalls(units: number, nowMs: number): number {
      fill(nowMs);
      return !rate || units <= 0 ? Infinity : Math.max(1, Math.floor(bucket.units / units));
    },

    take(units: number, nowMs: number): void {
      fill(nowMs);
      bucket = { units: bucket.units - units };
    },

    settleEstimate(estimated: number, used: number | undefined, nowMs: number): void {
      if (used === undefined || !rate) return;
      fill(nowMs);
      bucket = settleEstimate(bucket, rate, { estimated, used });
    },

    snapshot(nowMs: number): BucketSnapshot {
      fill(nowMs);
      return { unit, ...(rate && { available: bucket.units, refillPerS: rate.perS }) };
    },
  };
}
