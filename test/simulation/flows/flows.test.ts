import { afterAll, describe, expect, test } from "vitest";
import { crashPoints, runCrashPoint } from "./awaits.ts";
import { areFewer, hints, manySeeds, podFaults, usualFaults } from "../seeds.ts";

// `npm run soak -- simulation` runs as many more as it is told.
const seeds = 300;
const twiceEvery = 30;

/** Every trouble that must have been met, and everything that must have come of it. */
const mustHappen = [
  ...usualFaults,
  ...podFaults,
  ...hints,
  "children: all ended",
  "children: cancelled with their parent",
  "children: failed their parent",
  "children: of an earlier step, started over",
  "children: started over by redrive_step",
  "children: started over by retry",
  "event: cancel",
  "event: error",
  "event: move",
  "event: park",
  "event: pod_died",
  "event: retried",
  "event: set_aside",
  "fault: pause at a claim",
  "fault: refused behind a commit",
  "fence: run, awaited",
  "fence: run, seq",
  "fence: run, token",
  "fence: run, wake",
  "fence: run, wake at children",
  "flow: abort",
  "flow: cancel",
  "flow: flaky",
  "flow: given up",
  "flow: given up, asked for before",
  "flow: handoff",
  "flow: patient",
  "flow: poison",
  "flow: polite",
  "flow: snooze",
  "flow: started over by its parent",
  "flow: stuck",
  "flow: taken over by a later version",
  "flow: unrecoverable",
  "request: burst",
  "signal: refused",
  "signal: sent twice",
  "signal: used",
  "step of a run: called",
  "step of a run: stored",
  "event: stepped",
];

describe("runs of flows on virtual time, over a store that fails in every way", () => {
  const runs = manySeeds("flows", { seeds, twiceEvery });
  afterAll(runs.close);

  test(`keep every promise in all runs`, { timeout: 600_000 }, async () => {
    expect(await runs.broken()).toEqual([]);
  });

  test.skipIf(areFewer)("met every fault, and every fence", () => {
    expect(runs.missing(mustHappen)).toEqual([]);
  });

  test("do the same in every run of a seed", { timeout: 600_000 }, async () => {
    expect(await runs.differing()).toEqual([]);
  });
});

test(
  "a pod that dies at any of its requests, sent or answered by turns, leaves every run to the same end",
  { timeout: 600_000 },
  async () => {
    const well = await runCrashPoint();
    expect(well.violations).toEqual([]);
    expect(well.runs).toEqual([
      "order completed reserve,approval,parcels,charge,legacy",
      "parcel completed pack,wrap,send",
      "plain completed one,two,three",
    ]);
    const points = crashPoints(well.requests).filter(({ at, when }) => {
      return (at % 2 === 0) === (when === "sent");
    });
    for (const point of points) {
      const { violations, runs, crashed } = await runCrashPoint(point);
      expect({ point, violations, runs }).toEqual({ point, violations: [], runs: well.runs });
      // What is asked last may be answered when all is over.
      expect(crashed || point.at > well.requests - 3).toBe(true);
    }
  },
);
