import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Database } from "../database.ts";
import { type OpenStore, ownTable, type StoreKind } from "./database.ts";
import { migrate, schemaState } from "../migrate.ts";
import { type Migration, migrations as ours } from "../schema.ts";
import { createSchema, sql, table } from "../sql.ts";

const one = ownTable("one");
const half = ownTable("half");

const first: Migration = {
  name: "first",
  needs: 1,
  statements: [
    sql`create table ${one} (id integer primary key)`,
    sql`insert into ${one} values (1)`,
  ],
};
const second: Migration = {
  name: "second",
  needs: 1,
  statements: [
    sql`alter table ${one} add column more integer`,
    sql`insert into ${one} values (2, 2)`,
  ],
};
const breaking: Migration = { name: "breaking", needs: 3, statements: [sql`drop table ${one}`] };
const faulty: Migration = {
  name: "faulty",
  needs: 1,
  statements: [sql`create table ${half} (id integer)`, sql`create table ${one} (id integer)`],
};

/** What the schema's upgrades promise on every store. */
export function migrateContract(kind: StoreKind): void {
  describe(`migrations on ${kind.name}`, () => {
    let store: OpenStore;
    let database: Database;
    beforeEach(async () => {
      store = await kind.open();
      database = store.database;
    });
    afterEach(async () => {
      await database.close();
      await store.remove();
    });
    const applied = () =>
      database.read(sql`select id, name, needs from ${table("migration")} order by id`);

    test("make an empty store ready, and report its version", async () => {
      expect(await schemaState(database)).toMatchObject({ version: 0, needs: 0, pending: ours });
      const state = await migrate(database);
      expect(state).toMatchObject({ version: ours.length, known: ours.length, pending: [] });
      const [row] = await database.read(sql`select count(*) as count from ${table("task")}`);
      expect(Number(row!["count"])).toBe(0);
    });

    test("are applied once, in order, each under its number", async () => {
      await migrate(database, { migrations: [first] });
      await migrate(database, { migrations: [first, second] });
      await migrate(database, { migrations: [first, second] });
      expect(await applied()).toEqual([
        { id: 1, name: "first", needs: 1 },
        { id: 2, name: "second", needs: 1 },
      ]);
      expect(await database.read(sql`select * from ${one} order by id`)).toEqual([
        { id: 1, more: null },
        { id: 2, more: 2 },
      ]);
    });

    test("are applied once by many that start at the same time", async () => {
      const others = await Promise.all(
        Array.from({ length: 7 }, async () => store.again?.() ?? database),
      );
      const all = [database, ...others];
      const states = await Promise.all(
        all.map((each) => migrate(each, { migrations: [first, second] })),
      );
      for (const state of states) expect(state).toMatchObject({ version: 2, pending: [] });
      expect(await database.read(sql`select id from ${one} order by id`)).toEqual([
        { id: 1 },
        { id: 2 },
      ]);
      await Promise.all(others.map((each) => each.close()));
      if (!store.again) return;
      database = await store.again();
    });

    test("can be read without being applied", async () => {
      await migrate(database, { migrations: [first] });
      const state = await schemaState(database, [first, second]);
      expect(state).toEqual({ version: 1, needs: 1, known: 2, pending: [second] });
      expect(await applied()).toHaveLength(1);
    });

    test("aren't applied in check mode, which refuses an older schema", async () => {
      await migrate(database, { migrations: [first] });
      const checked = migrate(database, { mode: "check", migrations: [first, second] });
      await expect(checked).rejects.toMatchObject({
        code: "store_outdated",
        message: expect.stringContaining("schema 1, this release needs 2"),
        details: { version: 1, known: 2 },
      });
      expect(await applied()).toHaveLength(1);
      const current = await migrate(database, { mode: "check", migrations: [first] });
      expect(current.version).toBe(1);
    });

    test("in check mode make nothing in an empty store", async () => {
      const checked = migrate(database, { mode: "check" });
      await expect(checked).rejects.toMatchObject({ code: "store_outdated" });
      await expect(applied()).rejects.toThrow(/no such table|does not exist/);
    });

    test("of a newer release are worked with where they allow it", async () => {
      await migrate(database, { migrations: [first, second] });
      const warned: string[] = [];
      const log = {
        debug() {},
        info() {},
        error() {},
        warn: (_: object, text: string) => warned.push(text),
      };
      const state = await migrate(database, { migrations: [first], log });
      expect(state).toMatchObject({ version: 2, known: 1, pending: [] });
      expect(warned[0]).toContain("newer than this release");
    });

    test("of a newer release that breaks with ours are refused, whatever the mode", async () => {
      await migrate(database, { migrations: [first, second, breaking] });
      for (const mode of ["auto", "check"] as const) {
        const refused = migrate(database, { mode, migrations: [first, second] });
        await expect(refused).rejects.toMatchObject({
          code: "store_newer",
          message: expect.stringContaining("schema 3, this release knows 2"),
        });
      }
    });

    test("that are the first leave all of their steps or none", async () => {
      const failing = migrate(database, { migrations: [first, faulty] });
      await expect(failing).rejects.toThrow(/already exists/);
      await expect(applied()).rejects.toThrow(/no such table|does not exist/);
      await expect(database.read(sql`select * from ${one}`)).rejects.toThrow("one");
      expect(await migrate(database, { migrations: [first, second] })).toMatchObject({
        version: 2,
      });
    });

    test.each([
      ["another's table of a name that we use", sql`create table ${table("session")} (id integer)`],
      ["another's history of migrations", sql`create table ${table("migration")} (id text)`],
    ])("refuse a place that holds %s, before the first write", async (_, theirs) => {
      await database.write([sql`${createSchema}`, theirs]);
      for (const mode of ["auto", "check"] as const) {
        await expect(migrate(database, { mode })).rejects.toMatchObject({
          code: "invalid_option",
          message: expect.stringMatching(/holds what Flotilla didn't make \((flotilla_)?\w+\)/),
        });
      }
      const written = database.read(sql`select * from ${table("pod")}`);
      await expect(written).rejects.toMatchObject({ code: "store_outdated" });
    });

    test("that fail leave nothing half done, and are tried again", async () => {
      await migrate(database, { migrations: [first] });
      const failing = migrate(database, { migrations: [first, faulty] });
      await expect(failing).rejects.toThrow(/already exists/);
      expect(await applied()).toHaveLength(1);
      await expect(database.read(sql`select * from ${half}`)).rejects.toThrow("half");
      expect(await migrate(database, { migrations: [first, second] })).toMatchObject({
        version: 2,
      });
    });
  });
}
