import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { temporaryDatabase } from "../src/store/contract/kinds.ts";
import { run } from "./command.ts";

/** A database that an application has made its tables in, and names as Prisma does. */
let folder: string;
let theirs: Awaited<ReturnType<typeof temporaryDatabase>>;
let client: pg.Client;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-database-url-"));
  theirs = await temporaryDatabase();
  client = new pg.Client(theirs.url);
  await client.connect();
  await client.query(`create table "session" (id text); create table migration (id text)`);
});
afterAll(async () => {
  await client?.end();
  await theirs?.remove();
  rmSync(folder, { recursive: true, force: true });
});

const tablesIn = async (schema: string) => {
  const { rows } = await client.query(
    `select tablename from pg_tables where schemaname = $1 order by tablename`,
    [schema],
  );
  return rows.map((row: { tablename: string }) => row.tablename);
};
const withSchema = (schema: string) =>
  `${theirs.url}${theirs.url.includes("?") ? "&" : "?"}schema=${schema}`;

test("a store that names the schema of an application is refused, and nothing is written", async () => {
  const { code, stderr } = await run(["migrate", "--store", withSchema("public")], { cwd: folder });
  expect(code).toBe(2);
  expect(stderr).toContain(
    "the schema public holds what Flotilla didn't make (migration, session), and Flotilla needs a place of its own",
  );
  expect(await tablesIn("public")).toEqual(["migration", "session"]);
});

test.each([
  ["a type", "create type mood as enum ('fine')"],
  ["a composite type", "create type place as (x int, y int)"],
  ["a function", "create function one() returns int language sql as 'select 1'"],
  ["a sequence", "create sequence numbers"],
])("a schema that holds %s of another is refused too", async (_, making) => {
  await client.query(`create schema other; set search_path to other; ${making}`);
  try {
    const { code } = await run(["migrate", "--store", withSchema("other")], { cwd: folder });
    expect(code).toBe(2);
    expect(await tablesIn("other")).toEqual([]);
  } finally {
    await client.query("reset search_path; drop schema other cascade");
  }
});

test("the schema in DATABASE_URL is ignored with a note, and the tables are where they always are", async () => {
  const env = { DATABASE_URL: withSchema("public") };
  const { code, stdout, stderr } = await run(["migrate", "--json"], { cwd: folder, env });
  expect(stderr).toMatch(/^flotilla: ignoring the schema in DATABASE_URL.*\n$/);
  expect(code).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({ from: 0 });
  expect(await tablesIn("public")).toEqual(["migration", "session"]);
  expect(await tablesIn("flotilla")).toContain("task");
});

test("a schema in DATABASE_URL that holds tables of Flotilla is refused, with what to set instead", async () => {
  const made = await run(["migrate", "--store", withSchema("queue")], { cwd: folder });
  expect(made.code).toBe(0);
  const ours = await tablesIn("flotilla");
  const env = { DATABASE_URL: withSchema("queue") };
  const { code, stderr } = await run(["tasks", "list"], { cwd: folder, env });
  expect(code).toBe(2);
  expect(stderr).toContain("set FLOTILLA_STORE to the same URL");
  expect(await tablesIn("flotilla")).toEqual(ours);
  const same = { FLOTILLA_STORE: withSchema("queue") };
  expect(await run(["tasks", "list"], { cwd: folder, env: same })).toMatchObject({ code: 0 });
});

test("a schema in DATABASE_URL that is the usual one is used, and nothing is said of it", async () => {
  const env = { DATABASE_URL: withSchema("flotilla") };
  const { code, stderr } = await run(["migrate", "--json"], { cwd: folder, env });
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
});
