import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { systemClock } from "../../base/clock.ts";
import { uuidv7 } from "../../base/ids.ts";
import { until } from "../../base/contract/movable-clock.ts";
import { systemRandom } from "../../base/random.ts";
import type { Database } from "../../store/database.ts";
import { lockWaits, temporaryDatabase } from "../../store/contract/kinds.ts";
import { openStore } from "../../store/open.ts";
import { postgresDialect } from "../../store/postgres/dialect.ts";
import { renderAll, type Statement } from "../../store/sql.ts";
import { emptyLiveness, observe } from "../../pods/liveness.ts";
import { beat, readPods, toPodSeen } from "../../pods/sql.ts";
import { createTasks, type Tasks } from "../tasks.ts";
import { createLeader } from "../leader/recover.ts";
import { cancelTask, retryTask } from "./inspect.ts";
import { type Finish, finishTasks } from "./finish.ts";
import { wakeDependents } from "./dependencies.ts";

let database: Database;
let tasks: Tasks & { close(): void };
let one: pg.Client;
let other: pg.Client;
let watcher: pg.Client;
let url: string;
let remove: () => Promise<void>;

beforeAll(async () => {
  const place = await temporaryDatabase();
  ({ remove, url } = place);
  database = await openStore(place.url);
  const [clock, random] = [systemClock, systemRandom];
  tasks = createTasks({ database, clock, random, ids: uuidv7(clock, random) });
  const connect = async () => {
    const client = new pg.Client(place.url);
    await client.connect();
    return client;
  };
  [one, other, watcher] = await Promise.all([connect(), connect(), connect()]);
});
afterAll(async () => {
  tasks.close();
  await Promise.all([one.end(), other.end(), watcher.end(), database.close()]);
  await remove();
});

const send = async (client: pg.Client, statements: readonly Statement[]) => {
  for (const { text, values } of renderAll(statements, postgresDialect({ schema: "flotilla" }))
    .queries) {
    await client.query(text, values);
  }
};
/** How a pod ends a task that it has claimed. */
const ending = (taskId: string): Statement[] => [
  finishTasks([{ ...finishOf(taskId), hasDependents: true }]),
  ...wakeDependents([taskId]),
];
const finishOf = (taskId: string): Finish => ({
  taskId,
  token: 1,
  status: "completed",
  result: "1",
  error: null,
  counted: 0,
  delayMs: null,
  wake: null,
  event: null,
});
const claimed = async (name: string) => {
  const { taskId } = await tasks.enqueue(name, 1);
  await watcher.query(
    "update flotilla.task set status = 'claimed', claim_token = 1 where task_id = $1",
    [taskId],
  );
  return taskId;
};
const parkedOf = async (taskId: string) => {
  const { rows } = await watcher.query("select parked from flotilla.task where task_id = $1", [
    taskId,
  ]);
  return (rows[0] as { parked: number }).parked;
};
const somebodyIsHeldUp = () =>
  until("somebody to wait for a lock", async () => {
    const { rowCount } = await watcher.query(lockWaits);
    return rowCount === 1;
  });

describe("on Postgres, with transactions that can't see each other", () => {
  test("the last two that a task waits for end at once, and it is woken by the second", async () => {
    const [first, second] = [await claimed("a"), await claimed("b")];
    const waiter = await tasks.enqueue("waiter", 1, { after: [first, second] });
    await one.query("begin");
    await send(one, ending(first));
    await other.query("begin");
    const held = send(other, ending(second));
    await somebodyIsHeldUp();
    await one.query("commit");
    await held;
    expect(await parkedOf(waiter.taskId)).toBe(2);
    await other.query("commit");
    expect(await parkedOf(waiter.taskId)).toBe(0);
  });

  test("many that a task waits for end at once, from all connections", async () => {
    const awaited = await Promise.all(Array.from({ length: 40 }, () => claimed("a")));
    const waiters = await tasks.enqueueMany("waiter", [1, 2, 3], { after: awaited });
    await Promise.all(awaited.map((taskId) => database.write(ending(taskId))));
    for (const { taskId } of waiters) expect(await parkedOf(taskId)).toBe(0);
  });

  test("a task that is stored while the one that it waits for ends waits for that, and isn't left", async () => {
    const awaited = await claimed("a");
    await one.query("begin");
    await send(one, ending(awaited));
    const storing = tasks.enqueue("waiter", 1, { after: [awaited] });
    await somebodyIsHeldUp();
    await one.query("commit");
    expect(await parkedOf((await storing).taskId)).toBe(0);
  });

  test("an end that comes while a waiter is stored waits for that, and wakes it", async () => {
    const awaited = await claimed("a");
    await one.query("begin");
    const waiter = await tasks.enqueue("waiter", 1, { after: [awaited], tx: one });
    const held = database.write(ending(awaited));
    await somebodyIsHeldUp();
    await one.query("commit");
    await held;
    expect(await parkedOf(waiter.taskId)).toBe(0);
  });

  test("a pod that knows of no waiter can't end the task without waking it", async () => {
    const awaited = await claimed("a");
    await one.query("begin");
    await tasks.enqueue("waiter", 1, { after: [awaited], tx: one });
    const held = database.write([finishTasks([finishOf(awaited)])]);
    await somebodyIsHeldUp();
    await one.query("commit");
    expect(await held).toEqual([[]]);
  });

  test("a locked dependent keeps no other task from being recovered", async () => {
    const limits = { heartbeatMs: 1_000, deadAfterMs: 5_000, gapMs: 3_000 };
    await database.write([beat("leader", "{}", 0), beat("silent", "{}", 0)]);
    const [poisoned, plain] = [await claimed("a"), await claimed("b")];
    const waiter = await tasks.enqueue("waiter", 1, { after: [poisoned] });
    await watcher.query(
      `update flotilla.task set claimed_by = 'silent', claim_call = 1,
         deaths = case when task_id = $1 then 3 else 0 end where task_id in ($1, $2)`,
      [poisoned, plain],
    );
    const seen = (await database.read(readPods())).map(toPodSeen);
    const liveness = observe(
      emptyLiveness,
      { atMs: 0, pods: seen.map((pod) => ({ ...pod, gone: pod.podId === "silent" })) },
      limits,
    );
    const impatient = await openStore({ url, lockTimeoutMs: 300 });
    const leader = createLeader({
      podId: "leader",
      database: impatient,
      limits,
      ids: uuidv7(systemClock, systemRandom),
    });
    await one.query("begin");
    await one.query("select 1 from flotilla.task where task_id = $1 for update", [waiter.taskId]);
    await leader.pass(liveness);
    expect(await tasks.get(plain)).toMatchObject({ status: "pending", deaths: 1 });
    expect(await tasks.get(poisoned)).toMatchObject({ status: "claimed", deaths: 3 });
    await one.query("commit");
    await leader.pass(liveness);
    await impatient.close();
    expect(await tasks.get(poisoned)).toMatchObject({ status: "failed" });
    expect(await parkedOf(waiter.taskId)).toBe(0);
  });

  test("cancels of tasks that wait for one that was cancelled don't wait for each other", async () => {
    const { taskId: awaited } = await tasks.enqueue("a", 1);
    const given = { after: [awaited], afterFailed: "run" } as const;
    const waiters = await tasks.enqueueMany("waiter", [1, 2], given);
    await tasks.cancel(awaited);
    const [first, second] = waiters.map(({ taskId }) => cancelTask(taskId, "request"));
    await one.query("begin");
    await send(one, first!.slice(0, 1));
    await database.write(second!);
    await send(one, first!.slice(1));
    await one.query("commit");
    for (const { taskId } of waiters) {
      expect(await tasks.get(taskId)).toMatchObject({ status: "cancelled" });
    }
  });

  test("a child that is started over holds its parent first, also one that has ended", async () => {
    const [parent, child] = [await claimed("parent"), await claimed("child")];
    await watcher.query(
      `update flotilla.task set status = 'failed',
         parent_id = case when task_id = $2 then $1 end where task_id in ($1, $2)`,
      [parent, child],
    );
    const starting = retryTask(child, "request");
    await one.query("begin");
    await send(one, starting.slice(0, 1));
    // Whatever starts the parent over, and goes on to its children, comes after this.
    const restarting = tasks.retry(parent);
    await somebodyIsHeldUp();
    await send(one, starting.slice(1));
    await one.query("commit");
    await restarting;
    for (const taskId of [parent, child]) {
      expect(await tasks.get(taskId)).toMatchObject({ status: "pending" });
    }
  });

  test.each(["repeatable read", "serializable"])(
    "a transaction of a caller's with an old snapshot (%s) is refused rather than wake no dependent",
    async (level) => {
      const [first, second] = [await claimed("a"), await claimed("b")];
      const waiter = await tasks.enqueue("waiter", 1, { after: [first, second] });
      await one.query(`begin isolation level ${level}`);
      await one.query("select 1 from flotilla.task");
      await database.write(ending(second));
      await expect(send(one, ending(first))).rejects.toMatchObject({ code: "40001" });
      await one.query("rollback");
      await database.write(ending(first));
      expect(await parkedOf(waiter.taskId)).toBe(0);
    },
  );

  test("and so is one that ends a task that has got a dependent since", async () => {
    const awaited = await claimed("a");
    await one.query("begin isolation level repeatable read");
    await one.query("select 1 from flotilla.task");
    await tasks.enqueue("waiter", 1, { after: [awaited] });
    await expect(send(one, ending(awaited))).rejects.toMatchObject({ code: "40001" });
    await one.query("rollback");
  });
});
