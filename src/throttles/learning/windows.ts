import { noDurations } from "./histogram.ts";
import type { Durations } from "./latency.ts";
import {
  durationsIn,
  noRollingCounts,
  noRollingDurations,
  rolled,
  type RollingCounts,
  type RollingDurations,
  withCounts,
  withDurations,
} from "./rolling.ts";
import { addCounts, noCounts, type Sample } from "./sample.ts";

/** How all calls of the last while ended, and how long they took, under whichever limit. */
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

/** Ten to twenty seconds: enough calls for a percentile, and soon over. */
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
