import { afterAll, describe, expect, test } from "vitest";
import { areFewer, manySeeds, podFaults, usualFaults } from "../seeds.ts";

// `npm run soak -- simulation` runs as many more as it is told.
const seeds = 300;
const twiceEvery = 30;

/** Every trouble that must have been met, and everything that must have come of it. */
const mustHappen = [
  ...usualFaults,
  ...podFaults,
  "answer: completed",
  "answer: cut",
  "answer: failed",
  "answer: stopped",
  "answer: summary",
  "client: a page",
  "client: a tool's result",
  "client: an answer so far",
  "client: answered as a duplicate",
  "client: archive",
  "client: asks a pod that wakes",
  "client: came back while it was deleted",
  "client: chunks",
  "client: compact",
  "client: follows another, one is deleted",
  "client: follows another, one is left",
  "client: joined again",
  "client: members",
  "client: metadata",
  "client: regenerate",
  "client: remove",
  "client: too slow",
  "change: undone",
  "compaction: failed",
  "fault: a pod added",
  "fault: a pod removed",
  "fault: a runner lost at a step",
  "fault: all pods replaced",
  "fault: leaves with a late heartbeat",
  "fault: envelopes late with their notification",
  "fault: envelopes lost",
  "fault: envelopes lost with their notification",
  "fault: pause at a record",
  "fault: pause, and the log back",
  "fault: what is followed is lost",
  "fence: answer, epoch or attempt",
  "fence: beat",
  "fence: client id",
  "fence: record, offset",
  "fence: record, term",
  "fence: take",
  "inbox: changed",
  "inbox: removed",
  "inbox: swapped",
  "envelopes: before their turn",
  "envelopes: carried",
  "envelopes: carried and found",
  "envelopes: carried twice",
  "envelopes: for an earlier term",
  "envelopes: found and carried",
  "log: fenced",
  "log: handed over",
  "log: released",
  "log: taken back",
  "log: taken, another's",
  "log: taken, free",
  "record: by its bytes",
  "record: unknown or refused",
  "record: with those of other logs",
  "seed: calm",
  "seed: fresh",
  "seed: stormy",
  "step: a further round",
  "step: answered from the journal",
  "step: begun again",
  "step: its answer is stored",
  "step: stored",
  "steering: heard",
  "steering: heard again",
  "stop: in vain",
  "stop: lost to the end",
  "stop: noted",
  "stop: won",
  "turn: by a stored agent",
  "turn: lost",
  "turn: merged",
  "turn: waits for a pod that has its agent",
];

describe("sessions on virtual time, over a store that fails in every way", () => {
  const runs = manySeeds("sessions", { seeds, twiceEvery });
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
