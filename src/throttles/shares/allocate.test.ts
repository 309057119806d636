import { describe, expect, test } from "vitest";
import { between, seededRandom } from "../../base/random.ts";
import { allocate } from "./allocate.ts";

const claimants = (demands: readonly number[]) =>
  demands.map((demand, at) => ({ podId: `p${String(at).padStart(2, "0")}`, demand }));
const needed = (budget: number, demands: readonly number[], nowMs = 0) =>
  [...allocate(budget, claimants(demands), nowMs).values()].map((each) => each.needed);
const targets = (budget: number, demands: readonly number[], nowMs = 0) =>
  [...allocate(budget, claimants(demands), nowMs).values()].map((each) => each.target);
const sum = (numbers: readonly number[]) => numbers.reduce((all, each) => all + each, 0);
const jain = (numbers: readonly number[]) =>
  sum(numbers) ** 2 / (numbers.length * sum(numbers.map((each) => each ** 2)));

describe("permits", () => {
  test.each([
    { budget: 20, demands: [100, 100], are: [10, 10] },
    { budget: 20, demands: [3, 100], are: [3, 17] },
    { budget: 20, demands: [3, 4, 100, 100], are: [3, 4, 7, 6] },
    { budget: 20, demands: [0, 100, 0], are: [0, 20, 0] },
    { budget: 7, demands: [100, 100, 100, 100], are: [2, 2, 2, 1] },
    { budget: 2, demands: [9, 9, 9], are: [1, 1, 0] },
    { budget: 0, demands: [5, 5], are: [0, 0] },
    { budget: -3, demands: [5, 5], are: [0, 0] },
    { budget: 5, demands: [], are: [] },
  ])("of $budget for demands of $demands are $are", ({ budget, demands, are }) => {
    expect(needed(budget, demands)).toEqual(are);
  });

  test("that no pod demands are spare for growth of the pods with demand", () => {
    expect(targets(20, [4, 1, 0])).toEqual([6, 2, 0]);
    expect(targets(6, [4, 1, 0])).toEqual([5, 1, 0]);
    expect(targets(4, [100, 100])).toEqual([2, 2]);
  });

  test("are never more than there are nor than a pod has use for, and none is left while a pod has demand", () => {
    const random = seededRandom(5);
    for (let round = 0; round < 400; round++) {
      const budget = between(random, 0, 60);
      const demands = Array.from({ length: between(random, 1, 40) }, () =>
        between(random, 0, between(random, 0, 20)),
      );
      const nowMs = between(random, 0, 10_000_000);
      const got = needed(budget, demands, nowMs);
      expect(sum(got)).toBe(Math.min(budget, sum(demands)));
      expect(sum(targets(budget, demands, nowMs))).toBeLessThanOrEqual(budget);
      expect(got.filter((each, at) => each > demands[at]!)).toEqual([]);
      // No pod has two more than another that has too few.
      const short = got.filter((each, at) => each < demands[at]!);
      expect(short.filter((each) => Math.max(...got) > each + 1)).toEqual([]);
    }
  });

  test("are the same for every pod, in whichever order pods are read", () => {
    const all = claimants([5, 9, 9, 9, 2]);
    const one = allocate(11, all, 77_000);
    const other = allocate(11, all.toReversed(), 77_000);
    expect(new Map(other)).toEqual(new Map(one));
  });
});

describe("permits that can't be divided evenly", () => {
  const overTime = (budget: number, pods: number, forMs: number) => {
    const held = Array.from({ length: pods }, () => 0);
    const waited = Array.from({ length: pods }, () => 0);
    let longest = 0;
    let moves = 0;
    let last: number[] | undefined;
    for (let nowMs = 0; nowMs < forMs; nowMs += 500) {
      const got = needed(
        budget,
        held.map(() => 50),
        nowMs,
      );
      for (const [at, each] of got.entries()) {
        held[at]! += each;
        waited[at] = each > 0 ? 0 : waited[at]! + 500;
        longest = Math.max(longest, waited[at]!);
        if (last && each > last[at]!) moves++;
      }
      last = got;
    }
    return { held, longest, moves };
  };

  test.each([
    { budget: 3, pods: 8 },
    { budget: 20, pods: 32 },
    { budget: 1, pods: 8 },
    { budget: 11, pods: 8 },
    { budget: 33, pods: 32 },
  ])("go round: $budget among $pods pods is fair over time", ({ budget, pods }) => {
    const { held, longest, moves } = overTime(budget, pods, 1_024_000);
    expect(jain(held)).toBeGreaterThan(0.999);
    expect(longest).toBeLessThanOrEqual(128_000);
    // One at a time, and no more often than a hand-over costs little.
    expect(moves / 1_024).toBeLessThanOrEqual(1);
  });

  test("move by one place when one more pod comes, not all at once", () => {
    const before = allocate(20, claimants(Array.from({ length: 31 }, () => 9)), 30_000);
    const after = allocate(20, claimants(Array.from({ length: 32 }, () => 9)), 30_000);
    const changed = [...before].filter(([id, { needed: had }]) => after.get(id)!.needed !== had);
    expect(changed.length).toBeLessThanOrEqual(4);
  });
});
