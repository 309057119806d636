import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { beforeAll, describe, expect, test } from "vitest";
import { agent, startPod } from "flotilla";
import { hourMs } from "../../../src/base/durations.ts";
import { silentLogger } from "../../../src/base/log.ts";
import { migrate } from "../../../src/store/migrate.ts";
import { openStore } from "../../../src/store/open.ts";
import { openPostgres } from "../../../src/store/postgres/postgres.ts";
import { migrations } from "../../../src/store/schema.ts";
import { sql, table } from "../../../src/store/sql.ts";
import { type PostgresServer, startPostgres } from "../../postgres/server.ts";
import { type Fleet, openFleet } from "../fleet.ts";
import { postgresStore } from "../stores.ts";
import { until } from "../until.ts";

const docs = readFileSync(join(import.meta.dirname, "../../../docs/postgres.md"), "utf8");
const [, section] = /^## Follow changes$(.*?)^## /ms.exec(docs)!;
/** The statements of the page, in its order. */
const [publication, columns, subscription, slots, drop, anew] = [
  ...section!.matchAll(/^```sql\n(.*?)^```/gms),
].map(([, text]) => text!) as [string, string, string, string, string, string];

const unsynced = { fsync: "off", full_page_writes: "off" };
const quick = { heartbeatMs: 100, deadAfterMs: 500, pollMs: 200 };
const names = ["work", "tells", "held"];

let primary: PostgresServer;
let copyServer: PostgresServer;
let fleet: Fleet;
/** The store's database, and its copy, as superusers. */
let store: string;
let copy: string;

beforeAll(async () => {
  primary = await startPostgres({ settings: { ...unsynced, wal_level: "logical" } });
  // A reader that was refused tries again at once.
  const settings = { ...unsynced, wal_retrieve_retry_interval: "100ms" };
  copyServer = await startPostgres({ settings });
  fleet = await openFleet(() => postgresStore(primary.url));
  store = primary.url.replace(/postgres$/, new URL(fleet.store).pathname.slice(1));
  copy = copyServer.url;
  // Rows that are there before it is followed are copied at first.
  await fleet.flotilla.enqueue("work", { ms: 0 });
  await asked(store, publication);
  await makeColumns();
  await subscribe();
  return async () => {
    await copyServer.stop();
    await until("the slot to have no reader", async () => (await slotOf())?.["active"] !== true);
    await asked(store, drop);
    await fleet.close();
    await primary.stop();
  };
});

async function asked(url: string, text: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    const results = [await client.query(text)].flat() as pg.QueryResult[];
    return results.at(-1)!.rows;
  } finally {
    await client.end();
  }
}

/** As `psql` would hand the statements from one server to the other. */
async function makeColumns(): Promise<void> {
  for (const row of await asked(store, columns)) await asked(copy, String(row["format"]));
}

async function subscribe(): Promise<void> {
  const { hostname, port, pathname } = new URL(store);
  const connection = `host=${hostname} port=${port} dbname=${pathname.slice(1)} user=flotilla_copy`;
  await asked(copy, subscription.replace(/connection '[^']*'/, `connection '${connection}'`));
}

const published = ["message", "schedule", "session", "task", "task_event"];

async function rowsIn(url: string): Promise<Record<string, string[]>> {
  const found: Record<string, string[]> = {};
  for (const name of published) {
    // Enough of a row to know it by, and the rest as its hash.
    const text = "to_jsonb(each)::text";
    const rows = await asked(
      url,
      `select left(${text}, 100) || ' ' || md5(${text}) as content from flotilla.${name} each`,
    );
    found[name] = rows.map((row) => String(row["content"])).toSorted();
  }
  return found;
}

/** Waits until the copy has read everything, and compares all rows. */
async function expectSame(): Promise<void> {
  const rows = await rowsIn(store);
  expect(published.filter((name) => rows[name]!.length === 0)).toEqual([]);
  await expect.poll(() => rowsIn(copy), { timeout: 60_000, interval: 200 }).toEqual(rows);
}

const slotOf = async () => (await asked(store, slots))[0];
const counted = async (url: string, condition: string): Promise<number> => {
  const [row] = await asked(
    url,
    `select count(*)::integer as count from flotilla.task where ${condition}`,
  );
  return Number(row!["count"]);
};
const ended = async () => (await counted(store, "status in ('pending', 'claimed')")) === 0;

describe("a second Postgres that follows by the recipe", () => {
  test("has the same rows under claims, failures, prunes, a pod and itself killed", async () => {
    const { flotilla } = fleet;
    const first = await fleet.start({ names, config: quick });
    const second = await fleet.start({ names, config: quick });
    const echo = agent("echo", async ({ messages }) => `heard ${messages.length}`);
    await using talker = await startPod({ store: fleet.store, use: [echo], log: silentLogger });
    const chat = await talker.sessions.create(echo, { user: "ada" });
    await chat.ask("one");
    await flotilla.schedules.put("nightly", { name: "work", pattern: "0 3 * * *", input: 1 });
    const work = (count: number) =>
      flotilla.enqueueMany(
        "work",
        Array.from({ length: count }, (_, at) => ({
          ms: at % 7,
          failures: at % 10 === 0 ? 1 : 0,
          // A value that is stored apart from its row, and that updates leave alone.
          ...(at % 20 === 0 && { large: randomBytes(8_000).toString("hex") }),
        })),
      );

    await work(60);
    await flotilla.enqueue("tells", { ms: 0 });
    await until("a copy of the first tasks", () => counted(copy, "status = 'completed'"));
    await copyServer.kill();
    await flotilla.enqueue("held", { gate: "never" });
    const holder = await until("a pod that holds one", async () => {
      const [row] = await asked(
        store,
        "select claimed_by from flotilla.task where name = 'held' and status = 'claimed'",
      );
      return [first, second].find(({ podId }) => podId === row?.["claimed_by"]);
    });
    await holder.kill();
    const left = holder === first ? second : first;
    await work(60);
    await chat.ask("two");
    await until("its task to be another's", () => counted(store, "name = 'held' and deaths > 0"));
    await copyServer.start();

    left.open("never");
    await until("everything to end", ended);
    // Half of what has ended is as old as what is pruned.
    await asked(
      store,
      `update flotilla.task set created_at = created_at - ${2 * hourMs},
         last_update = last_update - ${2 * hourMs}
       where status = 'completed' and task_id in (
         select task_id from flotilla.task where status = 'completed' order by task_id limit 50)`,
    );
    const pruned = await flotilla.tasks.prune({ olderThanMs: hourMs });
    expect(pruned.deleted).toBe(50);
    await work(20);
    await chat.ask("three");
    await until("the rest to end", ended);
    expect(await counted(store, "status = 'failed'")).toBe(1);
    expect(await counted(store, "retry_count > 0")).toBeGreaterThan(0);
    await left.terminate();
    await talker.stop();
    await expectSame();
  });

  test("is refused as a store", async () => {
    await expect(openStore(copy)).rejects.toMatchObject({
      code: "invalid_option",
      message: expect.stringContaining("holds what Flotilla didn't make"),
    });
  });

  test("goes on after a migration when it has the new columns, with what came meanwhile", async () => {
    const added = {
      name: "a column of a later release",
      needs: 1,
      statements: [sql`alter table ${table("task")} add column later text`],
    };
    const database = await openPostgres({ url: fleet.store });
    try {
      await migrate(database, { migrations: [...migrations, added] });
      await database.write([sql`insert into ${table("task")} (name, later) values ('a', 'b')`]);
    } finally {
      await database.close();
    }
    await fleet.flotilla.enqueue("work", { ms: 0 });
    await until("the copy to stop", async () => {
      const [row] = await asked(copy, "select apply_error_count from pg_stat_subscription_stats");
      return Number(row!["apply_error_count"]) > 0;
    });
    await makeColumns();
    await expectSame();
  });

  test("stands still when its slot was dropped, and is made anew", async () => {
    await until("the slot to be read", async () => (await slotOf())?.["active"] === true);
    // A slot that is read can't be dropped.
    expect(await asked(store, drop)).toEqual([]);
    await copyServer.kill();
    await until("the slot to have no reader", async () => (await slotOf())?.["active"] === false);
    await asked(store, drop);
    expect(await slotOf()).toBeUndefined();
    await copyServer.start();
    const before = await counted(copy, "true");
    await fleet.flotilla.enqueue("work", { ms: 0 });
    expect(await counted(copy, "true")).toBe(before);

    await asked(copy, anew);
    await subscribe();
    await expectSame();
  });
});

test("a publication of the whole schema has our own updates refused", async () => {
  await asked(store, "create publication everything for tables in schema flotilla");
  const move = "update flotilla.log_place set place = place";
  await expect(asked(store, move)).rejects.toMatchObject({ code: "55000" });
  await asked(store, "drop publication everything");
  await asked(store, move);
});
