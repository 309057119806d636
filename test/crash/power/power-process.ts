/** A pod and its callers in one process, which note all that they were told, until the power is cut. */
import { syncBuiltinESMExports } from "node:module";
import process from "node:process";
import workerThreads, { type WorkerOptions } from "node:worker_threads";
import { agent, connect, flow, startPod, task } from "flotilla";
import { silentLogger } from "../../../src/base/log.ts";

const [store, hook, rounds] = process.argv.slice(2) as [string, string, string];
const { Worker } = workerThreads;
class WatchedWorker extends Worker {
  constructor(file: string | URL, options: WorkerOptions = {}) {
    super(file, { ...options, execArgv: [...(options.execArgv ?? []), `--import=${hook}`] });
  }
}
workerThreads.Worker = WatchedWorker;
syncBuiltinESMExports();
const { note } = (await import(hook)) as typeof import("./flushes.ts");

const quick = task("quick", {}, ({ input, taskId, token }) => {
  note({ what: "began", taskId, token });
  return { input };
});
// Some are under way when the power is cut, and the next process has them again.
const endless = task("endless", {}, async ({ taskId, token, signal }) => {
  note({ what: "began", taskId, token });
  await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
});
const order = flow("order", { version: 1 })
  .to("reserve", () => ({ reserved: true }))
  .to("charge", ({ runId, token, state }) => {
    note({ what: "reached", runId, token, state });
    return { charged: true };
  })
  .signal("approval")
  .to("ship", ({ runId, token, state }) => {
    note({ what: "reached", runId, token, state });
    return { shipped: true };
  })
  .end();
const echo = agent("echo", async ({ messages }) => `answer ${messages.length}`);

const limits = { heartbeatMs: 100, deadAfterMs: 500 };
const pod = await startPod({
  store,
  ...limits,
  use: [quick, endless, order, echo],
  log: silentLogger,
});
// Its messages reach the session's owner over the bus, whose writes aren't flushed.
const flotilla = connect(store);

async function tasks(round: number): Promise<void> {
  const { taskId } = await pod.enqueue("quick", { round });
  note({ what: "stored", taskId });
  note({ what: "ended", taskId, result: await pod.waitFor(taskId) });
  if (round > 3) return;
  const hanging = await flotilla.enqueue("endless", { round });
  note({ what: "stored", taskId: hanging.taskId });
}

async function runs(round: number): Promise<void> {
  const { runId } = await flotilla.runs.start("order", { round });
  note({ what: "stored", taskId: runId });
  await flotilla.runs.signal(runId, "approval", { round }, { id: `signal-${round}` });
  note({ what: "signalled", runId });
  note({ what: "ended", taskId: runId, result: await pod.runs.wait(runId) });
}

async function talk(round: number, sessionId: string): Promise<void> {
  const text = `message ${round} of ${sessionId}`;
  const { seq } = await flotilla.sessions.open(sessionId, { user: "ada" }).send(text);
  note({ what: "said", sessionId, seq, text });
}

if (Number(rounds) > 0) {
  const { sessionId } = await pod.sessions.create("echo", { user: "ada" });
  note({ what: "created", sessionId });
  for (let round = 1; round <= Number(rounds); round++) {
    await Promise.all([tasks(round), runs(round), talk(round, sessionId)]);
  }
  note({ what: "over" });
}
process.stdin.resume().once("end", () => process.exit(1));
