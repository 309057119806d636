import { spawn } from "node:child_process";
import { once } from "node:events";
import process from "node:process";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, test } from "vitest";
import { connect, startPod, task } from "flotilla";
import { type Logger, silentLogger } from "../../src/base/log.ts";
import { until } from "../../src/base/contract/movable-clock.ts";
import { databaseContract } from "../../src/store/contract/database.ts";
import { temporaryDatabase } from "../../src/store/contract/kinds.ts";
import { migrateContract } from "../../src/store/contract/migrate.ts";
import { openStore } from "../../src/store/open.ts";
import { openPostgres } from "../../src/store/postgres/postgres.ts";
import { sql, table } from "../../src/store/sql.ts";
import { type PgBouncer, startPgBouncer } from "./pgbouncer.ts";

// Three connections to the server for dozens from us, which also never keep theirs for two
// transactions; prepared statements and settings of a session are unknown to this PgBouncer.
let pooler: PgBouncer;
let direct: string;
let pooled: string;
let remove: () => Promise<void>;

beforeAll(async () => {
  pooler = await startPgBouncer({ server: inject("postgresUrl") });
});
afterAll(() => pooler.stop());

const kind = {
  name: "Postgres through PgBouncer in transaction mode",
  async open() {
    const place = await temporaryDatabase();
    const open = () => openPostgres({ url: pooler.through(place.url) });
    return { database: await open(), again: open, remove: place.drop, hints: false as const };
  },
};
databaseContract(kind);
migrateContract(kind);

const double = task("double", {}, ({ input }: { input: number }) => input * 2);
const settings = { use: [double], log: silentLogger, heartbeatMs: 100, deadAfterMs: 500 };

describe("through PgBouncer in transaction mode", () => {
  beforeEach(async () => {
    ({ url: direct, drop: remove } = await temporaryDatabase());
    pooled = pooler.through(direct);
  });
  afterEach(() => remove());

  test("two pods run what a producer enqueues", async () => {
    await using first = await startPod({ ...settings, store: pooled });
    await using second = await startPod({ ...settings, store: pooled });
    await using producer = connect(pooled);
    const inputs = Array.from({ length: 500 }, (_, at) => at);
    const enqueued = await producer.enqueueMany(double, inputs);
    const single = await Promise.all(inputs.map((input) => producer.enqueue(double, input)));
    const wanted = [...enqueued, ...single].map(({ taskId }) => producer.waitFor(taskId));
    expect(await Promise.all(wanted)).toEqual([...inputs, ...inputs].map((input) => input * 2));
    expect((await producer.tasks.stats()).byStatus).toMatchObject({ completed: 1_000, failed: 0 });
    expect([first.leader, second.leader]).toContain(first.podId);
  });

  test("what a killed pod held goes on elsewhere", async () => {
    const doomed = spawn(
      process.execPath,
      ["--conditions=flotilla:source", "--input-type=module", "--eval", doomedPod(pooled)],
      { stdio: ["ignore", "pipe", "inherit"], cwd: import.meta.dirname },
    );
    await using producer = connect(pooled);
    const enqueued = await producer.enqueue(double, 21);
    await once(doomed.stdout, "data");
    doomed.kill("SIGKILL");
    await using _pod = await startPod({ ...settings, store: pooled });
    expect(await producer.waitFor(enqueued, { timeoutMs: 60_000 })).toBe(42);
    expect((await producer.tasks.get(enqueued.taskId))?.deaths).toBe(1);
  });

  test("no connection is taken for a pod's own: the pooler's stay when the pod is gone", async () => {
    await using pod = await startPod({ ...settings, store: pooled });
    await using beside = await startPod({ ...settings, store: direct });
    const database = await openPostgres({ url: direct });
    const rows = await database.read(sql`select pod_id, connection from ${table("pod")}`);
    const byPod = Object.fromEntries(rows.map((row) => [row["pod_id"], row["connection"]]));
    expect(byPod).toEqual({ [pod.podId]: null, [beside.podId]: expect.any(Number) });
    await database.close();
  });

  test("no pod listens in vain, and that is logged once", async () => {
    const said: string[] = [];
    const log: Logger = { ...silentLogger, info: (_, message) => void said.push(message) };
    await using pod = await startPod({ ...settings, log, store: pooled });
    expect(await pod.waitFor(await pod.enqueue(double, 2))).toBe(4);
    expect(said.filter((message) => /polling/.test(message))).toHaveLength(1);
    const database = await openPostgres({ url: direct });
    const listening = await database.read(sql`
      select query from pg_stat_activity where datname = current_database() and query ilike 'listen%'`);
    expect(listening).toEqual([]);
    await database.close();
  });

  test.each([
    ["", "the settings are refused"],
    ["?pooler=transaction", "the URL names the pooler"],
  ])("settings travel with the transaction: %s where %s", async (parameters) => {
    await expectSettings(pooled + parameters);
  });
});

describe("through PgBouncer that leaves settings out", () => {
  test("they travel with the transaction too", async () => {
    const place = await temporaryDatabase();
    const ignoring = await startPgBouncer({
      server: inject("postgresUrl"),
      settings: {
        ignore_startup_parameters:
          "options,statement_timeout,lock_timeout,idle_in_transaction_session_timeout",
      },
    });
    await expectSettings(ignoring.through(place.url));
    await ignoring.stop();
    await place.drop();
  });
});

describe("through PgBouncer in session mode", () => {
  test("notifications arrive where the config promises that sessions are kept", async () => {
    const place = await temporaryDatabase();
    const keeping = await startPgBouncer({
      server: inject("postgresUrl"),
      settings: { pool_mode: "session", default_pool_size: 50 },
    });
    const url = `${keeping.through(place.url)}?pooler=session`;
    const database = await openStore(url);
    const pods = table("pod");
    await database.write([sql`insert into ${pods} (pod_id, waiting) values ('pod', 1)`]);
    let hints = 0;
    const stop = database.subscribe(() => hints++);
    await until("listening to begin", () => hints > 0);
    const before = hints;
    await database.write([sql`select 1 as one`], { notify: true });
    expect(await until("the hint to arrive", () => hints > before)).toBe(true);
    stop();
    await database.close();
    await keeping.stop();
    await place.drop();
  });
});

/** The settings as a statement of ours meets them. */
async function expectSettings(url: string): Promise<void> {
  const database = await openPostgres({ url, durability: "relaxed", lockTimeoutMs: 1_234 });
  const [row] = await database.read(sql`
    select current_setting('synchronous_commit') as synchronous_commit,
      current_setting('statement_timeout') as statement_timeout,
      current_setting('lock_timeout') as lock_timeout,
      current_setting('idle_in_transaction_session_timeout') as idle`);
  expect(row).toEqual({
    synchronous_commit: "off",
    statement_timeout: "30s",
    lock_timeout: "1234ms",
    idle: "1min",
  });
  await database.close();
}

function doomedPod(url: string): string {
  return `
    import { startPod, task } from "flotilla";
    const double = task("double", {}, async () => {
      process.stdout.write("running");
      await new Promise(() => {});
    });
    const log = { debug() {}, info() {}, warn() {}, error() {} };
    await startPod({ store: ${JSON.stringify(url)}, use: [double], log, heartbeatMs: 100, deadAfterMs: 500 });`;
}
