import { execFileSync } from "node:child_process";
import {
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { temporaryFile } from "../contract/kinds.ts";
import { openStore } from "../open.ts";
import { sql } from "../sql.ts";
import { openSqlite } from "./sqlite.ts";

let place: ReturnType<typeof temporaryFile>;
beforeEach(() => {
  place = temporaryFile();
});
afterEach(() => place.remove());

/** A file with a few hundred pages, closed properly, so that all of it is in the one file. */
function makeFile(path: string): void {
  const db = new DatabaseSync(path);
  db.exec("pragma journal_mode = wal; create table filler (body text)");
  db.exec(`insert into filler
    with recursive n (i) as (select 1 union all select i + 1 from n where i < 500)
    select hex(randomblob(1000)) from n`);
  db.close();
}

const listed = () => readdirSync(place.folder).toSorted();

describe("opening a store", () => {
  test("that isn't there is refused with `create: false`, and makes none", async () => {
    await expect(openStore(place.path, { create: false })).rejects.toMatchObject({
      name: "FlotillaError",
      code: "store_missing",
      message: expect.stringContaining(`no database file at ${place.path}: check the path`),
    });
    expect(listed()).toEqual([]);
    const database = await openStore(place.path);
    await database.close();
    expect(listed()).toEqual(["flotilla.db"]);
  });

  test("in a folder that isn't there is refused", async () => {
    const path = join(place.folder, "nowhere", "flotilla.db");
    await expect(openStore(path)).rejects.toMatchObject({
      code: "store_missing",
      message: expect.stringContaining("its folder exists"),
    });
    expect(listed()).toEqual([]);
  });

  test("that is a folder is refused", async () => {
    mkdirSync(place.path);
    await expect(openStore(place.path)).rejects.toMatchObject({
      code: "store_missing",
      message: expect.stringContaining("is a folder: name a file in it"),
    });
    expect(listed()).toEqual(["flotilla.db"]);
  });

  test("that is no database is refused, and left as it was", async () => {
    const garbage = "this is a letter to my grandmother\n".repeat(300);
    writeFileSync(place.path, garbage);
    await expect(openStore(place.path)).rejects.toMatchObject({
      code: "store_corrupt",
      message: expect.stringContaining(`${place.path}: it isn't a SQLite database`),
    });
    expect(readFileSync(place.path, "utf8")).toBe(garbage);
    expect(listed()).toEqual(["flotilla.db"]);
  });

  test("that was cut short is refused, and left as it was", async () => {
    makeFile(place.path);
    truncateSync(place.path, 40_000);
    const before = readFileSync(place.path);
    await expect(openStore(place.path)).rejects.toMatchObject({
      code: "store_corrupt",
      message: expect.stringContaining("it is damaged: restore it from a back-up"),
    });
    expect(readFileSync(place.path).equals(before)).toBe(true);
  });

  test("of a newer release is refused, and left as it was", async () => {
    await (await openStore(place.path)).close();
    const db = new DatabaseSync(place.path);
    db.exec("insert into flotilla_migration values (99, 'from the future', 99, 0)");
    db.close();
    await expect(openStore(place.path)).rejects.toMatchObject({
      code: "store_newer",
      message: expect.stringContaining("update flotilla"),
    });
  });

  test("that has a hole in the middle is found out by the statement that meets it", async () => {
    makeFile(place.path);
    const bytes = readFileSync(place.path);
    bytes.fill(0xee, 4_096 * 20, 4_096 * 60);
    writeFileSync(place.path, bytes);
    const database = await openSqlite({ path: place.path });
    await expect(
      database.read(sql`select sum(length(body)) as sum from filler`),
    ).rejects.toMatchObject({
      code: "store_corrupt",
    });
    await database.close();
  });

  test("that may not be written is refused", () => {
    makeFile(place.path);
    chmodSync(place.path, 0o444);
    chmodSync(place.folder, 0o555);
    const { code, message } = openAsNobody(place.path);
    chmodSync(place.folder, 0o755);
    expect(code).toBe("store_read_only");
    expect(message).toContain("can't be written: check the permissions");
    expect(listed()).toEqual(["flotilla.db"]);
  });
});

test("a full disk is an error of its own, and passes when there is space again", async () => {
  const database = await openSqlite({ path: place.path, create: true });
  await database.write([sql`create table filler (body text)`]);
  const [pages] = await database.write([sql`pragma page_count`]);
  await database.write([sql`pragma max_page_count = ${plain(pages![0]!["page_count"] + 2)}`]);
  const big = database.write([sql`insert into filler values (${"x".repeat(100_000)})`]);
  await expect(big).rejects.toMatchObject({
    code: "store_full",
    message: expect.stringContaining("free some space"),
  });
  await database.write([sql`pragma max_page_count = 100000`]);
  await database.write([sql`insert into filler values (${"x".repeat(100_000)})`]);
  const [row] = await database.read(sql`select count(*) as count from filler`);
  expect(row).toEqual({ count: 1 });
  await database.close();
});

test("the files of a new store are its owner's alone, whatever else the process makes is", async () => {
  const umask = process.umask(0);
  try {
    const database = await openStore(place.path, { create: true });
    await database.write([sql`create table filler (body text)`]);
    const modes = listed().map((name) => [name, statSync(join(place.folder, name)).mode & 0o777]);
    expect(modes).toEqual(listed().map((name) => [name, 0o600]));
    expect(modes.length).toBeGreaterThanOrEqual(3);
    await database.close();
  } finally {
    process.umask(umask);
  }
});

/** A number as text of the statement, because pragmas take no values. */
const plain = (value: number) => sql([String(value)] as unknown as TemplateStringsArray);

/** The administrator may write anywhere, so a user without that right does the opening. */
function openAsNobody(path: string): { code: string; message: string } {
  const script = `
    import process from "node:process";
    import { openConnection } from ${JSON.stringify(new URL("./connection.ts", import.meta.url).href)};
    if (process.getuid() === 0) process.setuid(65534);
    try {
      openConnection({ path: ${JSON.stringify(path)} });
      console.log("{}");
    } catch (error) {
      console.log(JSON.stringify({ code: error.code, message: error.message }));
    }`;
  const output = execFileSync(process.execPath, ["--input-type=module", "-e", script]);
  return JSON.parse(String(output)) as { code: string; message: string };
}
