import { describe, expect, test } from "vitest";
import { calls, holdingAt, stepped } from "../contract/calls.ts";
import { allowanceOf, type ControllerState, initialState, step } from "./limit-controller.ts";
import { resolveControllerOptions } from "../settings.ts";

const settings = resolveControllerOptions();

function good(state: ControllerState, latencyMs = 100): ControllerState {
  return stepped(settings, state, calls(state, { success: state.limit * 10 }, { latencyMs }));
}

function struck(state: ControllerState): ControllerState {
  return stepped(settings, state, calls(state, { success: 20, throttled: 10 }));
}

function limits(
  start: ControllerState,
  seconds: readonly ((s: ControllerState) => ControllerState)[],
) {
  let state = start;
  return seconds.map((second) => (state = second(state)).limit);
}

describe("the controller that remembers its ceiling", () => {
  test("grows by twice as much each round as long as it knows no ceiling", () => {
    expect(limits(initialState(settings), Array(6).fill(good))).toEqual([3, 5, 9, 17, 33, 65]);
  });

  test("goes to what was accepted when a large step is refused", () => {
    let state = { ...holdingAt(settings, 33), memory: climbingFrom(17) };
    const sample = { ...calls(state, { success: 200, throttled: 100 }), acceptedMs: 24_000 };
    state = { ...state, ...stepped(settings, state, sample), memory: climbingFrom(17) };
    expect(state.limit).toBe(24);
  });

  test("probes by one after a quiet while, and returns at once when that is refused", () => {
    const state = holdingAt(settings, 20);
    const probing = [good, good, good, good];
    expect(limits(state, [...probing, struck])).toEqual([20, 20, 20, 21, 20]);
  });

  test("waits longer after each probe that failed, up to a bound", () => {
    let state = holdingAt(settings, 20);
    const waits: number[] = [];
    for (let probe = 0; probe < 5; probe++) {
      let seconds = 0;
      for (; state.limit === 20; seconds++) state = good(state);
      waits.push(seconds);
      state = struck(state);
      expect(state.limit).toBe(20);
    }
    expect(waits).toEqual([4, 8, 16, 20, 20]);
  });

  test("doubles the step of probes that are proven", () => {
    const seconds = limits(holdingAt(settings, 20), Array(8).fill(good));
    expect(seconds).toEqual([20, 20, 20, 21, 23, 27, 35, 51]);
  });

  test("brakes by half out of the blue, tries just below the ceiling, then the ceiling", () => {
    expect(limits(holdingAt(settings, 20), [struck, good, good])).toEqual([10, 19, 20]);
  });

  test("takes what was accepted for the ceiling when it is struck again there", () => {
    let state = struck(holdingAt(settings, 20));
    state = good(state);
    const sample = { ...calls(state, { success: 130, throttled: 50 }), acceptedMs: 13_000 };
    state = stepped(settings, { ...state, accepted: { acceptedMs: 0, spanMs: 0 } }, sample);
    expect(state.limit).toBe(13);
    expect(good(state).limit).toBe(13);
  });

  test("goes on halving and cools longer each time, and returns in strides", () => {
    let state = holdingAt(settings, 64);
    const seen: [number, number][] = [];
    for (let strike = 0; strike < 5; strike++) {
      state = struck(state);
      seen.push([state.limit, allowanceOf(settings, state).holdMs]);
    }
    expect(seen).toEqual([
      [32, 0],
      [16, 250],
      [8, 500],
      [4, 1_000],
      [2, 2_000],
    ]);
    expect(limits(state, [good, good, good, good])).toEqual([8, 32, 63, 64]);
  });

  test("lets one stray refusal among many answers pass, and answers few by one step", () => {
    const state = stepped(settings, holdingAt(settings, 50), calls({ epoch: 1, limit: 50 }, {}));
    const after = (throttled: number): number =>
      stepped(settings, { ...state, memory: quiet }, calls(state, { success: 300, throttled }))
        .limit;
    expect([0, 1, 4, 30].map(after)).toEqual([50, 50, 49, 25]);
  });

  test("tries just below the ceiling at once where pods have braked by themselves", () => {
    const state = holdingAt(settings, 20);
    const sample = calls(state, { success: 20, throttled: 10 });
    const next = step(settings, state, { elapsedMs: 1_000, sample, restrained: true });
    expect(next.limit).toBe(19);
    expect(next.epoch).toBe(state.epoch + 1);
  });

  test("doesn't grow a limit that isn't used", () => {
    let state = holdingAt(settings, 20);
    for (let second = 0; second < 60; second++) {
      state = stepped(settings, state, { ...calls(state, { success: 100 }), peak: 12 });
    }
    expect(state.limit).toBe(20);
  });
});

describe("each of the three protections alone", () => {
  test("the cap: growth ends at max, with nothing refused and no latency measured", () => {
    const capped = resolveControllerOptions({ max: 10, latency: false });
    let state = initialState(capped);
    for (let second = 0; second < 60; second++) {
      state = stepped(capped, state, calls(state, { success: 100 }));
    }
    expect(state.limit).toBe(10);
  });

  test("latency: growth pauses while the p95 is far above its baseline, with nothing refused", () => {
    let state = good(good(initialState(settings)));
    const { limit } = state;
    for (let second = 0; second < 20; second++) state = good(state, 300);
    expect(state.limit).toBe(limit);
  });

  test("latency: the time to the first token counts for streams, not their length", () => {
    const stream = (state: ControllerState, latencyMs: number, firstTokenMs: number) =>
      stepped(settings, state, calls(state, { success: 100 }, { latencyMs, firstTokenMs }));
    const usual = stream(initialState(settings), 1_000, 50);
    expect(stream(usual, 9_000, 50).limit).toBeGreaterThan(usual.limit);
    expect(stream(usual, 1_000, 200).limit).toBe(usual.limit);
  });

  test("the brake: refusals halve it, with no cap in reach and no latency measured", () => {
    const braking = resolveControllerOptions({ latency: false });
    const state = holdingAt(braking, 100);
    expect(stepped(braking, state, calls(state, { throttled: 50 })).limit).toBe(50);
  });
});

const quiet = {
  algorithm: "ceiling",
  phase: "holding",
  quietMs: 3_000,
  waitMs: 20_000,
  shaken: false,
} as const;

function climbingFrom(from: number) {
  return { algorithm: "ceiling", phase: "climbing", good: from, step: from } as const;
}
