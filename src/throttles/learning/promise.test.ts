import { describe, expect, test } from "vitest";
import { resolveControllerOptions } from "../settings.ts";
import { type ControllerState, initialState, step } from "./limit-controller.ts";
import { nextPromised, nothingPromised, type Promised, promisedCalls } from "./promise.ts";
import { emptySample, noCounts, type OutcomeCounts, type Sample } from "./sample.ts";
import { withDuration } from "./histogram.ts";

const sampleOf = (
  state: Pick<ControllerState, "epoch" | "limit">,
  counts: Partial<OutcomeCounts>,
  more: Partial<Sample> = {},
): Sample => {
  let latencies: readonly number[] = [];
  for (let at = 0; at < (counts.success ?? 0); at++) latencies = withDuration(latencies, 100);
  return {
    ...emptySample(state.epoch),
    counts: { ...noCounts, ...counts },
    spanMs: 1_000,
    acceptedMs: (counts.success ?? 0) * 100,
    peak: state.limit,
    latencies,
    ...more,
  };
};

const settings = resolveControllerOptions();
const learn = (
  state: ControllerState,
  counts: Partial<OutcomeCounts>,
  more: Partial<Sample> = {},
  own = settings,
): ControllerState =>
  step(own, state, { elapsedMs: 1_000, restrained: true, sample: sampleOf(state, counts, more) });

describe("a promised rate", () => {
  test("lets the limit grow at once to the calls that it amounts to", () => {
    const state = learn(initialState(settings), { success: 10 }, { promisedPerS: 200 });
    // Calls take 100 ms, so it is 20 of them, and a little more.
    expect(state.limit).toBeGreaterThanOrEqual(21);
    expect(state.limit).toBeLessThan(26);
  });

  test.each(["aimd", "gradient"] as const)("the same with the preset %s", (preset) => {
    const own = resolveControllerOptions({ preset });
    const state = learn(initialState(own), { success: 10 }, { promisedPerS: 200 }, own);
    expect(state.limit).toBeGreaterThanOrEqual(21);
  });

  test("floods nothing, however high it is", () => {
    const state = learn(initialState(settings), { success: 10 }, { promisedPerS: 150_000 });
    expect(state.limit).toBe(256);
    const few = resolveControllerOptions({ max: 30 });
    expect(learn(initialState(few), { success: 10 }, { promisedPerS: 9_999 }, few).limit).toBe(30);
  });

  test("never lowers the limit, however low it is", () => {
    const first = learn(initialState(settings), { success: 10 }, { promisedPerS: 200 });
    const state = learn(first, { success: 10 }, { promisedPerS: 0.001, peak: 1 });
    expect(state.limit).toBe(first.limit);
  });

  test("says nothing before a call has succeeded", () => {
    expect(learn(initialState(settings), {}, { promisedPerS: 200 }).limit).toBe(2);
    expect(promisedCalls({ ...nothingPromised, perS: 200 }, [])).toBeUndefined();
  });

  test("isn't followed above a ceiling that was met", () => {
    let state = learn(initialState(settings), { success: 10 }, { promisedPerS: 900 });
    expect(state.limit).toBeGreaterThan(80);
    state = learn(state, { success: 200, throttled: 90 }, { promisedPerS: 900, broken: 90 });
    const { limit } = state;
    // 200 answers of 100 ms in a second are 20 at once.
    expect(limit).toBeLessThan(30);
    expect(state.promised.doubtMs).toBe(60_000);
    state = learn(state, { success: 10 }, { promisedPerS: 900 });
    expect(state.limit).toBeLessThan(40);
  });

  test("refusals that the headers account for say nothing about calls at once", () => {
    const first = learn(initialState(settings), { success: 10 }, { promisedPerS: 200 });
    const refused = { promisedPerS: 200, rateLimited: 3 };
    const state = learn(first, { success: 100, throttled: 3 }, refused);
    expect(state.limit).toBeGreaterThanOrEqual(first.limit);
    expect(state.promised.doubtMs).toBe(0);
  });
});

describe("a promise that was broken", () => {
  const broken = sampleOf({ epoch: 1, limit: 9 }, { success: 10 }, { promisedPerS: 9, broken: 5 });
  const kept = sampleOf({ epoch: 1, limit: 9 }, { success: 10 }, { promisedPerS: 9 });

  test("isn't believed for a minute, then for two, up to an hour", () => {
    let promised = nextPromised(nothingPromised, 1_000, broken);
    const doubts = [promised.doubtMs];
    for (let at = 0; at < 7; at++) {
      promised = nextPromised(promised, promised.doubtMs, kept);
      expect(promisedCalls(promised, kept.latencies)).toBe(2);
      promised = nextPromised(promised, 1_000, broken);
      expect(promisedCalls(promised, kept.latencies)).toBeUndefined();
      doubts.push(promised.doubtMs);
    }
    expect(doubts.map((each) => each / 60_000)).toEqual([1, 2, 4, 8, 16, 32, 60, 60]);
    // However often it was broken, seven breaks are to be made up for.
    expect(promised.broken).toBe(7);
  });

  /** Calls go on under a promise, with a sample each second. */
  const hold = (from: Promised, holdMs: number, sample: Sample | undefined): Promised => {
    let promised = from;
    for (let at = 0; at < holdMs; at += 1_000) promised = nextPromised(promised, 1_000, sample);
    return promised;
  };

  test("is doubted for less once it has held for as long as it was doubted", () => {
    const often = { ...nothingPromised, perS: 9, broken: 6 };
    const doubt = (promised: Promised) => nextPromised(promised, 1_000, broken).doubtMs / 60_000;
    expect(doubt(often)).toBe(60);
    // Six breaks were doubted for 32 minutes, five for 16.
    expect(doubt(hold(often, 31 * 60_000, kept))).toBe(60);
    expect(doubt(hold(often, 32 * 60_000, kept))).toBe(32);
    expect(doubt(hold(often, 48 * 60_000, kept))).toBe(16);
    expect(doubt(hold(often, 64 * 60_000, kept))).toBe(1);
  });

  test("isn't made up for by time without calls, or while it isn't believed", () => {
    const once = { ...nothingPromised, perS: 9, broken: 1 };
    expect(hold(once, 120_000, undefined).broken).toBe(1);
    expect(nextPromised(once, 3_600_000, kept).broken).toBe(1);
    const silent = { ...kept, promisedPerS: 0 };
    expect(hold(once, 120_000, silent).broken).toBe(1);
    const doubted = { ...once, doubtMs: 120_000 };
    expect(hold(doubted, 120_000, kept).broken).toBe(1);
    expect(hold(doubted, 180_000, kept).broken).toBe(0);
  });

  test("once for all calls that were in flight together", () => {
    const first = nextPromised(nothingPromised, 1_000, broken);
    expect(nextPromised(first, 1_000, broken)).toMatchObject({ broken: 1, doubtMs: 59_000 });
  });

  test("isn't one where a single call of many was refused", () => {
    const stray = { ...kept, broken: 1 };
    expect(nextPromised(nothingPromised, 1_000, stray).doubtMs).toBe(0);
  });
});
