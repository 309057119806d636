import { describe, expect, test } from "vitest";
import { runThrottleSeed } from "./run.ts";

const seeds = 40;
const twiceEvery = 20;

/** Every trouble that must have been met, and everything that must have come of it. */
const mustHappen = [
  "fault: block",
  "fault: crash",
  "fault: crashed before its answer",
  "fault: crashed before sending",
  "fault: doubled",
  "fault: freeze all",
  "fault: freeze one",
  "fault: frozen, hang",
  "fault: frozen, refuse",
  "fault: landed late",
  "fault: lost after the commit",
  "fault: lost before the commit",
  "fault: pause",
  "fault: read failed",
  "fault: refused",
  "fault: slow",
  "fault: stop",
  "fault: store clock step",
  "fault: wall clock step",
  "fence: share, revision",
  "throttle: a leader's pass",
  "throttle: a share taken over",
  "throttle: nobody leads",
  "throttle: the bound fell",
  "throttle: the bound rose",
  "throttle: two lead",
];

describe("pods that share a throttle on virtual time, over a store that fails in every way", () => {
  const counts = new Map<string, number>();
  const hashes = new Map<number, string>();

  test(
    `never have more in flight than the bound, in ${seeds} runs`,
    { timeout: 600_000 },
    async () => {
      const broken: string[] = [];
      for (let seed = 1; seed <= seeds; seed++) {
        const { violations, counts: counted, hash } = await runThrottleSeed(seed);
        hashes.set(seed, hash);
        for (const [what, times] of counted) counts.set(what, (counts.get(what) ?? 0) + times);
        if (violations.length === 0) continue;
        const found = violations.map(({ invariant, what }) => `${invariant}: ${what}`).join("; ");
        broken.push(
          `seed ${seed}: ${found}; replay it with ` +
            `\`npx node --conditions=flotilla:source test/simulation/throttles/replay.ts ${seed}\``,
        );
      }
      expect(broken).toEqual([]);
    },
  );

  test("were given every trouble, and lost and won shares by it", () => {
    expect(mustHappen.filter((what) => !counts.has(what))).toEqual([]);
  });

  test("do the same in every run of a seed", { timeout: 600_000 }, async () => {
    for (let seed = twiceEvery; seed <= seeds; seed += twiceEvery) {
      const first = hashes.get(seed) ?? (await runThrottleSeed(seed)).hash;
      const { hash } = await runThrottleSeed(seed);
      expect({ seed, hash }).toEqual({ seed, hash: first });
    }
  });
});
