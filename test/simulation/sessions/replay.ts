/** `node --conditions=flotilla:source test/simulation/sessions/replay.ts 12345` prints all that a seed does. */
import { runSessionSeed } from "./run.ts";

const [first = "1", last = first] = process.argv.slice(2);

for (let seed = Number(first); seed <= Number(last); seed++) {
  const report = await runSessionSeed(seed, { keepTrace: first === last });
  for (const line of report.trace) console.log(line);
  const found = report.violations.map(({ invariant, what }) => `${invariant}: ${what}`);
  console.log(`seed ${seed}: trace ${report.hash}, ${found.join("; ") || "nothing violated"}`);
}
