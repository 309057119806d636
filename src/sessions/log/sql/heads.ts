import type { Row } from "../../../store/database.ts";
import {
  forUpdate,
  isAmong,
  limit,
  migrationLock,
  returning,
  rows,
  sql,
  type Statement,
  table,
  type Value,
} from "../../../store/sql.ts";
import type { Head, LiveHead } from "../journal.ts";

const heads = table("session_log");
const places = table("log_place");
const columns = sql`log_id, incarnation, term, owner, host, log_offset, record_id, beat`;

/** A record's id, and the head that it comes right after. */
export type RecordPlace = { readonly at: Head; readonly recordId: string };

export function readHeads(): Statement {
  return sql`select ${columns} from ${heads} order by log_id`;
}

/**
 * Part of every statement that moves a head: true while the logs are in the database. A pod that was paused
 * while they were moved to streams stores nothing there that streams lack.
 */
const areHere = sql`exists (select 1 from ${places} where place = 'sql')`;

/**
 * Creates all logs or none. When several processes try at once, all but the first insert nothing. The
 * offsets start after everything stored, in case the store had other logs before. None are created where
 * logs are elsewhere.
 */
export function insertHeads(incarnations: readonly string[]): Statement[] {
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
      where not exists (select 1 from ${heads})
        and ${areHere}`,
  ];
}

/** Where the logs are, and the id of this deployment, which streams of it carry too. */
export function readPlace(): Statement {
  return sql`select place, cluster_id from ${places} ${limit(1)}`;
}

/** The step of the schema that knows of it. Pods of earlier releases would create logs in the database. */
export const placeVersion = 7;

/**
 * Moves the logs to streams, while there are none in the database. The lock is the one that logs are created
 * under, so that there are never both. From then on pods that know no streams don't start.
 */
export function leaveForStreams(): Statement[] {
  return [
    sql`${migrationLock}`,
    sql`
      update ${places} set place = 'nats'
      where place = 'sql' and not exists (select 1 from ${heads})`,
    sql`
      update ${table("migration")} set needs = ${placeVersion}
      where id = ${placeVersion} and exists (select 1 from ${places} where place = 'nats')`,
  ];
}

/**
 * Moves the head of each log on by one record, from exactly the position that its owner knows. Sending the
 * same record again changes nothing, but locks the row as the first send did. Returns no row for a log
 * whose head is anywhere else.
 */
export function moveHeads(records: readonly RecordPlace[]): Statement {
  const moves = rows(
    {
      to_log: "integer",
      in_incarnation: "text",
      in_term: "integer",
      from_offset: "integer",
      from_record: "text",
      to_record: "text",
    },
    records.map(({ at, recordId }) => [
      at.logId,
      at.incarnation,
      at.term,
      at.offset,
      at.recordId,
      recordId,
    ]),
  );
  return sql`
    update ${heads} set log_offset = from_offset + 1, record_id = to_record from ${moves} moves
    where log_id = to_log and incarnation = in_incarnation and term = in_term
      and ((log_offset = from_offset and record_id = from_record)
        or (log_offset = from_offset + 1 and record_id = to_record))
      and ${areHere} and ${inOrder(records.map(({ at }) => at))}
    ${returning(columns, {
      after: sql`
        select ${columns} from ${heads} join ${moves} moves
          on log_id = to_log and term = in_term and log_offset = from_offset + 1
            and record_id = to_record`,
    })}`;
}

/**
 * True for these logs, once their heads are locked one after the other by their ids. Two transactions that
 * locked the same heads in different orders could wait for each other. Heads of another term stay free, so
 * that a pod that has lost a log doesn't hold up its next owner.
 */
function inOrder(logs: OwnedLogs): Statement {
  const locked = sql`
    select head.log_id from ${heads} head join ${ownRows(logs)} wanted
      on wanted.log_id = head.log_id and wanted.term = head.term
    order by head.log_id ${forUpdate}`;
  return sql`${isAmong(locked, sql`${heads}.log_id`)}`;
}

/**
 * Moves the head with a record that only names the new owner. Sent again after the pod has released the
 * log, it takes nothing, because that pod no longer serves it.
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
      and ${areHere}
    ${returning(columns, {
      after: sql`${headOf(seen, { term, recordId })} and owner = ${podId}`,
    })}`;
}

/** Record ids are unique, so a head with this id was written by this call. */
function headOf(
  { logId, offset }: Head,
  { term, recordId }: { term: number; recordId: string },
): Statement {
  return sql`
    select ${columns} from ${heads}
    where log_id = ${logId} and term = ${term} and log_offset = ${offset + 1}
      and record_id = ${recordId}`;
}

type OwnedLogs = readonly { readonly logId: number; readonly term: number }[];

export function beatHeads(podId: string, logs: OwnedLogs): Statement {
  const own = ownRows(logs);
  return sql`
    update ${heads} set beat = beat + 1 from ${own} own
    where ${heads}.log_id = own.log_id and ${heads}.term = own.term and owner = ${podId}
      and ${areHere} and ${inOrder(logs)}
    ${returning(sql`${heads}.log_id`, {
      after: sql`
        select head.log_id from ${heads} head
        join ${own} own on own.log_id = head.log_id and own.term = head.term
        where head.owner = ${podId}`,
    })}`;
}

export function releaseHeads(podId: string, logs: OwnedLogs): Statement {
  return sql`
    update ${heads} set owner = null, host = null from ${ownRows(logs)} own
    where ${heads}.log_id = own.log_id and ${heads}.term = own.term and owner = ${podId}
      and ${inOrder(logs)}`;
}

function ownRows(logs: OwnedLogs) {
  return rows(
    { log_id: "integer", term: "integer" },
    logs.map(({ logId, term }) => [logId, term]),
  );
}

export function toHead(row: Row): Head {
  return {
    logId: Number(row["log_id"]),
    incarnation: row["incarnation"],
    term: Number(row["term"]),
    owner: row["owner"],
    host: row["host"],
    offset: Number(row["log_offset"]),
    recordId: row["record_id"],
  };
}

export function toLiveHead(row: Row): LiveHead {
  return { ...toHead(row), beat: Number(row["beat"]) };
}
