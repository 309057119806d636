import { afterAll, describe, expect, test } from "vitest";
import { areFewer, manySeeds } from "../seeds.ts";

// `npm run soak -- simulation` runs as many more as it is told.
const seeds = 300;
const twiceEvery = 60;

/** Every trouble that must have been met, and everything that must have come of it. */
const mustHappen = [
  "absent",
  "client: acked",
  "client: no owner",
  "client: read from memory",
  "client: refused",
  "fault: ack lost",
  "fault: beat doubled",
  "fault: beat lost",
  "fault: crash",
  "fault: cut off",
  "fault: leader deposed",
  "fault: pause",
  "fault: publish late",
  "fault: read from a deposed leader",
  "fault: replica behind",
  "fault: stop",
  "quiet: a pod dies",
  "quiet: a pod is away",
];

describe("pods that find each other by beats, on virtual time, while beats and servers fail", () => {
  const runs = manySeeds("beats", { seeds, twiceEvery });
  afterAll(runs.close);

  test("keep every promise in all runs", { timeout: 600_000 }, async () => {
    expect(await runs.broken()).toEqual([]);
  });

  test.skipIf(areFewer)("met every fault", () => {
    expect(runs.missing(mustHappen)).toEqual([]);
  });

  test("do the same in every run of a seed", { timeout: 600_000 }, async () => {
    expect(await runs.differing()).toEqual([]);
  });
});
