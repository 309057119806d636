/**
 * One pod's bucket: it fills with time, a call takes its estimate out, and the real use is settled when
 * it is known, which may leave the bucket in debt. What isn't used is saved up, to allow a burst.
 */
export type Bucket = { readonly units: number };

export type BucketRate = { readonly perS: number; readonly burstS: number };

/** A bucket begins full, as one that was idle. */
export function fullBucket(rate: BucketRate): Bucket {
  return { units: mostUnits(rate) };
}

/** Never less than one unit, or a slow rate would never let anything pass. */
function mostUnits({ perS, burstS }: BucketRate): number {
  return Math.max(1, perS * burstS);
}

export function filledBucket(bucket: Bucket, rate: BucketRate, elapsedMs: number): Bucket {
  const units = bucket.units + (rate.perS * Math.max(0, elapsedMs)) / 1_000;
  return { units: Math.min(mostUnits(rate), units) };
}

export type Taken =
  | { readonly taken: true; readonly bucket: Bucket }
  | { readonly taken: false; readonly bucket: Bucket; readonly waitMs: number };

/**
 * Takes `units` after `elapsedMs`, or says how long it takes until they are there. Of a call that is
 * larger than the bucket a full one is asked, and the rest is left as a debt, so that it can pass at all.
 */
export function take(
  bucket: Bucket,
  rate: BucketRate,
  { units, elapsedMs }: { units: number; elapsedMs: number },
): Taken {
  const filled = filledBucket(bucket, rate, elapsedMs);
  const needed = Math.min(units, mostUnits(rate));
  if (filled.units >= needed) return { taken: true, bucket: { units: filled.units - units } };
  const waitMs = Math.ceil(((needed - filled.units) / rate.perS) * 1_000);
  return { taken: false, bucket: filled, waitMs };
}

/** Corrects an estimate by what was really used. */
export function settle(
  bucket: Bucket,
  rate: BucketRate,
  { estimated, used }: { estimated: number; used: number },
): Bucket {
  return { units: Math.min(mostUnits(rate), bucket.units + estimated - used) };
}
