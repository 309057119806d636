import { type MovableClock, movableClock } from "../../base/contract/movable-clock.ts";
import { uuidv7 } from "../../base/ids.ts";
import { seededRandom } from "../../base/random.ts";
import { beat, readPods, toPodSeen } from "../../pods/sql.ts";
import type { OpenStore, StoreKind } from "../../store/contract/database.ts";
import { emptyTables } from "../../store/contract/kinds.ts";
import { migrate } from "../../store/migrate.ts";
import { sql, type Statement, table } from "../../store/sql.ts";
import { createTasks, type TasksParts } from "../tasks.ts";
import { withFollowUps } from "../finish/outcome.ts";
import { type Claim, type Task, toClaim } from "../rows.ts";
import { claimOldest, claimTasks, type Frontier, type Level, levelsInUse } from "../sql/claim.ts";
import { recoverTasks } from "../sql/recover.ts";
import { startWorker, type Worker, type WorkerEvent, type WorkerOptions } from "../run/worker.ts";
import type { TaskHandler } from "../model.ts";

/** A queue on an empty store, with time in hand. */
export type TasksHarness = Awaited<ReturnType<typeof openTasks>>;

export const rowsOf = table("task");

type ClaimManner = { oldestFirst?: boolean; call?: number; from?: Frontier };

const waitLimitMs = 90_000;

export async function openTasks(kind: StoreKind) {
  const store = await emptyStore(kind);
  const { database } = store;
  const clock: MovableClock = store.clock ?? movableClock();
  const random = seededRandom(1);
  const ids = uuidv7(clock, random);
  const workers: Worker[] = [];
  const told: WorkerEvent[] = [];
  let lastCall = 0;
  const client = (more: Partial<TasksParts> = {}) =>
    createTasks({
      database,
      clock,
      random,
      ids,
      onEnqueued: () => workers.forEach((worker) => worker.wake()),
      ...more,
    });
  const tasks = client();

  /** Where the store's clock can't be moved, the rows are: to them it is the same. */
  const moveStore = async (byMs: number): Promise<void> => {
    if (store.clock || byMs === 0) return;
    await database.write([
      sql`update ${rowsOf} set run_at = run_at - ${byMs}, created_at = created_at - ${byMs},
        last_update = last_update - ${byMs}, started_at = started_at - ${byMs}`,
      sql`update ${table("step_journal")} set at = at - ${byMs}, started_at = started_at - ${byMs}`,
      sql`update ${table("pod")} set last_heartbeat = last_heartbeat - ${byMs}`,
    ]);
  };

  const queue = {
    ...tasks,
    store,
    database,
    clock,
    random,
    ids,
    /** The events that the workers reported. */
    told,
    client,

    /** Time passes, for the store and for all that use it. */
    async pass(byMs: number): Promise<void> {
      await moveStore(byMs);
      await clock.advance(byMs);
    },

    /** Waits while others work, without letting more than moments pass for them. */
    async until<Found>(
      what: string,
      condition: () => Found | Promise<Found>,
      { stepMs = 1 }: { stepMs?: number } = {},
    ) {
      const deadlineMs = performance.now() + waitLimitMs;
      for (;;) {
        await clock.advance(stepMs);
        const found = await condition();
        if (found) return found as NonNullable<Found>;
        if (performance.now() > deadlineMs) throw new Error(`${what} didn't happen`);
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
    },

    /** The outcome of something that needs time to pass. */
    async outcome<Value>(promise: Promise<Value>, { stepMs = 1 } = {}): Promise<Value> {
      let settled = false;
      void promise.catch(() => {}).finally(() => (settled = true));
      await queue.until("an answer", () => settled, { stepMs });
      return promise;
    },

    async ended(taskId: string): Promise<Task> {
      const terminal = ["completed", "failed", "cancelled"];
      return queue.until(`the end of ${taskId}`, async () => {
        const task = await tasks.get(taskId);
        return task && terminal.includes(task.status) ? task : undefined;
      });
    },

    async inStatus<Status extends Task["status"]>(taskId: string, status: Status) {
      return queue.until(`${taskId} being ${status}`, async () => {
        const task = await tasks.get(taskId);
        return task?.status === status ? (task as Extract<Task, { status: Status }>) : undefined;
      });
    },

    /** Makes pods known, or lets them beat once more. */
    async beat(...podIds: string[]): Promise<void> {
      await database.write(podIds.map((podId) => beat(podId, "{}", 0)));
    },

    /** As if it had been pruned. */
    async forgetPod(podId: string): Promise<void> {
      await database.write([sql`delete from ${table("pod")} where pod_id = ${podId}`]);
    },

    /** Starts a pod's worker. */
    async work(
      podId: string,
      handlers: readonly TaskHandler[],
      more: Partial<WorkerOptions> = {},
    ): Promise<Worker> {
      await queue.beat(podId);
      const worker = startWorker({
        podId,
        database,
        clock,
        random,
        handlers: new Map(withFollowUps(handlers).map((handler) => [handler.name, handler])),
        capacity: { slots: 10, target: 1 },
        onEvent: (event) => told.push(event),
        ...more,
      });
      workers.push(worker);
      return worker;
    },

    /** Claims as a pod would, without running anything. */
    async claim(
      podId: string,
      names: readonly string[],
      limit = 1,
      { oldestFirst = false, call = ++lastCall, from }: ClaimManner = {},
    ): Promise<Claim[]> {
      const claim = { podId, call, names, limit, ...(from && { from }) };
      const levels = (await database.read(levelsInUse(names))) as unknown as Level[];
      const [claimed] = await database.write([
        oldestFirst && levels.length > 0 ? claimOldest(claim, levels) : claimTasks(claim),
      ]);
      return claimed!.map((row) => toClaim(row, queue.clock.now()));
    },

    /** Recovers claims as a leader would that has seen this pod silent since now. */
    async recover(
      podId: string,
      claims: readonly Pick<Claim, "taskId" | "token">[],
    ): Promise<number> {
      const pods = (await database.read(readPods())).map(toPodSeen);
      const pod = pods.find((each) => each.podId === podId)!;
      const orphans = claims.map(({ taskId, token }) => ({ taskId, token, pod }));
      const [recovered] = await database.write([recoverTasks(orphans)]);
      return recovered!.length;
    },

    async row(taskId: string) {
      const [row] = await database.read(sql`select * from ${rowsOf} where task_id = ${taskId}`);
      return row!;
    },

    async count(where: Statement = sql`true`): Promise<number> {
      const [row] = await database.read(
        sql`select count(*) as count from ${rowsOf} where ${where}`,
      );
      return Number(row!["count"]);
    },

    async close(): Promise<void> {
      const stopping = workers.map((worker) => worker.stop({ waitMs: 0 }));
      // Handlers that never end are waited for until their grace is over.
      await queue.outcome(Promise.all(stopping), { stepMs: 1_000 });
      tasks.close();
      if (store.clock) await database.close();
    },
  };
  return queue;
}

const opened = new Map<StoreKind, OpenStore>();

/** Stores with threads take long to open, so each is opened once and emptied for every test. */
async function emptyStore(kind: StoreKind): Promise<OpenStore> {
  const store = opened.get(kind) ?? (await kind.open());
  await migrate(store.database);
  if (store.clock) return store;
  opened.set(kind, store);
  const tables = [
    "task",
    "task_event",
    "pod",
    "task_limit",
    "task_pause",
    "task_signal",
    "task_dependency",
    "step_journal",
    "throttle",
    "throttle_report",
    "throttle_event",
    "link",
    "audit",
  ] as const;
  await emptyTables(store, tables);
  return store;
}

export async function closeStores(): Promise<void> {
  for (const store of opened.values()) {
    await store.database.close();
    await store.remove();
  }
  opened.clear();
}
