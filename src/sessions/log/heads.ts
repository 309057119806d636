import {
  migrationLock,
  returning,
  rows,
  sql,
  type Statement,
  table,
  type Value,
} from "../../store/sql.ts";
import type { Head } from "./journal.ts";

const heads = table("log_head");
const columns = sql`log_id, incarnation, term, owner, host, log_offset, record_id, beat`;

export function readHeads(): Statement {
  return sql`select ${columns} from ${heads} order by log_id`;
}

/**
 * Makes all logs or none. Of several who try at once, all but the first find that they are there. They
 * begin behind everything that is stored, in case that there were others before.
 */
export function createHeads(incarnations: readonly string[]): Statement[] {
  const fresh = rows(
    { log_id: "integer", incarnation: "text" },
    incarnations.map((incarnation, logId): Value[] => [logId, incarnation]),
  );
  return [
    sql`${migrationLock}`,
    sql`
      insert into ${heads} (log_id, incarnation, record_id, log_offset)
      select log_id, incarnation, '',
        (select coalesce(max(last_offset), 0) from ${table("session")})
      from ${fresh} fresh
      where not exists (select 1 from ${heads})`,
  ];
}

/**
 * Moves a log on by one record, from exactly where its owner has seen it. Whoever sends the same
 * record again finds it there and moves nothing, but holds the row as the first send did. Gives no row
 * where the log stands anywhere else.
 */
export function moveHead(at: Head, recordId: string): Statement {
  return sql`
    update ${heads} set log_offset = ${at.offset + 1}, record_id = ${recordId}
    where log_id = ${at.logId} and incarnation = ${at.incarnation} and term = ${at.term}
      and ((log_offset = ${at.offset} and record_id = ${at.recordId})
        or (log_offset = ${at.offset + 1} and record_id = ${recordId}))
    ${returning(columns, { after: headOf(at, { term: at.term, recordId }) })}`;
}

/**
 * The same with a record that says nothing but who appends from now on. Sent again when its pod has
 * already given the log up, it takes nothing: nobody would serve it.
 */
export function takeHead(
  seen: Head,
  { podId, host, recordId }: { podId: string; host: string | null; recordId: string },
): Statement {
  const term = seen.term + 1;
  return sql`
    update ${heads}
    set term = ${term}, owner = ${podId}, host = ${host}, beat = beat + 1,
      log_offset = ${seen.offset + 1}, record_id = ${recordId}
    where log_id = ${seen.logId} and incarnation = ${seen.incarnation}
      and ((term = ${seen.term} and log_offset = ${seen.offset} and record_id = ${seen.recordId})
        or (term = ${term} and log_offset = ${seen.offset + 1} and record_id = ${recordId}
          and owner = ${podId}))
    ${returning(columns, {
      after: sql`${headOf(seen, { term, recordId })} and owner = ${podId}`,
    })}`;
}

/** Nobody else makes a record with this id, so it is there only if we have put it there. */
function headOf(
  { logId, offset }: Head,
  { term, recordId }: { term: number; recordId: string },
): Statement {
  return sql`
    select ${columns} from ${heads}
    where log_id = ${logId} and term = ${term} and log_offset = ${offset + 1}
      and record_id = ${recordId}`;
}

type Owned = readonly { readonly logId: number; readonly term: number }[];

export function beatHeads(podId: string, logs: Owned): Statement {
  const own = ownRows(logs);
  return sql`
    update ${heads} set beat = beat + 1 from ${own} own
    where ${heads}.log_id = own.log_id and ${heads}.term = own.term and owner = ${podId}
    ${returning(sql`${heads}.log_id`, {
      after: sql`
        select head.log_id from ${heads} head
        join ${own} own on own.log_id = head.log_id and own.term = head.term
        where head.owner = ${podId}`,
    })}`;
}

export function releaseHeads(podId: string, logs: Owned): Statement {
  return sql`
    update ${heads} set owner = null, host = null from ${ownRows(logs)} own
    where ${heads}.log_id = own.log_id and ${heads}.term = own.term and owner = ${podId}`;
}

function ownRows(logs: Owned) {
  return rows(
    { log_id: "integer", term: "integer" },
    logs.map(({ logId, term }) => [logId, term]),
  );
}
