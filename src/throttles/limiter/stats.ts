import { createUsageLedger, type ModelTotal, type ModelUsage } from "../../base/usage.ts";
import type { BreakerState } from "../learning/limit-controller.ts";
import { addHistograms, countDuration, type Histogram, percentile } from "../learning/histogram.ts";
import {
  type OutcomeCounts,
  noCounts,
  type MeasuredOutcome,
  type OutcomeKind,
  type Sample,
} from "../learning/sample.ts";
import type { BucketSnapshot } from "./bucket.ts";
import type { ThrottleMode } from "./settings.ts";
import type { PerPriority } from "./priority.ts";

type MutableCounts = Record<OutcomeKind, number>;

/** Collects the outcomes of calls into a sample, without an allocation per call. */
export function createSampleRecorder(startMs: number) {
  let epoch = 0;
  let sinceMs = startMs;
  let counts: MutableCounts = { ...noCounts };
  let earlier: MutableCounts = { ...noCounts };
  let latencies: number[] = [];
  let firstTokens: number[] = [];
  let acceptedMs = 0;
  let peak = 0;
  let limited = false;
  let retryUntilMs = 0;
  let rateLimited = 0;
  let used = 0;
  let broken = 0;
  let ended = 0;

  return {
    /** How many calls have ended since the last sample. */
    get ended() {
      return ended;
    },

    recordStart(inFlight: number): void {
      if (inFlight > peak) peak = inFlight;
    },

    /** A call found the limit reached. */
    recordLimited(): void {
      limited = true;
    },

    /** A call was refused although the downstream had said that something remained. */
    recordBrokenPromise(): void {
      broken++;
    },

    record(outcome: MeasuredOutcome, callEpoch: number, nowMs: number): void {
      ended++;
      (callEpoch === epoch ? counts : earlier)[outcome.kind]++;
      if (outcome.kind === "success") {
        acceptedMs += outcome.latencyMs;
        countDuration(latencies, outcome.latencyMs);
        if (outcome.firstTokenMs !== undefined) countDuration(firstTokens, outcome.firstTokenMs);
      }
      if (outcome.retryAfterMs !== undefined) {
        retryUntilMs = Math.max(retryUntilMs, nowMs + outcome.retryAfterMs);
      }
      if (outcome.kind === "throttled" && outcome.limitedBy === "rate") rateLimited++;
      used += outcome.used ?? 0;
    },

    /** Begins an epoch: the counts so far belong to an earlier one. */
    beginEpoch(next: number, inFlight: number): void {
      if (next === epoch) return;
      epoch = next;
      for (const kind in counts) earlier[kind as OutcomeKind] += counts[kind as OutcomeKind];
      counts = { ...noCounts };
      peak = inFlight;
      limited = false;
    },

    takeSample(nowMs: number, inFlight: number, promisedPerS: number): Sample {
      const sample: Sample = {
        epoch,
        counts,
        earlier,
        spanMs: nowMs - sinceMs,
        acceptedMs,
        latencies,
        firstTokens,
        peak,
        limited,
        retryAfterMs: Math.max(0, retryUntilMs - nowMs),
        rateLimited,
        used,
        promisedPerS,
        broken,
      };
      sinceMs = nowMs;
      counts = { ...noCounts };
      earlier = { ...noCounts };
      latencies = [];
      firstTokens = [];
      acceptedMs = 0;
      peak = inFlight;
      limited = false;
      retryUntilMs = 0;
      rateLimited = 0;
      used = 0;
      broken = 0;
      ended = 0;
      return sample;
    },
  };
}

/** One throttle and key on one pod. */
export type LimiterSnapshot = {
  readonly name: string;
  readonly key: string;
  readonly mode: ThrottleMode;
  readonly limit: number;
  readonly inFlight: number;
  readonly inFlightOf: PerPriority;
  readonly waiting: number;
  readonly blockedTasks: number;
  readonly epoch: number;
  readonly breaker: BreakerState;
  /** For how long no call may begin. */
  readonly holdMs: number;
  /** Whether the pod stays below its share because of throttled calls. */
  readonly braked: boolean;
  readonly bucket?: BucketSnapshot;
  /** How calls have ended since the pod started. */
  readonly outcomes: OutcomeCounts;
  /** Percentiles of successful calls in the last minute or less. */
  readonly latencyMs: { readonly p50?: number; readonly p95?: number };
  readonly firstTokenMs: { readonly p50?: number; readonly p95?: number };
  /** The durations of all successful calls since the pod started. */
  readonly durations: { readonly counts: Histogram; readonly sumMs: number };
  /** What the pod has learned by itself, in the mode `local`. */
  readonly learned?: unknown;
};

/** What the calls of a limiter have come to since it was created. */
export type CallTotals = {
  readonly outcomes: OutcomeCounts;
  /** What they used in the unit of the bucket. */
  readonly used: number;
  /** How long successful calls took. */
  readonly durations: Histogram;
  readonly sumMs: number;
  /** The tokens that models have reported of them. */
  readonly tokens: readonly ModelTotal[];
};

const windowMs = 30_000;

/** Statistics for the snapshot: counts since the start, latencies of the present and the last window. */
export function createCallStats(startMs: number) {
  const outcomes: Record<OutcomeKind, number> = {
    success: 0,
    throttled: 0,
    timeout: 0,
    server_error: 0,
    ignored: 0,
  };
  const latencies = createWindow();
  const firstTokens = createWindow();
  const counts: number[] = [];
  const ledger = createUsageLedger();
  const reports = new WeakSet<object>();
  let sumMs = 0;
  let used = 0;
  let windowFromMs = startMs;
  let meanMs: number | undefined;

  const rotate = (nowMs: number) => {
    if (nowMs - windowFromMs < windowMs) return;
    const gone = nowMs - windowFromMs >= 2 * windowMs;
    windowFromMs = nowMs;
    latencies.rotate(gone);
    firstTokens.rotate(gone);
  };

  return {
    record(outcome: MeasuredOutcome, nowMs: number): void {
      outcomes[outcome.kind]++;
      used += outcome.used ?? 0;
      rotate(nowMs);
      if (outcome.kind !== "success") return;
      const bucket = latencies.add(outcome.latencyMs);
      while (counts.length <= bucket) counts.push(0);
      counts[bucket]!++;
      sumMs += outcome.latencyMs;
      if (outcome.firstTokenMs !== undefined) firstTokens.add(outcome.firstTokenMs);
      meanMs = meanMs === undefined ? outcome.latencyMs : meanMs * 0.9 + outcome.latencyMs * 0.1;
    },

    /** Counts the tokens of a call, once for each report: a model that is wrapped twice gives one. */
    countTokens(usage: ModelUsage, report: object): void {
      if (reports.has(report)) return;
      reports.add(report);
      ledger.count(usage, "middleware");
    },

    /** About how long a call waits behind `ahead` others. */
    estimateWaitMs(ahead: number, limit: number): number | undefined {
      if (meanMs === undefined || limit < 1) return undefined;
      return Math.ceil(((ahead + 1) * meanMs) / limit);
    },

    /** The totals since the start, as they are at this moment: read them, and keep none. */
    totals: (): CallTotals => ({
      outcomes,
      used,
      durations: counts,
      sumMs,
      tokens: ledger.totals(),
    }),

    snapshot(nowMs: number) {
      rotate(nowMs);
      return {
        outcomes: { ...outcomes },
        latencyMs: latencies.percentiles(),
        firstTokenMs: firstTokens.percentiles(),
        durations: { counts: counts.slice(), sumMs },
      };
    },
  };
}

function createWindow() {
  let present: number[] = [];
  let last: number[] = [];
  return {
    add: (durationMs: number): number => countDuration(present, durationMs),
    rotate(gone: boolean): void {
      last = gone ? [] : present;
      present = [];
    },
    percentiles(): { p50?: number; p95?: number } {
      const both = addHistograms(present, last);
      const p50 = percentile(both, 0.5);
      const p95 = percentile(both, 0.95);
      return { ...(p50 !== undefined && { p50 }), ...(p95 !== undefined && { p95 }) };
    },
  };
}
