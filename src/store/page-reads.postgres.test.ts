import pg from "pg";
import { afterEach, describe, expect, test } from "vitest";
import { until } from "../base/contract/movable-clock.ts";
import type { FlotillaError } from "../base/errors.ts";
import { temporaryDatabase, temporaryFile } from "./contract/kinds.ts";
import { type Database, pageReads } from "./database.ts";
import { openPostgres } from "./postgres/postgres.ts";
import { sql } from "./sql.ts";
import { openSqlite } from "./sqlite/sqlite.ts";

let after: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const each of after.toReversed()) await each();
  after = [];
});

const one = sql`select 1 as one`;

describe("on Postgres, pages", () => {
  const open = async () => {
    const { url, remove } = await temporaryDatabase();
    after.push(remove);
    const database = await openPostgres({ url });
    after.push(() => database.close());
    return { database, url };
  };
  const watch = async (url: string) => {
    const client = new pg.Client(url);
    await client.connect();
    after.push(() => client.end());
    return async () => {
      const { rows } = await client.query(
        `select count(*)::int as open from pg_stat_activity
         where datname = current_database() and pid <> pg_backend_pid()`,
      );
      return rows[0].open as number;
    };
  };

  test("are read on two connections of their own, which are opened with the first page", async () => {
    const { database, url } = await open();
    await database.read(one);
    await database.write([one]);
    const connections = await watch(url);
    const before = await connections();
    const slow = Array.from({ length: 4 }, () =>
      pageReads(database).read(sql`select pg_sleep(0.3)::text as slept`),
    );
    await until("them to be read", async () => (await connections()) === before + 2);
    // While they are read, others are not held up.
    expect(await database.read(one)).toEqual([{ one: 1 }]);
    expect(await database.write([one])).toEqual([[{ one: 1 }]]);
    expect(await Promise.all(slow)).toHaveLength(4);
    expect(await connections()).toBe(before + 2);
  });

  test("that take longer than 2 seconds are refused with what to narrow", async () => {
    const { database } = await open();
    await expect(pageReads(database).read(sql`select pg_sleep(30)`)).rejects.toMatchObject({
      code: "timeout",
      message: expect.stringContaining("narrow it by a name"),
    });
    expect(await pageReads(database).read(one)).toEqual([{ one: 1 }]);
  });

  test("can write nothing", async () => {
    const { database } = await open();
    await database.write([sql`create table scratch (id integer)`]);
    const writing = sql`with added as (insert into scratch values (1) returning id) select id from added`;
    await expect(pageReads(database).read(writing)).rejects.toMatchObject({
      code: "store_read_only",
    });
  });

  test("are planned by indexes, whatever the statistics say, on a caller's pool too", async () => {
    const { url } = await open();
    const pool = new pg.Pool({ connectionString: url, max: 4 });
    for (const given of [undefined, pool]) {
      const database = await openPostgres({ url, ...(given && { pool: given }) });
      const [row] = await pageReads(database).read(
        sql`select current_setting('enable_seqscan') as scans, current_setting('enable_sort') as sorts,
          current_setting('enable_bitmapscan') as bitmaps, current_setting('statement_timeout') as limits`,
      );
      expect(row).toEqual({ scans: "off", sorts: "off", bitmaps: "off", limits: "2s" });
      const [plain] = await database.read(sql`select current_setting('enable_seqscan') as scans`);
      expect(plain).toEqual({ scans: "on" });
      await database.close();
    }
    await pool.end();
  });

  test("are dropped where their caller has hung up by their turn", async () => {
    const { database } = await open();
    const slow = sql`select pg_sleep(0.2)::text as slept`;
    expect(await droppedAndRead(database, slow)).toEqual({ code: "cancelled", read: 2 });
  });
});

describe("on SQLite, pages", () => {
  // Some milliseconds: a busy machine takes fifty times as long, and a page has two seconds.
  const pageRows = 50_000;
  const open = async () => {
    const { path, remove } = temporaryFile();
    after.push(async () => remove());
    const database = await openSqlite({ path, create: true });
    after.push(() => database.close());
    return database;
  };
  const counting = (to: number) => sql`
    with recursive counted(at) as (
      select 1 union all select at + 1 from counted where at < cast(${to} as integer))
    select count(*) as count from counted`;

  test("are read beside other reads and writes, which wait for none of them", async () => {
    const database = await open();
    let done = 0;
    const pages = Array.from({ length: 5 }, async () => {
      const rows = await pageReads(database).read(counting(pageRows));
      done++;
      return rows;
    });
    expect(await database.read(one)).toEqual([{ one: 1 }]);
    expect(await database.write([one])).toEqual([[{ one: 1 }]]);
    expect(done).toBeLessThan(5);
    expect(await Promise.all(pages)).toHaveLength(5);
  });

  test("are dropped where their caller has hung up by their turn", async () => {
    const dropped = await droppedAndRead(await open(), counting(pageRows));
    expect(dropped).toEqual({ code: "cancelled", read: 2 });
  });

  test("see what was committed before them", async () => {
    const database = await open();
    await database.write([sql`create table scratch (id integer)`]);
    for (let id = 1; id <= 3; id++) {
      await database.write([sql`insert into scratch values (${id})`]);
      const [row] = await pageReads(database).read(sql`select max(id) as last from scratch`);
      expect(row).toEqual({ last: id });
    }
  });

  test("are refused by a store that was closed", async () => {
    const database = await open();
    await pageReads(database).read(one);
    await database.close();
    await expect(pageReads(database).read(one)).rejects.toMatchObject({ code: "closed" });
  });
});

/** How a read ends whose caller hangs up while others are read, and how many of these are. */
async function droppedAndRead(database: Database, slow: ReturnType<typeof sql>) {
  const others = Array.from({ length: 2 }, () => pageReads(database).read(slow));
  const gone = new AbortController();
  const last = pageReads(database, gone.signal).read(slow);
  gone.abort();
  const code = await last.catch((error: FlotillaError) => error.code);
  return { code, read: (await Promise.all(others)).length };
}
