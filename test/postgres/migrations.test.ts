import { tmpdir } from "node:os";
import { expect, test } from "vitest";
import { temporaryDatabase } from "../../src/store/contract/kinds.ts";
import { openReduced } from "../../src/store/contract/reduced-postgres.ts";
import { migrate } from "../../src/store/migrate.ts";
import { migrations } from "../../src/store/schema.ts";
import { sql, table } from "../../src/store/sql.ts";
import { run } from "../command.ts";

test("ten processes that migrate at once without advisory locks make each step once", async () => {
  const { url, remove } = await temporaryDatabase();
  const database = await openReduced(url);
  await migrate(database, { migrations: migrations.slice(0, 1) });
  const store = ["--store", `${url}?unproven=1`];
  const outcomes = await Promise.all(
    Array.from({ length: 10 }, () => run(["migrate", ...store], { cwd: tmpdir() })),
  );
  const last = migrations.length;
  const done = new RegExp(
    `^(migrated from schema \\d to ${last}|schema ${last} is up to date)\\n$`,
  );
  for (const outcome of outcomes) {
    expect(outcome).toMatchObject({ code: 0, stderr: "", stdout: expect.stringMatching(done) });
  }
  const applied = await database.read(sql`select id, name from ${table("migration")} order by id`);
  expect(applied).toEqual(migrations.map(({ name }, at) => ({ id: at + 1, name })));
  // What a step inserts is there once.
  const [row] = await database.read(sql`select count(*) as count from ${table("log_place")}`);
  expect(Number(row!["count"])).toBe(1);
  await database.close();
  await remove();
});
