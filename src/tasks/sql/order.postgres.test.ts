import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { openLockedRows } from "../../store/contract/locked-rows.ts";
import { sql, type Statement, table } from "../../store/sql.ts";
import { insertTasks, type NewTask } from "./enqueue.ts";
import { type Finish, finishTasks, noteFinishes } from "./finish.ts";

let place: Awaited<ReturnType<typeof openLockedRows>>;

beforeEach(async () => {
  place = await openLockedRows();
});
afterEach(() => place.close());

const finish = (taskId: string, status: "completed" | "failed"): Finish => ({
  taskId,
  token: 1,
  status,
  result: null,
  error: null,
  counted: 0,
  delayMs: null,
  wake: null,
  event: status === "failed" ? { type: "failed", attempt: 1, detail: null } : null,
});
const backwards = ["b", "a"];
const statements: Record<string, Statement> = {
  completions: finishTasks(backwards.map((taskId) => finish(taskId, "completed"))),
  "other endings": finishTasks(backwards.map((taskId) => finish(taskId, "failed"))),
  "notes about endings": noteFinishes(
    "pod",
    backwards.map((taskId) => finish(taskId, "failed")),
  ),
};

describe("on Postgres, a write of many rows that waits for one holds none that comes after it", () => {
  test.each(Object.entries(statements))("where it stores %s", async (_, statement) => {
    const { database, holder, other } = place;
    await database.write([
      sql`insert into ${table("task")} (task_id, name, status, claimed_by, claim_token)
        values ('a', 'x', 'claimed', 'pod', 1), ('b', 'x', 'claimed', 'pod', 1)`,
      // With so few, the whole table would be read, and in the order in which it lies there.
      sql`insert into ${table("task")} (name, status)
        select 'x', 'completed' from generate_series(1, 5000)`,
    ]);
    await other.query("analyze flotilla.task");
    await holder.query("begin");
    await holder.query("select 1 from flotilla.task where task_id = 'a' for update");
    const writing = database.write([statement]);
    await place.untilWaiting();
    const later = "select 1 from flotilla.task where task_id = 'b' for update nowait";
    expect((await other.query(later)).rowCount).toBe(1);
    await holder.query("commit");
    await writing;
  });

  test("where it stores tasks with keys", async () => {
    const { database, holder, other } = place;
    const keyed = (taskId: string, key: string): NewTask => ({
      taskId,
      tenant: "default",
      name: "x",
      payload: "1",
      priority: 0,
      delayMs: 0,
      maxAttempts: null,
      key,
      trace: null,
    });
    const insert = "insert into flotilla.task (name, unique_key) values ('x', $1)";
    await holder.query("begin");
    await holder.query(insert, ["a"]);
    const writing = database.write([insertTasks([keyed("1", "b"), keyed("2", "a")])]);
    await place.untilWaiting();
    await other.query("set lock_timeout = '5s'");
    await other.query(insert, ["b"]);
    await holder.query("commit");
    expect(await writing).toEqual([[]]);
  });
});
