import { describe, expect, test } from "vitest";
import { crashPoints, runCrashPoint } from "./awaits.ts";
import { runFlowSeed } from "./run.ts";

// As many as a share of the suite allows; `npm run soak -- --store simulation` runs more.
const seeds = 36;
const twiceEvery = 18;

/** Every trouble that must have been met, and everything that must have come of it. */
const mustHappen = [
  "children: all ended",
  "children: cancelled with their parent",
  "event: cancel",
  "event: error",
  "event: move",
  "event: park",
  "event: pod_died",
  "event: retried",
  "event: set_aside",
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
  "fault: lost after the commit",
  "fault: lost before the commit",
  "fault: pause",
  "fault: pause at a claim",
  "fault: pod forgotten",
  "fault: read failed",
  "fault: refused",
  "fault: slow",
  "fault: stop",
  "fault: store clock step",
  "fault: wall clock step",
  "fence: run, awaited",
  "fence: run, seq",
  "fence: run, token",
  "fence: run, wake",
  "flow: abort",
  "flow: cancel",
  "flow: flaky",
  "flow: handoff",
  "flow: patient",
  "flow: poison",
  "flow: polite",
  "flow: snooze",
  "flow: started over by its parent",
  "flow: stuck",
  "flow: taken over by a later version",
  "flow: unrecoverable",
  "signal: refused",
  "signal: sent twice",
  "signal: used",
];

describe("runs of flows on virtual time, over a store that fails in every way", () => {
  const counts = new Map<string, number>();
  const hashes = new Map<number, string>();

  test(`keep every promise in ${seeds} runs`, { timeout: 600_000 }, async () => {
    const broken: string[] = [];
    for (let seed = 1; seed <= seeds; seed++) {
      const { violations, counts: counted, hash } = await runFlowSeed(seed);
      hashes.set(seed, hash);
      for (const [what, times] of counted) counts.set(what, (counts.get(what) ?? 0) + times);
      if (violations.length === 0) continue;
      const found = violations.map(({ invariant, what }) => `${invariant}: ${what}`).join("; ");
      broken.push(
        `seed ${seed}: ${found}; replay it with ` +
          `\`npx node --conditions=flotilla:source test/simulation/flows/replay.ts ${seed}\``,
      );
    }
    expect(broken).toEqual([]);
  });

  test("were given every trouble, and met every fence", () => {
    expect(mustHappen.filter((what) => !counts.has(what))).toEqual([]);
  });

  test("do the same in every run of a seed", { timeout: 600_000 }, async () => {
    for (let seed = twiceEvery; seed <= seeds; seed += twiceEvery) {
      const first = hashes.get(seed) ?? (await runFlowSeed(seed)).hash;
      const { hash } = await runFlowSeed(seed);
      expect({ seed, hash }).toEqual({ seed, hash: first });
    }
  });
});

test(
  "a pod that dies at any of its requests, sent or answered by turns, leaves every run to the same end",
  { timeout: 600_000 },
  async () => {
    const well = await runCrashPoint();
    expect(well.violations).toEqual([]);
    expect(well.runs).toEqual([
      "order completed reserve,approval,parcels,charge,legacy",
      "parcel completed pack,wrap,send",
      "plain completed one,two,three",
    ]);
    const points = crashPoints(well.requests).filter(({ at, when }) => {
      return (at % 2 === 0) === (when === "sent");
    });
    for (const point of points) {
      const { violations, runs, crashed } = await runCrashPoint(point);
      expect({ point, violations, runs }).toEqual({ point, violations: [], runs: well.runs });
      // What is asked last may be answered when all is over.
      expect(crashed || point.at > well.requests - 3).toBe(true);
    }
  },
);
