import { describe, expect, test } from "vitest";
import { fullBucket, settleEstimate, takeUnits } from "./bucket.ts";
import { calls, holdingAt, stepped } from "../contract/calls.ts";
import { allowanceOf, type ControllerState } from "../learning/limit-controller.ts";
import { resolveControllerOptions } from "../settings.ts";

describe("a pod's bucket", () => {
  const rate = { perS: 10, burstS: 2 };

  test("allows a burst after idleness, then its rate", () => {
    let bucket = fullBucket(rate);
    for (let call = 0; call < 20; call++) {
      const taken = takeUnits(bucket, rate, { units: 1, elapsedMs: 0 });
      expect(taken.taken).toBe(true);
      bucket = taken.bucket;
    }
    expect(takeUnits(bucket, rate, { units: 1, elapsedMs: 0 })).toMatchObject({ waitMs: 100 });
    expect(takeUnits(bucket, rate, { units: 1, elapsedMs: 99 }).taken).toBe(false);
    expect(takeUnits(bucket, rate, { units: 1, elapsedMs: 100 }).taken).toBe(true);
    expect(takeUnits(bucket, rate, { units: 20, elapsedMs: 3_600_000 }).bucket.units).toBe(0);
  });

  test("is left in debt by a call that used more than was estimated, and waits it off", () => {
    const { bucket } = takeUnits(fullBucket(rate), rate, { units: 10, elapsedMs: 0 });
    const settled = settleEstimate(bucket, rate, { estimated: 10, used: 50 });
    expect(settled.units).toBe(-30);
    expect(takeUnits(settled, rate, { units: 1, elapsedMs: 0 })).toMatchObject({ waitMs: 3_100 });
  });

  test("lets a call pass that is larger than itself, once it is full", () => {
    const taken = takeUnits(fullBucket(rate), rate, { units: 500, elapsedMs: 0 });
    expect(taken).toEqual({ taken: true, bucket: { units: -480 } });
  });
});

describe("the refill that is learned", () => {
  const settings = resolveControllerOptions({ bucket: { refillPerS: 100 } });
  const limited = (state: ControllerState, used: number) =>
    stepped(settings, state, {
      ...calls(state, { success: 20, throttled: 5 }, { limitedBy: "rate" }),
      used,
    });
  const fine = (state: ControllerState, used: number) =>
    stepped(settings, state, { ...calls(state, { success: 20 }), used });
  const refill = (state: ControllerState) => allowanceOf(settings, state).refillPerS;

  test("falls when the downstream reports that its rate was met, and the limit doesn't", () => {
    const state = limited(holdingAt(settings, 20), 95);
    expect(refill(state)).toBeCloseTo(90);
    expect(state.limit).toBe(20);
    expect(refill(limited(state, 10))).toBeLessThan(90 * 0.9);
  });

  test("takes calls that were refused together for one", () => {
    const holding = holdingAt(settings, 20);
    const first = limited(holding, 95);
    const rest = calls(holding, { throttled: 9 }, { limitedBy: "rate" });
    expect(refill(stepped(settings, first, rest))).toBe(refill(first));
  });

  test("rises by small steps while it is used up and nothing is refused, and not otherwise", () => {
    let full = holdingAt(settings, 20);
    let idle = full;
    for (let second = 0; second < 10; second++) {
      full = fine(full, 100);
      idle = fine(idle, 10);
    }
    expect(refill(full)).toBeGreaterThan(103);
    expect(refill(full)).toBeLessThan(110);
    expect(refill(idle)).toBe(100);
  });

  test("is unknown until the downstream first reports a rate", () => {
    const unknown = resolveControllerOptions({ bucket: { unit: "tokens" } });
    let state = holdingAt(unknown, 20);
    expect(allowanceOf(unknown, state).refillPerS).toBeUndefined();
    const sample = calls(state, { success: 20, throttled: 5 }, { limitedBy: "rate" });
    state = stepped(unknown, state, { ...sample, used: 1_000 });
    expect(allowanceOf(unknown, state).refillPerS).toBeCloseTo(900);
  });
});
