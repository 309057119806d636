import { addHistograms, type Histogram, noDurations } from "./histogram.ts";
import { countsIn, noRollingCounts, rolled, type RollingCounts, withCounts } from "./windows.ts";
import { type OutcomeCounts, noCounts, type Sample } from "./sample.ts";

/** The input of an algorithm: everything that is known about the present limit. */
export type Evidence = {
  readonly limit: number;
  readonly elapsedMs: number;
  /** Calls that began under the present limit were throttled, or too many failed for other reasons. */
  readonly struck: "throttled" | "errors" | null;
  /** A call that began under it timed out. */
  readonly timedOut: boolean;
  /** Pods have already braked by themselves. */
  readonly restrained: boolean;
  /** The outcomes of the last seconds, of calls that began under the present limit. */
  readonly recent: OutcomeCounts;
  /** As many calls as the limit succeeded, while the limit was reached. */
  readonly proven: boolean;
  /** As many calls as the limit succeeded lately, of any epoch, and none was throttled. */
  readonly calm: boolean;
  /** The latency as a multiple of its baseline, and the multiple that is tolerated. */
  readonly slowness: number | null;
  readonly tolerance: number;
  /** By how much the weighted error rate has risen since the last window. */
  readonly errorRise: number;
  /** How many calls the downstream works on at once, measured by Little's law. */
  readonly accepted: number | null;
};

export type LimitDecision<Memory> = {
  readonly limit: number;
  readonly memory: Memory;
  /** This is the reaction to a strike. It covers all calls that were in flight with it. */
  readonly reacted?: true;
  /** For how long no call may begin. */
  readonly coolMs?: number;
  /** The latency doesn't come from the load of this fleet, and becomes the baseline. */
  readonly rebase?: true;
};

/** What is left of the limit after a strike. */
const brakeShare = 0.5;

export function braked(limit: number): number {
  return Math.floor(limit * brakeShare);
}

export function isSlow({ slowness, tolerance }: Evidence): boolean {
  return slowness !== null && slowness > tolerance;
}

/**
 * The calls that began under the present limit. A round is whole when as many calls as the limit have
 * succeeded, and the limit was reached. Only then is the limit proven.
 */
export type EvidenceRound = {
  readonly successes: number;
  readonly peak: number;
  readonly latencies: Histogram;
  readonly firstTokens: Histogram;
  /** The last seconds, to tell a stray refusal from a real limit, and a longer window for error rates. */
  readonly recent: RollingCounts;
  readonly lately: RollingCounts;
};

export const emptyRound: EvidenceRound = {
  successes: 0,
  peak: 0,
  latencies: noDurations,
  firstTokens: noDurations,
  recent: noRollingCounts,
  lately: noRollingCounts,
};

/** Two to four seconds: more than one report of each pod, and less than a brake takes to have an effect. */
const recentHalfMs = 2_000;
/** Long enough for twenty calls of a slow downstream, short enough to forget an outage soon. */
const latelyHalfMs = 10_000;

export function agedRound(round: EvidenceRound, elapsedMs: number): EvidenceRound {
  return {
    ...round,
    recent: rolled(round.recent, noCounts, { elapsedMs, halfMs: recentHalfMs }),
    lately: rolled(round.lately, noCounts, { elapsedMs, halfMs: latelyHalfMs }),
  };
}

/** Adds a sample of the present epoch. */
export function withSample(round: EvidenceRound, sample: Sample): EvidenceRound {
  return {
    successes: round.successes + sample.counts.success,
    peak: Math.max(round.peak, sample.peak),
    latencies: addHistograms(round.latencies, sample.latencies),
    firstTokens: addHistograms(round.firstTokens, sample.firstTokens),
    recent: withCounts(round.recent, sample.counts),
    lately: withCounts(round.lately, sample.counts),
  };
}

export function isUsed(round: EvidenceRound, limit: number): boolean {
  return round.peak >= limit;
}

export function isProven(round: EvidenceRound, limit: number): boolean {
  return round.successes >= limit && isUsed(round, limit);
}

/** A shorter span proves nothing. */
const calmSpanMs = 500;

/**
 * Calls of any epoch succeeded in this sample. That proves no limit, but shows that the downstream takes
 * calls again, a second before pods have read a new epoch and reported its calls.
 */
export function isCalm({ counts, earlier, spanMs }: Sample, limit: number): boolean {
  if (spanMs < calmSpanMs || counts.throttled + earlier.throttled > 0) return false;
  const failed = counts.timeout + earlier.timeout + counts.server_error + earlier.server_error;
  const succeeded = counts.success + earlier.success;
  return succeeded >= limit && failed * 10 <= succeeded;
}

/** Begins the next round. The limit stays, and must be proven again. */
export function nextRound(round: EvidenceRound): EvidenceRound {
  return { ...emptyRound, recent: round.recent, lately: round.lately };
}

export function recentCounts(round: EvidenceRound): OutcomeCounts {
  return countsIn(round.recent);
}

export function latelyCounts(round: EvidenceRound): OutcomeCounts {
  return countsIn(round.lately);
}

/**
 * How many calls the downstream works on at once. By Little's law that is the sum of the answered calls'
 * latencies, divided by the span. Refused calls don't count, however often they are repeated, so while
 * some are refused this is the downstream's true capacity.
 */
export type Accepted = { readonly acceptedMs: number; readonly spanMs: number };

export const nothingAccepted: Accepted = { acceptedMs: 0, spanMs: 0 };

/** Shorter spans contain too few ends of calls for a steady value. */
const shortestMemoryMs = 1_000;

/** Old values fade within about a call's latency, or a second, because latencies count when calls end. */
export function addAccepted(before: Accepted, sample: Sample): Accepted {
  if (sample.spanMs <= 0) return { ...before, acceptedMs: before.acceptedMs + sample.acceptedMs };
  const answered = sample.counts.success + sample.earlier.success;
  const latencyMs = answered > 0 ? sample.acceptedMs / answered : 0;
  const kept = Math.exp(-sample.spanMs / Math.max(shortestMemoryMs, latencyMs));
  return {
    acceptedMs: before.acceptedMs * kept + sample.acceptedMs,
    spanMs: before.spanMs * kept + sample.spanMs,
  };
}

/** Undefined as long as no call was answered. */
export function acceptedAtOnce({ acceptedMs, spanMs }: Accepted): number | undefined {
  return acceptedMs > 0 && spanMs > 0 ? acceptedMs / spanMs : undefined;
}

/** How long no call may begin, from now on: because of `Retry-After`, or to cool down. */
export function remainingHoldMs(
  holdMs: number,
  { elapsedMs, retryAfterMs, maxMs }: { elapsedMs: number; retryAfterMs: number; maxMs: number },
): number {
  return Math.max(0, holdMs - elapsedMs, Math.min(retryAfterMs, maxMs));
}

const firstCoolMs = 250;
/** Short enough to notice the end of a long refusal soon. */
const maxCoolMs = 8_000;

/**
 * The pause after repeated strikes. Lowering the limit isn't enough then: at a limit of one, calls are
 * still repeated as fast as they are refused.
 */
export function coolingMs(strikes: number): number {
  return strikes < 2 ? 0 : Math.min(maxCoolMs, firstCoolMs * 2 ** (strikes - 2));
}
