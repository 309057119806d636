import pg from "pg";
import { afterEach, describe, expect, test } from "vitest";
import { startChaosProxy } from "../../test/crash/postgres/chaos-proxy.ts";
import { movableClock, until } from "../base/contract/movable-clock.ts";
import { type Database, observed } from "./database.ts";
import { temporaryDatabase, temporaryFile } from "./contract/kinds.ts";
import { openPostgres, type PostgresOptions } from "./postgres/postgres.ts";
import { sql } from "./sql.ts";
import { openSqlite } from "./sqlite/sqlite.ts";

let after: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const each of after.toReversed()) await each();
  after = [];
});

const one = sql`select 1 as one`;

describe("on Postgres, cold reads of which each waits for a lock", () => {
  const open = async (
    poolMost?: number,
    more: Partial<PostgresOptions> = {},
  ): Promise<{ database: Database; url: string }> => {
    const { url, remove } = await temporaryDatabase();
    after.push(remove);
    if (poolMost === undefined) {
      const database = await openPostgres({ url, ...more });
      after.push(() => database.close());
      return { database, url };
    }
    const pool = new pg.Pool({ connectionString: url, max: poolMost });
    after.push(() => pool.end());
    const database = await openPostgres({ pool, url, ...more });
    after.push(() => database.close());
    return { database, url };
  };
  const hold = async (url: string) => {
    const holder = new pg.Client(url);
    await holder.connect();
    await holder.query("select pg_advisory_lock(7)");
    return holder;
  };
  /** How many wait for the lock. */
  const atWork = async (holder: pg.Client) => {
    const { rows } = await holder.query(
      `select count(*)::int as busy from pg_stat_activity
       where datname = current_database() and wait_event = 'advisory'`,
    );
    return rows[0].busy as number;
  };
  // Longer than this machine may be busy: what waits for the lock is to wait until it is given up.
  const patient = { connectTimeoutMs: 60_000, lockTimeoutMs: 60_000 };
  const readCold = (database: Database) =>
    database.read(sql`select pg_advisory_xact_lock_shared(7)::text as got`, { cold: true });

  test.each([
    ["its own connections", undefined],
    ["a pool of the caller's", 4],
    ["the smallest pool of the caller's that has one to spare", 2],
    ["a store whose errors are counted", undefined, true],
  ])("hold up no other read and no write, on %s", async (_, poolMost, counted = false) => {
    const { database: plain, url } = await open(poolMost, patient);
    const database = counted ? observed(plain, () => {}) : plain;
    const holder = await hold(url);
    const cold = Array.from({ length: 20 }, () => readCold(database));
    await Promise.all(Array.from({ length: 8 }, () => database.read(one)));
    expect(await database.write([one])).toEqual([[{ one: 1 }]]);
    expect(await atWork(holder)).toBeLessThanOrEqual(2);
    await holder.query("select pg_advisory_unlock(7)");
    await holder.end();
    expect(await Promise.all(cold)).toHaveLength(20);
  });

  test("wait for their turn no longer than for a connection", async () => {
    const clock = movableClock();
    const { database, url } = await open(undefined, { ...patient, clock });
    const holder = await hold(url);
    const cold = Array.from({ length: 4 }, () => readCold(database));
    const told = Promise.allSettled(cold);
    await until("two at work", async () => (await atWork(holder)) === 2);
    await clock.advance(patient.connectTimeoutMs);
    for (const each of cold.slice(2)) {
      await expect(each).rejects.toMatchObject({ code: "store_busy" });
    }
    await holder.query("select pg_advisory_unlock(7)");
    await holder.end();
    expect((await told).map(({ status }) => status)).toEqual([
      "fulfilled",
      "fulfilled",
      "rejected",
      "rejected",
    ]);
  });

  test("don't keep a database from closing where they wait for their turn", async () => {
    const { database, url } = await open(undefined, patient);
    const holder = await hold(url);
    const cold = Array.from({ length: 4 }, () => readCold(database));
    const told = Promise.allSettled(cold);
    await until("two at work", async () => (await atWork(holder)) === 2);
    const closing = database.close();
    for (const each of cold.slice(2)) await expect(each).rejects.toMatchObject({ code: "closed" });
    await holder.query("select pg_advisory_unlock(7)");
    await holder.end();
    await closing;
    expect((await told).map(({ status }) => status)).toEqual([
      "fulfilled",
      "fulfilled",
      "rejected",
      "rejected",
    ]);
  });
});

test("on a Postgres that has fallen silent, cold reads don't try it one after the other", async () => {
  const { url, remove } = await temporaryDatabase();
  after.push(remove);
  const proxy = await startChaosProxy(url);
  after.push(() => proxy.close());
  const database = await openPostgres({ url: proxy.through(url), connectTimeoutMs: 500 });
  after.push(() => database.close());
  // A busy machine may take longer than the limit to connect.
  const answer = (cold: boolean) => () => database.read(one, { cold }).catch(() => undefined);
  await until("an answer", answer(false));
  const { made } = proxy.counts();
  proxy.flow({ toClient: "stall" });
  const cold = Array.from({ length: 20 }, () => database.read(one, { cold: true }));
  const away = /^store_(busy|unavailable)$/;
  for (const each of await Promise.allSettled(cold)) {
    expect(each).toMatchObject({ reason: { code: expect.stringMatching(away) } });
  }
  expect(proxy.counts().made - made).toBeLessThanOrEqual(4);
  proxy.flow({ toClient: "pass" });
  expect(await until("an answer again", answer(true))).toEqual([{ one: 1 }]);
});

test("on SQLite, no other read waits for more than one cold read", async () => {
  const { path, remove } = temporaryFile();
  after.push(async () => remove());
  const database = await openSqlite({ path, create: true });
  after.push(() => database.close());
  const long = sql`
    with recursive counted(at) as (select 1 union all select at + 1 from counted where at < 20000)
    select count(*) as one from counted`;
  let done = 0;
  const cold = Array.from({ length: 20 }, async () => {
    await database.read(long, { cold: true });
    done++;
  });
  expect(await database.read(one)).toEqual([{ one: 1 }]);
  expect(done).toBeLessThanOrEqual(2);
  await Promise.all(cold);
});

test("on SQLite, cold reads that wait for their turn don't keep a database from closing", async () => {
  const { path, remove } = temporaryFile();
  after.push(async () => remove());
  const database = await openSqlite({ path, create: true });
  const cold = Array.from({ length: 3 }, () => database.read(one, { cold: true }));
  const told = Promise.allSettled(cold);
  await database.close();
  expect(await told).toMatchObject([
    { status: "fulfilled" },
    { reason: { code: "closed" } },
    { reason: { code: "closed" } },
  ]);
});
