/**
 * `npx node --conditions=flotilla:source test/simulation/replay.ts flows 12345` prints all that a seed does,
 * and with a second number what came of each seed up to that one.
 */
import process from "node:process";
import { shownViolations } from "./report.ts";
import { type Scenario, scenarioNames, scenarios } from "./scenarios.ts";

const [scenario = "", first = "1", last = first] = process.argv.slice(2);
if (!Object.hasOwn(scenarios, scenario)) {
  throw new Error(`name what is simulated: ${scenarioNames.join(", ")}`);
}

for (let seed = Number(first); seed <= Number(last); seed++) {
  const report = await scenarios[scenario as Scenario](seed, { keepTrace: first === last });
  for (const line of report.trace) console.log(line);
  const found = shownViolations(report) || "nothing violated";
  console.log(`seed ${seed}: trace ${report.hash}, ${found}`);
}
