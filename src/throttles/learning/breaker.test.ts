import { describe, expect, test } from "vitest";
import { calls, holdingAt, stepped } from "../contract/calls.ts";
import { allowanceOf, type ControllerState, step } from "./limit-controller.ts";
import { resolveControllerOptions } from "../settings.ts";

const settings = resolveControllerOptions({
  breaker: { rate: 0.5, minCalls: 20, coolMs: 2_000, maxCoolMs: 5_000, probes: 3 },
});
const after = (state: ControllerState, ended: Parameters<typeof calls>[1]) =>
  stepped(settings, state, calls(state, ended));
const later = (state: ControllerState, elapsedMs: number) => step(settings, state, { elapsedMs });

describe("the breaker", () => {
  const holding = holdingAt(settings, 20);
  const open = after(holding, { success: 10, server_error: 15, timeout: 5 });

  test.each([
    { why: "half of the calls fail", ended: { success: 10, server_error: 10 }, state: "open" },
    { why: "half time out", ended: { success: 10, timeout: 10 }, state: "open" },
    { why: "fewer fail", ended: { success: 12, server_error: 10 }, state: "closed" },
    { why: "too few calls to tell", ended: { server_error: 19 }, state: "closed" },
    { why: "all are throttled", ended: { throttled: 100 }, state: "closed" },
    { why: "all are mistakes of the caller's", ended: { ignored: 100 }, state: "closed" },
  ])("is $state where $why", ({ ended, state }) => {
    expect(allowanceOf(settings, after(holding, ended)).breaker).toBe(state);
  });

  test("stops every call for a while, then lets a few through", () => {
    expect(allowanceOf(settings, open)).toMatchObject({ limit: 0, holdMs: 2_000, breaker: "open" });
    expect(allowanceOf(settings, later(open, 1_500))).toMatchObject({ limit: 0, holdMs: 500 });
    expect(allowanceOf(settings, later(open, 2_000))).toMatchObject({
      limit: 3,
      holdMs: 0,
      breaker: "half_open",
    });
  });

  test("stops again for twice as long where those fail, up to a bound", () => {
    let state = open;
    const holds: number[] = [];
    for (let failed = 0; failed < 3; failed++) {
      state = after(later(state, 10_000), { server_error: 1 });
      holds.push(allowanceOf(settings, state).holdMs);
    }
    expect(holds).toEqual([4_000, 5_000, 5_000]);
  });

  test("counts only calls that began since it let some through", () => {
    const half = later(open, 2_000);
    const stale = { ...calls(holding, { server_error: 20 }), epoch: holding.epoch };
    expect(allowanceOf(settings, stepped(settings, half, stale)).breaker).toBe("half_open");
  });

  test("closes at half the limit when those succeed, and is soon back at the ceiling", () => {
    let state = after(later(open, 2_000), { success: 3 });
    expect(allowanceOf(settings, state)).toMatchObject({ limit: 10, breaker: "closed" });
    state = after(state, { success: 100 });
    expect(state.limit).toBe(19);
    state = after(state, { success: 100 });
    expect(state.limit).toBe(20);
  });
});
