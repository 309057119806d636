import type { ErrorSettings } from "../settings.ts";
import { addHistograms, type Histogram, noDurations } from "./histogram.ts";
import type { Durations } from "./latency.ts";
import { addCounts, type OutcomeCounts, noCounts, type Sample } from "./sample.ts";

/**
 * A rolling window in two halves: the newer one fills, and the older one is dropped when the newer is
 * full. So it always covers the last one to two halves, and counts stay whole numbers.
 */
type Rolling<T> = { readonly newer: T; readonly older: T; readonly ageMs: number };

function rollingFrom<T>(empty: T): Rolling<T> {
  return { newer: empty, older: empty, ageMs: 0 };
}

export function rolled<T>(
  window: Rolling<T>,
  empty: T,
  { elapsedMs, halfMs }: { elapsedMs: number; halfMs: number },
): Rolling<T> {
  const ageMs = window.ageMs + elapsedMs;
  if (ageMs < halfMs) return { ...window, ageMs };
  if (ageMs < 2 * halfMs) return { newer: empty, older: window.newer, ageMs: ageMs - halfMs };
  return rollingFrom(empty);
}

export type RollingCounts = Rolling<OutcomeCounts>;

export const noRollingCounts: RollingCounts = rollingFrom(noCounts);

export function countsIn(window: RollingCounts): OutcomeCounts {
  return addCounts(window.newer, window.older);
}

export function withCounts(window: RollingCounts, counts: OutcomeCounts): RollingCounts {
  return { ...window, newer: addCounts(window.newer, counts) };
}

type RollingDurations = Rolling<Histogram>;

const noRollingDurations: RollingDurations = rollingFrom(noDurations);

function durationsIn(window: RollingDurations): Histogram {
  return addHistograms(window.newer, window.older);
}

function withDurations(window: RollingDurations, durations: Histogram): RollingDurations {
  return { ...window, newer: addHistograms(window.newer, durations) };
}

/** Outcomes and durations of all recent calls, of any epoch. */
export type Windows = {
  readonly counts: RollingCounts;
  readonly latencies: RollingDurations;
  readonly firstTokens: RollingDurations;
};

export const firstWindows: Windows = {
  counts: noRollingCounts,
  latencies: noRollingDurations,
  firstTokens: noRollingDurations,
};

/** Ten to twenty seconds: enough calls for a percentile, and soon forgotten. */
const halfMs = 10_000;

export function agedWindows(windows: Windows, elapsedMs: number): Windows {
  const by = { elapsedMs, halfMs };
  return {
    counts: rolled(windows.counts, noCounts, by),
    latencies: rolled(windows.latencies, noDurations, by),
    firstTokens: rolled(windows.firstTokens, noDurations, by),
  };
}

export function withWindows(windows: Windows, sample: Sample): Windows {
  return {
    counts: withCounts(windows.counts, addCounts(sample.counts, sample.earlier)),
    latencies: withDurations(windows.latencies, sample.latencies),
    firstTokens: withDurations(windows.firstTokens, sample.firstTokens),
  };
}

export function windowDurations(windows: Windows): Durations {
  return {
    latencies: durationsIn(windows.latencies),
    firstTokens: durationsIn(windows.firstTokens),
  };
}

/** The number of calls that say something about the downstream. */
export function informativeCalls(counts: OutcomeCounts): number {
  return counts.success + counts.throttled + counts.timeout + counts.server_error;
}

/**
 * The weighted share of calls that failed for lack of capacity. A timeout may come from saturation, a
 * server error rather from a fault, and an error of the caller says nothing. Throttled calls are left
 * out, because they are strikes themselves.
 */
function errorRate(counts: OutcomeCounts, settings: ErrorSettings): number {
  const answered = counts.success + counts.timeout + counts.server_error;
  if (answered === 0) return 0;
  const { timeoutWeight, serverErrorWeight } = settings;
  return (counts.timeout * timeoutWeight + counts.server_error * serverErrorWeight) / answered;
}

export function tooManyErrors(counts: OutcomeCounts, settings: ErrorSettings): boolean {
  const answered = counts.success + counts.timeout + counts.server_error;
  const failed = counts.timeout + counts.server_error;
  return (
    failed > 0 && answered >= settings.minCalls && errorRate(counts, settings) >= settings.rate
  );
}

export function throttledShare(counts: OutcomeCounts): number {
  const calls = informativeCalls(counts);
  return calls === 0 ? 0 : counts.throttled / calls;
}

/** A rise by less than this share is noise, however many calls there are. */
const minRise = 0.02;

/** By how much the error rate has risen; 0 where it may be chance. */
export function errorRise(
  before: OutcomeCounts,
  now: OutcomeCounts,
  settings: ErrorSettings,
): number {
  const calls = informativeCalls(now);
  if (calls < settings.minCalls || informativeCalls(before) < settings.minCalls) return 0;
  const usual = errorRate(before, settings);
  const chance = 3 * Math.sqrt((usual * (1 - usual)) / calls);
  const rise = errorRate(now, settings) - usual;
  return rise > minRise + chance ? rise : 0;
}
