import { p95, type Histogram } from "./histogram.ts";
import type { LatencySettings } from "../settings.ts";

/**
 * The usual latency of a downstream: slowly moving 95th percentiles of the latency and of the time to
 * the first token. Where streams report their first token, that one counts, because the rest of a
 * stream's latency is the length of the answer.
 */
export type Baseline = { readonly latencyMs: number | null; readonly firstTokenMs: number | null };

export const noBaseline: Baseline = { latencyMs: null, firstTokenMs: null };

export type Durations = { readonly latencies: Histogram; readonly firstTokens: Histogram };

/** A percentile of fewer calls depends on a single one. */
const minCalls = 10;
/** The baseline falls fast: load can make a downstream slow, but nothing makes it too fast. */
const fallMs = 20_000;
/** A long latency while the limit isn't used doesn't come from our load, so the baseline follows sooner. */
const unusedRiseMs = 60_000;

export function movedBaseline(
  baseline: Baseline,
  seen: Durations,
  settings: LatencySettings,
  { elapsedMs, used }: { elapsedMs: number; used: boolean },
): Baseline {
  const riseMs = used ? settings.baselineRiseMs : Math.min(unusedRiseMs, settings.baselineRiseMs);
  const moved = (usual: number | null, durations: Histogram): number | null => {
    const nowMs = p95(durations, minCalls);
    if (nowMs === undefined) return usual;
    if (usual === null) return nowMs;
    const pace = 1 - Math.exp(-elapsedMs / (nowMs < usual ? fallMs : riseMs));
    return usual + (nowMs - usual) * pace;
  };
  return {
    latencyMs: moved(baseline.latencyMs, seen.latencies),
    firstTokenMs: moved(baseline.firstTokenMs, seen.firstTokens),
  };
}

/** The present latency as a multiple of the baseline; undefined where there are too few calls. */
export function slowness(baseline: Baseline, seen: Durations): number | undefined {
  const firstTokenMs = p95(seen.firstTokens, minCalls);
  if (firstTokenMs !== undefined && baseline.firstTokenMs !== null) {
    return firstTokenMs / baseline.firstTokenMs;
  }
  const latencyMs = p95(seen.latencies, minCalls);
  if (latencyMs !== undefined && baseline.latencyMs !== null) return latencyMs / baseline.latencyMs;
  return undefined;
}

/** Makes the present latency the baseline, because it doesn't come from our load. */
export function rebased(baseline: Baseline, seen: Durations): Baseline {
  return {
    latencyMs: p95(seen.latencies, minCalls) ?? baseline.latencyMs,
    firstTokenMs: p95(seen.firstTokens, minCalls) ?? baseline.firstTokenMs,
  };
}
