import { countDuration } from "../learning/histogram.ts";
import { noCounts, type Outcome, type OutcomeKind, type Sample } from "../learning/sample.ts";

type MutableCounts = Record<OutcomeKind, number>;

/** Gathers what the calls of a while amount to, without making anything anew for each call. */
export function createGauge(startMs: number) {
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
  let ended = 0;

  return {
    /** How many calls have ended since the last sample. */
    get ended() {
      return ended;
    },

    began(inFlight: number): void {
      if (inFlight > peak) peak = inFlight;
    },

    /** Somebody found the limit reached. */
    limit(): void {
      limited = true;
    },

    record(outcome: Outcome, callEpoch: number, nowMs: number): void {
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

    /** From here on, what was counted so far is of an earlier epoch. */
    beginEpoch(next: number, inFlight: number): void {
      if (next === epoch) return;
      epoch = next;
      for (const kind in counts) earlier[kind as OutcomeKind] += counts[kind as OutcomeKind];
      counts = { ...noCounts };
      peak = inFlight;
      limited = false;
    },

    take(nowMs: number, inFlight: number): Sample {
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
      ended = 0;
      return sample;
    },
  };
}
