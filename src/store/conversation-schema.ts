import { defaultNow, index, keyText, sql, type Statement, table } from "./sql.ts";

/** What conversations have beside sessions and their entries. */
export const conversations: readonly Statement[] = [
  // Where a session begins with the entries of another one, which stay for as long as there is a row that
  // needs them. `segments` says, as JSON, whose rows its first entries are, and up to which seq.
  sql`create table ${table("session_fork")} (
    session_id ${keyText} primary key not null,
    parent_id ${keyText} not null,
    at_seq bigint not null,
    segments text not null,
    created_at bigint not null default (${defaultNow})
  )`,
  // The forks of a session, in the order of their places; the last one says how much of it must stay.
  sql`create index ${index("session_fork_parent")}
    on ${table("session_fork")} (parent_id, at_seq, session_id)`,
  // One row for each content of a tenant. Its bytes are kept under its id, at `place`.
  sql`create table ${table("file")} (
    file_id ${keyText} primary key not null,
    tenant ${keyText} not null,
    hash ${keyText} not null,
    size bigint not null,
    place text not null check (place in ('store', 'folder', 's3')),
    at bigint not null default (${defaultNow}),
    -- Since when it may be that nothing refers to it; null where something does for certain.
    unused_at bigint
  )`,
  sql`create unique index ${index("file_hash")} on ${table("file")} (tenant, hash)`,
  sql`create index ${index("file_unused")} on ${table("file")} (unused_at)
    where unused_at is not null`,
  // The bytes, 256 KiB to a row, in base64.
  sql`create table ${table("file_part")} (
    file_id ${keyText} not null,
    part integer not null,
    body text not null,
    primary key (file_id, part)
  )`,
  // Bytes that no file has: of an upload that is under way or was cut off, and of files that were deleted.
  // Once a row is closed, nothing is added to the bytes any more, and they are removed.
  sql`create table ${table("file_remnant")} (
    file_id ${keyText} primary key not null,
    place text not null,
    closed integer not null default 0,
    began_at bigint not null default (${defaultNow})
  )`,
  sql`create index ${index("file_remnant_began")} on ${table("file_remnant")} (began_at)`,
  // What refers to which file, under which type and name: a session, a task or run, or an upload that
  // tasks are about to refer to. Only an upload makes a row for new bytes. It is `kept` from the first
  // message on that has the file, and by the task that has it in its payload. A file of a result has
  // the token of the attempt that has made it, and is kept once that has completed the task.
  sql`create table ${table("file_reference")} (
    owner_kind ${keyText} not null check (owner_kind in ('session', 'task', 'upload')),
    owner_id ${keyText} not null,
    hash ${keyText} not null,
    file_id ${keyText} not null,
    size bigint not null,
    -- Its type and its name, as JSON.
    metadata text not null,
    kept integer not null default 0,
    token bigint,
    at bigint not null default (${defaultNow}),
    primary key (owner_kind, owner_id, hash)
  )`,
  sql`create index ${index("file_reference_file")} on ${table("file_reference")} (file_id)`,
  sql`create index ${index("file_reference_unsent")} on ${table("file_reference")} (at)
    where kept = 0`,
  // What the files of a tenant come to.
  sql`create table ${table("file_count")} (
    tenant ${keyText} primary key not null,
    files bigint not null default 0,
    bytes bigint not null default 0
  )`,
];
