import type { Row } from "../../store/database.ts";
import { expectedIndexes, type PlainConnection } from "../../store/postgres/inspect.ts";
import { type Check, failed, ok, warn } from "./check.ts";
import { attempt } from "./schema.ts";

export type TableLimits = {
  /** Fewer dead rows than this do no harm. */
  readonly deadRows: number;
  /** A table with more rows than this should have been analyzed. */
  readonly unanalyzedRows: number;
};

export const tableLimits: TableLimits = { deadRows: 10_000, unanalyzedRows: 1_000 };

/** Conversations, keys and secrets: only pods read these. */
const secretTables = [
  "agent",
  "api_key",
  "archive_aside",
  "bus_secret",
  "bus_message",
  "message",
  "session",
  "session_user",
  "sign_in",
  "turn_checkpoint",
];

/** What programs that aren't pods may write, as docs/postgres.md describes. Only pods write the rest. */
const writtenByOthers = [
  "audit insert",
  "schedule delete",
  "schedule insert",
  "schedule update",
  "task insert",
  "task update",
  "task_dependency insert",
  "task_dependency update",
];

/** Autovacuum starts at 50 dead rows and a fifth of the live ones. */
const usualShare = 0.2;

/** Whether the tables have their indexes, are vacuumed, and have no excessive grants. */
export async function checkTables(
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
    // `concurrently`, because a plain build would block pods that are at work.
    const remedies = missing.map(({ text }) => text.replace(" index ", " index concurrently "));
    return failed("indexes", `missing, create them again: ${remedies.join("; ")}`);
  }
  const invalid = rows.filter((row) => !row["valid"]);
  if (invalid.length > 0) {
    const remedies = invalid.map(
      ({ name }) => `reindex index concurrently ${schema}.${String(name)}`,
    );
    return failed("indexes", `invalid, so not used: ${remedies.join("; ")}`);
  }
  return ok("indexes", `all ${expected.length} are there and valid`);
}

/**
 * A role that may insert pods and update tasks is a pod's, because no other program needs both. Warns of
 * any other role that has more privileges than it needs.
 */
async function roleCheck({ ask }: PlainConnection, schema: string): Promise<Check> {
  const isPod = (role: string) =>
    `has_table_privilege(${role}, health.oid, 'insert')
      and has_table_privilege(${role}, tracker.oid, 'update')`;
  const known = `pg_class health join pg_class tracker on tracker.relnamespace = health.relnamespace
    and tracker.relname = 'task'`;
  const granted = await ask(
    `select role.rolname as name, privilege,
        array_agg(class.relname order by class.relname)::text[] as tables
      from ${known} join pg_class class on class.relnamespace = health.relnamespace
        cross join pg_roles role
        cross join unnest(array['delete', 'insert', 'select', 'truncate', 'update']) privilege
      where health.relnamespace = to_regnamespace($1) and health.relname = 'pod'
        and class.relkind = 'r'
        and case privilege when 'select' then class.relname = any ($2)
          else class.relname || ' ' || privilege <> all ($3) end
        and role.rolcanlogin and not role.rolsuper and role.oid <> class.relowner
        and has_schema_privilege(role.oid, class.relnamespace, 'usage')
        and has_table_privilege(role.oid, class.oid, privilege)
        and not (${isPod("role.oid")})
      group by role.rolname, privilege order by role.rolname, privilege`,
    [schema, secretTables, writtenByOthers],
  );
  // Default privileges would also open tables of later releases, whatever they hold.
  const promised = await ask(
    `select coalesce(role.rolname, 'public') as name, owner.rolname as owner,
        lower(each.privilege_type) as privilege, acl.defaclnamespace <> 0 as here
      from ${known} join pg_default_acl acl on acl.defaclrole = health.relowner
        join pg_roles owner on owner.oid = acl.defaclrole
        cross join lateral aclexplode(acl.defaclacl) each
        left join pg_roles role on role.oid = each.grantee
      where health.relnamespace = to_regnamespace($1) and health.relname = 'pod'
        and acl.defaclobjtype = 'r' and acl.defaclnamespace in (0, health.relnamespace)
        and each.grantee <> acl.defaclrole and not coalesce(role.rolsuper, false)
        and not (${isPod("coalesce(role.rolname, 'public')")})
      order by name, privilege`,
    [schema],
  );
  const remedies = [
    ...granted.map(({ name, privilege, tables }) => ({
      name: String(name),
      text: `revoke ${privilege} on ${(tables as string[]).map((each) => `${schema}.${each}`).join(", ")} from ${quoted(name)}`,
    })),
    ...promised.map(({ name, owner, privilege, here }) => ({
      name: String(name),
      text: `alter default privileges for role ${quoted(owner)}${here ? ` in schema ${schema}` : ""} revoke ${privilege} on tables from ${name === "public" ? "public" : quoted(name)}`,
    })),
  ];
  const [first] = remedies;
  if (!first) return ok("roles", "only pods can read conversations and secrets");
  const ofFirst = remedies.filter(({ name }) => name === first.name);
  const others = new Set(remedies.map(({ name }) => name)).size - 1;
  const more = others > 0 ? ` (and ${others} more)` : "";
  return warn(
    "roles",
    `the role ${quoted(first.name)}${more} isn't a pod's, but may read conversations or secrets, or write what pods write: ${ofFirst.map(({ text }) => text).join("; ")} (docs/postgres.md, Roles)`,
  );
}

/** A name as a quoted SQL identifier. */
function quoted(name: unknown): string {
  return `"${String(name).replaceAll('"', '""')}"`;
}

async function vacuumCheck(
  { ask }: PlainConnection,
  schema: string,
  { deadRows, unanalyzedRows }: TableLimits,
): Promise<Check> {
  const [setting] = await ask("select current_setting('autovacuum') as autovacuum");
  if (setting!["autovacuum"] === "off") {
    return failed("vacuum", "autovacuum is off: dead rows pile up, and queues grow slow");
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
  if (exempt) return failed("vacuum", `autovacuum is off for ${name(exempt)}: reset that setting`);
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
