import {
  defaultNow,
  dropIndex,
  index,
  jsonReader,
  keyText,
  sql,
  type Statement,
  table,
} from "./sql.ts";

// For lists by a value of the payload.
const lists: readonly Statement[] = [sql`${jsonReader}`];

const series: readonly Statement[] = [
  // What pods say of themselves with every heartbeat, as JSON.
  sql`alter table ${table("pod")} add column pulse text`,
  // What was counted of a subject over a minute or an hour.
  sql`create table ${table("series")} (
    -- The length of that time in ms, and when it begins.
    span bigint not null,
    at bigint not null,
    -- Such as task:mail.
    subject ${keyText} not null,
    -- The pod that has counted it; '' if it counts for all pods.
    pod ${keyText} not null,
    -- As JSON.
    counts text not null,
    primary key (span, at, subject, pod)
  )`,
  sql`create index ${index("series_subject")} on ${table("series")} (subject, span, at)`,
  // What the leader has still to fold.
  sql`create index ${index("series_unfolded")} on ${table("series")} (at) where pod <> ''`,
  // One row, which every write and every fold begins with.
  sql`create table ${table("series_fold")} (
    id integer primary key,
    -- The last minute that pods write nothing for any more.
    closed_to bigint not null,
    -- The id of the last fold. The next one is stored only if it has decided by this one.
    last_fold text not null
  )`,
];

const failureGroups: readonly Statement[] = [
  // What outlives the tasks of a group of failed tasks: since when it is known, and what operators have made
  // of it. A group without a row is open.
  sql`create table ${table("failure_group")} (
    group_id ${keyText} primary key not null,
    state text not null default 'open' check (state in ('open', 'resolved', 'ignored')),
    -- When an operator or a failure gave it this state, and until when it is ignored: null until a task of
    -- it fails.
    state_at bigint,
    until_at bigint,
    first_at bigint not null,
    -- When a task of it failed though it was resolved or ignored.
    came_back_at bigint,
    last_update bigint not null default (${defaultNow})
  )`,
];

/** How the bounds of throttles have changed. */
const throttleEvents: readonly Statement[] = [
  // One row for each change of a bound or a breaker, the newest thousand of each throttle and key. Pods of
  // the version before write none. `bound_before` is null for the first; `actor` has pinned or unpinned it.
  sql`create table ${table("throttle_event")} (
    name ${keyText} not null,
    key ${keyText} not null default '',
    seq bigint not null,
    at bigint not null default (${defaultNow}),
    cause text not null,
    bound_before integer,
    bound integer not null,
    epoch bigint not null,
    breaker text not null default 'closed',
    actor text,
    primary key (name, key, seq)
  )`,
];

/** Which sessions wait for a person. */
const sessionApprovals: readonly Statement[] = [
  // Since when and until when calls of the session wait for a person, and the tool of the first; null where
  // none does. `approval_seq` is the entry up to which that is known: a pod of the version before stores
  // entries and leaves these columns as they are.
  sql`alter table ${table("session")} add column approval_since bigint`,
  sql`alter table ${table("session")} add column approval_until bigint`,
  sql`alter table ${table("session")} add column approval_tool text`,
  sql`alter table ${table("session")} add column approval_seq bigint`,
  // With a deadline by that, and without one by how long they have waited.
  sql`create index ${index("session_approval_until")}
    on ${table("session")} (approval_until, session_id) where approval_until is not null`,
  sql`create index ${index("session_approval_until_tenant")}
    on ${table("session")} (tenant, approval_until, session_id) where approval_until is not null`,
  sql`create index ${index("session_approval")} on ${table("session")} (approval_since, session_id)
    where approval_since is not null and approval_until is null`,
  sql`create index ${index("session_approval_tenant")}
    on ${table("session")} (tenant, approval_since, session_id)
    where approval_since is not null and approval_until is null`,
];

const bulk: readonly Statement[] = [
  // What is done to all tasks that match. The leader goes through them in the order of their ids: those up
  // to `cursor_id` are done with, and `until_id` is the last one that there was when it began. A write
  // requires the `revision` that its pod has read.
  sql`create table ${table("bulk")} (
    bulk_id ${keyText} primary key not null,
    action text not null check (action in ('cancel', 'delete', 'resume', 'retry', 'signal')),
    filter text not null,
    options text not null default '{}',
    -- Of the signal.
    payload text,
    state text not null default 'running' check (state in ('running', 'done', 'stopped')),
    revision bigint not null default 1,
    cursor_id ${keyText} not null default '',
    until_id ${keyText} not null,
    -- How many matched when it began, and 1 if they were counted to the end.
    matched integer not null,
    is_exact integer not null,
    -- How many tasks of a batch are as they were seen: set only within the transaction that writes it.
    batch integer,
    done integer not null default 0,
    skipped integer not null default 0,
    refused integer not null default 0,
    created_by text,
    reason text,
    created_at bigint not null default (${defaultNow}),
    last_update bigint not null default (${defaultNow})
  )`,
  sql`create index ${index("bulk_open")} on ${table("bulk")} (created_at)
    where state = 'running'`,
];

/** The tasks that run under a limit, by indexes that no statement about other claims can mean. */
const running: readonly Statement[] = [
  sql`${dropIndex("task_running_key")}`,
  sql`create index ${index("task_running_key")} on ${table("task")} (concurrency_key)
    where coalesce(status, '') = 'claimed' and concurrency_key is not null`,
  sql`${dropIndex("task_running_tenant")}`,
  sql`create index ${index("task_running_tenant")} on ${table("task")} (tenant)
    where coalesce(status, '') = 'claimed' and limited = 1 and tenant <> 'default'`,
];

/** What is counted and listed for pages is in indexes, whose entries have the names that it is counted by. */
const counted: readonly Statement[] = [
  sql`${dropIndex("task_parked")}`,
  sql`create index ${index("task_parked")} on ${table("task")} (run_at, name)
    where status = 'pending' and parked = 1`,
  sql`${dropIndex("task_for_dependencies")}`,
  sql`create index ${index("task_for_dependencies")} on ${table("task")} (task_id, name)
    where status = 'pending' and parked = 2`,
  sql`${dropIndex("task_blocked")}`,
  sql`create index ${index("task_blocked")}
    on ${table("task")} (blocked_by, priority desc, created_at, task_id, name)
    where status = 'pending' and parked = 3`,
  sql`${dropIndex("task_failed")}`,
  sql`create index ${index("task_failed")} on ${table("task")} (task_id, name)
    where status = 'failed'`,
  // Runs that are due later, apart from tasks, of which there may be very many.
  sql`create index ${index("task_run_parked")} on ${table("task")} (name, run_at)
    where status = 'pending' and parked = 1 and flow_version is not null`,
  // What waits for a signal: with a deadline by that, and without one by how long it has waited.
  sql`create index ${index("task_awaiting_until")} on ${table("task")} (run_at, task_id)
    where status = 'pending' and parked = 1 and awaits is not null`,
  sql`create index ${index("task_awaiting")}
    on ${table("task")} (coalesce(advanced_at, last_update), task_id)
    where status = 'pending' and parked = 5 and awaits is not null`,
];

const drains: readonly Statement[] = [
  // 1 while the pod is to take no more work. It reads it with its heartbeat.
  sql`alter table ${table("pod")} add column drain integer not null default 0`,
];

/**
 * What pages about the fleet are drawn from. Columns may be null, because pods of the version before
 * write to the same rows.
 */
export const facts: readonly Statement[] = [
  ...lists,
  // When the handler of the last attempt began, which may be long after the claim. Pods of the version
  // before leave it as it is.
  sql`alter table ${table("task")} add column started_at bigint`,
  ...series,
  ...failureGroups,
  ...throttleEvents,
  ...sessionApprovals,
  ...bulk,
  ...drains,
  ...running,
  ...counted,
];
