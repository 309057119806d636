/** Runs seeds until one violates something, and prints what it found as JSON. */
import process from "node:process";
import { runFlowSeed } from "./flows/run.ts";
import { runSeed } from "./run.ts";
import { runSessionSeed } from "./sessions/run.ts";
import { runThrottleSeed } from "./throttles/run.ts";
import type { Violation } from "./world.ts";

export type Hunted = {
  readonly found: (Violation & { readonly seed: number }) | undefined;
  /** The first seed that didn't do the same twice. */
  readonly differing: number | undefined;
};

const [from, to, times, by, scenario] = process.argv.slice(2);
const runs = {
  tasks: runSeed,
  throttles: runThrottleSeed,
  flows: runFlowSeed,
  sessions: runSessionSeed,
};
const run = runs[scenario as keyof typeof runs];
let found: Hunted["found"];
let differing: Hunted["differing"];

for (let seed = Number(from); seed <= Number(to) && !found; seed++) {
  const { violations, hash } = await run(seed);
  const first = violations.find(({ invariant }) => !by || invariant === by);
  if (first) found = { ...first, seed };
  if (times === "twice" && (await run(seed)).hash !== hash) differing ??= seed;
}
console.log(JSON.stringify({ found, differing }));
