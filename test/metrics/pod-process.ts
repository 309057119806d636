/** A pod in a process of its own, to be killed while it runs a task for ever. */
import process from "node:process";
import { startPod, task } from "flotilla";

const silent = { debug() {}, info() {}, warn() {}, error() {} };
await startPod({
  store: process.argv[2]!,
  heartbeatMs: 50,
  deadAfterMs: 1_000,
  log: silent,
  use: [
    task("endless").handle(async () => {
      process.send!("running");
      await new Promise(() => {});
    }),
  ],
});
process.send!("ready");
