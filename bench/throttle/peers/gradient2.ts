import type { Contender } from "../fleet.ts";
import { type ProcessLimit, separatePods } from "./pods.ts";

// The published defaults, but for the smallest limit: theirs is 20 per process.
const initialLimit = 20;
const minLimit = 1;
const maxLimit = 200;
const smoothing = 0.2;
const queueSize = 4;
const tolerance = 1.5;
const longWindow = 600;
const warmup = 10;
const windowMs = 1_000;
const windowSamples = 10;

/**
 * Netflix's Gradient2 as it is published: the average latency of a window against a long average,
 * `limit × gradient + queue`, smoothed. Refused calls don't enter it. The variant also takes a tenth
 * off after a window with a refusal or a timeout, as their limits by loss do.
 */
export function gradient2(name: string, { heedsLoss }: { heedsLoss: boolean }): Contender {
  return {
    name,
    about: `the published Gradient2 in each pod${heedsLoss ? ", and × 0.9 after a window with 429s or timeouts" : ""}`,
    settles: false,
    open: (surroundings) => separatePods(surroundings, () => gradient2Limit(heedsLoss)),
  };
}

function gradient2Limit(heedsLoss: boolean): ProcessLimit {
  let limit = initialLimit;
  const long = averageOf();
  let window = emptyWindow(0);

  function update(shortMs: number, mostInFlight: number, lost: boolean): void {
    const longMs = long.add(shortMs);
    // After a long time of load the average would take too long to come down again.
    if (longMs / shortMs > 2) long.scale(0.95);
    if (lost && heedsLoss) {
      limit = Math.max(minLimit, limit * 0.9);
      return;
    }
    if (mostInFlight < limit / 2) return;
    const gradient = Math.max(0.5, Math.min(1, (tolerance * longMs) / shortMs));
    const wanted = limit * gradient + queueSize;
    const smoothed = limit * (1 - smoothing) + wanted * smoothing;
    limit = Math.max(minLimit, Math.min(maxLimit, smoothed));
  }

  return {
    limit: () => limit,
    ended({ kind, latencyMs, endedMs, inFlight }) {
      window.mostInFlight = Math.max(window.mostInFlight, inFlight);
      if (kind === "success") {
        window.count++;
        window.sumMs += latencyMs;
      } else if (kind === "throttled" || kind === "timeout") {
        window.lost = true;
      }
      if (endedMs < window.endsMs || (window.count < windowSamples && !window.lost)) return;
      if (window.count > 0) {
        update(window.sumMs / window.count, window.mostInFlight, window.lost);
      } else if (heedsLoss) {
        limit = Math.max(minLimit, limit * 0.9);
      }
      window = emptyWindow(endedMs);
    },
  };
}

function emptyWindow(startMs: number) {
  return { endsMs: startMs + windowMs, count: 0, sumMs: 0, mostInFlight: 0, lost: false };
}

/** An exponential average that begins as a plain one. */
export function averageOf() {
  let value = 0;
  let count = 0;
  let sum = 0;
  return {
    add(sample: number): number {
      if (count < warmup) {
        count++;
        sum += sample;
        value = sum / count;
      } else {
        const weight = 2 / (longWindow + 1);
        value = value * (1 - weight) + sample * weight;
      }
      return value;
    },
    scale(factor: number): void {
      value *= factor;
    },
  };
}
