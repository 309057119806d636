import { DatabaseSync } from "node:sqlite";
import { describe, expect, test } from "vitest";
import { rows, sql, table } from "./sql.ts";
import { sqliteTransaction } from "./caller-transaction.ts";

describe("the caller's own transaction", () => {
  test("commits or vanishes with the rest of what the caller does", async () => {
    const db = new DatabaseSync(":memory:");
    db.exec("create table scratch (id integer primary key)");
    const put = (id: number) =>
      sqliteTransaction(db).write([
        sql`insert into scratch select id from ${rows({ id: "integer" }, [[id]])} fresh where true returning id`,
      ]);
    db.exec("begin");
    expect(await put(1)).toEqual([[expect.objectContaining({ id: 1 })]]);
    db.exec("rollback");
    db.exec("begin");
    await put(2);
    db.exec("commit");
    expect(db.prepare("select id from scratch").all()).toEqual([
      expect.objectContaining({ id: 2 }),
    ]);
    db.close();
  });

  test("reports what the connection refuses with our codes, such as a file without our tables", async () => {
    const db = new DatabaseSync(":memory:");
    const written = sqliteTransaction(db).write([sql`insert into ${table("probe")} values (1, 1)`]);
    await expect(written).rejects.toMatchObject({
      code: "store_unavailable",
      message: expect.stringContaining("no such table"),
    });
    db.close();
  });

  test.each([null, 1, "tx", {}, [], () => {}])("must be a connection: %j", (handle) => {
    expect(() => sqliteTransaction(handle)).toThrow(
      expect.objectContaining({ code: "invalid_option", message: expect.stringContaining("`tx`") }),
    );
  });
});
