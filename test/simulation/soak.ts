/**
 * `npm run soak -- simulation`: as many seeds as it is told, on all cores. It goes on past a seed that breaks
 * a promise, and lists all of them at the end, each with the command that replays it.
 *
 *   npm run soak -- simulation --seeds 10000 --of flows,sessions --first 1
 */
import { availableParallelism } from "node:os";
import process from "node:process";
import { parseArgs } from "node:util";
import { makeBuild } from "../make-build.ts";
import { crashPoints, runCrashPoint } from "./flows/awaits.ts";
import { replayOf, shownViolations } from "./report.ts";
import { type Scenario, scenarioNames } from "./scenarios.ts";
import { builtProgram, runSeeds, seedsFrom, startSeedRunner } from "./seed-runner.ts";

const { values } = parseArgs({
  args: process.argv.slice(3),
  options: {
    /** How many seeds of each scenario. */
    seeds: { type: "string", default: "1000" },
    of: { type: "string", default: scenarioNames.join() },
    first: { type: "string" },
  },
});
const count = Number(values.seeds);
if (!(Number.isSafeInteger(count) && count > 0)) throw new Error("--seeds takes a whole number");
const first = Number(values.first ?? Math.floor(Math.random() * 2 ** 32));
if (!(Number.isSafeInteger(first) && first >= 0)) throw new Error("--first takes a whole number");
const chosen = values.of.split(",") as Scenario[];
const strange = chosen.find((name) => !scenarioNames.includes(name));
if (strange !== undefined) throw new Error(`--of takes ${scenarioNames.join()}: not ${strange}`);

// Often enough to see that it goes on, and seldom enough for hours of it.
const progressMs = 30_000;

await makeBuild();
const runners = Array.from({ length: availableParallelism() }, () => startSeedRunner(builtProgram));
const startedMs = performance.now();
const broken: string[] = [];
let passed = 0;
say(`${count} seeds each of ${chosen.join(", ")}, from seed ${first} on`);

for (const scenario of chosen) {
  const beganMs = performance.now();
  const secondsOf = () => (performance.now() - beganMs) / 1_000;
  let ended = 0;
  let failed = 0;
  let toldMs = beganMs;
  await runSeeds(runners, scenario, seedsFrom(first, count), (outcome) => {
    ended++;
    if (outcome.violations.length > 0) {
      failed++;
      const { seed } = outcome;
      broken.push(
        `${scenario} ${seed}: ${shownViolations(outcome)}\n  ${replayOf(scenario, seed)}`,
      );
      say(`${scenario} ${seed}: ${shownViolations(outcome)}`);
    }
    if (performance.now() - toldMs < progressMs) return;
    toldMs = performance.now();
    say(`${scenario}: ${ended} of ${count}, ${(ended / secondsOf()).toFixed(1)} a second`);
  });
  passed += ended - failed;
  say(`${scenario}: ${count} seeds in ${secondsOf().toFixed(0)} s, ${failed} broke promises`);
}
for (const runner of runners) runner.close();

// A crash at every request of a few runs doesn't depend on seeds.
if (chosen.includes("flows")) {
  const points = crashPoints((await runCrashPoint()).requests);
  for (const point of points) {
    const { violations } = await runCrashPoint(point);
    if (violations.length === 0) passed++;
    else broken.push(`a crash at ${JSON.stringify(point)}: ${shownViolations({ violations })}`);
  }
  say(`flows: a crash at each of ${points.length} points`);
}

for (const each of broken) console.log(each);
console.log(`${passed} passed, ${broken.length} failed`);
process.exitCode = broken.length > 0 ? 1 : 0;

function say(line: string): void {
  const seconds = ((performance.now() - startedMs) / 1_000).toFixed(1);
  console.log(`${seconds.padStart(8)} s  ${line}`);
}
