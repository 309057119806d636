import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  onTestFinished,
  test,
} from "vitest";
import { connect, startPod, task } from "flotilla";
import { silentLogger } from "../../src/base/log.ts";
import { until } from "../../src/base/contract/movable-clock.ts";
import type { Check } from "../../src/cli/doctor/check.ts";
import { runDoctor } from "../../src/cli/doctor/doctor.ts";
import type { ServerLimits } from "../../src/cli/doctor/postgres.ts";
import { openStore } from "../../src/store/open.ts";
import { run } from "../command.ts";
import { fakeTime } from "../crash/postgres/fake-time.ts";
import { startPgBouncer } from "./pgbouncer.ts";
import { type PostgresServer, startPostgres } from "./server.ts";

/** A server of its own, whose settings are made bad. */
let server: PostgresServer;
let url: string;
let databases = 0;
const clients: pg.Client[] = [];

beforeAll(async () => {
  server = await startPostgres({
    // No process cleans up behind the tests.
    settings: { autovacuum_naptime: "1h", max_prepared_transactions: 5 },
  });
});
afterAll(() => server.stop());

beforeEach(async () => {
  const name = `app_${++databases}`;
  await ask(server.url, `create database ${name}`);
  url = server.url.replace(/postgres$/, name);
  await (await openStore(url)).close();
});
afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.end()));
});

async function open(to = url): Promise<pg.Client> {
  const client = new pg.Client(to);
  await client.connect();
  clients.push(client);
  return client;
}

async function ask(to: string, ...texts: string[]): Promise<void> {
  const client = new pg.Client(to);
  await client.connect();
  try {
    for (const text of texts) await client.query(text);
  } finally {
    await client.end();
  }
}

async function check(name: string, to = url, limits?: Partial<ServerLimits>): Promise<Check> {
  const found = (await runDoctor(to, "full", limits)).find((each) => each.name === name);
  return found ?? { name, verdict: "ok", message: "not looked at" };
}

/** With a setting of the whole server, which is taken back afterwards. */
async function withSetting(name: string, value: string, work: () => Promise<void>): Promise<void> {
  const client = await open();
  const set = async (text: string, wanted: (now: unknown) => boolean) => {
    await client.query(text);
    await client.query("select pg_reload_conf()");
    await until("the setting to be taken over", async () =>
      wanted(Object.values((await client.query(`show ${name}`)).rows[0] as object)[0]),
    );
  };
  await set(`alter system set ${name} = ${value}`, (now) => now === value);
  try {
    await work();
  } finally {
    await set(`alter system reset ${name}`, (now) => now !== value);
  }
}

describe("flotilla doctor on Postgres", () => {
  test("finds nothing wrong where nothing is, and reports that as on SQLite", async () => {
    const double = task("double", {}, ({ input }: { input: number }) => input * 2);
    await using _pod = await startPod({ store: url, use: [double], log: silentLogger });
    const cwd = mkdtempSync(join(tmpdir(), "flotilla-doctor-"));
    const { code, stdout, stderr } = await run(["doctor", "--json", "--store", url], { cwd });
    expect(stderr).toBe("");
    const report = JSON.parse(stdout) as { ok: boolean; checks: Check[] };
    expect(report.checks.filter(({ verdict }) => verdict !== "ok")).toEqual([]);
    expect({ code, ok: report.ok }).toEqual({ code: 0, ok: true });
    const names = report.checks.map(({ name }) => name).join(" ");
    expect(names).toBe(
      "node server writable durability clock pooler connections idle snapshots schema indexes vacuum roles pods workers claims secrets",
    );
    expect((await run(["doctor", "--store", url], { cwd })).stdout).toMatch(
      /^ok +pods +1 running/m,
    );
    rmSync(cwd, { recursive: true });
  });

  test("reports why a server can't be reached, and ends with 1", async () => {
    const cwd = mkdtempSync(join(tmpdir(), "flotilla-doctor-"));
    const away = "postgres://ada:s3cret@127.0.0.1:1/app";
    const { code, stdout } = await run(["doctor", "--store", away], { cwd });
    expect(code).toBe(1);
    expect(stdout).toMatch(/fail +open +.*nothing listens there/);
    expect(stdout).not.toContain("s3cret");
    rmSync(cwd, { recursive: true });
  });

  test.each([
    ["fsync", "off", "fail", /fsync is off/],
    ["full_page_writes", "off", "fail", /full_page_writes is off/],
    ["synchronous_commit", "off", "warn", /synchronous_commit is off for this role/],
  ])("names a setting that weakens durability: %s = %s", async (name, value, verdict, message) => {
    await withSetting(name, value, async () => {
      expect(await check("durability")).toMatchObject({
        verdict,
        message: expect.stringMatching(message),
      });
    });
  });

  test("names durability that is relaxed by our own settings", async () => {
    const checks = await runDoctor(url, "relaxed");
    expect(checks.find(({ name }) => name === "durability")).toMatchObject({ verdict: "warn" });
  });

  test("names a role that can't write", async () => {
    await ask(
      url,
      "create role reader login",
      "alter role reader set default_transaction_read_only = on",
    );
    expect(await check("writable", url.replace("postgres@", "reader@"))).toMatchObject({
      verdict: "fail",
    });
    expect(await check("idle", url.replace("postgres@", "reader@"))).toMatchObject({
      message: expect.stringContaining("grant pg_monitor"),
    });
  });

  test("names a schema that isn't there yet", async () => {
    expect(await check("schema", `${url}?schema=elsewhere`)).toMatchObject({
      verdict: "warn",
      message: expect.stringContaining("flotilla migrate"),
    });
  });

  test("names a missing index with what makes it again", async () => {
    await ask(url, "drop index flotilla.task_ready");
    const found = await check("indexes");
    expect(found).toMatchObject({ verdict: "fail" });
    const [, remedy] = /create them again: (.*)$/.exec(found.message)!;
    await ask(url, remedy!);
    expect(await check("indexes")).toMatchObject({ verdict: "ok" });
  });

  test("names an index that is invalid", async () => {
    await ask(url, "insert into flotilla.task (name) values ('a'), ('a')");
    const broken = ask(url, "create unique index concurrently twice on flotilla.task (name)");
    await expect(broken).rejects.toThrow(/could not create unique index/);
    expect(await check("indexes")).toMatchObject({
      verdict: "fail",
      message: "invalid, so not used: reindex index concurrently flotilla.twice",
    });
  });

  test("names dead rows that aren't cleared away, and tables that were never analyzed", async () => {
    const rows = "select 'a' from generate_series(1, 2000)";
    await ask(url, `insert into flotilla.task (name) ${rows}`);
    const vacuum = () => check("vacuum", url, { deadRows: 1_000 });
    await until("the rows to be counted", async () =>
      /never analyzed/.test((await vacuum()).message),
    );
    await ask(url, "analyze flotilla.task");
    expect(await vacuum()).toMatchObject({ verdict: "ok" });
    await ask(url, "update flotilla.task set name = 'b'");
    const found = await until("the dead rows to be counted", async () => {
      const each = await vacuum();
      return each.verdict === "warn" ? each : undefined;
    });
    expect(found.message).toMatch(/task has 2000 dead rows.*last vacuumed never/);
    await ask(url, "vacuum flotilla.task");
    await until("the vacuum to be counted", async () => (await vacuum()).verdict === "ok");
  });

  /** Does what the check says until it says nothing more, and gives all that it said. */
  async function heeded(): Promise<string[]> {
    const said: string[] = [];
    for (;;) {
      const { verdict, message } = await check("roles");
      if (verdict === "ok") return said;
      expect(verdict).toBe("warn");
      const [, remedies] = /write: (.*) \(docs/.exec(message)!;
      said.push(...remedies!.split("; "));
      await ask(url, remedies!);
    }
  }

  test("names roles that may read or write what is for pods alone, with what ends that", async () => {
    expect(await check("roles")).toMatchObject({ verdict: "ok" });
    await ask(
      url,
      "create role onlooker login",
      'create role "writer ""x""" login',
      "create role planner login",
      "create role a_pod login",
      'grant usage on schema flotilla to onlooker, "writer ""x""", planner, a_pod',
      "grant select on all tables in schema flotilla to onlooker, a_pod",
      "grant insert, update, delete on all tables in schema flotilla to a_pod",
      // Without a signature, what lies there is taken for a pod's.
      'grant insert on flotilla.bus_message to "writer ""x"""',
      // As the docs say for one whose tasks wait for others, and a table that isn't among that.
      "grant select, insert, update on flotilla.task, flotilla.task_dependency to planner",
      "grant select on flotilla.turn_checkpoint to planner",
    );
    expect(await check("roles")).toMatchObject({
      verdict: "warn",
      message: expect.stringContaining("the role \"onlooker\" (and 2 more) isn't a pod's"),
    });
    expect(await heeded()).toEqual([
      'revoke select on flotilla.agent, flotilla.api_key, flotilla.archive_aside, flotilla.bus_message, flotilla.bus_secret, flotilla.message, flotilla.session, flotilla.session_user, flotilla.sign_in, flotilla.turn_checkpoint from "onlooker"',
      'revoke select on flotilla.turn_checkpoint from "planner"',
      'revoke insert on flotilla.bus_message from "writer ""x"""',
    ]);
    const roles = 'onlooker, planner, a_pod, "writer ""x"""';
    await ask(url, `drop owned by ${roles}`, `drop role ${roles}`);
  });

  test("names roles that tables of a later release would be open to", async () => {
    await ask(
      url,
      "create role producer login",
      "create role a_pod login",
      "grant usage on schema flotilla to producer, a_pod",
      "grant select, insert, update, delete on all tables in schema flotilla to a_pod",
      "alter default privileges in schema flotilla grant select on tables to producer",
      "alter default privileges in schema flotilla grant select, insert on tables to a_pod",
      "alter default privileges grant insert on tables to public",
    );
    expect(await heeded()).toEqual([
      'alter default privileges for role "postgres" in schema flotilla revoke select on tables from "producer"',
      'alter default privileges for role "postgres" revoke insert on tables from public',
    ]);
    await ask(url, "drop owned by producer, a_pod", "drop role producer, a_pod");
  });

  test("names autovacuum that is off, for all or for a table", async () => {
    await withSetting("autovacuum", "off", async () => {
      expect(await check("vacuum")).toMatchObject({ verdict: "fail" });
    });
    await ask(url, "alter table flotilla.task set (autovacuum_enabled = false)");
    expect(await check("vacuum")).toMatchObject({
      verdict: "fail",
      message: expect.stringContaining("off for flotilla.task"),
    });
  });

  test("names an idle transaction, and one that holds an old snapshot", async () => {
    const sleeper = await open();
    await sleeper.query("begin isolation level repeatable read; select 1");
    expect(await check("idle")).toMatchObject({ verdict: "ok" });
    expect(await check("idle", url, { idleMs: 0 })).toMatchObject({
      verdict: "warn",
      message: expect.stringMatching(/^1 idle in transaction.* by postgres \(\d+/),
    });
    expect(await check("snapshots", url, { snapshotMs: 0 })).toMatchObject({
      verdict: "warn",
      message: expect.stringContaining("vacuum can't remove dead rows"),
    });
    await sleeper.query("commit");
    expect(await check("snapshots", url, { snapshotMs: 0 })).toMatchObject({ verdict: "ok" });
  });

  test("names a prepared transaction and a replication slot that were left behind", async () => {
    await ask(
      url,
      "begin; insert into flotilla.probe (id, at) values (7, 7); prepare transaction 'left'",
    );
    expect(await check("snapshots", url, { snapshotMs: 0 })).toMatchObject({
      message: expect.stringContaining("a prepared transaction"),
    });
    await ask(url, "rollback prepared 'left'");
    await ask(url, "select pg_create_physical_replication_slot('forgotten', true)");
    expect(await check("snapshots")).toMatchObject({
      verdict: "warn",
      message: expect.stringContaining("forgotten"),
    });
    await ask(url, "select pg_drop_replication_slot('forgotten')");
  });

  test("names a server that has few connections left", async () => {
    await ask(url, `alter database ${new URL(url).pathname.slice(1)} connection limit 8`);
    // A connection that was closed counts until the server has seen that.
    await expect
      .poll(() => check("connections"))
      .toMatchObject({
        verdict: "warn",
        message: expect.stringMatching(/[67] left for this role: a pod takes up to twelve/),
      });
  });

  test("names a server whose clock is far from this machine's", async () => {
    const clock = fakeTime(3_600_000);
    onTestFinished(clock.remove);
    const skewed = await startPostgres({ env: clock.env });
    expect(await check("clock", skewed.url)).toMatchObject({
      verdict: "warn",
      message: expect.stringMatching(
        /the server's clock is 3(600|599)\.\d s ahead of this machine's/,
      ),
    });
    await skewed.stop();
  });

  test.each([
    ["transaction", "", "ok", /transaction mode: new tasks are found by polling/],
    ["transaction", "?pooler=session", "warn", /notifications get lost/],
    ["session", "", "ok", /session mode: add pooler=session/],
    ["statement", "", "fail", /statement mode/],
  ])("names a pooler in %s mode%s", async (mode, parameters, verdict, message) => {
    const pooler = await startPgBouncer({ server: server.url, settings: { pool_mode: mode } });
    const found = await check("pooler", pooler.through(url) + parameters);
    expect(found).toMatchObject({ verdict, message: expect.stringMatching(message) });
    await pooler.stop();
  });

  test("names a pooler that isn't there", async () => {
    expect(await check("pooler", `${url}?pooler=transaction`)).toMatchObject({ verdict: "warn" });
  });

  test("names tasks that no pod takes", async () => {
    await using producer = connect(url);
    await producer.enqueue("orphan", null);
    expect(await check("workers")).toMatchObject({
      verdict: "warn",
      message: expect.stringContaining("orphan (1)"),
    });
    expect(await check("pods")).toMatchObject({ verdict: "warn" });
  });
});
