/** A pod in a process of its own, which polls once a minute: what it runs sooner, it was woken for. */
import process from "node:process";
import { type Config, connect, startPod, task } from "flotilla";
import { silentLogger } from "../../src/base/log.ts";

export type PodGiven = {
  store: string;
  nats: Config["nats"];
  /** The task that it runs, which enqueues the other until none is left. */
  runs: string;
  enqueues: string;
};

const { store, nats, runs, enqueues } = JSON.parse(process.argv[2]!) as PodGiven;
const flotilla = connect(store, nats ? { nats } : {});
const handler = task(runs, {}, async ({ input: left }: { input: number }) => {
  // As a pod, and as any other program.
  if (left > 0) await (left % 3 === 0 ? flotilla : pod).enqueue(enqueues, left - 1);
  return left;
});
const pod = await startPod({
  store,
  pollMs: 60_000,
  use: [handler],
  dataDir: false,
  log: silentLogger,
  ...(nats && { nats }),
});
process.send!({ ready: pod.podId });
process.once("SIGTERM", () => {
  void Promise.all([pod.stop(), flotilla.close()]).then(() => process.exit(0));
});
