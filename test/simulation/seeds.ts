import process from "node:process";
import { replayOf, shownViolations } from "./report.ts";
import type { Scenario } from "./scenarios.ts";
import { builtProgram, runSeeds, seedsFrom, startSeedRunner } from "./seed-runner.ts";

type SeedsOptions = {
  /** Seeds 1 to so many are run. */
  seeds: number;
  /** One in so many is run again, to see whether it does the same. */
  twiceEvery: number;
};

/** Troubles that every simulation makes. */
export const usualFaults = [
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
];

/** Troubles that go with heartbeats and notifications, where pods have them. */
export const podFaults = [
  "fault: freeze a heart",
  "fault: hint late",
  "fault: hint lost",
  "fault: pod forgotten",
];

/** How pods that claim are told that there may be something to do. */
export const hints = ["hint: called out", "hint: others", "hint: own"];

const fewer = Number(process.env["FLOTILLA_SEEDS"] ?? Infinity);

/** `npm run test:fast` runs fewer seeds, which don't meet every trouble. */
export const areFewer = fewer < Infinity;

/** A simulation that is run with many seeds, and what has come of all of them. */
export function manySeeds(scenario: Scenario, { seeds: all, twiceEvery: every }: SeedsOptions) {
  const seeds = Math.min(all, fewer);
  const twiceEvery = Math.min(every, seeds);
  const met = new Set<string>();
  const hashes = new Map<number, string>();
  const runner = startSeedRunner(builtProgram);
  return {
    /** Runs all, and gives those that broke a promise. */
    async broken(): Promise<string[]> {
      const broken: string[] = [];
      await runSeeds([runner], scenario, seedsFrom(1, seeds), (outcome) => {
        const { seed, counts, hash, violations } = outcome;
        hashes.set(seed, hash);
        for (const what of counts.keys()) met.add(what);
        if (violations.length === 0) return;
        const replay = `replay it with \`${replayOf(scenario, seed)}\``;
        broken.push(`seed ${seed}: ${shownViolations(outcome)}; ${replay}`);
      });
      return broken;
    },

    /** What none of them has met. */
    missing: (mustHappen: readonly string[]) => mustHappen.filter((what) => !met.has(what)),

    /** Runs some again, and gives those that went another way. */
    async differing(): Promise<number[]> {
      const differing: number[] = [];
      for (let seed = twiceEvery; seed <= seeds; seed += twiceEvery) {
        const { hash } = await runner.run(scenario, seed);
        if (hash !== hashes.get(seed)) differing.push(seed);
      }
      return differing;
    },

    close: () => runner.close(),
  };
}
