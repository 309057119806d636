import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { until } from "../../base/contract/movable-clock.ts";
import { updateIdle, beat } from "../../pods/sql.ts";
import { claimTasks } from "../../tasks/sql/claim.ts";
import { type Finish, finishTasks } from "../../tasks/sql/finish.ts";
import type { Database, Row } from "../database.ts";
import { temporaryDatabase } from "../contract/kinds.ts";
import { migrate } from "../migrate.ts";
import { migrations } from "../schema.ts";
import { literal, type Query, renderAll, sql, type Statement, table } from "../sql.ts";
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

describe("a transaction that the server undoes", () => {
  const counting = (undoes: () => boolean) => {
    const events: string[] = [];
    const opened = openPostgres({
      url,
      unproven: true,
      undoes,
      onEvent: (event) => events.push(event.type),
    });
    return { opened, events };
  };
  const atFirst = () => {
    let undone = 0;
    return () => undone++ < 3;
  };

  test("is made again, whether it reads or writes", async () => {
    const reading = counting(atFirst());
    const reader = await reading.opened;
    expect(await reader.read(sql`select 1 as one`)).toEqual([{ one: 1 }]);
    expect(reading.events).toEqual(["contended", "contended", "contended"]);
    await reader.close();

    const writing = counting(atFirst());
    const writer = await writing.opened;
    await writer.write([sql`insert into ${tasks} (task_id, name) values ('once', 'a')`]);
    expect(writing.events).toEqual(["contended", "contended", "contended"]);
    expect(await writer.read(sql`select task_id from ${tasks}`)).toEqual([{ task_id: "once" }]);
    await writer.close();
  });

  test("without end is refused as busy, and counted each time", async () => {
    const { opened, events } = counting(() => true);
    const busy = await opened;
    const insert = sql`insert into ${tasks} (task_id, name) values ('never', 'a')`;
    await expect(busy.write([insert])).rejects.toMatchObject({ code: "store_busy" });
    await expect(busy.read(sql`select 1`)).rejects.toMatchObject({ code: "store_busy" });
    expect(events).toHaveLength(2 * 9);
    expect(new Set(events)).toEqual(new Set(["contended"]));
    await busy.close();
    expect(await database.read(sql`select task_id from ${tasks}`)).toEqual([]);
  });

  test("in answer to its commit is known to be undone", async () => {
    await database.write([
      sql`create table scratch (id integer)`,
      sql`create function undo() returns trigger language plpgsql as $$
        begin raise exception using errcode = '40001'; end $$`,
      sql`create constraint trigger undo after insert on scratch
        deferrable initially deferred for each row execute function undo()`,
    ]);
    await expect(database.write([sql`insert into scratch values (1)`])).rejects.toMatchObject({
      code: "store_busy",
    });
    expect(await database.read(sql`select id from scratch`)).toEqual([]);
  });
});

describe("migrations without advisory locks", () => {
  const steps = [1, 2, 3].map((id) => ({
    name: `step ${id}`,
    needs: 1,
    statements: [
      sql`create table step_${literal(id)} (id integer)`,
      sql`insert into step_${literal(id)} values (${id})`,
    ],
  }));

  test.each([0, 1])("of ten at once are made once each, from step %i on", async (applied) => {
    const fresh = await temporaryDatabase();
    const others = await Promise.all(
      Array.from({ length: 10 }, (_, seed) => openReduced(fresh.url, seed)),
    );
    if (applied > 0) await migrate(others[0]!, { migrations: steps.slice(0, applied) });
    const states = await Promise.all(others.map((each) => migrate(each, { migrations: steps })));
    for (const state of states) expect(state).toMatchObject({ version: 3, pending: [] });
    for (const id of [1, 2, 3]) {
      const stored = await others[0]!.read(sql`select id from step_${literal(id)}`);
      expect(stored).toEqual([{ id }]);
    }
    await Promise.all(others.map((each) => each.close()));
    await fresh.remove();
  });

  test("wait for one that is under way, before they do anything", async () => {
    const other = await transaction();
    await other.write(sql`select id from ${table("migration")} where id = 1 for update`);
    const next = { name: "next", needs: 1, statements: [sql`create table next_step (id integer)`] };
    const migrating = migrate(database, { migrations: [...migrations, next] });
    await until("the migration to wait", somebodyWaits);
    const numbered = await database.read(
      sql`select id from ${table("migration")} where id > ${migrations.length}`,
    );
    expect(numbered).toEqual([]);
    await other.commit();
    expect(await migrating).toMatchObject({ version: migrations.length + 1 });
  });
});
