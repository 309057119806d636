import { accessSync, constants, statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import type { Database } from "../database.ts";
import { rows, sql, type TableName } from "../sql.ts";
import { openConnection } from "./connection.ts";
import { freeBytes } from "./errors.ts";
import { inlineDatabase } from "./inline.ts";
import { DatabaseSync } from "./driver.ts";

/** Facts about a database file, found without opening it. */
export type FileFacts = {
  readonly path: string;
  readonly kind: "file" | "missing" | "other";
  readonly readable: boolean;
  /** True if both the file and its folder, which holds the write-ahead log, can be written. */
  readonly writable: boolean;
  readonly sizeBytes: number;
  readonly walBytes: number;
  /** The free space on its disk; undefined if its folder is missing. */
  readonly freeBytes: number | undefined;
};

/** Inspects a database file from outside. */
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

/** Opens the file as it is: nothing is created, migrated or set. */
export function openReadOnly(path: string): Database {
  return inlineDatabase(openConnection({ path, readOnly: true }));
}

/** The journal mode, which is stored in the file. */
export async function journalMode(database: Database): Promise<string> {
  const [row] = await database.read(sql`pragma journal_mode`);
  return String(row?.["journal_mode"]);
}

/** The first damage that SQLite finds in the file, or undefined. Reads the whole file. */
export async function findDamage(database: Database): Promise<string | undefined> {
  const [row] = await database.read(sql`pragma quick_check(1)`);
  const found = String(row?.["quick_check"]);
  return found === "ok" ? undefined : found;
}

/** A column as a file declares it. `place` is its place in the primary key, from 1 on; 0 if it is in none. */
export type DeclaredColumn = {
  readonly name: string;
  readonly type: "bigint" | "integer" | "text";
  readonly place: number;
};

/** The columns of each of these tables that there is. */
export async function columnsOf(
  database: Database,
  names: readonly TableName[],
): Promise<ReadonlyMap<TableName, DeclaredColumn[]>> {
  const asked = rows(
    { table_name: "text" },
    names.map((name) => [name]),
  );
  const found = await database.read(sql`
    select asked.table_name, declared.name, lower(declared.type) as type, declared.pk
    from ${asked} asked, pragma_table_info('flotilla_' || asked.table_name) declared
    order by asked.table_name, declared.cid`);
  const columns = found.map((row) => ({
    of: row["table_name"] as TableName,
    declared: { name: row["name"], type: row["type"], place: Number(row["pk"]) },
  }));
  const tables = Map.groupBy(columns, ({ of }) => of);
  return new Map([...tables].map(([of, each]) => [of, each.map(({ declared }) => declared)]));
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
