import pg from "pg";
import { afterEach, beforeEach, expect, test } from "vitest";
import { until } from "../../base/contract/movable-clock.ts";
import { updateIdle, beat } from "../../pods/sql.ts";
import { claimTasks } from "../../tasks/sql/claim.ts";
import { type Finish, finishTasks } from "../../tasks/sql/finish.ts";
import type { Database, Row } from "../database.ts";
import { temporaryDatabase } from "../contract/kinds.ts";
import { migrate } from "../migrate.ts";
import { type Query, renderAll, sql, type Statement, table } from "../sql.ts";
import { reducedDialect, openReduced } from "../contract/reduced-postgres.ts";
import { openPostgres } from "./postgres.ts";

let url: string;
let remove: () => Promise<void>;
let database: Database;

beforeEach(async () => {
  ({ url, remove } = await temporaryDatabase());
  database = await openReduced(url);
  await migrate(database);
  await database.write([beat("first", "{}", 0), beat("second", "{}", 0)]);
});
afterEach(async () => {
  await database.close();
  await remove();
});

const tasks = table("task");

const enqueue = (count: number) =>
  database.write([
    sql`insert into ${tasks} (task_id, name)
      select 'task ' || n, case when n % 2 = 0 then 'even' else 'odd' end
      from generate_series(1, ${count}::int) n`,
  ]);

const claim = (podId: string, call: number, limit: number, names = ["even", "odd"]) =>
  claimTasks({ podId, call, names, limit });

const idsOf = (rows: Row[]) => rows.map((row) => row["task_id"] as string);

/** A transaction that stays open until the test ends it. */
async function transaction() {
  const client = new pg.Client(url);
  await client.connect();
  await client.query("begin");
  return {
    async write(statement: Statement): Promise<Row[]> {
      const { queries, answerAt } = renderAll([statement], reducedDialect);
      const tables: Row[][] = [];
      for (const { text, values } of queries as Query[]) {
        tables.push((await client.query(text, values as unknown[])).rows as Row[]);
      }
      return tables[answerAt[0]!]!;
    },
    async commit(): Promise<void> {
      await client.query("commit");
      await client.end();
    },
  };
}

const somebodyWaits = async () => {
  const waiting = await database.read(sql`select 1 as one from pg_stat_activity
    where wait_event_type = 'Lock' and datname = current_database()`);
  return waiting.length > 0;
};

test("a claim waits for another that is under way, and takes what that has left", async () => {
  await enqueue(10);
  const first = await transaction();
  const taken = idsOf(await first.write(claim("first", 1, 4)));
  expect(taken).toHaveLength(4);

  const second = database.write([claim("second", 1, 4)]);
  await until("the second claim to wait", somebodyWaits);
  await first.commit();

  const left = idsOf((await second)[0]!);
  expect(left).toHaveLength(4);
  expect(new Set([...taken, ...left]).size).toBe(8);
});

test("claimers at the same time get every task once between them, in whatever order they claim", async () => {
  await enqueue(200);
  const drain = async (podId: string, names: string[]) => {
    const mine: string[] = [];
    for (let call = 1; ; call++) {
      const claimed = idsOf((await database.write([claim(podId, call, 7, names)]))[0]!);
      if (claimed.length === 0) return mine;
      mine.push(...claimed);
    }
  };
  const shares = await Promise.all([
    drain("first", ["even", "odd"]),
    drain("second", ["odd", "even"]),
  ]);
  expect(shares.flat()).toHaveLength(200);
  expect(new Set(shares.flat()).size).toBe(200);
});

const done = (taskId: string, token: number): Finish => ({
  taskId,
  token,
  status: "completed",
  result: "1",
  error: null,
  counted: 0,
  delayMs: null,
  wake: null,
  event: null,
});

test("a finish returns which tasks it has stored, and never one that another took meanwhile", async () => {
  await enqueue(3);
  const claimed = idsOf((await database.write([claim("first", 1, 3)]))[0]!);
  const [kept, lost, gone] = claimed as [string, string, string];
  await database.write([sql`delete from ${tasks} where task_id = ${gone}`]);

  const other = await transaction();
  await other.write(sql`update ${tasks} set claim_token = claim_token + 1 where task_id = ${lost}`);
  const finish = database.write([finishTasks(claimed.map((taskId) => done(taskId, 1)))]);
  await until("the finish to wait", somebodyWaits);
  await other.commit();

  expect(await finish).toEqual([[{ task_id: kept }]]);
  const rows = await database.read(sql`select task_id, status from ${tasks} order by status`);
  expect(rows).toEqual([
    { task_id: lost, status: "claimed" },
    { task_id: kept, status: "completed" },
  ]);
});

test("nothing listens, and no commit is notified", async () => {
  await database.write([updateIdle("first", true)]);
  const witness = new pg.Client(url);
  let told = 0;
  witness.on("notification", () => told++);
  await witness.connect();
  await witness.query("listen flotilla_hint");
  const bring = (to: Database) =>
    to.write([sql`insert into ${tasks} (name) values ('a')`], { notify: true });

  const stop = database.subscribe(() => {});
  await bring(database);
  // What was told before this question comes before its answer.
  const { rows } = await witness.query(`select application_name from pg_stat_activity
    where datname = current_database() and query like 'listen %' and pid <> pg_backend_pid()`);
  expect({ rows, told }).toEqual({ rows: [], told: 0 });
  stop();

  // With everything that Postgres has, it would have been told.
  const whole = await openPostgres({ url });
  await bring(whole);
  await until("the witness to be told", () => told === 1);
  await whole.close();
  await witness.end();
});
