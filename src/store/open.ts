import { FlotillaError } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import type { Database, Durability } from "./database.ts";
import { migrate, type MigrateOptions } from "./migrate.ts";

export type StoreOptions = {
  /** `full` (default): a power cut loses nothing acked. `relaxed`: it may lose the last moments. */
  durability?: Durability;
  /** Whether the schema is brought up to date on opening (`auto`, default) or only checked. */
  migrate?: MigrateOptions["mode"];
  /** Whether a missing file is made. Default: where the schema may be brought up to date too. */
  create?: boolean;
  log?: Logger;
};

/** Opens the store that a URL names, ready to use. */
export async function openStore(url: string, options: StoreOptions = {}): Promise<Database> {
  const { durability = "full", migrate: mode = "auto", log } = options;
  const { create = mode === "auto" } = options;
  const path = sqlitePath(url);
  const { openSqlite } = await import("./sqlite/sqlite.ts");
  const database = await openSqlite({ path, durability, create });
  try {
    await migrate(database, { mode, ...(log && { log }) });
  } catch (error) {
    await database.close();
    throw error;
  }
  return database;
}

/** The file that a store URL names: `sqlite:flotilla.db`, `sqlite:/var/lib/app.db`, `file:…` or a plain path. */
export function sqlitePath(url: string): string {
  const scheme = /^([a-z][a-z0-9+.-]*):/i.exec(url)?.[1]?.toLowerCase();
  const path = scheme ? url.slice(scheme.length + 1).replace(/^\/\//, "") : url;
  const isFile = scheme === undefined || scheme === "sqlite" || scheme === "file";
  // A store in memory couldn't be shared by its threads.
  if (isFile && path !== "" && path !== ":memory:" && !path.includes("?")) return path;
  throw new FlotillaError(
    "unsupported",
    `the store ${JSON.stringify(withoutSecrets(url))} isn't supported: use sqlite:<file>`,
  );
}

/** A URL that can be printed: what stands between `//` and the last `@` may be a password. */
export function withoutSecrets(url: string): string {
  return url.replace(/\/\/.*@/, "//…@").replace(/\?.*$/, "?…");
}
