import { insertDecided } from "../../../audit/sql.ts";
import { deleteReferencesOf } from "../../../files/sql/files.ts";
import { addTenantCounts } from "../../../quotas/sql.ts";
import { innerRanges } from "../../../steps/key.ts";
import {
  type Columns,
  forUpdate,
  isAmong,
  now,
  rowAddress,
  rows,
  sql,
  type Statement,
  table,
  type Value,
} from "../../../store/sql.ts";
import { deleteLinksFromSessions } from "../../../links/sql.ts";
import { storeLoggedTasks } from "../../../tasks/enqueue/logged-tasks.ts";
import { approvalsOf } from "../../conversation/approvals.ts";
import { type Header, sessionStateOf } from "../../conversation/header.ts";
import type { Changes } from "../changes.ts";
import { entryBody } from "../entry-body.ts";
import type { LogRecord } from "../journal.ts";
import { heldSeqOf } from "./forks.ts";
import { moveHeads } from "./heads.ts";
import {
  loggedOf,
  type PlacedChanges,
  type PlacedRecord,
  rowsOf,
  type StoredNow,
} from "./placed-changes.ts";
import { partOf } from "./reading.ts";

const heads = table("session_log");
const sessions = table("session");
const users = table("session_user");
const messages = table("message");
const checkpoints = table("turn_checkpoint");
const journal = table("step_journal");
const turns = table("turn");

/**
 * The transaction that stores a record of each of these logs. The rows of its first statement tell which
 * logs it did so for: a record that is fenced changes nothing, and the others are stored all the same.
 * Statements without rows are left out. Headers come last, because a stored header shows that the whole
 * record was stored before.
 */
export function storeRecords(records: readonly PlacedRecord[]): Statement[] {
  return [moveHeads(records), ...storeChanges(records, isFirst(records))];
}

/** The same without its first statement, for changes of logs of which `when` is true. */
export function storeChanges(records: readonly PlacedChanges[], when: StoredNow): Statement[] {
  const has = (pick: (changes: Changes) => { readonly length: number }) =>
    records.some(({ changes }) => pick(changes).length > 0);
  const all: Statement[] = [];
  if (has(({ deleted }) => deleted)) all.push(...deleteContent(records, when));
  if (has(({ entries }) => entries)) all.push(insertEntries(records, when));
  if (has(({ members }) => members)) all.push(removeUsers(records, when));
  if (has(({ members }) => members.filter(({ users: each }) => each.length > 0)))
    all.push(addUsers(records, when));
  if (has(({ reads }) => reads)) all.push(raiseReads(records, when));
  if (has(overOf)) all.push(dropCheckpoints(records, when));
  if (has(({ checkpoints: saved }) => saved)) all.push(saveCheckpoints(records, when));
  if (has(({ stepsOver }) => stepsOver)) all.push(dropSteps(records, when));
  if (has(({ steps }) => steps)) all.push(...saveSteps(records, when));
  if (has(({ turns: ended }) => ended)) all.push(insertTurns(records, when));
  const acts = loggedOf(records, (changes) => changes.acts);
  if (acts.length > 0) all.push(insertDecided(acts, when));
  const tenants = loggedOf(records, (changes) => changes.tenants);
  if (tenants.length > 0) all.push(addTenantCounts(tenants, when));
  const tasks = loggedOf(records, (changes) => changes.tasks);
  if (tasks.length > 0) all.push(...storeLoggedTasks(tasks, when));
  if (has(({ headers }) => headers)) all.push(saveHeaders(records, when));
  return all;
}

/**
 * True for a log whose head is at its record, if the record was not stored before. The head rows are
 * locked until the transaction ends. The query refers to no outer row, so the database evaluates it once.
 * The offset is read by a subquery because a join might be planned as a scan of all sessions.
 */
function isFirst(records: readonly PlacedRecord[]): StoredNow {
  const placed = rows(
    { to_log: "integer", to_record: "text", to_offset: "integer", first_session: "text" },
    records.map(({ at, recordId, changes }) => [
      at.logId,
      recordId,
      at.offset + 1,
      changes.headers[0]?.sessionId ?? null,
    ]),
  );
  const arrived = sql`
    select to_log from ${placed} placed
    join ${heads} head on head.log_id = to_log and head.record_id = to_record
    where coalesce(
      (select last_offset from ${sessions} where session_id = first_session), 0) < to_offset`;
  return (logId) => sql`${isAmong(arrived, logId)}`;
}

/** An entry whose seq or client id exists already is an error, and rolls back the whole transaction. */
function insertEntries(records: readonly PlacedChanges[], when: StoredNow): Statement {
  const names = sql`session_id, seq, role, author, message_id, client_id, body, at`;
  const isRare = records.some(({ changes }) =>
    changes.entries.some(({ kind, replaces }) => kind !== "message" || replaces !== undefined),
  );
  const { fresh, all } = isRare
    ? {
        fresh: rowsOf({ ...entryColumns, ...rareColumns }, records, entriesOf, (each) => [
          ...fromEntry(each),
          ...rareOf(each),
        ]),
        all: sql`${names}, kind, replaces`,
      }
    : { fresh: rowsOf(entryColumns, records, entriesOf, fromEntry), all: names };
  return sql`
    insert into ${messages} (${all}) select ${all} from ${fresh} fresh
    where ${when(sql`fresh.log_id`)}`;
}

const entriesOf = ({ entries }: Changes) => entries;

/** A header from earlier in the log never replaces a later one. */
function saveHeaders(records: readonly PlacedChanges[], when: StoredNow): Statement {
  const headersOf = ({ headers }: Changes) => headers;
  // Most records change no metadata, so it is not sent.
  const withMetadata = records.some(
    ({ changes }) => changes.metadata.size > 0 || changes.deleted.length > 0,
  );
  const withBytes = records.some(({ changes }) => changes.tenants !== undefined);
  // Few sessions have ever waited for a person.
  const withApprovals = records.some(({ changes }) =>
    changes.headers.some(({ approvals }) => approvals !== undefined),
  );
  const columnsOf: Columns = {
    ...headerColumns,
    ...(withMetadata && ({ metadata: "content" } as const)),
    ...(withBytes && ({ bytes: "integer" } as const)),
    ...(withApprovals && approvalColumns),
  };
  const fresh = rowsOf(columnsOf, records, headersOf, (each, record) => {
    const row = fromHeader(each, record);
    if (withMetadata) row.push(record.changes.metadata.get(each.sessionId) ?? null);
    if (withBytes) row.push(each.bytes ?? 0);
    if (withApprovals) row.push(...fromApprovals(each));
    return row;
  });
  const names = sql`
    session_id, tenant, status, state, agent, last_seq, header, created_at, active_at,
    last_offset, turn_epoch, turn_agent, log_id`;
  const bytes = sql`${withBytes ? sql`, bytes` : sql``}${
    withApprovals ? sql`, approval_since, approval_until, approval_tool, approval_seq` : sql``
  }`;
  const setApprovals = sql`, approval_since = excluded.approval_since,
      approval_until = excluded.approval_until, approval_tool = excluded.approval_tool,
      approval_seq = excluded.approval_seq`;
  const setBytes = sql`${withBytes ? sql`, bytes = excluded.bytes` : sql``}${
    withApprovals ? setApprovals : sql``
  }`;
  const setMetadata = sql`, metadata = case when excluded.status = 'deleted' then null
    else coalesce(excluded.metadata, ${sessions}.metadata) end`;
  return sql`
    insert into ${sessions} (${names}${bytes}${withMetadata ? sql`, metadata` : sql``})
    select ${names}${bytes}${withMetadata ? sql`, metadata` : sql``}
    from ${fresh} fresh where ${when(sql`fresh.log_id`)}
    on conflict (session_id) do update
    set status = excluded.status, state = excluded.state, agent = excluded.agent,
      last_seq = excluded.last_seq, header = excluded.header, active_at = excluded.active_at,
      last_offset = excluded.last_offset, turn_epoch = excluded.turn_epoch,
      turn_agent = excluded.turn_agent ${withMetadata ? setMetadata : sql``}${setBytes}
    where ${sessions}.last_offset < excluded.last_offset`;
}

const membersOf = ({ members }: Changes) => members;

function memberRows(records: readonly PlacedChanges[]) {
  return rowsOf(
    { session_id: "text", user_id: "text", tenant: "text" },
    records,
    ({ members }) =>
      members.flatMap(({ sessionId, users: all, tenant }) =>
        [...new Set(all)].map((user) => [sessionId, user, tenant]),
      ),
    (row) => row,
  );
}

function removeUsers(records: readonly PlacedChanges[], when: StoredNow): Statement {
  const ids = storedSessions(
    records,
    (changes) => membersOf(changes).map(({ sessionId }) => sessionId),
    when,
  );
  return sql`
    delete from ${users}
    where ${isAmong(ids, sql`session_id`)}
      and not exists (select 1 from ${memberRows(records)} member
        where member.session_id = ${users}.session_id and member.user_id = ${users}.user_id)`;
}

function addUsers(records: readonly PlacedChanges[], when: StoredNow): Statement {
  return sql`
    insert into ${users} (session_id, user_id, tenant)
    select session_id, user_id, tenant from ${memberRows(records)} member
    where ${when(sql`member.log_id`)}
    on conflict (session_id, user_id) do nothing`;
}

function raiseReads(records: readonly PlacedChanges[], when: StoredNow): Statement {
  const fresh = rowsOf(
    { session_id: "text", user_id: "text", seq: "integer" },
    records,
    ({ reads }) => reads,
    ({ sessionId, user, seq }) => [sessionId, user, seq],
  );
  return sql`
    update ${users} set read_seq = fresh.seq from ${fresh} fresh
    where ${users}.session_id = fresh.session_id and ${users}.user_id = fresh.user_id
      and ${users}.read_seq < fresh.seq and ${when(sql`fresh.log_id`)}`;
}

/** Keeps only the latest checkpoint of a turn. A checkpoint of an earlier turn or attempt is ignored. */
function saveCheckpoints(records: readonly PlacedChanges[], when: StoredNow): Statement {
  const fresh = rowsOf(
    { session_id: "text", epoch: "integer", attempt: "integer", body: "content" },
    records,
    (changes) => changes.checkpoints,
    ({ sessionId, epoch, attempt, body }) => [sessionId, epoch, attempt, body],
  );
  return sql`
    insert into ${checkpoints} (session_id, epoch, attempt, body)
    select session_id, epoch, attempt, body from ${fresh} fresh where ${when(sql`fresh.log_id`)}
    on conflict (session_id) do update
    set epoch = excluded.epoch, attempt = excluded.attempt, body = excluded.body
    where ${checkpoints}.epoch < excluded.epoch
      or (${checkpoints}.epoch = excluded.epoch and ${checkpoints}.attempt <= excluded.attempt)`;
}

function dropCheckpoints(records: readonly PlacedChanges[], when: StoredNow): Statement {
  const gone = rowsOf(
    { session_id: "text", epoch: "integer" },
    records,
    overOf,
    ({ sessionId, epoch }) => [sessionId, epoch],
  );
  const ids = storedSessions(
    records,
    (changes) => overOf(changes).map(({ sessionId }) => sessionId),
    when,
  );
  return sql`
    delete from ${checkpoints}
    where ${isAmong(ids, sql`session_id`)}
      and epoch <= (select gone.epoch from ${gone} gone
        where gone.session_id = ${checkpoints}.session_id)`;
}

/** The turns of a record whose checkpoints are no longer needed. */
function overOf({ ended, deleted }: Changes): Changes["ended"] {
  if (ended.length === 0 && deleted.length === 0) return ended;
  return [
    ...ended.filter(({ sessionId }) => !deleted.includes(sessionId)),
    ...deleted.map((sessionId) => ({ sessionId, epoch: Number.MAX_SAFE_INTEGER })),
  ];
}

function insertTurns(records: readonly PlacedChanges[], when: StoredNow): Statement {
  const names = sql`session_id, epoch, attempt, agent, pod_id, began_at, first_chunk_at, ended_at,
    outcome, input_tokens, output_tokens, cached_tokens, model, cost_millionths`;
  const fresh = rowsOf(turnColumns, records, ({ turns: ended }) => ended, fromTurn);
  return sql`
    insert into ${turns} (${names}) select ${names} from ${fresh} fresh
    where ${when(sql`fresh.log_id`)}
    on conflict do nothing`;
}

/** Entries that forks begin with stay. A fork of it that is being made waits for this, or this for that. */
function deleteContent(records: readonly PlacedChanges[], when: StoredNow): Statement[] {
  const ids = storedSessions(records, ({ deleted }) => deleted, when);
  return [
    sql`select session_id from ${sessions} where ${isAmong(ids, sql`session_id`)} ${forUpdate}`,
    sql`
      delete from ${messages}
      where ${isAmong(ids, sql`session_id`)} and seq > ${heldSeqOf(sql`${messages}.session_id`)}`,
    sql`delete from ${turns} where ${isAmong(ids, sql`session_id`)}`,
    deleteLinksFromSessions(ids),
    ...deleteReferencesOf("session", ids),
  ];
}

/**
 * Stores steps of turns, and deletes the steps within them, which their values stand for. A copy of a
 * command may arrive late: it replaces no later row, and deletes no row that came after it.
 */
function saveSteps(records: readonly PlacedChanges[], when: StoredNow): Statement[] {
  const fresh = rowsOf(
    {
      owner_id: "text",
      part: "text",
      key: "text",
      seq: "integer",
      token: "integer",
      kind: "text",
      input_hash: "text",
      value: "content",
      took_ms: "integer",
    },
    records,
    (changes) => changes.steps,
    ({ sessionId, epoch, attempt, step }) => [
      sessionId,
      partOf(epoch),
      step.key,
      step.seq,
      attempt,
      step.kind,
      step.inputHash,
      step.value,
      step.tookMs,
    ],
  );
  const insert = sql`
    insert into ${journal} as stored
      (owner_id, part, key, seq, token, kind, input_hash, value, started_at, at)
    select owner_id, part, key, seq, token, kind, input_hash, value, ${now} - took_ms, ${now}
    from ${fresh} fresh where ${when(sql`fresh.log_id`)}
    on conflict (owner_id, part, key) do update set seq = excluded.seq, token = excluded.token,
      kind = excluded.kind, input_hash = excluded.input_hash, value = excluded.value,
      started_at = excluded.started_at, at = excluded.at
    where stored.seq < excluded.seq`;
  const outer = records.some(({ changes }) => changes.steps.some(({ step }) => step.forgets));
  return outer ? [insert, dropInnerSteps(records, when)] : [insert];
}

function dropInnerSteps(records: readonly PlacedChanges[], when: StoredNow): Statement {
  const ranges = rowsOf(
    { owner_id: "text", part: "text", before_seq: "integer", low: "text", high: "text" },
    records,
    ({ steps }) =>
      steps
        .filter(({ step }) => step.forgets)
        .flatMap(({ sessionId, epoch, step }) =>
          innerRanges(step.key).map(([low, high]) => [
            sessionId,
            partOf(epoch),
            step.seq,
            low,
            high,
          ]),
        ),
    (row) => row,
  );
  return deleteSteps(sql`
      select ${rowAddress("step_journal", sql`inner_step`)} from ${ranges} given
      join ${journal} inner_step on inner_step.owner_id = given.owner_id
        and inner_step.part = given.part
        and inner_step.key >= given.low and inner_step.key < given.high
      where inner_step.seq < given.before_seq and ${when(sql`given.log_id`)}`);
}

function dropSteps(records: readonly PlacedChanges[], when: StoredNow): Statement {
  const gone = rowsOf(
    { owner_id: "text", part: "text" },
    records,
    ({ stepsOver }) => stepsOver,
    ({ sessionId, epoch }) => [sessionId, partOf(epoch)],
  );
  return deleteSteps(sql`
      select ${rowAddress("step_journal", sql`stored`)} from ${gone} gone
      join ${journal} stored on stored.owner_id = gone.owner_id and stored.part = gone.part
      where ${when(sql`gone.log_id`)}`);
}

function deleteSteps(found: Statement): Statement {
  return sql`
    delete from ${journal} where ${isAmong(found, sql`${rowAddress("step_journal")}`)}`;
}

/** Those of these sessions whose record is stored now. */
function storedSessions(
  records: readonly PlacedChanges[],
  pick: (changes: Changes) => readonly string[],
  when: StoredNow,
): Statement {
  const ids = rowsOf({ session_id: "text" }, records, pick, (sessionId) => [sessionId]);
  return sql`select session_id from ${ids} ids where ${when(sql`ids.log_id`)}`;
}

const entryColumns = {
  session_id: "text",
  seq: "integer",
  role: "text",
  author: "text",
  message_id: "text",
  client_id: "text",
  body: "content",
  at: "integer",
} as const;

function fromEntry(entry: LogRecord["entries"][number]): Value[] {
  const { sessionId, seq, role, author, messageId, clientId, atMs } = entry;
  return [sessionId, seq, role, author, messageId, clientId, entryBody(entry), atMs];
}

/** Columns that nearly every entry leaves at their defaults. */
const rareColumns = { kind: "text", replaces: "integer" } as const;

function rareOf({ kind, replaces = null }: { kind: string; replaces?: number | null }) {
  return [kind, replaces];
}

const turnColumns = {
  session_id: "text",
  epoch: "integer",
  attempt: "integer",
  agent: "text",
  pod_id: "text",
  began_at: "integer",
  first_chunk_at: "integer",
  ended_at: "integer",
  outcome: "text",
  input_tokens: "integer",
  output_tokens: "integer",
  cached_tokens: "integer",
  model: "text",
  cost_millionths: "integer",
} as const;

function fromTurn(turn: Changes["turns"][number]): Value[] {
  const { sessionId, epoch, attempt, agent, podId, outcome, usage } = turn;
  const { beganAtMs, firstChunkAtMs, endedAtMs } = turn;
  const times = [beganAtMs, firstChunkAtMs, endedAtMs];
  const { input = null, output = null, cached = null, model = null, cost = null } = usage ?? {};
  const millionths = cost === null ? null : Math.round(cost * 1e6);
  const spent = [input, output, cached, model, millionths];
  return [sessionId, epoch, attempt, agent, podId, ...times, outcome, ...spent];
}

const approvalColumns = {
  approval_since: "integer",
  approval_until: "integer",
  approval_tool: "text",
  approval_seq: "integer",
} as const;

function fromApprovals(header: Header): Value[] {
  const calls = approvalsOf(header);
  if (calls.length === 0) return [null, null, null, null];
  const untilMs = Math.min(...calls.map((call) => call.untilMs ?? Infinity));
  return [
    Math.min(...calls.map(({ sinceMs }) => sinceMs)),
    untilMs === Infinity ? null : untilMs,
    calls[0]!.tool,
    header.lastSeq,
  ];
}

const headerColumns = {
  session_id: "text",
  tenant: "text",
  status: "text",
  state: "text",
  agent: "text",
  last_seq: "integer",
  header: "content",
  created_at: "integer",
  active_at: "integer",
  last_offset: "integer",
  turn_epoch: "integer",
  turn_agent: "text",
} as const;

function fromHeader(header: Header, { at }: PlacedChanges): Value[] {
  const { sessionId, tenant, status, agents, lastSeq, createdAtMs, activeAtMs } = header;
  const { state } = sessionStateOf(header);
  const text = JSON.stringify(header);
  const agent = agents[0] ?? null;
  const offset = at.offset + 1;
  const columns = [sessionId, tenant, status, state, agent, lastSeq, text];
  return [...columns, createdAtMs, activeAtMs, offset, ...turnValues(header)];
}

/** The turn that has begun. One that still waits for more messages may be dropped without an attempt. */
function turnValues({ work }: Header): Value[] {
  return work?.type === "turn" && work.attempt > 0 ? [work.epoch, work.agent] : [null, null];
}
