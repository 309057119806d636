import { FlotillaError } from "../../base/errors.ts";
import type { Dialect, RowValues, TableName } from "../sql.ts";
import { hintChannel } from "./notifications.ts";

const now = "floor(extract(epoch from statement_timestamp()) * 1000)::bigint";

// A language's collation costs far more per comparison, and may change with the operating system,
// which would break every index on it.
const byBytes = 'collate "C"';
const special = /["\\]/g;
// JSON writes these as escapes that mean something else in an array literal.
// oxlint-disable-next-line no-control-regex
const escapedInJson = /[\u0000-\u001f\ud800-\udfff]/;

/** The primary keys of tables whose rows are found by their address. */
const keys: Partial<Record<TableName, readonly string[]>> = {
  bus_message: ["address", "sender", "seq"],
  schedule: ["schedule_id"],
  series: ["span", "at", "subject", "pod"],
  step_journal: ["owner_id", "part", "key"],
  task: ["task_id"],
};

export type PostgresDialectOptions = {
  schema: string;
  /**
   * The reduced dialect, for what only resembles Postgres: without row addresses, `skip locked`,
   * `returning`, advisory locks, unlogged tables and space beside rows.
   */
  unproven?: boolean;
  /** Whether the end of a connection shows in the server's view of its connections. */
  seesConnections?: boolean;
};

/** Rows are sent as one array per column, which the server unpacks faster than JSON. */
export function postgresDialect(options: PostgresDialectOptions): Dialect {
  const { schema, unproven: isReduced = false, seesConnections = false } = options;
  return {
    words: {
      // As a subquery it is evaluated once, and not for every row.
      now: `(select ${now})`,
      starting_now: now,
      key_text: `text ${byBytes}`,
      unlogged: isReduced ? "" : "unlogged",
      new_id: newId(),
      // `create schema if not exists` needs a privilege on the database even if the schema exists.
      create_schema: `do $$ begin if to_regnamespace('${schema}') is null then create schema ${schema}; end if; end $$`,
      foreign_tables: foreignIn(schema),
      json_reader: jsonReader(schema),
      wake_function: wakeFunction(schema, isReduced),
      migration_lock: isReduced
        ? lockMigrationRow(schema)
        : `select pg_advisory_xact_lock(hashtext('${schema} migrations'))`,
      // Without skipping, claims wait for each other instead.
      for_update_skip_locked: isReduced ? "for update" : "for update skip locked",
      for_update_of_task: "for update of task",
      for_update_of_task_skip_locked: isReduced
        ? "for update of task"
        : "for update of task skip locked",
      // An update that changes no key, such as a heartbeat, does not wait for it.
      for_key_share: "for key share",
      for_update: "for update",
      own_connection: seesConnections ? "pg_backend_pid()" : "null::integer",
      live_connections: seesConnections
        ? "select pid from pg_stat_activity"
        : "select null::integer where false",
    },
    returning: !isReduced,
    locksRows: true,
    table: (name) => `${schema}.${name}`,
    index: (name) => name,
    dropIndex: (name) => `drop index ${schema}.${name}`,
    placeholder: (position) => `$${position}`,
    // A task has three row versions in its life. Side by side they take fewer pages than far apart.
    leaveSpace: (table) => (isReduced ? "select 1" : `alter table ${table} set (fillfactor = 50)`),
    rowAddress: (table) => (isReduced ? keyOf(table) : ["ctid"]),
    // A key of several columns can't be an element of an array.
    among: (column, found) =>
      column.includes(", ") ? `(${column}) in (${found})` : `${column} = any(array(${found}))`,
    jsonAt(column, { path, value }, bind) {
      const names = bind(`{${path.map(quoted).join(",")}}`);
      return `${schema}.json_of(${column}) #> ${names}::text[] = ${bind(JSON.stringify(value))}::jsonb`;
    },
    rows: (values, columns, bind) => {
      const arrays = Object.values(columns).map((type, at) => {
        const column = bind(arrayText(values, at));
        return `${column}::${type === "integer" ? "bigint" : "text"}[]`;
      });
      const names = Object.keys(columns);
      const picked = names.map((name) =>
        columns[name] === "integer" ? name : `${name} ${byBytes} as ${name}`,
      );
      return `(select ${picked.join(", ")} from unnest(${arrays.join(", ")}) as each_row (${names.join(", ")}))`;
    },
  };
}

function keyOf(table: TableName): readonly string[] {
  const key = keys[table];
  if (key) return key;
  throw new FlotillaError("internal", `the primary key of ${table} isn't listed`);
}

/**
 * Keeps other migrations out by the first row of those that were applied. In an empty store there is none:
 * there, of two that create the schema or its first table, the second fails when the first has committed.
 */
function lockMigrationRow(schema: string): string {
  return `do $$ begin
    if to_regclass('${schema}.migration') is not null then
      perform 1 from ${schema}.migration where id = 1 for update;
    end if;
  end $$`;
}

/**
 * Text as JSON, or null where it isn't any: a cast would fail the whole statement for one such row.
 * `is json`, which tells that, came with version 16.
 */
function jsonReader(schema: string): string {
  return `create or replace function ${schema}.json_of(given text) returns jsonb
    language plpgsql immutable strict as $$
    begin
      return given::jsonb;
    exception when data_exception or program_limit_exceeded then
      return null;
    end $$`;
}

/**
 * Does what our own writes do that bring work. It runs with the rights of its owner, so that a role which
 * may only insert tasks can call it; all that it learns or changes is whether idle pods look for work.
 */
function wakeFunction(schema: string, isReduced: boolean): string {
  const body = isReduced
    ? "select 1"
    : `select pg_notify('${hintChannel(schema)}', '')
        where exists (select 1 from ${schema}.pod where waiting = 1 and status = 'up')`;
  return `create or replace function ${schema}.wake() returns void
    language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
      ${body}
    $$`;
}

/** Objects that belong to extensions are ignored. */
function foreignIn(schema: string): string {
  const kept = (catalog: string, its: string) =>
    `${its}namespace = to_regnamespace('${schema}') and not exists (
      select 1 from pg_depend where classid = '${catalog}'::regclass and objid = ${catalog}.oid
        and deptype = 'e')`;
  return `select 'the schema ${schema}' as place, name from (
      select relname::text as name from pg_class
        where relkind not in ('i', 'I', 't', 'c') and ${kept("pg_class", "rel")}
      union select typname from pg_type
        where typcategory <> 'A' and ${kept("pg_type", "typ")} and (
          typrelid = 0 or exists (
            select 1 from pg_class where pg_class.oid = typrelid and relkind = 'c'))
      union select proname from pg_proc where ${kept("pg_proc", "pro")}
    ) as found
    where not exists (
      select 1 from pg_attribute
      where attrelid = to_regclass('${schema}.migration') and attname = 'needs')
    order by name`;
}

/**
 * One column of many rows as an array literal. The driver can do that too, in three times the time.
 */
function arrayText(rows: RowValues, at: number): string {
  let text = "{";
  for (let row = 0; row < rows.length; row++) {
    const value = rows[row]![at]!;
    if (row > 0) text += ",";
    if (typeof value === "string") text += quoted(value);
    else text += value === null ? "null" : value;
  }
  return `${text}}`;
}

/** JSON escapes quotes and backslashes just so, three times as fast as a replacement does. */
function quoted(value: string): string {
  if (!value.includes('"') && !value.includes("\\")) return `"${value}"`;
  if (!escapedInJson.test(value)) return JSON.stringify(value);
  return `"${value.replace(special, "\\$&")}"`;
}

/** A UUIDv7 like ours, so that rows inserted by hand sort by age too. */
function newId(): string {
  const time = `lpad(to_hex(${now}), 12, '0')`;
  return `substr(${time}, 1, 8) || '-' || substr(${time}, 9, 4) || '-7' || substr(gen_random_uuid()::text, 16, 3) || '-a' || substr(gen_random_uuid()::text, 16, 3) || '-' || substr(gen_random_uuid()::text, 25, 12)`;
}
