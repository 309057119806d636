import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { silentLogger } from "../src/base/log.ts";
import { task } from "../src/tasks/task.ts";
import { startPod } from "../src/runtime/start-pod.ts";
import { temporaryFile } from "../src/store/contract/kinds.ts";
import { openStore } from "../src/store/open.ts";
import { sql, table } from "../src/store/sql.ts";
import { openSqlite } from "../src/store/sqlite/sqlite.ts";
import { part } from "./parts.ts";
import { kept } from "./upgrade/versions.ts";

const page = readFileSync(new URL("../docs/tasks.md", import.meta.url), "utf8");
const ofTask = /```sql\n(insert into flotilla_task [^;]+;)\n```/.exec(page)![1]!;
const ofSchedule = /`(insert into flotilla_schedule [^`]+)`/.exec(page)![1]!;
const sqlite3 = (path: string, text: string) =>
  execFileSync(part("sqlite"), [path, text], { encoding: "utf8" }).trim();

const unportable = "cast(unixepoch('subsec') * 1000 as integer)";

/** Tables as they were when their defaults needed SQLite 3.42. */
function makeOldFile(path: string): void {
  const db = new DatabaseSync(path);
  const text = kept(5, "sqlite", "schema");
  expect(text).toContain(unportable);
  db.exec(`pragma journal_mode = wal; ${text}`);
  db.close();
}

const summarize = task("summarize", {}, ({ input }: { input: { url: string } }) => input.url);
const settings = { use: [summarize], log: silentLogger, heartbeatMs: 200, pollMs: 50 };

let place: ReturnType<typeof temporaryFile>;
beforeEach(() => {
  place = temporaryFile();
});
afterEach(() => place.remove());

describe.each([
  ["a file that Flotilla made", () => {}],
  ["a file of a release whose defaults needed SQLite 3.42", makeOldFile],
])("the sqlite3 program, on %s", (_, make) => {
  test("inserts a task by the statement of docs/tasks.md, and a pod runs it", async () => {
    make(place.path);
    await using pod = await startPod({ ...settings, store: `sqlite:${place.path}` });
    const fromMs = Date.now();
    const taskId = sqlite3(place.path, `${ofTask.replace(/;$/, "")} returning task_id`);
    const toMs = Date.now();

    expect(await pod.waitFor(taskId)).toBe("https://example.com");
    const { createdAtMs, runAtMs } = (await pod.get(taskId))!;
    expect(createdAtMs).toBeGreaterThanOrEqual(fromMs);
    expect(createdAtMs).toBeLessThanOrEqual(toMs);
    expect(runAtMs).toBe(createdAtMs);
    // A UUIDv7 says when it was made.
    expect(Number.parseInt(taskId.replace("-", "").slice(0, 12), 16)).toBe(createdAtMs);
  });

  test("inserts a schedule by the statement of docs/tasks.md, and it gets its next time", async () => {
    make(place.path);
    await using pod = await startPod({ ...settings, store: `sqlite:${place.path}` });
    sqlite3(place.path, ofSchedule);
    await expect
      .poll(async () => (await pod.schedules.get("nightly"))?.nextAtMs)
      .toBeGreaterThan(Date.now());
  });
});

test("a file whose defaults needed SQLite 3.42 is mended beside pods that have it open", async () => {
  makeOldFile(place.path);
  const insert = sql`insert into ${table("task")} (name) values ('a') returning run_at`;
  const old = await openSqlite({ path: place.path });
  await old.write([insert]);
  const [first, second] = await Promise.all([openStore(place.path), openStore(place.path)]);
  for (const each of [old, first, second]) {
    const [[row]] = (await each.write([insert])) as [[{ run_at: number }]];
    expect(Math.abs(row.run_at - Date.now())).toBeLessThan(3_600_000);
    await each.close();
  }

  const db = new DatabaseSync(place.path);
  const tables = db.prepare("select sql from sqlite_schema").all();
  expect(JSON.stringify(tables)).not.toContain("subsec");
  expect(db.prepare("pragma integrity_check").get()).toEqual({ integrity_check: "ok" });
  expect(() => db.exec("update sqlite_schema set sql = ''")).toThrow("may not be modified");
  db.close();
});

test("a store that is only checked is left as it is", async () => {
  makeOldFile(place.path);
  await expect(openStore(place.path, { migrate: "check" })).rejects.toMatchObject({
    code: "store_outdated",
  });
  const db = new DatabaseSync(place.path);
  const text = JSON.stringify(db.prepare("select sql from sqlite_schema").all());
  db.close();
  expect(text).toContain("subsec");
});

test("a store that this release refuses is left as it is", async () => {
  makeOldFile(place.path);
  const db = new DatabaseSync(place.path);
  db.exec("insert into flotilla_migration values (99, 'of a newer release', 99, 0)");
  const schema = () => db.prepare("select sql from sqlite_schema").all();
  const before = schema();
  await expect(openStore(place.path)).rejects.toMatchObject({ code: "store_newer" });
  expect(schema()).toEqual(before);
  db.close();
});

test("defaults that only look like those of ours are left as they are, at every opening", async () => {
  await (await openStore(place.path)).close();
  const db = new DatabaseSync(place.path);
  db.exec("create table flotilla_of_another (at real default (unixepoch('subsec')))");
  const version = () => db.prepare("pragma schema_version").get();
  const before = version();
  await (await openStore(place.path)).close();
  expect(version()).toEqual(before);
  db.close();
});

test("a store opens where its defaults can't be changed, and says so", async () => {
  await (await openStore(place.path)).close();
  const holder = new DatabaseSync(place.path);
  holder.exec(`create table flotilla_old (at bigint default (${unportable})); begin immediate`);
  const warnings: string[] = [];
  const log = { ...silentLogger, warn: (_: object, text: string) => void warnings.push(text) };
  const database = await openStore(place.path, { log });
  expect(warnings).toEqual([expect.stringContaining("plain inserts need SQLite 3.42")]);
  holder.exec("rollback");
  holder.close();
  await database.write([sql`insert into ${table("task")} (name) values ('a')`]);
  await database.close();
});
