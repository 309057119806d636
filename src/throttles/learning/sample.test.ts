import { expect, test } from "vitest";
import { totalCount, percentile, withDuration } from "./histogram.ts";
import { addOutcome, addSamples, emptySample, type Sample } from "./sample.ts";

const taken = (epoch: number, spanMs: number, calls: number, peak: number): Sample => {
  let sample: Sample = { ...emptySample(epoch), spanMs, peak };
  for (let call = 0; call < calls; call++) {
    sample = addOutcome(sample, { kind: "success", latencyMs: 100 }, epoch);
  }
  return sample;
};

test("calls of an earlier epoch are counted separately", () => {
  const sample = addOutcome(emptySample(3), { kind: "throttled", latencyMs: 5 }, 2);
  expect(sample.counts.throttled).toBe(0);
  expect(sample.earlier.throttled).toBe(1);
});

test("only answered calls count for latency and for what was accepted", () => {
  const sample = addOutcome(emptySample(1), { kind: "timeout", latencyMs: 30_000 }, 1);
  expect(sample.acceptedMs).toBe(0);
  expect(totalCount(sample.latencies)).toBe(0);
});

test("samples of two pods add up what was accepted at once, however long each was", () => {
  const sum = addSamples(taken(1, 1_000, 50, 5), taken(1, 500, 50, 10));
  expect(sum.acceptedMs / sum.spanMs).toBeCloseTo(15);
  expect(sum).toMatchObject({ spanMs: 1_000, peak: 15, counts: { success: 100 } });
  expect(addSamples(taken(1, 500, 50, 10), taken(1, 1_000, 50, 5))).toEqual(sum);
});

test("a pod that hasn't heard of the epoch yet reports an earlier one", () => {
  const sum = addSamples(taken(1, 1_000, 50, 5), taken(2, 1_000, 30, 3));
  expect(sum).toMatchObject({ epoch: 2, counts: { success: 30 }, earlier: { success: 50 } });
});

test("a percentile is right within a tenth", () => {
  let histogram = withDuration([], 1);
  for (let ms = 2; ms <= 1_000; ms++) histogram = withDuration(histogram, ms);
  expect(Math.abs(percentile(histogram, 0.95)! / 950 - 1)).toBeLessThan(0.1);
});
