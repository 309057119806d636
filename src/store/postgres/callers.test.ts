import { drizzle } from "drizzle-orm/node-postgres";
import { sql as drizzleSql } from "drizzle-orm";
import { CamelCasePlugin, Kysely, PostgresDialect, sql as kyselySql } from "kysely";
import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { silentLogger } from "../../base/log.ts";
import { task } from "../../tasks/task.ts";
import { connect } from "../../runtime/connect.ts";
import { startPod } from "../../runtime/start-pod.ts";
import { temporaryDatabase } from "../contract/kinds.ts";

let url: string;
let remove: () => Promise<void>;
let pool: pg.Pool;

beforeEach(async () => {
  ({ url, remove } = await temporaryDatabase());
  pool = new pg.Pool({ connectionString: url });
  await pool.query("create table orders (id integer)");
});
afterEach(async () => {
  await pool.end();
  await remove();
});

const undo = new Error("undo");

/** Begins a transaction in the library's own way, and commits it unless what is done in it throws. */
type Transact = (
  work: (tx: unknown, run: (text: string) => Promise<unknown>) => Promise<void>,
) => Promise<void>;

const withPg: Transact = async (work) => {
  const client = await pool.connect();
  try {
    await client.query("begin");
    await work(client, (text) => client.query(text));
    await client.query("commit");
  } catch (error) {
    await client.query("rollback");
    throw error;
  } finally {
    client.release();
  }
};
const withDrizzle: Transact = (work) =>
  drizzle(pool).transaction((tx) => work(tx, (text) => tx.execute(drizzleSql.raw(text))));
const withKysely: Transact = (work) =>
  new Kysely<unknown>({ dialect: new PostgresDialect({ pool }), plugins: [new CamelCasePlugin()] })
    .transaction()
    .execute((trx) => work(trx, (text) => kyselySql.raw(text).execute(trx)));

const libraries: [string, Transact][] = [
  ["pg", withPg],
  ["Drizzle", withDrizzle],
  ["Kysely", withKysely],
];
const orders = async () => (await pool.query("select id from orders")).rowCount;

describe.each(libraries)("a transaction of %s", (_, transact) => {
  test.each(["", "?schema=jobs"])("brings tasks if, and only if, it commits%s", async (where) => {
    await using flotilla = connect(url + where);
    await flotilla.tasks.stats();
    const enqueue = (fails: boolean) =>
      transact(async (tx, run) => {
        await run("insert into orders values (1)");
        await flotilla.enqueue("ship", { order: 1 }, { tx, key: "k" });
        const again = await flotilla.enqueue("ship", { order: 1 }, { tx, key: "k" });
        expect(again.created).toBe(false);
        await flotilla.enqueueMany("ship", [2, 3], { tx });
        if (fails) throw undo;
      });
    await expect(enqueue(true)).rejects.toBe(undo);
    expect(await orders()).toBe(0);
    expect((await flotilla.tasks.stats()).byStatus.pending).toBe(0);
    await enqueue(false);
    expect(await orders()).toBe(1);
    expect((await flotilla.tasks.stats()).byStatus.pending).toBe(3);
  });

  test("completes a task together with its handler's writes, or neither", async () => {
    const ship = task("ship", { backoff: { baseMs: 1 } }, async ({ input, attempt, complete }) => {
      let result = 0;
      await transact(async (tx, run) => {
        await run("insert into orders values (1)");
        result = await complete(tx, (input as number) * 2);
        if (attempt === 1) throw undo;
      });
      return result;
    });
    await using pod = await startPod({
      store: `${url}?schema=jobs`,
      use: [ship],
      log: silentLogger,
      pollMs: 100,
    });
    const { taskId } = await pod.enqueue(ship, 4);
    expect(await pod.waitFor(taskId)).toBe(8);
    expect(await pod.tasks.get(taskId)).toMatchObject({ status: "completed", failures: 1 });
    expect(await orders()).toBe(1);
  });
});

test("a client of pg is taken as tx once it has begun, and not before", async () => {
  await using flotilla = connect(url);
  const client = await pool.connect();
  try {
    await flotilla.tasks.stats();
    await expect(flotilla.enqueue("ship", 1, { tx: client })).rejects.toMatchObject({
      code: "invalid_option",
    });
    // No caller waits for the answer to a `begin`.
    const begun = client.query("begin");
    await flotilla.enqueue("ship", 1, { tx: client });
    await begun;
    await client.query("commit");
    expect((await flotilla.tasks.stats()).byStatus.pending).toBe(1);
  } finally {
    client.release();
  }
});

describe("what isn't a transaction", () => {
  test.each([
    ["the pool of pg", () => pool],
    ["Drizzle itself", () => drizzle(pool)],
    ["Kysely itself", () => new Kysely({ dialect: new PostgresDialect({ pool }) })],
    ["nothing that we know", () => ({ begin() {} })],
  ])("is refused as tx: %s", async (_, handle) => {
    await using flotilla = connect(url);
    await expect(flotilla.enqueue("ship", 1, { tx: handle() })).rejects.toMatchObject({
      code: "invalid_option",
    });
  });
});

test("a transaction that the server refuses is rejected with why, without the payload", async () => {
  await using flotilla = connect(url);
  const enqueued = withDrizzle(async (tx) => {
    await flotilla.enqueue("ship", { card: "4111" }, { tx });
  });
  const error: unknown = await enqueued.catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({ code: "store_unavailable" });
  expect(String(error)).toContain("does not exist");
  expect(String(error)).not.toContain("4111");
});
