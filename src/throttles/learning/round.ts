import { addHistograms, countOf, type Histogram, noDurations, percentile } from "./histogram.ts";
import { countsIn, noRollingCounts, rolled, type RollingCounts, withCounts } from "./rolling.ts";
import { type Counts, noCounts, type Sample } from "./sample.ts";

/**
 * What is known of the present limit: the calls that began under it. A round is whole when as many have
 * succeeded as there may be at once, and the limit was really used; only then is the limit proven.
 */
export type Round = {
  readonly successes: number;
  readonly peak: number;
  readonly latencies: Histogram;
  readonly firstTokens: Histogram;
  /** The last seconds, to tell a stray refusal from a wall, and the last while, for rates of errors. */
  readonly recent: RollingCounts;
  readonly lately: RollingCounts;
};

export const emptyRound: Round = {
  successes: 0,
  peak: 0,
  latencies: noDurations,
  firstTokens: noDurations,
  recent: noRollingCounts,
  lately: noRollingCounts,
};

/** Two to four seconds: more than one report of each pod, and less than a brake needs to be felt. */
const recentHalfMs = 2_000;
/** Long enough for twenty calls of a slow downstream, short enough to forget an outage soon. */
const latelyHalfMs = 10_000;
export function agedRound(round: Round, elapsedMs: number): Round {
  return {
    ...round,
    recent: rolled(round.recent, noCounts, { elapsedMs, halfMs: recentHalfMs }),
    lately: rolled(round.lately, noCounts, { elapsedMs, halfMs: latelyHalfMs }),
  };
}

/** Adds a sample of the present epoch. */
export function withSample(round: Round, sample: Sample): Round {
  return {
    successes: round.successes + sample.counts.success,
    peak: Math.max(round.peak, sample.peak),
    latencies: addHistograms(round.latencies, sample.latencies),
    firstTokens: addHistograms(round.firstTokens, sample.firstTokens),
    recent: withCounts(round.recent, sample.counts),
    lately: withCounts(round.lately, sample.counts),
  };
}

export function isUsed(round: Round, limit: number): boolean {
  return round.peak >= limit;
}

export function isWhole(round: Round, limit: number): boolean {
  return round.successes >= limit && isUsed(round, limit);
}

/** Less than this tells nothing of a while. */
const calmSpanMs = 500;

/**
 * Calls of whichever epoch went well in this sample. It proves no limit, but that the downstream takes
 * calls again, a second before pods have heard of a new epoch and told of its calls.
 */
export function isCalm({ counts, earlier, spanMs }: Sample, limit: number): boolean {
  if (spanMs < calmSpanMs || counts.throttled + earlier.throttled > 0) return false;
  const failed = counts.timeout + earlier.timeout + counts.server_error + earlier.server_error;
  const succeeded = counts.success + earlier.success;
  return succeeded >= limit && failed * 10 <= succeeded;
}

/** The limit stays, and must be proven anew: the next round begins. */
export function nextRound(round: Round): Round {
  return { ...emptyRound, recent: round.recent, lately: round.lately };
}

export function recentCounts(round: Round): Counts {
  return countsIn(round.recent);
}

export function latelyCounts(round: Round): Counts {
  return countsIn(round.lately);
}

export function p95(durations: Histogram, minCalls: number): number | undefined {
  return countOf(durations) >= minCalls ? percentile(durations, 0.95) : undefined;
}
