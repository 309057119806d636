import { afterAll, describe, expect, test } from "vitest";
import { areFewer, hints, manySeeds, podFaults, usualFaults } from "./seeds.ts";

// `npm run soak -- simulation` runs as many more as it is told.
const seeds = 400;
const twiceEvery = 25;

/** Every trouble that the simulation can make, and every fence that must have refused something. */
const mustHappen = [
  ...usualFaults,
  ...podFaults,
  ...hints,
  "agent: answered from the journal",
  "agent: called",
  "agent: its budget is spent",
  "ahead: died after it began",
  "ahead: died while it waited",
  "death: connection ended",
  "death: process gone",
  "fault: hint in vain",
  "fault: look lost",
  "fault: look stale",
  "fault: no hints at all",
  "fault: paused at a step",
  "fault: refused behind a commit",
  "bulk: cancel done",
  "bulk: retry done",
  "bulk: retry stopped",
  "bulk: several batches",
  "fence: begin",
  "fence: bulk_batch, revision",
  "fence: carried claim, pauses",
  "fence: claim, floor",
  "fence: claim, pauses",
  "fence: enqueue, id",
  "fence: enqueue, key or id",
  "fence: finish, awaited",
  "fence: finish, status",
  "fence: finish, token",
  "fence: finish, wake",
  "fence: fire, next time",
  "fence: liveness, gap",
  "fence: pause, number",
  "fence: progress, status",
  "fence: progress, token",
  "fence: recover, beat",
  "fence: recover, status",
  "fence: recover, token",
  "fence: redrive_step, revision",
  "fence: step, seq",
  "fence: step, status",
  "fence: step, token",
  "hand-over: claimed",
  "hand-over: nothing claimed",
  "outbox: kept",
  "outbox: lost",
  "outbox: taken over",
  "schedule: tick, several",
  "schedule: tock, several",
  "limit: unblocked",
  "limit: blocked",
  "pause: pause",
  "pause: resume",
  "redrive: cancelled",
  "redrive: done",
  "redrive: step 4",
  "redrive: stopped",
  "request: burst",
  "request: crowd",
  "request: duplicate refused",
  "request: each",
  "request: in a pod's process",
  "request: many",
  "request: many, taken back",
  "request: many, with keys",
  "signal: answer",
  "signal: refused",
  "signal: review",
  "step: a further round",
  "step: answered from the journal",
  "step: at most once",
  "step: begun again",
  "step: deaths count anew",
  "step: forgotten",
  "step: killed its pod",
  "step: looked, and found",
  "step: looked, and not found",
  "step: parked for a signal",
  "step: parked for a time",
  "step: stored",
  "step: threw once",
  "stop: unhindered",
  "throttle: found tasks behind the gate",
  "throttle: passed the gate",
];

describe("pods on virtual time, over a store that fails in every way", () => {
  const runs = manySeeds("tasks", { seeds, twiceEvery });
  afterAll(runs.close);

  test(`keep every promise in all runs`, { timeout: 600_000 }, async () => {
    expect(await runs.broken()).toEqual([]);
  });

  test.skipIf(areFewer)("met every fault, and every fence has refused something", () => {
    expect(runs.missing(mustHappen)).toEqual([]);
  });

  test("do the same in every run of a seed", { timeout: 600_000 }, async () => {
    expect(await runs.differing()).toEqual([]);
  });
});
