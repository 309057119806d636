import { afterAll, describe, expect, test } from "vitest";
import { areFewer, manySeeds } from "../seeds.ts";

// `npm run soak -- simulation` runs as many more as it is told.
const seeds = 300;
const twiceEvery = 60;

/** Every trouble that must have been met, and everything that must have come of it. */
const mustHappen = [
  "archived",
  "commit: fenced",
  "fault: ack lost",
  "fault: crash",
  "fault: database away",
  "fault: database read failed",
  "fault: database set back",
  "fault: flush late",
  "fault: flush lost after",
  "fault: flush lost before",
  "fault: leader deposed",
  "fault: no new stream",
  "fault: pause",
  "fault: stream set back",
  "new life",
  "read",
  "read: refused",
  "refused",
  "release",
];

describe("pods whose logs are ahead of their archive, on virtual time, over servers and a database that fail", () => {
  const runs = manySeeds("archive", { seeds, twiceEvery });
  afterAll(runs.close);

  test(
    "lose nothing that was acked, read all of it, and archive it once",
    { timeout: 600_000 },
    async () => {
      expect(await runs.broken()).toEqual([]);
    },
  );

  test.skipIf(areFewer)("met every fault", () => {
    expect(runs.missing(mustHappen)).toEqual([]);
  });

  test("do the same in every run of a seed", { timeout: 600_000 }, async () => {
    expect(await runs.differing()).toEqual([]);
  });
});
