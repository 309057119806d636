import type { Dialect } from "../sql.ts";

const now = "floor(extract(epoch from statement_timestamp()) * 1000)::bigint";

/** What Postgres has and a lesser database may have to do without. */
export type Feature = "notify" | "returning" | "skip locked";

export type PostgresDialectOptions = { schema: string; without?: readonly Feature[] };

/** Rows travel as one array per column, which the server unpacks faster than JSON. */
export function postgresDialect({ schema, without = [] }: PostgresDialectOptions): Dialect {
  return {
    words: {
      now,
      new_id: newId(),
      home: `create schema if not exists ${schema}`,
      migration_lock: `select pg_advisory_xact_lock(hashtext('${schema} migrations'))`,
      // Without the skipping, claims wait for each other instead.
      take_rows: without.includes("skip locked") ? "for update" : "for update skip locked",
      hold_task: "for update of task",
      take_task: without.includes("skip locked")
        ? "for update of task"
        : "for update of task skip locked",
      // A beat changes no key, so it waits for neither of these claims.
      hold_pod: "for key share",
      seize_pod: "for update",
    },
    returning: !without.includes("returning"),
    table: (name) => `${schema}.${name}`,
    index: (name) => name,
    placeholder: (position) => `$${position}`,
    rows: (values, columns, bind) => {
      const arrays = Object.values(columns).map((type, at) => {
        const column = bind(values.map((row) => row[at]!));
        return `${column}::${type === "integer" ? "bigint" : "text"}[]`;
      });
      const names = Object.keys(columns).join(", ");
      return `(select ${names} from unnest(${arrays.join(", ")}) as each_row (${names}))`;
    },
  };
}

/** A UUIDv7 as ours are, so that rows inserted by hand sort by their age too. */
function newId(): string {
  const time = `lpad(to_hex(${now}), 12, '0')`;
  return `substr(${time}, 1, 8) || '-' || substr(${time}, 9, 4) || '-7' || substr(gen_random_uuid()::text, 16, 3) || '-a' || substr(gen_random_uuid()::text, 16, 3) || '-' || substr(gen_random_uuid()::text, 25, 12)`;
}
