import { describe, expect, test } from "vitest";
import { between, runLoop } from "./contract/learning-loop.ts";
import { resolveControllerOptions } from "./settings.ts";

const settings = resolveControllerOptions();
const wide = { timeout: 120_000 };

describe.each([
  { capacity: 20, pods: 1 },
  { capacity: 20, pods: 8 },
  { capacity: 200, pods: 8 },
])("with $pods pods against a downstream that takes $capacity", ({ capacity, pods }) => {
  const base = { settings, pods, latencyMs: 100 };

  test.each(["hard", "soft"] as const)("its %s wall is used, and hardly refuses", wide, (wall) => {
    const seconds = runLoop({ ...base, wall, capacity: () => capacity, seconds: 120 });
    const adapted = between(seconds, 50, 120);
    expect(adapted.use).toBeGreaterThanOrEqual(0.95);
    expect(adapted.throttled).toBeLessThanOrEqual(0.01);
  });

  test("half of it is found within ten seconds, and twice as much within a minute", wide, () => {
    const changes = (atS: number) =>
      atS < 60 ? capacity : atS < 120 ? capacity / 2 : capacity * 2;
    const seconds = runLoop({ ...base, wall: "hard", capacity: changes, seconds: 220 });
    expect(between(seconds, 70, 120).use).toBeGreaterThanOrEqual(0.95);
    // A pod with a single permit can't brake by itself, so a failed probe costs more refusals there.
    const bound = capacity / 2 < 2 * pods ? 0.02 : 0.01;
    expect(between(seconds, 80, 120).throttled).toBeLessThanOrEqual(bound);
    const doubled = between(seconds, 180, 220);
    expect(doubled.use).toBeGreaterThanOrEqual(0.95);
    expect(doubled.throttled).toBeLessThanOrEqual(0.01);
  });
});

test("calls of ten seconds make it neither wild nor stuck", wide, () => {
  const capacity = (atS: number) => (atS < 600 ? 20 : 10);
  const loop = { settings, pods: 4, latencyMs: 10_000, wall: "hard", capacity } as const;
  const seconds = runLoop({ ...loop, seconds: 1_200 });
  const limits = (fromS: number, toS: number) =>
    seconds.slice(fromS, toS).map(({ limit }) => limit);
  expect(Math.min(...limits(400, 600))).toBeGreaterThanOrEqual(18);
  expect(Math.max(...limits(400, 600))).toBeLessThanOrEqual(24);
  expect(between(seconds, 400, 600).use).toBeGreaterThanOrEqual(0.9);
  expect(Math.min(...limits(800, 1_200))).toBeGreaterThanOrEqual(5);
  expect(Math.max(...limits(800, 1_200))).toBeLessThanOrEqual(15);
});
