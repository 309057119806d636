import { accessSync, constants, existsSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { FlotillaError } from "../base/errors.ts";
import type { Database } from "../store/database.ts";
import { sql, table } from "../store/sql.ts";

/**
 * The folder in `dataDir` for what this machine keeps about one store. It goes by when the store was
 * made, so that a store that moved keeps its folder, and another one at the same URL gets its own:
 * what was meant for one must never be sent to the other.
 */
export async function dataFolderOf(dataDir: string, database: Database): Promise<string> {
  const [row] = await database.read(sql`select applied_at from ${table("migration")} where id = 1`);
  return join(resolve(dataDir), `store-${Number(row!["applied_at"]).toString(36)}`);
}

/** Refuses a folder that could neither be written nor made. Makes nothing. */
export function checkDataDir(dataDir: string | false): void {
  if (dataDir === false) return;
  if (typeof dataDir !== "string" || dataDir === "") {
    throw new FlotillaError("invalid_option", "dataDir must be a folder's path, or false for none");
  }
  if (canBeWritten(dataDir)) return;
  throw new FlotillaError(
    "invalid_option",
    `dataDir: ${resolve(dataDir)} can't be written: name another folder, or false for none`,
  );
}

/** Whether the folder, or the nearest one above it that is there, can be written. */
export function canBeWritten(folder: string): boolean {
  let nearest = resolve(folder);
  while (!existsSync(nearest)) nearest = dirname(nearest);
  try {
    accessSync(nearest, constants.W_OK | constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
