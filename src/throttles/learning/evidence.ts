import { addHistograms, totalCount, type Histogram, noDurations, percentile } from "./histogram.ts";
import { countsIn, noRollingCounts, rolled, type RollingCounts, withCounts } from "./windows.ts";
import { type OutcomeCounts, noCounts, type Sample } from "./sample.ts";

/** What an algorithm decides on: everything that is known of the present limit. */
export type Evidence = {
  readonly limit: number;
  readonly elapsedMs: number;
  /** Calls that began under the present limit were throttled, or too many of them failed otherwise. */
  readonly struck: "throttled" | "errors" | null;
  /** Some call that began under it timed out. */
  readonly timedOut: boolean;
  /** Pods have braked by themselves by now. */
  readonly restrained: boolean;
  /** How the calls of the last seconds ended that began under the present limit. */
  readonly recent: OutcomeCounts;
  /** A whole round of calls succeeded, at a limit that was really used. */
  readonly proven: boolean;
  /** For a while as many calls succeeded, and none was throttled, whenever they began. */
  readonly calm: boolean;
  /** How many times its usual latency the downstream takes, and how many of that are tolerated. */
  readonly slowness: number | null;
  readonly tolerance: number;
  /** How the share of weighted errors has risen since the window before. */
  readonly errorRise: number;
  /** How many calls the downstream works on at once, as measured. */
  readonly accepted: number | null;
};

export type LimitDecision<Memory> = {
  readonly limit: number;
  readonly memory: Memory;
  /** A strike was answered: calls that were in flight with it have been heard by that. */
  readonly reacted?: true;
  /** For how long no call may begin. */
  readonly coolMs?: number;
  /** The latency turned out not to come from our load, and is to be taken for usual. */
  readonly rebase?: true;
};

/** The brake of the seed: what is left of the limit after a strike. */
const brakeShare = 0.5;

export function braked(limit: number): number {
  return Math.floor(limit * brakeShare);
}

export function isSlow({ slowness, tolerance }: Evidence): boolean {
  return slowness !== null && slowness > tolerance;
}

/**
 * What is known of the present limit: the calls that began under it. A round is whole when as many have
 * succeeded as there may be at once, and the limit was really used; only then is the limit proven.
 */
export type EvidenceRound = {
  readonly successes: number;
  readonly peak: number;
  readonly latencies: Histogram;
  readonly firstTokens: Histogram;
  /** The last seconds, to tell a stray refusal from a wall, and the last while, for rates of errors. */
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

/** Two to four seconds: more than one report of each pod, and less than a brake needs to be felt. */
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
export function nextRound(round: EvidenceRound): EvidenceRound {
  return { ...emptyRound, recent: round.recent, lately: round.lately };
}

export function recentCounts(round: EvidenceRound): OutcomeCounts {
  return countsIn(round.recent);
}

export function latelyCounts(round: EvidenceRound): OutcomeCounts {
  return countsIn(round.lately);
}

export function p95(durations: Histogram, minCalls: number): number | undefined {
  return totalCount(durations) >= minCalls ? percentile(durations, 0.95) : undefined;
}

/**
 * How many calls the downstream works on at once: by Little's law the sum of the answered calls'
 * latencies, divided by the time they took. Refused calls don't enter it, however often they are
 * repeated, so while some are refused this is the downstream's true capacity.
 */
export type Accepted = { readonly acceptedMs: number; readonly spanMs: number };

export const nothingAccepted: Accepted = { acceptedMs: 0, spanMs: 0 };

/** Shorter spans hold too few calls' ends to be even. */
const shortestMemoryMs = 1_000;

/** What was seen fades within about a call's latency, or a second, as latencies count when calls end. */
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

/** Undefined as long as too little was seen. */
export function acceptedAtOnce({ acceptedMs, spanMs }: Accepted): number | undefined {
  return acceptedMs > 0 && spanMs > 0 ? acceptedMs / spanMs : undefined;
}

/** How long nobody may begin a call, from now on: as asked for by `Retry-After`, or to cool down. */
export function remainingHoldMs(
  holdMs: number,
  { elapsedMs, retryAfterMs, maxMs }: { elapsedMs: number; retryAfterMs: number; maxMs: number },
): number {
  return Math.max(0, holdMs - elapsedMs, Math.min(retryAfterMs, maxMs));
}

const firstCoolMs = 250;
/** So that the end of a long refusal is noticed soon. */
const maxCoolMs = 8_000;

/**
 * Where one strike follows the other, lowering the limit isn't enough: a limit of one still repeats
 * refused calls as fast as they are refused.
 */
export function coolingMs(strikes: number): number {
  return strikes < 2 ? 0 : Math.min(maxCoolMs, firstCoolMs * 2 ** (strikes - 2));
}
