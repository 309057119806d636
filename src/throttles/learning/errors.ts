import type { Counts } from "./sample.ts";
import type { ErrorSettings } from "../settings.ts";

/** All calls that say something about the downstream. */
export function tellingCalls(counts: Counts): number {
  return counts.success + counts.throttled + counts.timeout + counts.server_error;
}

/**
 * The share of calls that failed for want of capacity, by weight: a timeout may come from saturation, a
 * server error rather from a fault, and a mistake of the caller's says nothing. Throttled calls are left
 * out, as they act by themselves.
 */
export function errorRate(counts: Counts, settings: ErrorSettings): number {
  const answered = counts.success + counts.timeout + counts.server_error;
  if (answered === 0) return 0;
  const { timeoutWeight, serverErrorWeight } = settings;
  return (counts.timeout * timeoutWeight + counts.server_error * serverErrorWeight) / answered;
}

export function tooManyErrors(counts: Counts, settings: ErrorSettings): boolean {
  const answered = counts.success + counts.timeout + counts.server_error;
  const failed = counts.timeout + counts.server_error;
  return (
    failed > 0 && answered >= settings.minCalls && errorRate(counts, settings) >= settings.rate
  );
}

export function throttledShare(counts: Counts): number {
  const calls = tellingCalls(counts);
  return calls === 0 ? 0 : counts.throttled / calls;
}

/** A rise by less than this share of calls is noise, however many they are. */
const leastRise = 0.02;

/** By how much the error rate has risen, beyond what chance would do to so many calls. */
export function errorRise(before: Counts, now: Counts, settings: ErrorSettings): number {
  const calls = tellingCalls(now);
  if (calls < settings.minCalls || tellingCalls(before) < settings.minCalls) return 0;
  const usual = errorRate(before, settings);
  const chance = 3 * Math.sqrt((usual * (1 - usual)) / calls);
  const rise = errorRate(now, settings) - usual;
  return rise > leastRise + chance ? rise : 0;
}
