import { addHistograms, type Histogram } from "../learning/histogram.ts";
import {
  addCounts,
  noCounts,
  type OutcomeCounts,
  outcomeKinds,
  type Sample,
} from "../learning/sample.ts";

/**
 * The outcomes of a pod's calls since it started, as in its reports. Sums that only grow can be sent
 * twice or be missed: the leader takes the difference to the totals that it counted last.
 */
export type Totals = {
  readonly epoch: number;
  /** Calls that began in this epoch, and all calls. */
  readonly present: OutcomeCounts;
  readonly all: OutcomeCounts;
  readonly spanMs: number;
  readonly acceptedMs: number;
  readonly latencies: Histogram;
  readonly firstTokens: Histogram;
  readonly rateLimited: number;
  readonly used: number;
  /** In how many samples the limit was reached. */
  readonly limited: number;
  /** Calls that were refused although something remained. */
  readonly broken: number;
  /** Of the last sample alone: the most calls at once, the remaining `Retry-After`, the promised rate. */
  readonly peak: number;
  readonly retryAfterMs: number;
  readonly promisedPerS: number;
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
  broken: 0,
  peak: 0,
  retryAfterMs: 0,
  promisedPerS: 0,
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
    broken: totals.broken + sample.broken,
    promisedPerS: sample.promisedPerS,
  };
}

/** The calls between two states of the totals. */
export function sampleBetween(before: Totals, after: Totals): Sample {
  const known = after.epoch === before.epoch ? before.present : noCounts;
  const counts = subtractCounts(after.present, known);
  return {
    epoch: after.epoch,
    counts,
    earlier: subtractCounts(subtractCounts(after.all, before.all), counts),
    spanMs: after.spanMs - before.spanMs,
    acceptedMs: after.acceptedMs - before.acceptedMs,
    latencies: subtractHistograms(after.latencies, before.latencies),
    firstTokens: subtractHistograms(after.firstTokens, before.firstTokens),
    peak: after.peak,
    limited: after.limited > before.limited,
    retryAfterMs: after.retryAfterMs,
    rateLimited: after.rateLimited - before.rateLimited,
    used: after.used - before.used,
    broken: after.broken - before.broken,
    promisedPerS: after.promisedPerS,
  };
}

function subtractCounts(a: OutcomeCounts, b: OutcomeCounts): OutcomeCounts {
  return Object.fromEntries(outcomeKinds.map((kind) => [kind, a[kind] - b[kind]])) as OutcomeCounts;
}

function subtractHistograms(a: Histogram, b: Histogram): Histogram {
  return a.map((count, bucket) => count - (b[bucket] ?? 0));
}
