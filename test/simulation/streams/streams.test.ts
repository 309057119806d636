import { afterAll, describe, expect, test } from "vitest";
import { areFewer, manySeeds } from "../seeds.ts";

// `npm run soak -- simulation` runs as many more as it is told.
const seeds = 300;
const twiceEvery = 30;

/** Every trouble that must have been met, and everything that must have come of it. */
const mustHappen = [
  "fault: ack lost",
  "fault: crash",
  "fault: deposed at a message",
  "fault: false wrong last",
  "fault: hole in a batch",
  "fault: leader deposed",
  "fault: pause",
  "fault: proposal dropped",
  "fault: proposal stored by the next leader",
  "fault: publish doubled",
  "fault: publish late",
  "fault: publish lost",
  "fault: read failed",
  "fault: read from a deposed leader",
  "fault: refused by a deposed leader",
  "fault: replay cut",
  "fault: replica behind",
  "fault: stray on the subject of marks",
  "fault: taken by a deposed leader",
  "fence: record",
  "mark",
  "recover: not whole",
  "recover: taken since",
  "refused: full",
  "refused: unread",
  "release",
  "take: unknown",
  "trim",
  "unknown: another's",
  "unknown: nothing there",
  "unknown: ours",
];

describe("pods that fight for logs on JetStream, on virtual time, over servers that fail in every way", () => {
  const runs = manySeeds("streams", { seeds, twiceEvery });
  afterAll(runs.close);

  test(`keep every promise in all runs`, { timeout: 600_000 }, async () => {
    expect(await runs.broken()).toEqual([]);
  });

  test.skipIf(areFewer)("met every fault, and an unknown outcome was resolved each way", () => {
    expect(runs.missing(mustHappen)).toEqual([]);
  });

  test("do the same in every run of a seed", { timeout: 600_000 }, async () => {
    expect(await runs.differing()).toEqual([]);
  });
});
