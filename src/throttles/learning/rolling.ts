import { addHistograms, type Histogram, noDurations } from "./histogram.ts";
import { addCounts, type Counts, noCounts } from "./sample.ts";

/**
 * A window that rolls with time, in two halves: the newer one fills, the older one is dropped whole
 * when the newer is full. So it always tells of the last one to two halves, and adds up in whole numbers.
 */
export type Rolling<T> = { readonly newer: T; readonly older: T; readonly ageMs: number };

export function rollingFrom<T>(empty: T): Rolling<T> {
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

export type RollingCounts = Rolling<Counts>;

export const noRollingCounts: RollingCounts = rollingFrom(noCounts);

export function countsIn(window: RollingCounts): Counts {
  return addCounts(window.newer, window.older);
}

export function withCounts(window: RollingCounts, counts: Counts): RollingCounts {
  return { ...window, newer: addCounts(window.newer, counts) };
}

export type RollingDurations = Rolling<Histogram>;

export const noRollingDurations: RollingDurations = rollingFrom(noDurations);

export function durationsIn(window: RollingDurations): Histogram {
  return addHistograms(window.newer, window.older);
}

export function withDurations(window: RollingDurations, durations: Histogram): RollingDurations {
  return { ...window, newer: addHistograms(window.newer, durations) };
}
