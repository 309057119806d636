import { describe, expect, test } from "vitest";
import { runSeed } from "./run.ts";

const seeds = 150;
// Running a seed takes about a fifth of a second, so only some are run twice here; the script of the
// mutations runs more of them, all twice.
const twiceEvery = 10;

/** Every trouble that the simulation can make, and every fence that must have refused something. */
const mustHappen = [
  "fault: block",
  "fault: crash",
  "fault: crashed before its answer",
  "fault: crashed before sending",
  "fault: doubled",
  "fault: freeze a heart",
  "fault: freeze all",
  "fault: freeze one",
  "fault: frozen, hang",
  "fault: frozen, refuse",
  "fault: hint in vain",
  "fault: hint late",
  "fault: hint lost",
  "fault: landed late",
  "fault: lost after the commit",
  "fault: lost before the commit",
  "fault: pause",
  "fault: pod forgotten",
  "fault: read failed",
  "fault: refused",
  "fault: slow",
  "fault: stop",
  "fault: store clock step",
  "fault: wall clock step",
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
  "outbox: kept",
  "outbox: lost",
  "outbox: taken over",
  "schedule: tick, several",
  "schedule: tock, several",
  "gate: let go on",
  "gate: set aside",
  "pause: pause",
  "pause: resume",
  "redrive: cancelled",
  "redrive: done",
  "redrive: step 4",
  "redrive: stopped",
];

describe("pods on virtual time, over a store that fails in every way", () => {
  const counts = new Map<string, number>();
  const hashes = new Map<number, string>();

  test(`keep every promise in ${seeds} runs`, { timeout: 600_000 }, async () => {
    const broken: string[] = [];
    for (let seed = 1; seed <= seeds; seed++) {
      const { violations, counts: counted, hash } = await runSeed(seed);
      hashes.set(seed, hash);
      for (const [what, times] of counted) counts.set(what, (counts.get(what) ?? 0) + times);
      if (violations.length === 0) continue;
      const found = violations.map(({ invariant, what }) => `${invariant}: ${what}`).join("; ");
      broken.push(
        `seed ${seed}: ${found}; replay it with ` +
          `\`npx node --conditions=flotilla:source test/simulation/replay.ts ${seed}\``,
      );
    }
    expect(broken).toEqual([]);
  });

  test("were given every trouble, and every fence has refused something", () => {
    expect(mustHappen.filter((what) => !counts.has(what))).toEqual([]);
  });

  test("do the same in every run of a seed", { timeout: 600_000 }, async () => {
    for (let seed = twiceEvery; seed <= seeds; seed += twiceEvery) {
      const first = hashes.get(seed) ?? (await runSeed(seed)).hash;
      const { hash } = await runSeed(seed);
      expect({ seed, hash }).toEqual({ seed, hash: first });
    }
  });
});
