import { readFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, flow, startPod, task } from "flotilla";
import { silentLogger } from "../../src/base/log.ts";
import { migrate } from "../../src/store/migrate.ts";
import { openStore } from "../../src/store/open.ts";
import { openPostgres } from "../../src/store/postgres/postgres.ts";
import { migrations } from "../../src/store/schema.ts";
import { sql, table } from "../../src/store/sql.ts";
import { type PostgresServer, startPostgres } from "./server.ts";

const docs = readFileSync(join(import.meta.dirname, "../../docs/postgres.md"), "utf8");
const [, chapter = ""] = /^## Roles$(.*?)(?=^## |(?![\s\S]))/ms.exec(docs) ?? [];
/** What the documentation says to run, before and after the first migration. */
const [before, after] = [...chapter.matchAll(/```sql\n(.*?)```/gs)].map(([, text]) => text!);

let server: PostgresServer;
const as = (role: string) => `postgres://${role}@127.0.0.1:${server.port}/app`;

async function ask(url: string, text: string): Promise<pg.QueryResult> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    return await client.query(text);
  } finally {
    await client.end();
  }
}

beforeAll(async () => {
  server = await startPostgres();
  await ask(server.url, "create database app");
  await ask(as("postgres"), before!);
  await (await openStore(as("flotilla_owner"))).close();
  await ask(as("flotilla_owner"), after!);
});
afterAll(() => server.stop());

const double = task("double", {}, ({ input }: { input: number }) => input * 2);
const counting = flow("counting", { version: 1 })
  .to("count", async () => ({ counted: 1 }))
  .end();
const settings = { use: [double, counting], log: silentLogger, migrate: "check" } as const;

function reading(table: string): [string, string] {
  return ["flotilla_producers", `select * from flotilla.${table}`];
}

describe("the documented roles", () => {
  test("let pods run what producers enqueue, and producers wait for it", async () => {
    await using pod = await startPod({ ...settings, store: as("flotilla_pods") });
    await using producer = connect(as("flotilla_producers"), { migrate: "check" });
    expect(await producer.waitFor(await producer.enqueue(double, 21))).toBe(42);
    const keyed = await producer.enqueue(double, 2, { key: "two" });
    expect((await producer.enqueue(double, 2, { key: "two" })).taskId).toBe(keyed.taskId);
    const many = await producer.enqueueMany(double, [1, 2, 3]);
    const results = many.map(({ taskId }) => producer.waitFor(taskId));
    expect(await Promise.all(results)).toEqual([2, 4, 6]);
    const run = await producer.runs.start(counting, {});
    expect(await producer.runs.wait(run)).toMatchObject({ counted: 1 });
    expect(await producer.tasks.get(run.runId)).toMatchObject({ status: "completed" });
    expect((await producer.tasks.list({ limit: 3 })).tasks).toHaveLength(3);
    expect((await producer.tasks.stats()).byStatus.completed).toBeGreaterThan(5);
    expect((await producer.pods()).map(({ podId }) => podId)).toEqual([pod.podId]);
    await pod.tasks.cancel((await pod.enqueue(double, 1, { delayMs: 3_600_000 })).taskId);
  });

  test("let producers whose tasks wait for others have what that takes besides", async () => {
    await ask(
      as("postgres"),
      `create role planner login in role flotilla_producers;
      grant insert on flotilla.task_dependency to planner;
      grant select, update on flotilla.task, flotilla.task_dependency to planner`,
    );
    await using _pod = await startPod({ ...settings, store: as("flotilla_pods") });
    await using producer = connect(as("planner"), { migrate: "check" });
    const first = await producer.enqueue(double, 1);
    expect(await producer.waitFor(await producer.enqueue(double, 2, { after: [first] }))).toBe(4);
    const graph = await producer.enqueueGraph([
      { ref: "first", task: double, input: 5 },
      { ref: "then", task: double, input: 6, after: ["first"] },
    ]);
    expect(await producer.waitFor(graph.then)).toBe(12);
  });

  test("let a role that changes schedules leave its entries, and change or delete none", async () => {
    await ask(
      as("postgres"),
      `create role scheduler login in role flotilla_producers;
      grant select, insert, update, delete on flotilla.schedule to scheduler;
      grant select, insert on flotilla.audit to scheduler`,
    );
    await using producer = connect(as("scheduler"), { migrate: "check" });
    await producer.schedules.put("nightly", { name: "double", pattern: "0 3 * * *" });
    await producer.schedules.remove("nightly");
    const { entries } = await producer.audit.list({ subject: "nightly" });
    expect(entries.map(({ action }) => action)).toEqual(["schedules.remove", "schedules.put"]);
    for (const text of ["update flotilla.audit set actor = 'me'", "delete from flotilla.audit"]) {
      await expect(ask(as("scheduler"), text)).rejects.toMatchObject({ code: "42501" });
    }
  });

  test.each([
    ["flotilla_pods", "create table flotilla.mine (id integer)"],
    ["flotilla_pods", "alter table flotilla.task add column mine text"],
    ["flotilla_pods", "drop table flotilla.task"],
    ["flotilla_pods", "truncate flotilla.task"],
    ["flotilla_pods", "drop index flotilla.task_ready"],
    ["flotilla_pods", "create schema mine"],
    ["flotilla_owner", "create schema mine"],
    ["flotilla_owner", "create role mine"],
    ["flotilla_producers", "update flotilla.task set status = 'completed'"],
    ["flotilla_producers", "delete from flotilla.task"],
    ["flotilla_producers", "insert into flotilla.pod (pod_id) values ('me')"],
    ["flotilla_producers", "insert into flotilla.bus_message values ('pod', 'me', 1, '[]')"],
    ["flotilla_producers", "insert into flotilla.api_key select * from flotilla.api_key"],
    ...["api_key", "sign_in", "token_revocation"].map(reading),
    ...["audit", "agent", "session_log", "bus_secret", "bus_message", "message"].map(reading),
    ...["session", "session_user", "task_signal", "throttle", "turn_checkpoint"].map(reading),
  ])("don't let %s %s", async (role, text) => {
    await expect(ask(as(role), text)).rejects.toMatchObject({ code: "42501" });
  });

  test("name the fix where a producer tries more", async () => {
    await using producer = connect(as("flotilla_producers"), { migrate: "check" });
    const { taskId } = await producer.enqueue("later", null, { delayMs: 3_600_000 });
    await expect(producer.tasks.cancel(taskId)).rejects.toMatchObject({
      code: "store_read_only",
      message: expect.stringMatching(/this role may not do that: grant it the right.*Roles/),
    });
  });

  test("name the role that has to migrate, and open new tables to pods once that is done", async () => {
    const newer = [
      ...migrations,
      {
        name: "a later release",
        needs: 1,
        statements: [sql`create table ${table("probe")}_two (id integer primary key)`],
      },
    ];
    const pods = await openPostgres({ url: as("flotilla_pods") });
    await expect(migrate(pods, { migrations: newer })).rejects.toMatchObject({
      code: "store_read_only",
      message: expect.stringContaining("as the role that owns the schema"),
    });
    await expect(migrate(pods, { migrations: newer, mode: "check" })).rejects.toMatchObject({
      code: "store_outdated",
    });
    const owner = await openPostgres({ url: as("flotilla_owner") });
    await migrate(owner, { migrations: newer });
    await owner.close();
    await pods.write([sql`insert into ${table("probe")}_two values (1)`]);
    expect(await pods.read(sql`select id from ${table("probe")}_two`)).toEqual([{ id: 1 }]);
    await pods.close();
  });

  test("that are missing altogether are what an error names", async () => {
    await ask(as("postgres"), "create role stranger login");
    await expect(openStore(as("stranger"))).rejects.toMatchObject({
      code: "store_read_only",
      message: expect.stringContaining("permission denied for schema flotilla"),
    });
  });
});
