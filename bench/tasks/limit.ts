import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { systemClock } from "../../src/base/clock.ts";
import { uuidv7 } from "../../src/base/ids.ts";
import { systemRandom } from "../../src/base/random.ts";
import { beat } from "../../src/pods/sql.ts";
import { completedFinish } from "../../src/tasks/finish/outcome.ts";
import { claimTasks, readAhead } from "../../src/tasks/sql/claim.ts";
import { insertTasks } from "../../src/tasks/sql/enqueue.ts";
import { finishTasks } from "../../src/tasks/sql/finish.ts";
import { openStore } from "../../src/store/open.ts";
import { playRole } from "../roles.ts";
import { type Bare, openBare } from "./bare.ts";
import { payload, workName } from "./work.ts";

/**
 * What bare `node:sqlite` can do on one thread: the very statements that tasks are made of, on the
 * same schema with the same pragmas, and nothing around them.
 */
export type LimitPhase = { readonly path: string; readonly batch: number } & (
  | { readonly work: "insert"; readonly warmMs: number; readonly runMs: number }
  | { readonly work: "drain"; readonly tasks: number; readonly cutMs: number }
);

export type Limit = { readonly tasks: number; readonly wallMs: number };

if (isMainThread) playRole((phases: LimitPhase[]) => onThread(phases));
else parentPort!.postMessage(await all(workerData as LimitPhase[]));

function onThread(phases: LimitPhase[]): Promise<Limit[]> {
  const thread = new Worker(new URL(import.meta.url), { workerData: phases });
  return new Promise((resolve, reject) => {
    thread.once("message", resolve);
    thread.once("error", reject);
  });
}

async function all(phases: LimitPhase[]): Promise<Limit[]> {
  const limits: Limit[] = [];
  for (const phase of phases) {
    // Makes the schema, or finds it made.
    await (await openStore(`sqlite:${phase.path}`)).close();
    const bare = openBare(phase.path);
    limits.push(phase.work === "insert" ? insert(bare, phase) : drain(bare, phase));
    bare.close();
  }
  return limits;
}

function insert(bare: Bare, { batch, warmMs, runMs }: LimitPhase & { work: "insert" }): Limit {
  const ids = uuidv7(systemClock, systemRandom);
  const during = (forMs: number): Limit => {
    const startedMs = performance.now();
    let tasks = 0;
    while (performance.now() < startedMs + forMs) {
      const news = Array.from({ length: batch }, (_, at) => ({
        taskId: ids.next(),
        tenant: "default",
        name: workName,
        payload: JSON.stringify(payload(tasks + at)),
        priority: 0,
        delayMs: 0,
        maxAttempts: null,
        trace: null,
        key: null,
      }));
      bare.commit([insertTasks(news)]);
      tasks += batch;
    }
    return { tasks, wallMs: performance.now() - startedMs };
  };
  during(warmMs);
  return during(runMs);
}

// A task is claimed for good before it runs, so claim and finish are two commits.
function drain(bare: Bare, { batch, tasks, cutMs }: LimitPhase & { work: "drain" }): Limit {
  const podId = "limit";
  const names = [workName];
  bare.commit([beat(podId, "{}", 0)]);
  const startedMs = performance.now();
  let done = 0;
  for (let call = 1; done < tasks && performance.now() < startedMs + cutMs; call++) {
    const taking = claimTasks({ podId, call, names, limit: batch });
    const [claimed] = bare.commit([taking, readAhead(names)]);
    if (claimed!.length === 0) throw new Error(`the backlog ended after ${done} of ${tasks} tasks`);
    const finishes = claimed!.map(([taskId, , , token]) =>
      completedFinish({ taskId: taskId as string, token: token as number }, "null"),
    );
    const [finished] = bare.commit([finishTasks(finishes)]);
    done += finished!.length;
  }
  return { tasks: done, wallMs: performance.now() - startedMs };
}
