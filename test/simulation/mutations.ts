/**
 * `npm run test:mutations`: takes out one fence at a time, in a copy of the source, and lets the
 * simulation look for what that breaks. Only what the source as it is doesn't show at the same seed counts.
 * A fence whose loss isn't noticed is either not needed or not tested; either way the script fails. First
 * seeds are run twice on the source as it is, and must do the same both times. What is about one store
 * alone is shown by a test of that store instead.
 *
 * Names of mutations as arguments run only those.
 */
import { availableParallelism } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { allMutations, copyWith, misfits, root } from "./mutants.ts";
import type { Mutation } from "./mutation.ts";
import { shownViolations } from "./report.ts";
import { type Scenario, scenarioNames } from "./scenarios.ts";
import { seedsFrom, type SeedRunner, startSeedRunner } from "./seed-runner.ts";
import { failureWith, suiteMutations } from "./suites.ts";

const seedLimit = 2_000;
/** How many seeds are run twice. Those of throttles have up to 32 pods, and take longer. */
const sameTwice = {
  tasks: 100,
  beats: 30,
  throttles: 20,
  flows: 60,
  sessions: 60,
  forks: 60,
  archive: 60,
  streams: 60,
};

const wanted = process.argv.slice(2);
const isWanted = ({ name }: Mutation) =>
  wanted.length === 0 || wanted.some((part) => name.includes(part));
const chosen = allMutations.filter(isWanted);
const unchanged = Array.from({ length: availableParallelism() }, () =>
  startSeedRunner(join(root, "test/simulation/seeds-process.ts")),
);
let missed = 0;

const scenarios = wanted.length === 0 ? [...scenarioNames] : [];
await eachOf(scenarios, async (scenario, runner) => {
  const to = sameTwice[scenario];
  const broken: string[] = [];
  for (const seed of seedsFrom(1, to)) {
    const first = await runner.run(scenario, seed);
    const second = await runner.run(scenario, seed);
    if (first.hash !== second.hash) broken.push(`seed ${seed} does not do the same twice`);
    if (first.violations.length > 0) broken.push(`seed ${seed}: ${shownViolations(first)}`);
  }
  missed += broken.length;
  row(`${scenario} as they are, ${to} seeds twice`, broken.length > 0 ? "NOT" : "same", broken[0]);
});
await eachOf(chosen, async (mutation, runner) => {
  const [misfit] = misfits(mutation);
  if (misfit !== undefined) {
    missed++;
    return row(mutation.name, "NO FIT", misfit);
  }
  const found = await hunt(mutation, runner);
  if (!found) missed++;
  row(mutation.name, found ? `seed ${found.seed}` : "NOT FOUND", found?.what);
});
for (const runner of unchanged) runner.close();
const ofSuites = suiteMutations.filter(isWanted);
for (const mutation of ofSuites) {
  const [misfit] = misfits(mutation);
  const found = misfit === undefined ? failureWith(mutation) : undefined;
  if (found === undefined) missed++;
  row(mutation.name, misfit ? "NO FIT" : found ? "a test" : "NOT FOUND", misfit ?? found);
}
console.log(`${chosen.length + ofSuites.length} mutations, ${missed} not found`);
process.exitCode = missed > 0 ? 1 : 0;

/** Does this for all, as many at once as there are cores, each beside a runner of the unchanged source. */
async function eachOf<Item>(
  items: readonly Item[],
  act: (item: Item, runner: SeedRunner) => Promise<void>,
): Promise<void> {
  const left = items.values();
  await Promise.all(
    unchanged.map(async (runner) => {
      for (const item of left) await act(item, runner);
    }),
  );
}

/** The first seed that shows that a fence is missing, and what it shows. */
async function hunt(
  mutation: Mutation,
  asItIs: SeedRunner,
): Promise<{ seed: number; what: string } | undefined> {
  const { edits, by } = mutation;
  const scenario: Scenario = mutation.scenario ?? "tasks";
  using copy = copyWith(edits);
  const runner = startSeedRunner(copy.program);
  try {
    for (const seed of seedsFrom(1, seedLimit)) {
      const { violations } = await runner.run(scenario, seed);
      // A copy that can't even run shows nothing.
      const first = violations.find(({ invariant }) =>
        by === undefined ? invariant !== "crashed" && invariant !== "thrown" : invariant === by,
      );
      if (!first || (await isOwn(asItIs, scenario, seed))) continue;
      return { seed, what: `${first.invariant}: ${first.what}` };
    }
    return undefined;
  } finally {
    runner.close();
  }
}

/** Whether the source as it is breaks a promise at this seed too. */
async function isOwn(asItIs: SeedRunner, scenario: Scenario, seed: number): Promise<boolean> {
  return (await asItIs.run(scenario, seed)).violations.length > 0;
}

function row(first: string, second: string, third = ""): void {
  console.log(`${first.padEnd(56)} ${second.padEnd(10)} ${third}`);
}
