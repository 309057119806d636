import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { migrationStatements } from "../../src/store/migrate.ts";
import { migrations } from "../../src/store/schema.ts";
import type { Dialect } from "../../src/store/sql.ts";
import { plainSql } from "./plain.ts";

/** The newest may still change until it is released, so it counts once it is kept. */
export const versions = migrations
  .map((_, at) => at + 1)
  .filter((version) => version < migrations.length || existsSync(folderOf(version)));

export function folderOf(version: number): string {
  return join(import.meta.dirname, "versions", String(version));
}

/** What is kept of a version: its tables, rows in every state, and what its pods send. */
export function kept(version: number, dialect: string, what: "schema" | "rows" | "work"): string {
  const path = join(folderOf(version), dialect, `${what}.sql`);
  if (existsSync(path)) return readFileSync(path, "utf8");
  throw new Error(
    `schema version ${version} isn't kept: run \`npx node test/upgrade/write.ts\` with the code that it is the newest of`,
  );
}

/** The steps that make a version, as they are in the present release. */
export function schemaSql(version: number, dialect: Dialect): string {
  const steps = migrations.slice(0, version);
  return plainSql(
    steps.flatMap((step, at) => migrationStatements(at + 1, step)),
    dialect,
  );
}
