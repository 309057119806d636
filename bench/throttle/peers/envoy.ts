import { fraction, type Random } from "../../../src/base/random.ts";
import { percentile } from "../../statistics.ts";
import type { Contender } from "../fleet.ts";
import { type ProcessLimit, separatePods } from "./pods.ts";

// The defaults of the filter's reference; update interval and minRTT interval are those of its example.
const minLimit = 3;
const maxLimit = 1_000;
const updateMs = 100;
const minRttEveryMs = 60_000;
const minRttJitter = 0.15;
const minRttCalls = 50;
const buffer = 0.25;
const sampled = 0.5;
const windowsAtMinimum = 5;

/**
 * The gradient controller of Envoy's adaptive concurrency filter as it is published: once a minute it
 * measures an ideal latency with few calls in flight, then follows `gradient × limit + √limit`.
 */
export const envoy: Contender = {
  name: "envoy",
  about: "the published gradient controller of Envoy in each pod; refused calls don't enter it",
  settles: false,
  open: (surroundings) => separatePods(surroundings, () => envoyLimit(surroundings.random)),
};

function envoyLimit(random: Random): ProcessLimit {
  let limit = minLimit;
  let before = minLimit;
  let measuring = true;
  let minRttMs = 0;
  let samples: number[] = [];
  let updateAtMs = updateMs;
  let measureAtMs = 0;
  let measureFromMs = 0;
  let atMinimum = 0;

  function measure(nowMs: number): void {
    measuring = true;
    measureFromMs = nowMs;
    before = limit;
    limit = minLimit;
    samples = [];
    atMinimum = 0;
  }

  function measured(nowMs: number): void {
    minRttMs = percentile(samples, sampled);
    measuring = false;
    limit = before;
    samples = [];
    updateAtMs = nowMs + updateMs;
    measureAtMs = nowMs + minRttEveryMs * (1 + minRttJitter * fraction(random));
  }

  function update(nowMs: number): void {
    updateAtMs = nowMs + updateMs;
    if (samples.length === 0) return;
    const raw = (minRttMs * (1 + buffer)) / percentile(samples, sampled);
    const scaled = limit * Math.max(0.5, Math.min(2, raw));
    limit = Math.max(minLimit, Math.min(maxLimit, Math.floor(scaled + Math.sqrt(scaled))));
    samples = [];
    atMinimum = limit === minLimit ? atMinimum + 1 : 0;
  }

  return {
    limit: () => limit,
    ended({ kind, latencyMs, beganMs, endedMs }) {
      // What began before still had the company of many.
      if (measuring && beganMs < measureFromMs) return;
      if (kind === "success") samples.push(latencyMs);
      if (measuring) {
        if (samples.length >= minRttCalls) measured(endedMs);
        return;
      }
      if (endedMs >= updateAtMs) update(endedMs);
      if (endedMs >= measureAtMs || atMinimum >= windowsAtMinimum) measure(endedMs);
    },
  };
}
