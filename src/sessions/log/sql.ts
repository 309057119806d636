import { isAmong, rows, sql, type Statement, table } from "../../store/sql.ts";
import type { Header } from "../conversation/header.ts";
import type { Changes } from "./changes.ts";
import { moveHead } from "./heads.ts";
import type { Head } from "./journal.ts";
import { entryColumns, fromEntry, fromHeader, headerColumns, rareColumns, rareOf } from "./rows.ts";

const heads = table("log_head");
const sessions = table("session");
const users = table("session_user");
const messages = table("message");
const checkpoints = table("turn_checkpoint");

/**
 * The transaction that stores a record, of which the first statement tells whether it did. Only what
 * there is to do is sent. Headers come last, because they are what shows that all of it was done before.
 */
export function storeRecord(at: Head, recordId: string, changes: Changes): Statement[] {
  const { entries, headers, members, reads, ended, deleted } = changes;
  const given = changes.checkpoints;
  const place = { logId: at.logId, offset: at.offset + 1, recordId };
  const when = isFirst(place, headers[0]);
  const all = [moveHead(at, recordId)];
  if (deleted.length > 0) all.push(deleteMessages(deleted, when));
  if (entries.length > 0) all.push(insertEntries(entries, when));
  if (members.length > 0) all.push(removeUsers(members, when));
  if (members.some((each) => each.users.length > 0)) all.push(addUsers(members, when));
  if (reads.length > 0) all.push(raiseReads(reads, when));
  if (ended.length > 0 || deleted.length > 0) all.push(dropCheckpoints(ended, deleted, when));
  if (given.length > 0) all.push(saveCheckpoints(given, when));
  if (headers.length > 0) all.push(saveHeaders(changes, place, when));
  return all;
}

type RecordPlace = {
  readonly logId: number;
  readonly offset: number;
  readonly recordId: string;
};

/**
 * True where the log has come to this record, which nobody can change until the transaction ends, and
 * where the record wasn't stored before. It asks nothing of any row, so it is worked out once.
 */
function isFirst({ logId, offset, recordId }: RecordPlace, header: Header | undefined): Statement {
  const arrived = sql`
    exists (select 1 from ${heads} where log_id = ${logId} and record_id = ${recordId})`;
  if (header === undefined) return arrived;
  return sql`${arrived} and not exists (
    select 1 from ${sessions} where session_id = ${header.sessionId} and last_offset >= ${offset})`;
}

/** An entry whose place or client id is taken is an error, and undoes the whole record. */
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

/** A header is never replaced by one from earlier in the log. */
function saveHeaders(
  { headers, metadata, deleted }: Changes,
  { logId, offset }: RecordPlace,
  when: Statement,
): Statement {
  // Most records leave metadata alone, so that it isn't sent.
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

/** Of a turn only the latest is kept, and of an earlier turn or attempt none comes back. */
function saveCheckpoints(given: Changes["checkpoints"], when: Statement): Statement {
  const fresh = rows(
    { session_id: "text", epoch: "integer", attempt: "integer", body: "text" },
    given.map(({ sessionId, epoch, attempt, body }) => [sessionId, epoch, attempt, body]),
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
