import pg from "pg";
import { afterEach, describe, expect, test } from "vitest";
import type { Database } from "./database.ts";
import { temporaryDatabase, temporaryFile } from "./kinds.contract.ts";
import { openPostgres } from "./postgres/postgres.ts";
import { sql } from "./sql.ts";
import { openSqlite } from "./sqlite/sqlite.ts";

let after: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const each of after.toReversed()) await each();
  after = [];
});

const one = sql`select 1 as one`;

describe("on Postgres, cold reads of which each waits for a lock", () => {
  const open = async (kind: string): Promise<{ database: Database; url: string }> => {
    const { url, remove } = await temporaryDatabase();
    after.push(remove);
    if (kind === "its own connections") {
      const database = await openPostgres({ url });
      after.push(() => database.close());
      return { database, url };
    }
    const pool = new pg.Pool({ connectionString: url, max: 4 });
    after.push(() => pool.end());
    const database = await openPostgres({ pool, url });
    after.push(() => database.close());
    return { database, url };
  };

  test.each(["its own connections", "a pool of the caller's"])(
    "hold up no other read and no write, on %s",
    async (kind) => {
      const { database, url } = await open(kind);
      const holder = new pg.Client(url);
      await holder.connect();
      await holder.query("select pg_advisory_lock(7)");
      const cold = Array.from({ length: 20 }, () =>
        database.read(sql`select pg_advisory_xact_lock_shared(7)::text as got`, { cold: true }),
      );
      await Promise.all(Array.from({ length: 8 }, () => database.read(one)));
      expect(await database.write([one])).toEqual([[{ one: 1 }]]);
      const busy = await holder.query(
        "select count(*)::int as busy from pg_stat_activity where wait_event = 'advisory'",
      );
      expect(busy.rows[0].busy).toBeLessThanOrEqual(2);
      await holder.query("select pg_advisory_unlock(7)");
      await holder.end();
      expect(await Promise.all(cold)).toHaveLength(20);
    },
  );
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
