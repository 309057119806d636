import { accessSync, constants, statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import type { Database } from "../database.ts";
import { sql } from "../sql.ts";
import { openConnection } from "./connection.ts";
import { freeBytes } from "./errors.ts";
import { inlineDatabase } from "./inline.ts";
import { DatabaseSync } from "./driver.ts";

/** What can be told of a database file from outside, without opening it. */
export type FileFacts = {
  readonly path: string;
  readonly kind: "file" | "missing" | "other";
  readonly readable: boolean;
  /** Whether both the file and its folder, which holds the write-ahead log, can be written. */
  readonly writable: boolean;
  readonly sizeBytes: number;
  readonly walBytes: number;
  /** What is left on its disk, or undefined where its folder is missing. */
  readonly freeBytes: number | undefined;
};

export function fileFacts(path: string): FileFacts {
  const full = resolve(path);
  const stat = statSync(full, { throwIfNoEntry: false });
  const wal = statSync(`${full}-wal`, { throwIfNoEntry: false });
  return {
    path: full,
    kind: stat === undefined ? "missing" : stat.isFile() ? "file" : "other",
    readable: may(full, constants.R_OK),
    writable: may(full, constants.W_OK) && may(dirname(full), constants.W_OK),
    sizeBytes: stat?.size ?? 0,
    walBytes: wal?.size ?? 0,
    freeBytes: freeBytes(dirname(full)),
  };
}

/** The file as it is: nothing is made, migrated or set. */
export function openReadOnly(path: string): Database {
  return inlineDatabase(openConnection({ path, readOnly: true }));
}

/** How the file keeps its journal, which stays with the file whoever opens it. */
export async function journalMode(database: Database): Promise<string> {
  const [row] = await database.read(sql`pragma journal_mode`);
  return String(row?.["journal_mode"]);
}

/** What SQLite finds wrong with the file, or undefined. Reads all of it. */
export async function findDamage(database: Database): Promise<string | undefined> {
  const [row] = await database.read(sql`pragma quick_check(1)`);
  const found = String(row?.["quick_check"]);
  return found === "ok" ? undefined : found;
}

export function sqliteVersion(): string {
  const database = new DatabaseSync(":memory:");
  const row = database.prepare("select sqlite_version() as version").get();
  database.close();
  return String(row?.["version"]);
}

function may(path: string, mode: number): boolean {
  try {
    accessSync(path, mode);
    return true;
  } catch {
    return false;
  }
}
