/** A pod whose task saves how far it is at every step, and says each step once it has saved it. */
import { writeSync } from "node:fs";
import process from "node:process";
import { startPod, task } from "flotilla";
import { silentLogger } from "../../../src/base/log.ts";

const [store, dataDir] = process.argv.slice(2) as [string, string];
const say = (line: string) => void writeSync(1, `${line}\n`);
const steps = 100_000;

const counting = task("count", { progress: "local" }, async ({ progress, lastProgress }) => {
  const from = Number((await lastProgress()) ?? 0);
  say(`from ${from}`);
  for (let step = from + 1; step <= steps; step++) {
    progress(step);
    say(`saved ${step}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
});

await startPod({
  store,
  dataDir,
  use: [counting],
  heartbeatMs: 100,
  deadAfterMs: 500,
  log: silentLogger,
});
process.stdin.resume().once("end", () => process.exit(1));
