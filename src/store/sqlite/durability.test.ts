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

describe("durability", () => {
  test.each([
    { durability: "full", synchronous: 2 },
    { durability: "relaxed", synchronous: 1 },
    { durability: undefined, synchronous: 2 },
  ] as const)(
    "$durability commits with synchronous = $synchronous on the writer's connection",
    async (each) => {
      const { durability, synchronous } = each;
      const options = durability ? { durability } : {};
      for (const open of [
        () => openStore(place.path, options),
        () => openSqlite({ path: place.path, ...options }),
      ]) {
        const database = await open();
        const [level, mode] = await database.write([
          sql`pragma synchronous`,
          sql`pragma journal_mode`,
        ]);
        expect(level).toEqual([{ synchronous }]);
        expect(mode).toEqual([{ journal_mode: "wal" }]);
        await database.close();
      }
    },
  );

  test("full waits for the disk with every write but lossy ones", async () => {
    const database = await openSqlite({ path: place.path, create: true });
    const levelOf = async (lossy: boolean) => {
      const [level] = await database.write([sql`pragma synchronous`], { lossy });
      return level![0]!["synchronous"];
    };
    expect([await levelOf(false), await levelOf(true), await levelOf(false)]).toEqual([2, 1, 2]);
    // What shares a commit with another write is flushed with it.
    expect(await Promise.all([levelOf(true), levelOf(false)])).toEqual([2, 2]);
    await database.close();
  });

  test("keeps the write-ahead log within its bound while nothing reads", async () => {
    const database = await openSqlite({ path: place.path, create: true });
    await database.write([sql`create table filler (id integer primary key, body text)`]);
    for (let round = 0; round < 20; round++) {
      await database.write(
        Array.from(
          { length: 100 },
          () => sql`insert into filler (body) values (${"x".repeat(20_000)})`,
        ),
      );
    }
    const { statSync } = await import("node:fs");
    // Two thousand rows of five pages each have passed through a log of four thousand pages.
    expect(statSync(`${place.path}-wal`).size).toBeLessThan(24 * 1024 * 1024);
    await database.close();
  });
});
