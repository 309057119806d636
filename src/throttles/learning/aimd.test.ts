import { describe, expect, test } from "vitest";
import { calls, stepped } from "../contract/calls.ts";
import { type ControllerState, initialState } from "./limit-controller.ts";
import { resolveControllerOptions } from "../settings.ts";

const seed = resolveControllerOptions({ preset: "aimd" });
const at = (limit: number): ControllerState => initialState({ ...seed, initial: limit });

describe("the seed's controller", () => {
  test("goes 2, 3, 4, 5, 6, 7, is throttled, and goes on with 3, 4", () => {
    let state = initialState(seed);
    const limits = [state.limit];
    for (const kind of [...Array(5).fill("success"), "throttled", "success"]) {
      state = stepped(seed, state, calls(state, { [kind]: state.limit }));
      limits.push(state.limit);
    }
    expect(limits).toEqual([2, 3, 4, 5, 6, 7, 3, 4]);
  });

  test.each([
    { why: "a whole round succeeds", ended: { success: 8 }, becomes: 9 },
    { why: "successes are isolated", ended: { success: 7 }, becomes: 8 },
    { why: "one call is throttled", ended: { success: 100, throttled: 1 }, becomes: 4 },
    { why: "one call times out", ended: { success: 100, timeout: 1 }, becomes: 4 },
    { why: "few server errors", ended: { success: 97, server_error: 3 }, becomes: 9 },
    { why: "many server errors", ended: { success: 60, server_error: 40 }, becomes: 4 },
    { why: "the caller's own mistakes", ended: { ignored: 100 }, becomes: 8 },
  ])("$why: 8 becomes $becomes", ({ ended, becomes }) => {
    expect(stepped(seed, at(8), calls(at(8), ended)).limit).toBe(becomes);
  });

  test("doesn't grow a limit that wasn't used", () => {
    const sample = { ...calls(at(8), { success: 100 }), peak: 7 };
    expect(stepped(seed, at(8), sample).limit).toBe(8);
  });

  test("doesn't grow while the p95 is above its baseline, and still halves", () => {
    const usual = stepped(seed, at(8), calls(at(8), { success: 20 }));
    const slow = calls(usual, { success: 200 }, { latencyMs: 300 });
    expect(stepped(seed, usual, slow).limit).toBe(usual.limit);
    const struck = calls(usual, { success: 200, throttled: 1 }, { latencyMs: 300 });
    expect(stepped(seed, usual, struck).limit).toBe(4);
  });

  test("never goes below one", () => {
    expect(stepped(seed, at(1), calls(at(1), { throttled: 5 })).limit).toBe(1);
  });
});
