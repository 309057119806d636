import { expect, test } from "vitest";
import { type ControllerOptions, presets, resolveControllerOptions } from "./settings.ts";

test.each(presets)("the preset %s is plain JSON, and starts within its bounds", (preset) => {
  const settings = resolveControllerOptions({ preset });
  expect(JSON.parse(JSON.stringify(settings))).toEqual(settings);
  expect(settings.initial).toBe(2);
});

test("plus one and halving is its preset", () => {
  expect(resolveControllerOptions({ preset: "aimd" })).toMatchObject({
    algorithm: "aimd",
    initial: 2,
    min: 1,
    latency: { tolerance: 1.2 },
    errors: { timeoutWeight: 1 },
  });
});

test("what is set pulls along what it bounds", () => {
  expect(resolveControllerOptions({ min: 5 }).initial).toBe(5);
  expect(resolveControllerOptions({ max: 1 }).initial).toBe(1);
  expect(resolveControllerOptions({ min: 5_000 }).max).toBe(5_000);
  expect(resolveControllerOptions({ breaker: { coolMs: 60_000 } }).breaker?.maxCoolMs).toBe(60_000);
  expect(resolveControllerOptions({ bucket: { refillPerS: 0.05 } }).bucket?.minPerS).toBe(0.05);
});

test.each<[unknown, string]>([
  [{ min: 0 }, "throttle: min must be a whole number from 1"],
  [{ min: 5, max: 4 }, "throttle: max must be a whole number from 5"],
  [{ max: 4, initial: 5 }, "throttle: initial must be a whole number from 1 to 4"],
  [{ presett: "aimd" }, "did you mean `preset`?"],
  [{ preset: "aimdd" }, "throttle: preset must be one of default, aimd, gradient"],
  [{ latency: { tolerence: 2 } }, "did you mean `tolerance`?"],
  [{ breaker: { rate: 2 } }, "throttle: breaker.rate must be a number from 0 to 1"],
  [{ errors: { minCalls: Number.NaN } }, "throttle: errors.minCalls must be a whole number"],
  [{ bucket: { refillPerS: 0 } }, "throttle: bucket.refillPerS must be a number"],
  [{ bucket: { unit: "words" } }, "throttle: bucket.unit must be one of requests, tokens"],
  [{ bucket: null }, "throttle: bucket: its options must be an object, not null"],
  [{ bucket: true }, "throttle: bucket: its options must be an object, not true"],
  [{ bucket: { refill: 5 } }, "unknown option `refill`, did you mean `refillPerS`?"],
  [{ bucket: { refillPerS: 5, maxPerS: 4 } }, "bucket.refillPerS must be a number from 0.1 to 4"],
  [{ breaker: { coolMs: 5, maxCoolMs: 4 } }, "breaker.maxCoolMs must be a whole number from 5"],
  [{ bucket: { minPerS: 5, maxPerS: 4 } }, "throttle: bucket.maxPerS must be a number from 5"],
])("%j is refused", (options, message) => {
  expect(() => resolveControllerOptions(options as ControllerOptions)).toThrow(message);
});
