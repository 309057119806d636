import { expect, test } from "vitest";
import { type ControllerState, initialState } from "../learning/limit-controller.ts";
import { resolveControllerOptions } from "../settings.ts";
import { type LearnedRow, type LearnedState, toThrottleStats } from "./fleet-learning.ts";
import { raisedByRate } from "./stated-rate.ts";

const settings = resolveControllerOptions({ initial: 2 });
const row: LearnedRow = {
  name: "api",
  key: "",
  rev: 1,
  bound: 2,
  epoch: 1,
  settings,
  stored: undefined,
  stats: toThrottleStats("{}"),
  shares: {},
};
const rate = { perS: 200, latencyMs: 100 };
const known = (
  changes: Partial<ControllerState>,
  more: Partial<LearnedState> = {},
): LearnedRow => ({
  ...row,
  stored: { controller: { ...initialState(settings), ...changes }, seen: {}, ...more },
});

test("a stated rate raises the bound to the calls that it amounts to, in a new epoch", () => {
  const raised = raisedByRate(row, rate)!;
  // 200 a second of 100 ms each are 20 at once, and a little more.
  expect(raised.bound).toBeGreaterThanOrEqual(21);
  expect(raised.bound).toBeLessThan(26);
  expect(raised.epoch).toBe(2);
  expect(JSON.parse(raised.constraints)).toEqual({ holdMs: 0, breaker: "closed" });
});

test("counts no report, so that the leader counts all of them", () => {
  const seen = { a: 7, b: 2 };
  const raised = raisedByRate(known({}, { seen }), rate)!;
  expect((JSON.parse(raised.state) as LearnedState).seen).toEqual(seen);
  expect(JSON.parse(raised.stats)).toEqual(row.stats);
});

test("never lowers the bound, and writes nothing that is known", () => {
  expect(raisedByRate({ ...row, bound: 40 }, rate)).toBeUndefined();
  expect(raisedByRate(known({ limit: 40 }), rate)).toBeUndefined();
  expect(raisedByRate(row, { perS: 1, latencyMs: 100 })).toBeUndefined();
});

test.each<[string, LearnedRow]>([
  ["a limit is set by hand", { ...row, settings: { ...settings, pinned: 2 } }],
  ["calls are held", known({ holdMs: 500 })],
  ["the breaker isn't closed", known({ breaker: { state: "half_open", trips: 1 } as never })],
  ["a silent pod is made up for", known({}, { silent: ["a"] })],
  [
    "a ceiling was met",
    known({ memory: { algorithm: "ceiling", phase: "braked", ceiling: 4, strikes: 1 } }),
  ],
  [
    "the rate was broken of late",
    known({ promised: { perS: 9, doubtMs: 9, broken: 1, heldMs: 0 } }),
  ],
])("raises nothing where %s: that is for the leader", (_, before) => {
  expect(raisedByRate(before, rate)).toBeUndefined();
});
