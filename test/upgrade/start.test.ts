import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import process from "node:process";
import { createInterface } from "node:readline";
import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { built } from "../built.ts";
import { until } from "../../src/base/contract/movable-clock.ts";
import { connect } from "../../src/runtime/connect.ts";
import { migrate } from "../../src/store/migrate.ts";
import { openStore } from "../../src/store/open.ts";
import { openPostgres } from "../../src/store/postgres/postgres.ts";
import { migrations } from "../../src/store/schema.ts";
import { sql, table } from "../../src/store/sql.ts";
import { kinds, type Place } from "./places.ts";

const podCount = 6;
const children: ChildProcess[] = [];
afterEach(() => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
});

/** A process that has loaded its code and waits to be told to start its pod. */
async function loadedPod(url: string) {
  const script = built.program(join(import.meta.dirname, "pod-process.ts"));
  const child = spawn(process.execPath, [script, url], { stdio: ["pipe", "pipe", "inherit"] });
  children.push(child);
  const exited = once(child, "exit");
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  expect((await lines.next()).value).toBe("loaded");
  return {
    async start(): Promise<void> {
      child.stdin.write("go\n");
      expect((await lines.next()).value).toBe("started");
    },
    async stop(): Promise<void> {
      child.stdin.end();
      const [code] = (await exited) as [number];
      expect(code).toBe(0);
    },
  };
}

describe.each(kinds)("pods that start at once on an empty $dialect store", ({ empty }) => {
  let place: Place;
  beforeEach(async () => {
    place = await empty();
  });
  afterEach(() => place.remove());

  test("all start, and each migration is applied once", { timeout: 180_000 }, async () => {
    const pods = await Promise.all(Array.from({ length: podCount }, () => loadedPod(place.url)));
    await Promise.all(pods.map((pod) => pod.start()));

    const database = await openStore(place.url, { migrate: "check" });
    expect(
      await database.read(sql`select id, name from ${table("migration")} order by id`),
    ).toEqual(migrations.map(({ name }, at) => ({ id: at + 1, name })));
    await database.close();
    await using tasks = connect(place.url);
    const enqueued = await tasks.enqueueMany("echo", [1, 2, 3]);
    const results = await Promise.all(enqueued.map(({ taskId }) => tasks.waitFor(taskId)));
    expect(results).toEqual([1, 2, 3]);
    await Promise.all(pods.map((pod) => pod.stop()));
  });
});

describe("a migration on Postgres while another holds the lock", () => {
  let place: Place;
  let holder: pg.Client;
  beforeEach(async () => {
    place = await kinds.find(({ dialect }) => dialect === "postgres")!.empty();
    holder = new pg.Client(place.url);
    await holder.connect();
    await holder.query("begin");
    await holder.query("select pg_advisory_xact_lock(hashtext('flotilla migrations'))");
  });
  afterEach(async () => {
    await holder.end();
    await place.remove();
  });

  test("waits for it, longer than for other locks, and goes on", async () => {
    const database = await openPostgres({ url: place.url, lockTimeoutMs: 50 });
    let attempts = 0;
    const counting = {
      ...database,
      write: (...given: Parameters<typeof database.write>) => {
        attempts++;
        return database.write(...given);
      },
    };
    const migrated = migrate(counting);
    await until("more attempts than migrations", () => attempts > migrations.length);
    await holder.query("commit");
    expect(await migrated).toMatchObject({ version: migrations.length, pending: [] });
    await database.close();
  });

  test("names the fix when that takes too long", async () => {
    const database = await openPostgres({ url: place.url, lockTimeoutMs: 50 });
    await expect(migrate(database, { limitMs: 100 })).rejects.toMatchObject({
      code: "store_busy",
      message: expect.stringMatching(
        /^migration 1 \("the first release"\) couldn't lock the schema, because another process is migrating or has left a transaction open: start again .*docs\/postgres\.md/,
      ),
    });
    await database.close();
  });
});
