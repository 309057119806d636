import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { silentLogger } from "../../base/log.ts";
import { until } from "../../base/contract/movable-clock.ts";
import { task } from "../../tasks/task.ts";
import { connect } from "../../runtime/connect.ts";
import { startPod } from "../../runtime/start-pod.ts";
import { databaseContract } from "../contract/database.ts";
import { temporaryDatabase } from "../contract/kinds.ts";
import { sql } from "../sql.ts";
import { openPostgres } from "./postgres.ts";

let url: string;
let remove: () => Promise<void>;
let pools: pg.Pool[] = [];

const double = task("double", {}, ({ input }: { input: number }) => input * 2);
const settings = { use: [double], log: silentLogger, heartbeatMs: 100, deadAfterMs: 500 };

function poolOf(options: pg.PoolConfig = {}, to = url): pg.Pool {
  const pool = new pg.Pool({ connectionString: to, max: 3, ...options });
  pools.push(pool);
  return pool;
}

async function endPools(): Promise<void> {
  // Their last connections may still be closing when the database goes.
  for (const pool of pools) pool.on("error", () => {});
  await Promise.all(pools.map((pool) => pool.end()));
  pools = [];
}

databaseContract({
  name: "a caller's own pool",
  async open() {
    const place = await temporaryDatabase();
    const open = async () => openPostgres({ pool: poolOf({}, place.url) });
    return {
      database: await open(),
      again: open,
      async remove() {
        await endPools();
        await place.remove();
      },
    };
  },
});

describe.each([
  ["that sends one query at a time", {}],
  ["in pipeline mode", { pipeline: true }],
  ["of one connection", { max: 1 }],
])("a caller's own pool %s", (_, options: pg.PoolConfig) => {
  beforeEach(async () => {
    ({ url, remove } = await temporaryDatabase());
  });
  afterEach(async () => {
    await endPools();
    await remove();
  });

  test("serves pods and producers", async () => {
    const pool = poolOf(options);
    await using pod = await startPod({ ...settings, store: { pool } });
    await using producer = connect({ pool });
    const enqueued = await producer.enqueueMany(double, [1, 2, 3]);
    const results = enqueued.map(({ taskId }) => producer.waitFor(taskId));
    expect(await Promise.all(results)).toEqual([2, 4, 6]);
    await until("its lead", () => pod.leader === pod.podId);
    expect(pool.totalCount).toBeLessThanOrEqual(options.max ?? 3);
  });

  test("is the caller's after a close, as it was before", async () => {
    const pool = poolOf(options);
    const look = async () => {
      const { rows } = await pool.query(
        `select current_setting('statement_timeout') as statement, current_setting('synchronous_commit') as commit,
          current_setting('default_transaction_isolation') as isolation, 5::bigint as number`,
      );
      return rows[0] as unknown;
    };
    const before = await look();
    const listeners = pool.listenerCount("error");
    const flotilla = connect({ pool }, { durability: "relaxed" });
    await flotilla.enqueue(double, 1);
    expect(await flotilla.tasks.stats()).toMatchObject({ byStatus: { pending: 1 } });
    expect(await look()).toEqual(before);
    expect(before).toMatchObject({ number: "5" });
    await flotilla.close();
    expect(await look()).toEqual(before);
    expect(pool.listenerCount("error")).toBe(listeners);
  });

  test("gets its connections back in no transaction, whatever was refused", async () => {
    const pool = poolOf(options);
    let removed = 0;
    pool.on("remove", () => removed++);
    const database = await openPostgres({ pool });
    await expect(database.write([sql`select 1`, sql`nonsense`])).rejects.toMatchObject({
      code: "internal",
    });
    const { rows } = await pool.query("select now() = statement_timestamp() as alone");
    expect(rows).toEqual([{ alone: true }]);
    expect(removed).toBe(0);
    await database.close();
  });

  test("may lose its connections, idle or busy, and the process goes on", async () => {
    const pool = poolOf(options);
    const database = await openPostgres({ pool });
    await Promise.all([1, 2, 3].map((each) => database.read(sql`select ${each}::integer`)));
    const slow = database.read(sql`select pg_sleep(30)`).catch((error: unknown) => error);
    const other = new pg.Client(url);
    await other.connect();
    await until("the read to be under way", async () => {
      const { rowCount } = await other.query(
        "select 1 from pg_stat_activity where datname = current_database() and query like '%pg_sleep(30)%' and pid <> pg_backend_pid()",
      );
      return rowCount === 1;
    });
    await other.query(
      "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
    );
    expect(await slow).toMatchObject({ code: "store_unavailable" });
    await other.end();
    // Others may end a moment later than the busy one, each with what is asked on it.
    const answer = () => database.read(sql`select 1 as one`).catch(() => undefined);
    expect(await until("an answer", answer)).toEqual([{ one: 1 }]);
    await database.close();
  });
});
