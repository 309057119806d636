import { FlotillaError } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import type { CallerTransaction, Database, Durability } from "./database.ts";
import { migrate, type MigrateOptions } from "./migrate.ts";
import { postgresTransaction, sqliteTransaction } from "./transaction.ts";

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
  const { migrate: mode = "auto", log } = options;
  const database = await openAsItIs(url, options);
  try {
    await migrate(database, { mode, ...(log && { log }) });
  } catch (error) {
    await database.close();
    throw error;
  }
  return database;
}

async function openAsItIs(url: string, options: StoreOptions): Promise<Database> {
  const { durability = "full", migrate: mode = "auto", log } = options;
  const { create = mode === "auto" } = options;
  const place = placeOf(url);
  if (place.kind === "sqlite") {
    const { openSqlite } = await import("./sqlite/sqlite.ts");
    return openSqlite({ path: place.path, durability, create });
  }
  const { openPostgres } = await import("./postgres/postgres.ts");
  return openPostgres({ ...place, durability, ...(log && { log }) });
}

/**
 * The same store for a heartbeat: on the calling thread, with one connection of its own. A beat that
 * a power cut takes back is no loss, so it needn't wait for the disk.
 */
export async function openForHeartbeat(url: string): Promise<Database> {
  const place = placeOf(url);
  if (place.kind === "sqlite") {
    const { lastingInline } = await import("./sqlite/inline.ts");
    return lastingInline({ path: place.path, durability: "relaxed" });
  }
  const { openPostgres } = await import("./postgres/postgres.ts");
  return openPostgres({ ...place, durability: "relaxed", connections: 1 });
}

/** A caller's transaction on the store that a URL names, which needn't be open for it. */
export function transactionOn(url: string, handle: unknown): CallerTransaction {
  const place = placeOf(url);
  return place.kind === "sqlite"
    ? sqliteTransaction(handle)
    : postgresTransaction(handle, place.schema);
}

export type Place =
  | { readonly kind: "sqlite"; readonly path: string }
  | { readonly kind: "postgres"; readonly url: string; readonly schema: string };

const defaultSchema = "flotilla";

/** What a store URL names: `sqlite:<file>`, a plain path, or `postgres://…` with `?schema=` if not ours. */
export function placeOf(url: string): Place {
  const scheme = /^([a-z][a-z0-9+.-]*):/i.exec(url)?.[1]?.toLowerCase();
  if (scheme === "postgres" || scheme === "postgresql") {
    const [, schema = defaultSchema] = /[?&]schema=([^&]*)/.exec(url) ?? [];
    return { kind: "postgres", url: url.replace(/([?&])schema=[^&]*&?/, "$1"), schema };
  }
  const path = scheme ? url.slice(scheme.length + 1).replace(/^\/\//, "") : url;
  const isFile = scheme === undefined || scheme === "sqlite" || scheme === "file";
  // A store in memory couldn't be shared by its threads.
  if (isFile && path !== "" && path !== ":memory:" && !path.includes("?")) {
    return { kind: "sqlite", path };
  }
  throw new FlotillaError(
    "unsupported",
    `the store ${JSON.stringify(withoutSecrets(url))} isn't supported: use sqlite:<file> or postgres://…`,
  );
}

/** The file that a store URL names, for what only files have. */
export function sqlitePath(url: string): string {
  const place = placeOf(url);
  if (place.kind === "sqlite") return place.path;
  throw new FlotillaError("unsupported", "this works on SQLite files only");
}

/** A URL that can be printed: what stands between `//` and the last `@` may be a password. */
export function withoutSecrets(url: string): string {
  return url.replace(/\/\/.*@/, "//…@").replace(/\?.*$/, "?…");
}
