import { describe, expect, test } from "vitest";
import { runSessionSeed } from "./run.ts";

// As many as a share of the suite allows; `npm run soak -- --store simulation` runs more.
const seeds = 36;
const twiceEvery = 18;

/** Every trouble that must have been met, and everything that must have come of it. */
const mustHappen = [
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
  "client: chunks",
  "client: compact",
  "client: joined again",
  "client: regenerate",
  "client: remove",
  "client: too slow",
  "compaction: failed",
  "fault: a pod added",
  "fault: a pod removed",
  "fault: all pods replaced",
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
  "fault: hint late",
  "fault: hint lost",
  "fault: landed late",
  "fault: letters lost",
  "fault: lost after the commit",
  "fault: lost before the commit",
  "fault: pause",
  "fault: pause at a record",
  "fault: pod forgotten",
  "fault: read failed",
  "fault: refused",
  "fault: slow",
  "fault: stop",
  "fault: store clock step",
  "fault: wall clock step",
  "fence: answer, epoch or attempt",
  "fence: beat",
  "fence: client id",
  "fence: record, offset",
  "fence: record, term",
  "fence: take",
  "inbox: changed",
  "inbox: removed",
  "log: fenced",
  "log: handed over",
  "log: released",
  "log: taken, another's",
  "log: taken, free",
  "record: unknown or refused",
  "seed: calm",
  "seed: stormy",
  "stop: in vain",
  "stop: lost to the end",
  "stop: won",
  "turn: lost",
  "turn: merged",
];

describe("sessions on virtual time, over a store that fails in every way", () => {
  const counts = new Map<string, number>();
  const hashes = new Map<number, string>();

  test(`keep every promise in ${seeds} runs`, { timeout: 600_000 }, async () => {
    const broken: string[] = [];
    for (let seed = 1; seed <= seeds; seed++) {
      const { violations, counts: counted, hash } = await runSessionSeed(seed);
      hashes.set(seed, hash);
      for (const [what, times] of counted) counts.set(what, (counts.get(what) ?? 0) + times);
      if (violations.length === 0) continue;
      const found = violations.map(({ invariant, what }) => `${invariant}: ${what}`).join("; ");
      broken.push(
        `seed ${seed}: ${found}; replay it with ` +
          `\`npx node --conditions=flotilla:source test/simulation/sessions/replay.ts ${seed}\``,
      );
    }
    expect(broken).toEqual([]);
  });

  test("were given every trouble, and met every fence", () => {
    expect(mustHappen.filter((what) => !counts.has(what))).toEqual([]);
  });

  test("do the same in every run of a seed", { timeout: 600_000 }, async () => {
    for (let seed = twiceEvery; seed <= seeds; seed += twiceEvery) {
      const first = hashes.get(seed) ?? (await runSessionSeed(seed)).hash;
      const { hash } = await runSessionSeed(seed);
      expect({ seed, hash }).toEqual({ seed, hash: first });
    }
  });
});
