import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { calls, holdingAt, stepped } from "../contract/calls.ts";
import { allowanceOf, type ControllerState, initialState, step } from "./limit-controller.ts";
import { emptySample, outcomeKinds, type Sample } from "./sample.ts";
import { type Preset, presets, resolveControllerOptions } from "../settings.ts";

const count = fc.nat({ max: 300 });
const counts = fc.record(Object.fromEntries(outcomeKinds.map((kind) => [kind, count])));
const news = fc.record({
  elapsedMs: fc.nat({ max: 5_000 }),
  counts,
  earlier: counts,
  latency: fc.nat({ max: 120 }),
  peakOver: fc.integer({ min: -3, max: 3 }),
  stale: fc.boolean(),
  retryAfterMs: fc.oneof(fc.constant(0), fc.nat({ max: 100_000 })),
});
type News = typeof news extends fc.Arbitrary<infer T> ? T : never;

function sampleOf(state: ControllerState, what: News): Sample {
  const latencies = Array<number>(what.latency + 1).fill(0);
  latencies[what.latency] = what.counts["success"]!;
  return {
    ...emptySample(what.stale ? state.epoch - 1 : state.epoch),
    counts: what.counts as Sample["counts"],
    earlier: what.earlier as Sample["earlier"],
    spanMs: what.elapsedMs,
    acceptedMs: what.counts["success"]! * 2 ** (what.latency / 8),
    latencies,
    peak: Math.max(0, state.limit + what.peakOver),
    retryAfterMs: what.retryAfterMs,
  };
}

function played(preset: Preset, all: readonly News[]): ControllerState[] {
  const settings = resolveControllerOptions({ preset, min: 3, max: 40 });
  const states = [initialState(settings)];
  for (const each of all) {
    const before = states.at(-1)!;
    const sample = sampleOf(before, each);
    states.push(step(settings, before, { elapsedMs: each.elapsedMs, sample }));
  }
  return states;
}

describe.each(presets)("the controller of the preset %s", (preset) => {
  const settings = resolveControllerOptions({ preset, min: 3, max: 40 });

  test("stays between floor and max in whole numbers, and changes its epoch with its limit", () => {
    fc.assert(
      fc.property(fc.array(news, { maxLength: 40 }), (all) => {
        const states = played(preset, all);
        for (const [index, state] of states.entries()) {
          expect(Number.isInteger(state.limit)).toBe(true);
          expect(state.limit).toBeGreaterThanOrEqual(3);
          expect(state.limit).toBeLessThanOrEqual(40);
          const before = states[Math.max(0, index - 1)]!;
          expect(state.epoch).toBeGreaterThanOrEqual(
            before.epoch + (state.limit === before.limit ? 0 : 1),
          );
        }
      }),
    );
  });

  test("goes on from stored JSON as if it had never been away, the same each time", () => {
    fc.assert(
      fc.property(fc.array(news, { maxLength: 20 }), (all) => {
        const states = played(preset, all);
        expect(played(preset, all)).toEqual(states);
        for (const state of states) {
          expect(JSON.parse(JSON.stringify(state))).toEqual(state);
        }
      }),
    );
  });

  test("never answers more throttled calls with a higher limit", () => {
    fc.assert(
      fc.property(fc.array(news, { maxLength: 20 }), news, count, (all, last, more) => {
        const state = played(preset, all).at(-1)!;
        const sample = sampleOf(state, { ...last, stale: false });
        const throttled = sample.counts.throttled + more;
        const limitAfter = (what: Sample): number =>
          allowanceOf(settings, step(settings, state, { elapsedMs: last.elapsedMs, sample: what }))
            .limit;
        expect(
          limitAfter({ ...sample, counts: { ...sample.counts, throttled } }),
        ).toBeLessThanOrEqual(limitAfter(sample));
      }),
      { numRuns: 500 },
    );
  });

  test("takes calls that were throttled together for one strike", () => {
    const state = holdingAt(settings, 20);
    const first = stepped(settings, state, calls(state, { throttled: 4 }));
    expect(first.limit).toBe(10);
    const rest = stepped(settings, first, calls(state, { throttled: 16 }));
    expect(rest.limit).toBe(10);
    expect(rest.epoch).toBe(first.epoch);
  });

  test("isn't lowered by an error in thirty, and ignores the caller's mistakes", () => {
    let state = holdingAt(settings, 20);
    for (let second = 0; second < 60; second++) {
      const before = state.limit;
      const ended = { success: 194, server_error: 3, timeout: preset === "aimd" ? 0 : 3 };
      state = stepped(settings, state, calls(state, { ...ended, ignored: 50 }));
      expect(state.limit).toBeGreaterThanOrEqual(before);
    }
  });

  test("reaches the floor under sustained refusals", () => {
    let state = holdingAt(settings, 40);
    for (let second = 0; second < 10; second++) {
      state = stepped(settings, state, calls(state, { throttled: 50 }));
    }
    expect(state.limit).toBe(3);
  });

  test("learns nothing while a limit is pinned, and goes on from what it knew", () => {
    const state = holdingAt(settings, 20);
    const pinned = { ...settings, pinned: 7 };
    const held = stepped(pinned, state, calls(state, { throttled: 50 }));
    expect(allowanceOf(pinned, held)).toMatchObject({ limit: 7, epoch: state.epoch + 1 });
    expect(allowanceOf(settings, step(settings, held, { elapsedMs: 1 })).limit).toBe(20);
  });

  test("stays away for as long as Retry-After demands, up to the longest that is allowed", () => {
    const state = holdingAt(settings, 20);
    const sample = { ...calls(state, { success: 1 }), retryAfterMs: 5_000 };
    const held = stepped(settings, state, sample);
    expect(allowanceOf(settings, held).holdMs).toBe(5_000);
    expect(allowanceOf(settings, step(settings, held, { elapsedMs: 3_000 })).holdMs).toBe(2_000);
    expect(allowanceOf(settings, step(settings, held, { elapsedMs: 9_000 })).holdMs).toBe(0);
    const long = stepped(settings, state, { ...sample, retryAfterMs: 1e9 });
    expect(allowanceOf(settings, long).holdMs).toBe(settings.maxHoldMs);
  });
});
