import { describe, expect, test } from "vitest";
import { contenders } from "../bench/throttle/contenders.ts";
import type { Slice } from "../bench/throttle/ledger.ts";
import { play } from "../bench/throttle/rows.ts";
import { cold, steady } from "../bench/throttle/scenarios.ts";

const settledSlices = steady.settledMs / 500;

async function playedBy(name: string, wall: "hard" | "soft") {
  const contender = contenders.find((each) => each.name === name)!;
  const { row, slices } = await play({ scenario: steady, capacity: 20, wall, pods: 4 }, contender);
  return { ...row, swing: swingOf(slices.slice(settledSlices)) };
}

/** How far the limit is from its mean, by the mean. */
function swingOf(slices: readonly Slice[]): number {
  const limits = slices.map(({ limit }) => limit);
  const mean = limits.reduce((sum, limit) => sum + limit, 0) / limits.length;
  const squares = limits.reduce((sum, limit) => sum + (limit - mean) ** 2, 0);
  return Math.sqrt(squares / limits.length) / mean;
}

describe.each(["hard", "soft"] as const)("in the simulator, at a %s wall", (wall) => {
  test("ours is throttled less than plain additive increase, swings less and uses more", async () => {
    const ours = await playedBy("flotilla", wall);
    const aimd = await playedBy("aimd_per_pod", wall);
    expect(ours.throttled).toBeLessThan(aimd.throttled / 2);
    expect(ours.swing).toBeLessThan(aimd.swing / 2);
    expect(ours.use).toBeGreaterThan(0.95);
    expect(ours.score).toBeGreaterThan(aimd.score);
  });
});

describe.each(["bucket", "window"] as const)(
  "a downstream that states its limits, as a %s",
  (wall) => {
    test("is used within five seconds of a cold start, and refuses nothing", async () => {
      const ours = contenders.find(({ name }) => name === "flotilla")!;
      const { row } = await play({ scenario: cold, capacity: 20, wall, pods: 4 }, ours);
      expect(row.overall.throttled).toBeLessThan(0.001);
      expect(row.soon).toBeGreaterThan(0.95);
      expect(row.overBound).toBeLessThanOrEqual(0);
    });
  },
);
