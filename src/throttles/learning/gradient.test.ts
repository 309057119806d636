import { expect, test } from "vitest";
import { calls, holdingAt, stepped } from "../contract/calls.ts";
import type { ControllerState } from "./limit-controller.ts";
import { resolveControllerOptions } from "../settings.ts";

const settings = resolveControllerOptions({ preset: "gradient" });

function after(state: ControllerState, latencyMs: number, serverErrors = 0): ControllerState {
  const ended = { success: 200 - serverErrors, server_error: serverErrors };
  return stepped(settings, state, calls(state, ended, { latencyMs }));
}

function usualAt(limit: number): ControllerState {
  let state = holdingAt(settings, limit);
  for (let second = 0; second < 3; second++) state = after(state, 100);
  return state;
}

test("the gradient shrinks by how far latency is above what is tolerated", () => {
  const state = usualAt(100);
  const slower = after(state, 150).limit;
  expect(slower).toBeLessThan(state.limit);
  expect(after(state, 170).limit).toBeLessThan(slower);
  expect(after(state, 100_000).limit).toBe(state.limit / 2);
});

test("the gradient shrinks when errors rise, well below the rate that strikes", () => {
  let state = usualAt(100);
  for (let second = 0; second < 9; second++) state = { ...after(state, 100), limit: 100 };
  const calm = after(state, 100).limit;
  expect(after(state, 100, 20).limit).toBeLessThan(calm);
});

test("the gradient takes a latency for usual that less load doesn't shorten, and returns", () => {
  let state = usualAt(100);
  for (let second = 0; second < 30; second++) state = after(state, 200);
  expect(state.baseline.latencyMs).toBeGreaterThan(180);
  expect(state.limit).toBeGreaterThanOrEqual(99);
});
