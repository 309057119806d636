import type { Dialect } from "../sql.ts";

export type PostgresDialectOptions = {
  /** The schema that our tables live in. */
  schema: string;
  /** Replaces the server's clock, for tests. */
  now?: string;
};

/** Rows travel as one array per column, which the server unpacks faster than JSON. */
export function postgresDialect({ schema, now }: PostgresDialectOptions): Dialect {
  const clock = now ?? "floor(extract(epoch from statement_timestamp()) * 1000)::bigint";
  return {
    now: clock,
    newId: newId(clock),
    table: (name) => `${schema}.${name}`,
    index: (name) => name,
    home: `create schema if not exists ${schema}`,
    migrationLock: `select pg_advisory_xact_lock(hashtext('${schema} migrations'))`,
    placeholder: (position) => `$${position}`,
    takeRows: "for update skip locked",
    holdTask: "for update of task",
    // A beat changes no key, so it waits for neither of these claims.
    holdPod: "for key share",
    seizePod: "for update",
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
function newId(clock: string): string {
  const time = `lpad(to_hex(${clock}), 12, '0')`;
  return `substr(${time}, 1, 8) || '-' || substr(${time}, 9, 4) || '-7' || substr(gen_random_uuid()::text, 16, 3) || '-a' || substr(gen_random_uuid()::text, 16, 3) || '-' || substr(gen_random_uuid()::text, 25, 12)`;
}
