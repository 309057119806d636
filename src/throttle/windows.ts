import { percentile } from "./histogram.ts";
import type { Durations } from "./latency.ts";
import {
  countsIn,
  durationsIn,
  noRollingCounts,
  noRollingDurations,
  rolled,
  type RollingCounts,
  type RollingDurations,
  withCounts,
  withDurations,
} from "./rolling.ts";
import { addCounts, type Counts, noCounts, type Sample } from "./sample.ts";
import { noDurations } from "./histogram.ts";

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

/** The windows as somebody wants to see them. */
export type WindowsView = {
  readonly counts: Counts;
  readonly p50Ms?: number;
  readonly p95Ms?: number;
  readonly firstTokenP95Ms?: number;
};

export function windowsView(windows: Windows): WindowsView {
  const { latencies, firstTokens } = windowDurations(windows);
  const p50Ms = percentile(latencies, 0.5);
  const p95Ms = percentile(latencies, 0.95);
  const firstTokenP95Ms = percentile(firstTokens, 0.95);
  return {
    counts: countsIn(windows.counts),
    ...(p50Ms !== undefined && { p50Ms }),
    ...(p95Ms !== undefined && { p95Ms }),
    ...(firstTokenP95Ms !== undefined && { firstTokenP95Ms }),
  };
}
