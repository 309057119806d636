import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openStore } from "./open.ts";
import { planMigrations } from "./migration-plan.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-plan-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

test("the plan, run by hand, makes the schema that migrating makes", async () => {
  const [planned, migrated] = [join(folder, "planned.db"), join(folder, "migrated.db")];
  const { statements } = await planMigrations(`sqlite:${planned}`);
  expect(existsSync(planned)).toBe(false);
  const byHand = new DatabaseSync(planned);
  for (const statement of statements) byHand.exec(statement);
  byHand.close();
  await (await openStore(`sqlite:${migrated}`)).close();
  expect(schemaOf(planned)).toEqual(schemaOf(migrated));
});

test("there is nothing to do where the schema is up to date, and nothing is done", async () => {
  const url = `sqlite:${join(folder, "flotilla.db")}`;
  await (await openStore(url)).close();
  expect(await planMigrations(url)).toMatchObject({ pending: [], statements: [] });
});

function schemaOf(path: string): unknown[] {
  const database = new DatabaseSync(path);
  const objects = database.prepare("select type, name, sql from sqlite_schema order by name").all();
  const applied = database.prepare("select id, name, needs from flotilla_migration").all();
  database.close();
  // Line breaks are all that may differ.
  return [...objects, ...applied].map((row) => JSON.stringify(row).replaceAll(/(\\n|\s)+/g, " "));
}
