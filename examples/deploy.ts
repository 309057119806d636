// A deploy under load: the new worker starts, the old one is told to stop with SIGTERM, lets what it
// has begun end, and leaves the rest to the new one. Nothing is lost, and nothing runs twice.
// prints: the old worker is busy
// prints: the new worker is busy, too
// prints: the old worker has left: exit 0
// prints: not completed: 0, run more than once: 0
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import process from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { connect, startPod, task } from "flotilla";

const store = "sqlite:deploy.db";
const ledger = "deploy.log";

const render = task<number>("render", {}, async ({ input }) => {
  appendFileSync(ledger, `${process.pid} ${input}\n`);
  await delay(300);
});

/** What runs on the servers. `npx flotilla work` does the same with SIGTERM. */
async function work(): Promise<void> {
  const pod = await startPod({ store, use: [render], slots: 5, shutdownMs: 10_000 });
  process.once("SIGTERM", () => void pod.stop());
}

/** What the platform does, while a producer goes on enqueueing. */
async function deploy(): Promise<void> {
  writeFileSync(ledger, "");
  await using flotilla = connect(store);
  const enqueued: string[] = [];
  let deploying = true;
  const producing = (async () => {
    while (deploying) {
      enqueued.push((await flotilla.enqueue(render, enqueued.length)).taskId);
      await delay(50);
    }
  })();

  const before = startWorker();
  await busy(before);
  console.log("the old worker is busy");
  const after = startWorker();
  await busy(after);
  console.log("the new worker is busy, too");

  const left = once(before, "exit");
  before.kill("SIGTERM");
  console.log(`the old worker has left: exit ${String((await left)[0])}`);
  deploying = false;
  await producing;

  const ended = await Promise.all(enqueued.map((taskId) => flotilla.tasks.settled(taskId)));
  const lost = ended.filter(({ status }) => status !== "completed").length;
  const repeated = runs().length - new Set(runs().map(({ input }) => input)).size;
  console.log(`not completed: ${lost}, run more than once: ${repeated}`);
  after.kill("SIGTERM");
  await once(after, "exit");
}

async function busy({ pid }: ChildProcess): Promise<void> {
  while (!runs().some((run) => run.pid === pid)) await delay(20);
}

function startWorker(): ChildProcess {
  const args = [...process.execArgv, import.meta.filename, "work"];
  return spawn(process.execPath, args, { stdio: ["ignore", "inherit", "inherit"] });
}

function runs() {
  const lines = readFileSync(ledger, "utf8").split("\n").filter(Boolean);
  return lines.map((line) => {
    const [pid, input] = line.split(" ").map(Number);
    return { pid, input };
  });
}

await (process.argv[2] === "work" ? work() : deploy());
