import type { Row } from "../../store/database.ts";
import { expectedIndexes, type PlainConnection } from "../../store/postgres/inspect.ts";
import { type Check, fail, ok, warn } from "./check.ts";
import { attempt } from "./schema.ts";

export type TableLimits = {
  /** Fewer dead rows than this do no harm. */
  readonly deadRows: number;
  /** A table with more rows than this should have been analyzed. */
  readonly unanalyzedRows: number;
};

export const tableLimits: TableLimits = { deadRows: 10_000, unanalyzedRows: 1_000 };

/** Whether our tables are as they were made, and are kept in shape. */
export async function lookAtTables(
  connection: PlainConnection,
  schema: string,
  version: number,
  limits: TableLimits,
): Promise<Check[]> {
  return [
    await attempt("indexes", () => indexCheck(connection, schema, version)),
    await attempt("vacuum", () => vacuumCheck(connection, schema, limits)),
    await attempt("roles", () => roleCheck(connection, schema)),
  ];
}

async function indexCheck(
  { ask }: PlainConnection,
  schema: string,
  version: number,
): Promise<Check> {
  const rows = await ask(
    `select class.relname as name, pg_index.indisvalid and pg_index.indisready as valid
      from pg_index join pg_class class on class.oid = pg_index.indexrelid
      where class.relnamespace = to_regnamespace($1)`,
    [schema],
  );
  const expected = expectedIndexes(schema, version);
  const there = new Set(rows.map((row) => row["name"]));
  const missing = expected.filter(({ name }) => !there.has(name));
  if (missing.length > 0) {
    // Pods may be at work, and would have to wait for one that is made in the usual way.
    const remedies = missing.map(({ text }) => text.replace(" index ", " index concurrently "));
    return fail("indexes", `missing, make them again: ${remedies.join("; ")}`);
  }
  const invalid = rows.filter((row) => !row["valid"]);
  if (invalid.length > 0) {
    const remedies = invalid.map(
      ({ name }) => `reindex index concurrently ${schema}.${String(name)}`,
    );
    return fail("indexes", `invalid, so not used: ${remedies.join("; ")}`);
  }
  return ok("indexes", `all ${expected.length} are there and valid`);
}

const secretTables = ["agent", "mail_secret", "message"];

/** A role that can't write tasks isn't a pod's, and what only pods need to read are secrets to it. */
async function roleCheck({ ask }: PlainConnection, schema: string): Promise<Check> {
  const rows = await ask(
    `select role.rolname as name, array_agg(class.relname order by class.relname)::text[] as tables
      from pg_class class
        join pg_class tracker on tracker.relnamespace = class.relnamespace
          and tracker.relname = 'step_tracker'
        cross join pg_roles role
      where class.relnamespace = to_regnamespace($1) and class.relname = any ($2)
        and role.rolcanlogin and not role.rolsuper and role.oid <> class.relowner
        and has_schema_privilege(role.oid, class.relnamespace, 'usage')
        and has_table_privilege(role.oid, class.oid, 'select')
        and not has_table_privilege(role.oid, tracker.oid, 'update')
      group by role.rolname order by role.rolname`,
    [schema, secretTables],
  );
  const [first] = rows;
  if (!first) return ok("roles", "conversations and secrets can be read by pods alone");
  const tables = (first["tables"] as string[]).map((table) => `${schema}.${table}`).join(", ");
  const name = JSON.stringify(first["name"]);
  const others = rows.length > 1 ? ` (and ${rows.length - 1} more)` : "";
  return warn(
    "roles",
    `the role ${name}${others} isn't a pod's, but may read conversations or secrets: revoke select on ${tables} from ${name} (docs/postgres.md, Roles)`,
  );
}

/** The server starts to clear a table away at 50 dead rows and a fifth of the live ones. */
const usualShare = 0.2;

async function vacuumCheck(
  { ask }: PlainConnection,
  schema: string,
  { deadRows, unanalyzedRows }: TableLimits,
): Promise<Check> {
  const [setting] = await ask("select current_setting('autovacuum') as autovacuum");
  if (setting!["autovacuum"] === "off") {
    return fail("vacuum", "autovacuum is off: dead rows pile up, and queues grow slow");
  }
  const tables = await ask(
    `select stat.relname as name, n_live_tup as live, n_dead_tup as dead,
        last_analyze is not null or last_autoanalyze is not null as analyzed,
        greatest(last_vacuum, last_autovacuum)::text as vacuumed,
        pg_total_relation_size(relid) as bytes,
        coalesce('autovacuum_enabled=false' = any (reloptions), false)
          or coalesce('autovacuum_enabled=off' = any (reloptions), false) as exempt
      from pg_stat_user_tables stat join pg_class class on class.oid = stat.relid
      where stat.schemaname = $1 order by stat.relname`,
    [schema],
  );
  const name = (row: Row) => `${schema}.${row["name"]}`;
  const exempt = tables.find((row) => row["exempt"]);
  if (exempt) return fail("vacuum", `autovacuum is off for ${name(exempt)}: reset that setting`);
  const bloated = tables.find(
    ({ dead, live }) => dead >= deadRows && dead > 2 * (50 + usualShare * live),
  );
  if (bloated) {
    return warn(
      "vacuum",
      `${name(bloated)} has ${bloated["dead"]} dead rows beside ${bloated["live"]} live ones (${mebibytes(bloated["bytes"])} MiB, last vacuumed ${bloated["vacuumed"] ?? "never"}): look for old transactions, or run \`vacuum ${name(bloated)}\``,
    );
  }
  const unknown = tables.find(({ live, analyzed }) => live >= unanalyzedRows && !analyzed);
  if (unknown) {
    return warn(
      "vacuum",
      `${name(unknown)} was never analyzed, so plans are guesses: run \`analyze ${name(unknown)}\``,
    );
  }
  const bytes = tables.reduce((sum, row) => sum + Number(row["bytes"]), 0);
  return ok("vacuum", `tables of ${mebibytes(bytes)} MiB, few dead rows`);
}

function mebibytes(bytes: number): string {
  return (bytes / 1024 / 1024).toFixed(1);
}
