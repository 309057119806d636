import type { Dialect, JsonScalar } from "../sql.ts";
import { sqliteRecorder } from "./recorders.ts";

/**
 * The current time in functions that SQLite has had since long before 3.42: a column's default is
 * evaluated by the SQLite of the inserting program, which may be a distribution's.
 */
export const systemNow = "cast(round((julianday('now') - 2440587.5) * 86400000) as integer)";

const chance = (digits: number) => `substr(lower(hex(randomblob(8))), 1, ${digits})`;

/** A UUIDv7 like ours, so that rows inserted by hand sort by age too. */
function newId(now: string): string {
  return `printf('%08x-%04x-7', ${now} >> 16, ${now} & 65535) || ${chance(3)} || '-a' || ${chance(3)} || '-' || ${chance(12)}`;
}

/**
 * SQLite has one writer at a time, so there is never a locked row to skip. `jsonb_each` parses its
 * argument once instead of once per column, and exists since 3.51.
 */
export function sqliteDialect(options: { now?: string; jsonbEach: boolean }): Dialect {
  const each = options.jsonbEach ? "jsonb_each" : "json_each";
  const now = options.now ?? systemNow;
  return {
    words: {
      now,
      starting_now: now,
      key_text: "text",
      unlogged: "",
      // Writes are serial, so that a number which only rises is in the order of commits.
      change_columns:
        "mark integer primary key autoincrement not null, seq integer not null default 0",
      change_horizon:
        "coalesce((select seq from sqlite_sequence where name = 'flotilla_change'), 0)",
      new_id: newId(now),
      // A file needs no schema, and its one writer is a lock already.
      create_schema: "select 1",
      // A file may be shared with tables of other names: ours have the prefix.
      foreign_tables: `select 'this SQLite file' as place, name from sqlite_schema
        where name like 'flotilla\\_%' escape '\\' and type <> 'index'
          and not exists (select 1 from pragma_table_info('flotilla_migration') where name = 'needs')
        order by name`,
      migration_lock: "select 1",
      json_reader: "select 1",
      // Other processes see a commit by the file.
      wake_function: "select 1",
      for_update_skip_locked: "",
      for_update_of_task: "",
      for_update_of_task_skip_locked: "",
      for_key_share: "",
      for_update: "",
      // Other processes see the file and not who has it open.
      own_connection: "null",
      live_connections: "select null where false",
    },
    returning: true,
    locksRows: false,
    table: (name) => `flotilla_${name}`,
    index: (name) => `flotilla_${name}`,
    dropIndex: (name) => `drop index flotilla_${name}`,
    placeholder: () => "?",
    // Rows are updated in place.
    leaveSpace: () => "select 1",
    recorder: (name, isOn) => sqliteRecorder({ name, isOn, now }),
    rowAddress: () => ["rowid"],
    among: (column, found) => `${column} in (${found})`,
    jsonAt(column, { path, value }, bind) {
      const steps = `$${path.map((name) => `."${name}"`).join("")}`;
      const type = `json_type(${column}, ${bind(steps)})`;
      const isOfKind =
        typeof value === "number"
          ? `${type} in ('integer', 'real')`
          : `${type} = ${bind(jsonTypeOf(value))}`;
      // `is` holds for two nulls.
      const isValue = `json_extract(${column}, ${bind(steps)}) is json_extract(${bind(JSON.stringify(value))}, '$')`;
      return `case when json_valid(${column}) then ${isOfKind} and ${isValue} else false end`;
    },
    rows: (values, columns, bind) => {
      const picks = Object.keys(columns).map((name, at) => `value ->> ${at} as ${name}`);
      return `(select ${picks.join(", ")} from ${each}(${bind(JSON.stringify(values))}))`;
    },
  };
}

function jsonTypeOf(value: JsonScalar): string {
  return typeof value === "string" ? "text" : String(value);
}
