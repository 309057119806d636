import { afterAll, describe, expect, test } from "vitest";
import { areFewer, manySeeds, podFaults, usualFaults } from "../seeds.ts";

// `npm run soak -- simulation` runs as many more as it is told.
const seeds = 200;
const twiceEvery = 50;

/** Every trouble that must have been met, and everything that must have come of it. */
const mustHappen = [
  ...usualFaults,
  ...podFaults,
  "client: create",
  "client: delivery",
  "client: edit",
  "client: file",
  "client: fork",
  "client: fork of what goes",
  "client: remove",
  "client: send",
  "client: wake",
  "delivery: came again",
  "delivery: refused",
  "delivery: said once",
  "fork: of what is deleted",
  "refused: file",
  "refused: fork of what goes",
  "seed: calm",
  "seed: stormy",
  "wake: fired once",
];

describe("forks, files, wakes and deliveries on virtual time, over a store that fails in every way", () => {
  const runs = manySeeds("forks", { seeds, twiceEvery });
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
