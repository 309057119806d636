/**
 * Counts of durations in exponential buckets: bucket `i` holds those up to `2 ** (i / 8)` ms. So any
 * percentile is right within a tenth, and histograms of several pods can be added.
 */
export type Histogram = readonly number[];

export const perDoubling = 8;
const lastBucket = 24 * perDoubling;

export const noDurations: Histogram = [];

export function bucketOf(durationMs: number): number {
  if (!(durationMs > 1)) return 0;
  return Math.min(lastBucket, Math.ceil(Math.log2(durationMs) * perDoubling));
}

/** The duration that represents a bucket: its upper end. */
export function durationOf(bucket: number): number {
  return 2 ** (bucket / perDoubling);
}

export function withDuration(histogram: Histogram, durationMs: number): Histogram {
  const next = histogram.slice();
  countDuration(next, durationMs);
  return next;
}

/** Counts in place, without an allocation per call. Returns the bucket. */
export function countDuration(histogram: number[], durationMs: number): number {
  const bucket = bucketOf(durationMs);
  while (histogram.length <= bucket) histogram.push(0);
  histogram[bucket]!++;
  return bucket;
}

export function addHistograms(a: Histogram, b: Histogram): Histogram {
  const [longer, shorter] = a.length >= b.length ? [a, b] : [b, a];
  return longer.map((count, bucket) => count + (shorter[bucket] ?? 0));
}

export function totalCount(histogram: Histogram): number {
  let sum = 0;
  for (const count of histogram) sum += count;
  return sum;
}

/** The duration that the given share (0…1) of all durations doesn't exceed; undefined if there are none. */
export function percentile(histogram: Histogram, share: number): number | undefined {
  const wanted = totalCount(histogram) * share;
  if (wanted === 0) return undefined;
  let sum = 0;
  for (const [bucket, count] of histogram.entries()) {
    sum += count;
    if (sum >= wanted) return durationOf(bucket);
  }
  return durationOf(histogram.length - 1);
}

/** The 95th percentile; undefined where there are fewer calls than that. */
export function p95(durations: Histogram, minCalls: number): number | undefined {
  return totalCount(durations) >= minCalls ? percentile(durations, 0.95) : undefined;
}
