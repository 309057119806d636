import type { Clock } from "../../base/clock.ts";
import type { Database } from "../../store/database.ts";
import type { Task } from "../rows.ts";
import { getTask } from "../sql/inspect.ts";
import { toTasks } from "../dependencies.ts";
import type { Workers } from "./blocked-by.ts";

// It is asked about a wait that took too long already.
const answerMs = 1_000;

/** Why a task hasn't ended, as far as the store says so in time; undefined where it doesn't. */
export async function whyOpen(
  { database, clock, workers }: { database: Database; clock: Clock; workers: Workers },
  taskId: string,
): Promise<string | undefined> {
  const late = Promise.withResolvers<undefined>();
  const stop = clock.after(answerMs, () => late.resolve(undefined));
  const asked = look({ database, workers }, taskId, clock.now()).catch(() => undefined);
  return Promise.race([asked, late.promise]).finally(stop);
}

async function look(
  { database, workers }: { database: Database; workers: Workers },
  taskId: string,
  nowMs: number,
): Promise<string | undefined> {
  const found = await toTasks(database, await database.read(getTask(taskId)));
  const [task] = await workers.markWaiting(found);
  return task && reasonOf(task, nowMs);
}

function reasonOf(task: Task, nowMs: number): string | undefined {
  const { name, waitsFor, failures, runAtMs } = task;
  if (task.status === "claimed") {
    return `it runs on pod ${task.claimedBy}, attempt ${failures + 1}`;
  }
  if (task.status !== "pending") return undefined;
  const failed = task.error === null ? "" : ` after it failed: ${task.error.message.slice(0, 200)}`;
  const reasons = [
    ...(runAtMs > nowMs ? [`it isn't due before ${new Date(runAtMs).toISOString()}${failed}`] : []),
    ...(waitsFor.length > 0 ? ["it waits for other tasks"] : []),
    ...(task.paused ? [`"${name}" is paused`] : []),
    ...(task.noWorker ? [`no pod that is up works on "${name}"`] : []),
    ...(task.blockedBy === null ? [] : [`the limit of ${task.blockedBy} is reached`]),
    ...(task.throttledBy === null
      ? []
      : [
          `the throttle ${task.throttledBy.name} has no permit, and ${task.throttledBy.ahead} wait before it`,
        ]),
  ];
  return reasons.length === 0 ? "it waits for a pod that has room" : reasons.join(", and ");
}
