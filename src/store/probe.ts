import { now, sql, type Statement, table } from "./sql.ts";

/** A write that changes nothing anybody reads: if it commits, the store can really be written. */
export function writeProbe(): Statement {
  return sql`
    insert into ${table("probe")} (id, at) values (1, ${now})
    on conflict (id) do update set at = excluded.at`;
}
