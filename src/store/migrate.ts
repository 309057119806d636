import { contentionMs } from "../base/backoff.ts";
import { sleep, systemClock } from "../base/clock.ts";
import { contendedCodes, FlotillaError, hasCode, messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { systemRandom } from "../base/random.ts";
import type { Database, Row } from "./database.ts";
import { markId, markIn, type PromotionMark, refuseMarked } from "./promotion-mark.ts";
import { type Migration, migrations as ours } from "./schema.ts";
import {
  foreignTables,
  createSchema,
  migrationLock,
  now,
  sql,
  type Statement,
  table,
} from "./sql.ts";

export type MigrateOptions = {
  /** `auto` migrates the schema, `check` refuses to start on an older one. Default `auto`. */
  mode?: "auto" | "check";
  log?: Logger;
  /** For tests of upgrades. */
  migrations?: readonly Migration[];
  /**
   * How long to retry while other transactions hold the locks that a migration needs. Default
   * 60,000.
   */
  limitMs?: number;
};

export type SchemaState = {
  readonly version: number;
  /** The oldest release that may work on it. */
  readonly needs: number;
  readonly known: number;
  readonly pending: readonly Migration[];
  /** Set in a store that was promoted, or that is being filled: it isn't to be used. */
  readonly mark?: PromotionMark;
};

const maxNamesShown = 5;

/** Reads the schema's version, without changing anything. */
export async function schemaState(
  database: Database,
  migrations: readonly Migration[] = ours,
): Promise<SchemaState> {
  const applied = await database
    .read(sql`select id, name, needs from ${table("migration")} order by id`)
    .catch((error: unknown) => {
      if (hasCode(error, "store_outdated")) return [];
      throw error;
    });
  refuseUnreleased(applied[0], migrations);
  const steps = applied.filter((row) => Number(row["id"]) < markId);
  const mark = markIn(applied.at(-1));
  const version = Number(steps.at(-1)?.["id"] ?? 0);
  const needs = Math.max(0, ...steps.map((row) => Number(row["needs"])));
  const pending = migrations.slice(version);
  return { version, needs, known: migrations.length, pending, ...(mark && { mark }) };
}

/** When the store was created, by its own clock. */
export async function createdAtMs(database: Pick<Database, "read">): Promise<number> {
  const [row] = await database.read(sql`select applied_at from ${table("migration")} where id = 1`);
  return Number(row!["applied_at"]);
}

/**
 * Migrates the schema. Each migration is one transaction that begins by taking its number, so any
 * number of pods may try at once and one of them applies it. In an empty store all migrations are
 * one transaction: a failure leaves it empty.
 */
export async function migrate(
  database: Database,
  { mode = "auto", log, migrations = ours, limitMs = 60_000 }: MigrateOptions = {},
): Promise<SchemaState> {
  const startedMs = systemClock.monotonic();
  let state = await stateOfOurs(database, migrations);
  refuseMarked(state.mark);
  refuseNewer(state, log);
  if (state.pending.length > 0 && mode === "check") {
    throw new FlotillaError(
      "store_outdated",
      `the database has schema ${state.version}, this release needs ${state.known}: run \`flotilla migrate\``,
      { details: { version: state.version, known: state.known } },
    );
  }
  for (let tries = 1; state.pending.length > 0; tries++) {
    const id = state.version + 1;
    const next = state.pending[0]!;
    const batch = state.version === 0 ? state.pending : [next];
    try {
      await database.write(batch.flatMap((each, at) => migrationStatements(id + at, each)));
      batch.forEach(({ name }, at) => log?.info({ version: id + at, name }, "migrated the schema"));
    } catch (error) {
      // Another pod took this number first or is about to, or the migration itself fails.
      const after = await schemaState(database, migrations);
      if (after.version < id) {
        if (!hasCode(error, ...contendedCodes)) throw error;
        if (systemClock.monotonic() - startedMs >= limitMs) throw stillBusy(id, next, error);
        await sleep(systemClock, contentionMs(tries, systemRandom));
      }
    }
    state = await schemaState(database, migrations);
  }
  refuseMarked(state.mark);
  refuseNewer(state, log);
  return state;
}

/** Reads the schema's version, and throws if the tables are not ours. */
export async function stateOfOurs(
  database: Database,
  migrations: readonly Migration[] = ours,
): Promise<SchemaState> {
  let state: SchemaState;
  try {
    state = await schemaState(database, migrations);
  } catch (error) {
    // A foreign table with the name of ours can be the reason why ours cannot be read.
    if (hasCode(error, "internal")) await refuseForeign(database);
    throw error;
  }
  if (state.version === 0) await refuseForeign(database);
  return state;
}

/** The statements of one migration, for one transaction. */
export function migrationStatements(id: number, migration: Migration): Statement[] {
  return [
    sql`${migrationLock}`,
    sql`${createSchema}`,
    sql`create table if not exists ${table("migration")} (
      id integer primary key, name text not null, needs integer not null, applied_at bigint not null
    )`,
    sql`insert into ${table("migration")} (id, name, needs, applied_at)
      values (${id}, ${migration.name}, ${migration.needs}, ${now})`,
    ...migration.statements,
  ];
}

/**
 * Throws if the schema is too new for this release. A newer schema that declares itself compatible
 * is accepted.
 */
export function refuseNewer(state: SchemaState, log?: Logger): void {
  const { version, known, needs } = state;
  if (version <= known) return;
  if (needs > known) {
    throw new FlotillaError(
      "store_newer",
      `the database has schema ${version}, this release knows ${known} and can't work with it: update flotilla`,
      { details: { version, known } },
    );
  }
  log?.warn({ version, known }, "database schema is newer than this release");
}

/** Our tables have plain names, which must not collide with those of another program. */
async function refuseForeign(database: Database): Promise<void> {
  const found = await database.read(sql`${foreignTables}`);
  if (found.length === 0) return;
  const names = found.slice(0, maxNamesShown).map((row) => String(row["name"]));
  const more = found.length > names.length ? ", …" : "";
  throw new FlotillaError(
    "invalid_option",
    `${found[0]!["place"]} holds what Flotilla didn't make (${names.join(", ")}${more}), and Flotilla needs a place of its own: on Postgres leave \`schema\` out of the store's URL or options, which means the schema flotilla, or name one that is empty; on SQLite name another file`,
    { details: { found: names } },
  );
}

function stillBusy(id: number, migration: Migration, error: unknown): unknown {
  if (!hasCode(error, "store_busy")) return error;
  return new FlotillaError(
    "store_busy",
    `migration ${id} ("${migration.name}") couldn't lock the schema, because another process is migrating or has left a transaction open: start again when that is over, or end it (docs/postgres.md, Migrations). ${messageOf(error)}`,
    { cause: error },
  );
}

/** Before the first release tables had other names, and none of them can be used. */
function refuseUnreleased(first: Row | undefined, [release]: readonly Migration[]): void {
  if (first === undefined || first["name"] === release?.name) return;
  throw new FlotillaError(
    "store_outdated",
    "the database was made by Flotilla before its first release, and can't be upgraded: name another file, database or schema, or drop the tables of this one",
    { details: { found: String(first["name"]) } },
  );
}
