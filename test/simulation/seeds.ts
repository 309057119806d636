import type { Report } from "./report.ts";

type SeedsOptions = {
  /** Seeds 1 to so many are run. */
  seeds: number;
  /** One in so many is run again, to see whether it does the same. */
  twiceEvery: number;
  /** The script that shows one seed. */
  replay: string;
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

/** Troubles that go with hearts and hints, where pods have them. */
export const podFaults = [
  "fault: freeze a heart",
  "fault: hint late",
  "fault: hint lost",
  "fault: pod forgotten",
];

/** A simulation that is run with many seeds, and what has come of all of them. */
export function manySeeds(
  run: (seed: number) => Promise<Report>,
  { seeds, twiceEvery, replay }: SeedsOptions,
) {
  const met = new Set<string>();
  const hashes = new Map<number, string>();
  return {
    /** Runs all, and gives those that broke a promise. */
    async broken(): Promise<string[]> {
      const broken: string[] = [];
      for (let seed = 1; seed <= seeds; seed++) {
        const { violations, counts, hash } = await run(seed);
        hashes.set(seed, hash);
        for (const what of counts.keys()) met.add(what);
        if (violations.length === 0) continue;
        const found = violations.map(({ invariant, what }) => `${invariant}: ${what}`).join("; ");
        const command = `npx node --conditions=flotilla:source ${replay} ${seed}`;
        broken.push(`seed ${seed}: ${found}; replay it with \`${command}\``);
      }
      return broken;
    },

    /** What none of them has met. */
    missing: (mustHappen: readonly string[]) => mustHappen.filter((what) => !met.has(what)),

    /** Runs some again, and gives those that went another way. */
    async differing(): Promise<number[]> {
      const differing: number[] = [];
      for (let seed = twiceEvery; seed <= seeds; seed += twiceEvery) {
        const first = hashes.get(seed) ?? (await run(seed)).hash;
        const { hash } = await run(seed);
        if (hash !== first) differing.push(seed);
      }
      return differing;
    },
  };
}
