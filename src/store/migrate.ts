import { contentionMs } from "../base/backoff.ts";
import { sleep, systemClock } from "../base/clock.ts";
import { FlotillaError, hasCode, messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { systemRandom } from "../base/random.ts";
import type { Database, Row } from "./database.ts";
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
  /** `auto` brings the schema up to date, `check` refuses to start on an older one. Default `auto`. */
  mode?: "auto" | "check";
  log?: Logger;
  /** For tests of upgrades. */
  migrations?: readonly Migration[];
  /** How long to keep trying while others hold what a migration has to lock. Default 60,000. */
  patienceMs?: number;
};

export type SchemaState = {
  readonly version: number;
  /** The oldest release that may work on it. */
  readonly needs: number;
  readonly known: number;
  readonly pending: readonly Migration[];
};

/** Where the schema of this database stands, without changing anything. */
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
  const version = Number(applied.at(-1)?.["id"] ?? 0);
  const needs = Math.max(0, ...applied.map((row) => Number(row["needs"])));
  return { version, needs, known: migrations.length, pending: migrations.slice(version) };
}

/**
 * Brings the schema up to date. Each migration is one transaction that begins by taking its number,
 * so any number of pods may try at once and each migration is applied by one of them. In an empty
 * store all of them are one transaction: a failure leaves it as empty as it was.
 */
export async function migrate(
  database: Database,
  { mode = "auto", log, migrations = ours, patienceMs = 60_000 }: MigrateOptions = {},
): Promise<SchemaState> {
  const startedMs = systemClock.monotonic();
  let state = await stateOfOurs(database, migrations);
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
    const together = state.version === 0 ? state.pending : [next];
    try {
      await database.write(together.flatMap((each, at) => migrationStatements(id + at, each)));
      together.forEach(({ name }, at) =>
        log?.info({ version: id + at, name }, "migrated the schema"),
      );
    } catch (error) {
      // Another pod took this number first or is about to, or the migration itself is at fault.
      const after = await schemaState(database, migrations);
      if (after.version < id) {
        if (!hasCode(error, "store_busy", "unknown_outcome")) throw error;
        if (systemClock.monotonic() - startedMs >= patienceMs) throw outOfPatience(id, next, error);
        await sleep(systemClock, contentionMs(tries, systemRandom));
      }
    }
    state = await schemaState(database, migrations);
  }
  refuseNewer(state, log);
  return state;
}

/** Where the schema stands, where what is there is ours. */
export async function stateOfOurs(
  database: Database,
  migrations: readonly Migration[] = ours,
): Promise<SchemaState> {
  let state: SchemaState;
  try {
    state = await schemaState(database, migrations);
  } catch (error) {
    // Another's table under the name of ours is a reason why ours can't be read.
    if (hasCode(error, "internal")) await refuseForeign(database);
    throw error;
  }
  if (state.version === 0) await refuseForeign(database);
  return state;
}

const maxNamesShown = 5;

/** Our tables have plain names, which must not get mixed up with those of others. */
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

function outOfPatience(id: number, migration: Migration, error: unknown): unknown {
  if (!hasCode(error, "store_busy")) return error;
  return new FlotillaError(
    "store_busy",
    `migration ${id} ("${migration.name}") couldn't lock the schema, because another process is migrating or has left a transaction open: start again when that is over, or end it (docs/postgres.md, Migrations). ${messageOf(error)}`,
    { cause: error },
  );
}

/** What one migration runs, in one transaction. */
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

/** Before the first release tables had other names, and none of them can be used. */
function refuseUnreleased(first: Row | undefined, [release]: readonly Migration[]): void {
  if (first === undefined || first["name"] === release?.name) return;
  throw new FlotillaError(
    "store_outdated",
    "the database was made by Flotilla before its first release, and can't be upgraded: name another file, database or schema, or drop the tables of this one",
    { details: { found: String(first["name"]) } },
  );
}

/** A newer schema is worked with where its makers say that this release can. */
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
  log?.warn({ version, known }, "the database is of a newer release; working with what is known");
}
