import {
  forUpdate,
  literal,
  migrationLock,
  rows,
  sql,
  type Statement,
  table,
} from "../../../store/sql.ts";
import type { Head } from "../journal.ts";
import { placeVersion } from "./heads.ts";

const heads = table("session_log");
const places = table("log_place");
const watermarks = table("log_watermark");

/** Where a log goes on: on streams right behind `offset`, or in the database. */
export type MovedHead = Pick<Head, "logId" | "incarnation" | "term" | "offset">;

const isAt = (place: "sql" | "nats") =>
  sql`exists (select 1 from ${places} where place = ${place})`;

const headColumns = {
  log_id: "integer",
  incarnation: "text",
  term: "integer",
  log_offset: "integer",
} as const;

/**
 * Moves the logs from the database to streams, if `when` is true and these are all the logs that there are,
 * none of them further than said. A record that is being stored holds its head, and is waited for. From then
 * on the watermarks say that the database has everything before the streams. Sent again, it changes nothing.
 */
export function leaveDatabase(
  moved: readonly (MovedHead & { readonly chain: string })[],
  when: Statement,
): Statement[] {
  const fresh = rows(
    { ...headColumns, chain: "text" },
    moved.map(({ logId, incarnation, term, offset, chain }) => [
      logId,
      incarnation,
      term,
      offset,
      chain,
    ]),
  );
  const behind = sql`
    select count(*) from ${heads} head join ${fresh} fresh
      on fresh.log_id = head.log_id and fresh.incarnation = head.incarnation
        and head.log_offset <= fresh.log_offset and head.term <= fresh.term`;
  const mayLeave = sql`${isAt("sql")} and ${when}
    and (select count(*) from ${heads}) = ${literal(moved.length)}
    and (${behind}) = ${literal(moved.length)}`;
  return [
    sql`${migrationLock}`,
    sql`select log_id from ${heads} order by log_id ${forUpdate}`,
    sql`
      insert into ${watermarks} as known
        (log_id, incarnation, log_offset, record_id, chain, flush_id)
      select log_id, incarnation, log_offset, '', chain, '' from ${fresh} fresh
      where ${mayLeave}
      on conflict (log_id) do update
      set incarnation = excluded.incarnation, log_offset = excluded.log_offset,
        record_id = excluded.record_id, chain = excluded.chain, flush_id = excluded.flush_id`,
    sql`update ${places} set place = 'nats' where ${mayLeave}`,
    sql`delete from ${heads} where ${isAt("nats")} and ${when}`,
    sql`
      update ${table("migration")} set needs = ${placeVersion}
      where id = ${placeVersion} and ${isAt("nats")}`,
  ];
}

/**
 * Moves the logs back to the database, if `when` is true and it has all of them, up to their last records:
 * `archived` is where its watermarks have to be. They are deleted: a flush that waits here for its watermark goes
 * on with the place that it has read before.
 */
export function returnToDatabase(
  moved: readonly (MovedHead & { readonly recordId: string; readonly archived: number })[],
  when: Statement,
): Statement[] {
  const fresh = rows(
    { ...headColumns, record_id: "text", archived: "integer" },
    moved.map(({ logId, incarnation, term, offset, recordId, archived }) => [
      logId,
      incarnation,
      term,
      offset,
      recordId,
      archived,
    ]),
  );
  const whole = sql`
    select count(*) from ${watermarks} known join ${fresh} fresh
      on fresh.log_id = known.log_id and fresh.incarnation = known.incarnation
        and fresh.archived = known.log_offset`;
  return [
    sql`${migrationLock}`,
    sql`select log_id from ${watermarks} order by log_id ${forUpdate}`,
    sql`
      insert into ${heads} (log_id, incarnation, term, log_offset, record_id)
      select log_id, incarnation, term, log_offset, record_id from ${fresh} fresh
      where ${isAt("nats")} and ${when} and (${whole}) = ${literal(moved.length)}
      on conflict do nothing`,
    sql`
      update ${places} set place = 'sql'
      where place = 'nats' and ${when}
        and (select count(*) from ${heads}) = ${literal(moved.length)}`,
    sql`delete from ${watermarks} where ${isAt("sql")} and ${when}`,
  ];
}
