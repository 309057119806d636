/** A pod in a process of its own: starts when it is told to, says so, and stops with its input. */
import { once } from "node:events";
import process from "node:process";
import { silentLogger } from "../../src/base/log.ts";
import { task } from "../../src/tasks/task.ts";
import { startPod } from "../../src/runtime/start-pod.ts";

process.stdout.write("loaded\n");
await once(process.stdin, "data");
const echo = task("echo", {}, ({ input }: { input: number }) => input);
const pod = await startPod({ store: process.argv[2]!, use: [echo], log: silentLogger });
process.stdout.write("started\n");
process.stdin.resume();
await once(process.stdin, "end");
await pod.stop();
