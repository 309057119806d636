import { accessSync, constants, existsSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { FlotillaError } from "../base/errors.ts";
import type { Database } from "../store/database.ts";
import { createdAtMs } from "../store/migrate.ts";

/**
 * The folder in `dataDir` for this machine's files about one store. Its name is made of the time when the
 * store was created. So a store that moved keeps its folder, and another store at the same URL gets its
 * own: results for one must never be sent to the other.
 */
export async function dataFolderOf(
  dataDir: string,
  database: Pick<Database, "read">,
): Promise<string> {
  return join(resolve(dataDir), `store-${(await createdAtMs(database)).toString(36)}`);
}

/** Refuses a folder that can neither be written nor created. Creates nothing. */
export function checkDataDir(dataDir: string | false): void {
  if (dataDir === false) return;
  if (typeof dataDir !== "string" || dataDir === "") {
    throw new FlotillaError("invalid_option", "dataDir must be a folder's path, or false for none");
  }
  if (canBeWritten(dataDir)) return;
  throw new FlotillaError(
    "invalid_option",
    `dataDir: ${resolve(dataDir)} isn't writable: set another folder, or false for none`,
  );
}

/** Whether the folder, or its nearest existing ancestor, is writable. */
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
