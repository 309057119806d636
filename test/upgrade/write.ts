/**
 * Writes what the present schema version looks like, for the releases after it to upgrade from: its
 * tables, rows in every state, and what its pods send. Run at a release, and before a step is added:
 *
 *     npx node test/upgrade/write.ts
 *
 * What has been released is never written again. Before that, a number after the command writes that
 * version's tables and rows anew; what its pods send can only be written while it is the newest.
 */
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { migrations } from "../../src/store/schema.ts";
import { dialects, plainSql } from "./plain.ts";
import { rowsOf } from "./rows.ts";
import { folderOf, schemaSql } from "./versions.ts";
import { workOf } from "./work.ts";

const newest = migrations.length;
const version = Number(process.argv[2] ?? newest);
if (!(version >= 1 && version <= newest)) throw new Error(`there is no schema version ${version}`);
if (process.argv[2] === undefined && existsSync(folderOf(version))) {
  throw new Error(`schema version ${version} has been written: give its number to write it again`);
}
for (const [name, dialect] of Object.entries(dialects)) {
  const folder = join(folderOf(version), name);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "schema.sql"), schemaSql(version, dialect));
  writeFileSync(join(folder, "rows.sql"), rowsOf(dialect, version));
  if (version === newest) {
    writeFileSync(join(folder, "work.sql"), plainSql(workOf(), dialect));
  }
}
