import { afterAll, describe, expect, test } from "vitest";
import { areFewer, manySeeds, usualFaults } from "../seeds.ts";

// `npm run soak -- simulation` runs as many more as it is told.
const seeds = 60;
const twiceEvery = 20;

/** Every trouble that must have been met, and everything that must have come of it. */
const mustHappen = [
  ...usualFaults,
  "fence: share, revision",
  "throttle: a leader's pass",
  "throttle: a share taken over",
  "throttle: headers of a true bucket",
  "throttle: headers of a true window",
  "throttle: headers of far too much",
  "throttle: headers of nothing at all",
  "throttle: headers of nothing left for a year",
  "throttle: made up for a silent pod",
  "throttle: no leader",
  "throttle: the bound fell",
  "throttle: the bound rose",
  "throttle: two lead",
];

describe("pods that share a throttle on virtual time, over a store that fails in every way", () => {
  const runs = manySeeds("throttles", { seeds, twiceEvery });
  afterAll(runs.close);

  test(`never have more in flight than the bound, in all runs`, { timeout: 600_000 }, async () => {
    expect(await runs.broken()).toEqual([]);
  });

  test.skipIf(areFewer)("met every fault, and lost and won shares by it", () => {
    expect(runs.missing(mustHappen)).toEqual([]);
  });

  test("do the same in every run of a seed", { timeout: 600_000 }, async () => {
    expect(await runs.differing()).toEqual([]);
  });
});
