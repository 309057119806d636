import type { Entry } from "../../protocol/message.ts";
import type { Row } from "../../store/database.ts";
import { columnBytes, pageQuery } from "../../store/page.ts";
import {
  isAmong,
  limit,
  migrationLock,
  returning,
  rows,
  sql,
  type Statement,
  table,
  type Value,
} from "../../store/sql.ts";
import { type Header, sessionStateOf } from "../conversation/header.ts";
import type { Changes } from "./changes.ts";
import type { ClientIdRef, Head, LogRecord } from "./journal.ts";

const heads = table("session_log");
const sessions = table("session");
const users = table("session_user");
const messages = table("message");
const checkpoints = table("turn_checkpoint");
const columns = sql`log_id, incarnation, term, owner, host, log_offset, record_id, beat`;
const entryNames = sql`seq, kind, role, author, message_id, replaces, body, at`;

/** Estimates the size of an entry as it is sent. */
const entryPage = {
  key: sql`seq`,
  bytes: sql`200 + ${columnBytes(sql`body`)} + ${columnBytes(sql`author`)} + ${columnBytes(sql`message_id`)}`,
};

/**
 * The transaction that stores a record. The row of its first statement tells whether it did. Statements
 * without rows are left out. Headers come last, because a stored header shows that the whole record was
 * stored before.
 */
export function storeRecord(at: Head, recordId: string, changes: Changes): Statement[] {
  const { entries, headers, members, reads, ended, deleted } = changes;
  const saved = changes.checkpoints;
  const position = { logId: at.logId, offset: at.offset + 1, recordId };
  const when = isFirst(position, headers[0]);
  const all = [moveHead(at, recordId)];
  if (deleted.length > 0) all.push(deleteMessages(deleted, when));
  if (entries.length > 0) all.push(insertEntries(entries, when));
  if (members.length > 0) all.push(removeUsers(members, when));
  if (members.some((each) => each.users.length > 0)) all.push(addUsers(members, when));
  if (reads.length > 0) all.push(raiseReads(reads, when));
  if (ended.length > 0 || deleted.length > 0) all.push(dropCheckpoints(ended, deleted, when));
  if (saved.length > 0) all.push(saveCheckpoints(saved, when));
  if (headers.length > 0) all.push(saveHeaders(changes, position, when));
  return all;
}

type RecordPosition = {
  readonly logId: number;
  readonly offset: number;
  readonly recordId: string;
};

/**
 * True when the log's head is at this record and the record was not stored before. The head row is locked
 * until the transaction ends. The condition refers to no outer row, so the database evaluates it once.
 */
function isFirst(
  { logId, offset, recordId }: RecordPosition,
  header: Header | undefined,
): Statement {
  const arrived = sql`
    exists (select 1 from ${heads} where log_id = ${logId} and record_id = ${recordId})`;
  if (header === undefined) return arrived;
  return sql`${arrived} and not exists (
    select 1 from ${sessions} where session_id = ${header.sessionId} and last_offset >= ${offset})`;
}

/** An entry whose seq or client id exists already is an error, and rolls back the whole record. */
function insertEntries(entries: Changes["entries"], when: Statement): Statement {
  const names = sql`session_id, seq, role, author, message_id, client_id, body, at`;
  const isRare = entries.some(({ kind, replaces }) => kind !== "message" || replaces !== undefined);
  const { fresh, all } = isRare
    ? {
        fresh: rows(
          { ...entryColumns, ...rareColumns },
          entries.map((each) => [...fromEntry(each), ...rareOf(each)]),
        ),
        all: sql`${names}, kind, replaces`,
      }
    : {
        fresh: rows(
          entryColumns,
          entries.map((each) => fromEntry(each)),
        ),
        all: names,
      };
  return sql`insert into ${messages} (${all}) select ${all} from ${fresh} fresh where ${when}`;
}

/** A header from earlier in the log never replaces a later one. */
function saveHeaders(
  { headers, metadata, deleted }: Changes,
  { logId, offset }: RecordPosition,
  when: Statement,
): Statement {
  // Most records change no metadata, so it is not sent.
  const withMetadata = metadata.size > 0 || deleted.length > 0;
  const fresh = withMetadata
    ? rows(
        { ...headerColumns, metadata: "text" },
        headers.map((each) => [...fromHeader(each), metadata.get(each.sessionId) ?? null]),
      )
    : rows(
        headerColumns,
        headers.map((each) => fromHeader(each)),
      );
  const names = sql`session_id, tenant, status, state, agent, last_seq, header, created_at, active_at`;
  const setMetadata = sql`, metadata = case when excluded.status = 'deleted' then null
    else coalesce(excluded.metadata, ${sessions}.metadata) end`;
  return sql`
    insert into ${sessions} (${names}${withMetadata ? sql`, metadata` : sql``}, log_id, last_offset)
    select ${names}${withMetadata ? sql`, metadata` : sql``},
      cast(${logId} as integer), cast(${offset} as bigint)
    from ${fresh} fresh where ${when}
    on conflict (session_id) do update
    set status = excluded.status, state = excluded.state, agent = excluded.agent,
      last_seq = excluded.last_seq, header = excluded.header, active_at = excluded.active_at,
      last_offset = excluded.last_offset ${withMetadata ? setMetadata : sql``}
    where ${sessions}.last_offset < excluded.last_offset`;
}

function memberRows(members: readonly Header[]) {
  return rows(
    { session_id: "text", user_id: "text", tenant: "text" },
    members.flatMap(({ sessionId, users: all, tenant }) =>
      [...new Set(all)].map((user) => [sessionId, user, tenant]),
    ),
  );
}

function removeUsers(members: readonly Header[], when: Statement): Statement {
  return sql`
    delete from ${users}
    where ${isAmong(sessionRows(members.map(({ sessionId }) => sessionId)), sql`session_id`)}
      and ${when}
      and not exists (select 1 from ${memberRows(members)} member
        where member.session_id = ${users}.session_id and member.user_id = ${users}.user_id)`;
}

function addUsers(members: readonly Header[], when: Statement): Statement {
  return sql`
    insert into ${users} (session_id, user_id, tenant)
    select session_id, user_id, tenant from ${memberRows(members)} member where ${when}
    on conflict (session_id, user_id) do nothing`;
}

function raiseReads(reads: Changes["reads"], when: Statement): Statement {
  const fresh = rows(
    { session_id: "text", user_id: "text", seq: "integer" },
    reads.map(({ sessionId, user, seq }) => [sessionId, user, seq]),
  );
  return sql`
    update ${users} set read_seq = fresh.seq from ${fresh} fresh
    where ${users}.session_id = fresh.session_id and ${users}.user_id = fresh.user_id
      and ${users}.read_seq < fresh.seq and ${when}`;
}

/** Keeps only the latest checkpoint of a turn. A checkpoint of an earlier turn or attempt is ignored. */
function saveCheckpoints(saved: Changes["checkpoints"], when: Statement): Statement {
  const fresh = rows(
    { session_id: "text", epoch: "integer", attempt: "integer", body: "text" },
    saved.map(({ sessionId, epoch, attempt, body }) => [sessionId, epoch, attempt, body]),
  );
  return sql`
    insert into ${checkpoints} (session_id, epoch, attempt, body)
    select session_id, epoch, attempt, body from ${fresh} fresh where ${when}
    on conflict (session_id) do update
    set epoch = excluded.epoch, attempt = excluded.attempt, body = excluded.body
    where ${checkpoints}.epoch < excluded.epoch
      or (${checkpoints}.epoch = excluded.epoch and ${checkpoints}.attempt <= excluded.attempt)`;
}

function dropCheckpoints(
  ended: Changes["ended"],
  deleted: readonly string[],
  when: Statement,
): Statement {
  const over = [
    ...ended.filter(({ sessionId }) => !deleted.includes(sessionId)),
    ...deleted.map((sessionId) => ({ sessionId, epoch: Number.MAX_SAFE_INTEGER })),
  ];
  const gone = rows(
    { session_id: "text", epoch: "integer" },
    over.map(({ sessionId, epoch }) => [sessionId, epoch]),
  );
  const ids = sessionRows(over.map(({ sessionId }) => sessionId));
  return sql`
    delete from ${checkpoints}
    where ${isAmong(ids, sql`session_id`)} and ${when}
      and epoch <= (select gone.epoch from ${gone} gone
        where gone.session_id = ${checkpoints}.session_id)`;
}

function deleteMessages(deleted: readonly string[], when: Statement): Statement {
  return sql`
    delete from ${messages} where ${isAmong(sessionRows(deleted), sql`session_id`)} and ${when}`;
}

function sessionRows(sessionIds: readonly string[]): Statement {
  const ids = rows(
    { session_id: "text" },
    sessionIds.map((sessionId) => [sessionId]),
  );
  return sql`select session_id from ${ids} ids`;
}

export function readHeads(): Statement {
  return sql`select ${columns} from ${heads} order by log_id`;
}

/**
 * Creates all logs or none. When several processes try at once, all but the first insert nothing. The
 * offsets start after everything stored, in case the store had other logs before.
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
      where not exists (select 1 from ${heads})`,
  ];
}

/**
 * Moves a log's head on by one record, from exactly the position that its owner knows. Sending the same
 * record again changes nothing, but locks the row as the first send did. Returns no row if the head is
 * anywhere else.
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
    where ${heads}.log_id = own.log_id and ${heads}.term = own.term and owner = ${podId}`;
}

function ownRows(logs: OwnedLogs) {
  return rows(
    { log_id: "integer", term: "integer" },
    logs.map(({ logId, term }) => [logId, term]),
  );
}

/** Finds which of these client ids are stored, with their seqs. */
export function findIds(ids: readonly ClientIdRef[]): Statement {
  const wanted = rows(
    { session_id: "text", client_id: "text" },
    ids.map(({ sessionId, clientId }) => [sessionId, clientId]),
  );
  return sql`
    select message.session_id, message.client_id, message.seq
    from ${wanted} wanted join ${messages} message
      on message.session_id = wanted.session_id and message.client_id = wanted.client_id`;
}

export function readHeader(sessionId: string): Statement {
  return sql`select header from ${sessions} where session_id = ${sessionId}`;
}

export function readBusy(logId: number): Statement {
  return sql`select header from ${sessions} where log_id = ${logId} and state <> 'idle'`;
}

export function readEntries(
  sessionId: string,
  { after, limit: maxEntries, maxBytes }: { after: number; limit: number; maxBytes?: number },
): Statement {
  const from = sql`from ${messages} where session_id = ${sessionId} and seq > ${after}`;
  if (maxBytes === undefined)
    return sql`select ${entryNames} ${from} order by seq ${limit(maxEntries)}`;
  const page = { ...entryPage, order: "asc", from, limit: maxEntries, maxBytes } as const;
  const { begin, keys } = pageQuery(page);
  return sql`${begin}
    select ${entryNames} from ${messages}
    where session_id = ${sessionId} and ${isAmong(keys, sql`seq`)} order by seq`;
}

export function readTail(
  sessionId: string,
  page: { after: number; upTo: number; limit: number; maxBytes?: number },
): Statement {
  const { after, upTo, limit: maxEntries, maxBytes } = page;
  const from = sql`from ${messages}
    where session_id = ${sessionId} and seq > ${after} and seq <= ${upTo}`;
  if (maxBytes === undefined)
    return sql`select ${entryNames} ${from} order by seq desc ${limit(maxEntries)}`;
  const pageOptions = { ...entryPage, order: "desc", from, limit: maxEntries, maxBytes } as const;
  const { begin, keys } = pageQuery(pageOptions);
  return sql`${begin}
    select ${entryNames} from ${messages}
    where session_id = ${sessionId} and ${isAmong(keys, sql`seq`)} order by seq desc`;
}

export function readNewest(sessionId: string, messageId: string): Statement {
  return sql`
    select ${entryNames} from ${messages}
    where session_id = ${sessionId} and message_id = ${messageId}
    order by seq desc ${limit(1)}`;
}

export function readCheckpoint(sessionId: string): Statement {
  return sql`
    select epoch, attempt, body, header
    from ${checkpoints} checkpoint join ${sessions} session
      on session.session_id = checkpoint.session_id
    where checkpoint.session_id = ${sessionId}`;
}

const entryColumns = {
  session_id: "text",
  seq: "integer",
  role: "text",
  author: "text",
  message_id: "text",
  client_id: "text",
  body: "text",
  at: "integer",
} as const;

/** Fields that no query filters on are stored together as `body`, which costs less than a column each. */
function fromEntry(entry: LogRecord["entries"][number]): Value[] {
  const { sessionId, seq, role, author, messageId, clientId, atMs } = entry;
  return [sessionId, seq, role, author, messageId, clientId, bodyOf(entry), atMs];
}

/** Columns that nearly every entry leaves at their defaults. */
const rareColumns = { kind: "text", replaces: "integer" } as const;

function rareOf({ kind, replaces = null }: { kind: string; replaces?: number | null }) {
  return [kind, replaces];
}

function bodyOf(entry: Entry): string {
  const { epoch, upToSeq, outcome, error, tokens, parts, metadata } = entry;
  const { results, throughSeq, stop } = entry;
  return JSON.stringify({
    epoch,
    upToSeq,
    outcome,
    error,
    tokens,
    parts,
    metadata,
    results,
    throughSeq,
    stop,
  });
}

export function toEntry(row: Row): Entry {
  const replaces = row["replaces"];
  return {
    seq: Number(row["seq"]),
    kind: row["kind"],
    role: row["role"],
    author: row["author"],
    messageId: row["message_id"],
    ...(replaces !== null && { replaces: Number(replaces) }),
    ...(JSON.parse(row["body"]) as Pick<Entry, "tokens" | "parts">),
    atMs: Number(row["at"]),
  };
}

const headerColumns = {
  session_id: "text",
  tenant: "text",
  status: "text",
  state: "text",
  agent: "text",
  last_seq: "integer",
  header: "text",
  created_at: "integer",
  active_at: "integer",
} as const;

function fromHeader(header: Header): Value[] {
  const { sessionId, tenant, status, agents, lastSeq, createdAtMs, activeAtMs } = header;
  const { state } = sessionStateOf(header);
  const text = JSON.stringify(header);
  const agent = agents[0] ?? null;
  return [sessionId, tenant, status, state, agent, lastSeq, text, createdAtMs, activeAtMs];
}

export function toHeader(row: Row): Header {
  return JSON.parse(row["header"]) as Header;
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
    beat: Number(row["beat"]),
  };
}
