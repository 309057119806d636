import { defaultNow, index, keyText, newId, sql, type Statement, table } from "./sql.ts";

/**
 * Where logs are kept, and what the database has of those that are kept elsewhere: up to where, and what it
 * has refused. A store whose logs are its own rows has no row of the latter.
 */
export const logArchive: readonly Statement[] = [
  // Up to which record the rows of sessions have everything of a log. It moves in the transaction that
  // stores the rows, and only from where its writer has seen it.
  sql`create table ${table("log_watermark")} (
    log_id integer primary key not null,
    -- The life of the log. Offsets of another one mean other records.
    incarnation text not null,
    -- The offset of the last record that is archived, its id, and the hash over all up to it.
    log_offset bigint not null,
    record_id ${keyText} not null,
    chain text not null,
    -- The transaction that has moved it here. Its other statements store something only if it is this one.
    flush_id ${keyText} not null,
    moved_at bigint not null default (${defaultNow})
  )`,
  // What the database refused to take of a record: a placeholder is in its place, and what was acknowledged
  // is kept here, as JSON.
  sql`create table ${table("archive_aside")} (
    log_id integer not null,
    incarnation ${keyText} not null,
    log_offset bigint not null,
    -- Which entry of the record it is; -1 for the record as a whole, -2 and below for its tasks.
    place integer not null,
    session_id ${keyText},
    seq bigint,
    body text not null,
    -- Why it was refused.
    reason text not null,
    at bigint not null default (${defaultNow}),
    primary key (log_id, incarnation, log_offset, place)
  )`,
  // Operators read the newest.
  sql`create index ${index("archive_aside_at")} on ${table("archive_aside")} (at)`,
  // An id that was given out before its task was stored, and the task that had its key by then.
  sql`create table ${table("task_alias")} (
    alias_id ${keyText} primary key not null,
    task_id ${keyText} not null
  )`,
  sql`create index ${index("task_alias_task")} on ${table("task_alias")} (task_id)`,
  // One row: where the logs of sessions are, and the id of this deployment, which streams of it carry too.
  sql`create table ${table("log_place")} (
    place text not null default 'sql' check (place in ('sql', 'nats')),
    cluster_id text not null
  )`,
  sql`insert into ${table("log_place")} (cluster_id) values (${newId})`,
];

/** How a store is filled from another one. */
export const promotions: readonly Statement[] = [
  // One row in a store that was or is being filled, and none in others. What copies into it holds the row,
  // and every batch is stored only while its copier does.
  sql`create table ${table("promotion")} (
    id integer primary key not null,
    promotion_id ${keyText} not null,
    -- The deployment that the rows come from, and where they were, for people.
    source_id ${keyText} not null,
    source text not null,
    state text not null default 'copying' check (state in ('copying', 'done')),
    -- How many logs its sessions are spread over; 0 where the store that they come from has none.
    logs integer not null,
    -- The process that copies, and until when another one leaves it alone.
    holder ${keyText},
    host text,
    held_until bigint not null default 0,
    -- Up to where each table is copied, as JSON.
    progress text not null default '{}',
    began_at bigint not null default (${defaultNow}),
    last_update bigint not null default (${defaultNow})
  )`,
];
