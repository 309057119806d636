import { addHistograms, type Histogram } from "../learning/histogram.ts";
import { addCounts, type Counts, noCounts, outcomeKinds, type Sample } from "../learning/sample.ts";

/**
 * What has come of a pod's calls since it began, as its reports say it. Sums that only grow can be sent
 * any number of times, and be missed: whoever learns takes the difference to those that it has counted.
 */
export type Totals = {
  readonly epoch: number;
  /** Calls that began in this epoch, and all calls. */
  readonly present: Counts;
  readonly all: Counts;
  readonly spanMs: number;
  readonly acceptedMs: number;
  readonly latencies: Histogram;
  readonly firstTokens: Histogram;
  readonly rateLimited: number;
  readonly used: number;
  /** In how many samples the limit was reached. */
  readonly limited: number;
  /** Of the last sample alone: the most calls at once, and how long to stay away from its end on. */
  readonly peak: number;
  readonly retryAfterMs: number;
};

export const noTotals: Totals = {
  epoch: 0,
  present: noCounts,
  all: noCounts,
  spanMs: 0,
  acceptedMs: 0,
  latencies: [],
  firstTokens: [],
  rateLimited: 0,
  used: 0,
  limited: 0,
  peak: 0,
  retryAfterMs: 0,
};

export function addToTotals(totals: Totals, sample: Sample): Totals {
  const { counts, earlier } = sample;
  return {
    epoch: sample.epoch,
    present: sample.epoch === totals.epoch ? addCounts(totals.present, counts) : counts,
    all: addCounts(totals.all, addCounts(counts, earlier)),
    spanMs: Math.round(totals.spanMs + sample.spanMs),
    acceptedMs: Math.round(totals.acceptedMs + sample.acceptedMs),
    latencies: addHistograms(totals.latencies, sample.latencies),
    firstTokens: addHistograms(totals.firstTokens, sample.firstTokens),
    rateLimited: totals.rateLimited + sample.rateLimited,
    used: totals.used + sample.used,
    limited: totals.limited + (sample.limited ? 1 : 0),
    peak: sample.peak,
    retryAfterMs: Math.round(sample.retryAfterMs),
  };
}

/** What has happened from one state of the totals to a later one. */
export function sampleBetween(before: Totals, after: Totals): Sample {
  const known = after.epoch === before.epoch ? before.present : noCounts;
  const counts = minus(after.present, known);
  return {
    epoch: after.epoch,
    counts,
    earlier: minus(minus(after.all, before.all), counts),
    spanMs: after.spanMs - before.spanMs,
    acceptedMs: after.acceptedMs - before.acceptedMs,
    latencies: less(after.latencies, before.latencies),
    firstTokens: less(after.firstTokens, before.firstTokens),
    peak: after.peak,
    limited: after.limited > before.limited,
    retryAfterMs: after.retryAfterMs,
    rateLimited: after.rateLimited - before.rateLimited,
    used: after.used - before.used,
  };
}

function minus(a: Counts, b: Counts): Counts {
  return Object.fromEntries(outcomeKinds.map((kind) => [kind, a[kind] - b[kind]])) as Counts;
}

function less(a: Histogram, b: Histogram): Histogram {
  return a.map((count, bucket) => count - (b[bucket] ?? 0));
}
