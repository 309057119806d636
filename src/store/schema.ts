import { credentials, quotas } from "./access-schema.ts";
import { logArchive, promotions } from "./archive-schema.ts";
import { audit } from "./audit.ts";
import { changes } from "./changes-schema.ts";
import { conversations } from "./conversation-schema.ts";
import { facts } from "./facts-schema.ts";
import {
  defaultNow,
  index,
  keyText,
  leaveSpace,
  newId,
  sql,
  type Statement,
  table,
  unlogged,
  wakeFunction,
} from "./sql.ts";

/** One step of the schema. Steps are numbered from 1, applied in order, never changed, never undone. */
export type Migration = {
  readonly name: string;
  /** The oldest schema version whose pods can still work beside this one. */
  readonly needs: number;
  readonly statements: readonly Statement[];
};

const pods: readonly Statement[] = [
  sql`create table ${table("pod")} (
    pod_id ${keyText} primary key,
    started_at bigint not null default (${defaultNow}),
    last_heartbeat bigint not null default (${defaultNow}),
    beat bigint not null default 0,
    passes bigint not null default 0,
    claim_floor bigint not null default 0,
    -- How far the pod has begun the tasks that it claimed ahead of free slots: the call, and the last task
    -- of it in the order of ids.
    begun_call bigint not null default 0,
    begun_task ${keyText} not null default '',
    status text not null default 'up' check (status in ('up', 'down')),
    -- 1 while the pod is idle and wants to be notified of new tasks.
    waiting integer not null default 0,
    -- Rises with every pause, so that a claim can say which pauses its pod knows.
    pauses bigint not null default 0,
    -- Why the pod claims no more than it does, as JSON.
    state text,
    -- Its process, for other processes on its machine; null where they could not see that it is gone.
    host text,
    -- The connection that it beats on, if its end shows to others.
    connection integer,
    metadata text not null default '{}'
  )`,
  sql`create table ${table("probe")} (id integer primary key, at bigint not null)`,
  sql`${leaveSpace("pod")}`,
];

const tasks: readonly Statement[] = [
  // A row with only a name and a payload is a task that runs: every other column has its default.
  sql`create table ${table("task")} (
    task_id ${keyText} primary key not null default (${newId}),
    tenant ${keyText} not null default 'default',
    name ${keyText} not null,
    status ${keyText} not null default 'pending'
      check (status in ('pending', 'claimed', 'completed', 'failed', 'cancelled')),
    priority integer not null default 0,
    payload text not null default 'null',
    state text,
    run_at bigint not null default (${defaultNow}),
    created_at bigint not null default (${defaultNow}),
    last_update bigint not null default (${defaultNow}),
    claimed_by ${keyText},
    claim_token bigint not null default 0,
    -- The pod's claim call, as a negative number if it claimed ahead of a free slot.
    claim_call bigint,
    retry_count integer not null default 0,
    max_attempts bigint,
    deaths integer not null default 0,
    parked integer not null default 0,
    wake bigint not null default 0,
    cancel_requested integer not null default 0,
    unique_key ${keyText},
    concurrency_key ${keyText},
    parent_id ${keyText},
    progress text,
    -- The attempt whose progress is stored. Progress of a later attempt, on a local disk, is newer.
    progress_token bigint,
    result text,
    error text,
    -- The W3C trace context of the enqueue, so that attempts belong to the same trace.
    trace text,
    -- 1 where a concurrency limit applies: by a key (concurrency_key) or by the tenant.
    limited integer not null default 0,
    -- The scope of the limit that blocks it.
    blocked_by ${keyText},
    -- 1: waits until all its dependencies have completed, 2: until all have ended, 3: as 1, but one of them
    -- has failed or was cancelled, so that it never runs.
    depends integer not null default 0,
    -- How often other tasks began to depend on it, so that the pod that ends it wakes them.
    dependents integer not null default 0,
    -- The redrive that retried it last, and in which of its steps.
    redrive_id ${keyText},
    redrive_step integer,
    -- How often its handler has asked to be run again later.
    snoozes integer not null default 0,
    -- The time of its schedule that it was made for.
    scheduled_at bigint,
    -- Only runs of flows have what follows. The highest version of the flow that has advanced the run, 0
    -- before any has, null for a plain task.
    flow_version integer,
    -- The transition or finalizer that is next, null before the first write and once the run has ended.
    cursor text,
    -- The end that its finalizers lead to, and what it waits for, as JSON.
    intent text,
    waiting text,
    -- Where a run stood when it failed or was cancelled: a retry goes on from there.
    stopped_at text,
    -- Counts the writes of the pod that drives it: the next write follows this one, or is not stored.
    run_seq bigint not null default 0,
    -- When the last of them was. No index has it, so that a run that goes on changes none.
    advanced_at bigint,
    -- The signal that it is parked for.
    awaits text,
    -- Why it was set aside, as JSON, and by which version of its flow.
    set_aside text,
    set_aside_version integer
  )`,
  sql`create table ${table("task_event")} (
    task_id ${keyText} not null,
    seq integer not null,
    at bigint not null default (${defaultNow}),
    type text not null,
    attempt integer,
    pod_id text,
    detail text,
    primary key (task_id, seq)
  )`,
  // What can be claimed, in the order of claiming. Rows that wait or run alone are in none of it.
  sql`create index ${index("task_ready")}
    on ${table("task")} (name, priority desc, created_at, task_id)
    where status = 'pending' and parked = 0 and deaths < 2`,
  sql`create index ${index("task_alone")} on ${table("task")} (name, created_at, task_id)
    where status = 'pending' and parked = 0 and deaths >= 2`,
  sql`create index ${index("task_parked")} on ${table("task")} (run_at)
    where status = 'pending' and parked = 1`,
  sql`create index ${index("task_for_dependencies")} on ${table("task")} (task_id)
    where status = 'pending' and parked = 2`,
  sql`create index ${index("task_blocked")}
    on ${table("task")} (blocked_by, priority desc, created_at, task_id)
    where status = 'pending' and parked = 3`,
  sql`create index ${index("task_limited")}
    on ${table("task")} (name, tenant, priority desc, created_at, task_id)
    where status = 'pending' and parked = 4 and deaths < 2`,
  sql`create index ${index("task_alone_limited")}
    on ${table("task")} (name, created_at, task_id)
    where status = 'pending' and parked = 4 and deaths >= 2`,
  sql`create index ${index("task_for_signal")} on ${table("task")} (name)
    where status = 'pending' and parked = 5`,
  sql`create index ${index("task_set_aside")} on ${table("task")} (name)
    where status = 'pending' and parked = 6`,
  sql`create index ${index("task_claimed")} on ${table("task")} (claimed_by, claim_call)
    where status = 'claimed'`,
  sql`create index ${index("task_running_key")} on ${table("task")} (concurrency_key)
    where status = 'claimed' and concurrency_key is not null`,
  // The default tenant can have no limit, so what runs for it is not counted.
  sql`create index ${index("task_running_tenant")} on ${table("task")} (tenant)
    where status = 'claimed' and limited = 1 and tenant <> 'default'`,
  sql`create index ${index("task_failed")} on ${table("task")} (task_id)
    where status = 'failed'`,
  sql`create index ${index("task_failed_at")} on ${table("task")} (last_update, task_id)
    where status = 'failed'`,
  sql`create index ${index("task_redriven")} on ${table("task")} (redrive_id, redrive_step)
    where redrive_id is not null`,
  sql`create unique index ${index("task_unique")}
    on ${table("task")} (tenant, name, unique_key) where unique_key is not null`,
  sql`create index ${index("task_run")} on ${table("task")} (name, task_id)
    where flow_version is not null`,
  sql`create table ${table("task_dependency")} (
    dependency_id ${keyText} not null,
    dependent_id ${keyText} not null,
    place integer not null default 0,
    primary key (dependency_id, dependent_id)
  )`,
  sql`create index ${index("task_dependent")} on ${table("task_dependency")} (dependent_id)`,
  // How many tasks of a scope may run at once: `key/<name>/<key>`, `queue/<queue>` or `tenant/<tenant>`.
  // A limit that wasn't set by hand comes from the code of the pods, and is dropped where nothing needs it.
  sql`create table ${table("task_limit")} (
    scope ${keyText} primary key not null,
    max_running integer not null,
    by_hand integer not null default 0
  )`,
  // Names that are paused or have been. A pause or resume is given a number first; `done` is the number of
  // the last one that was carried out, and a later write with a lower number changes nothing.
  sql`create table ${table("task_pause")} (
    name ${keyText} primary key not null,
    paused integer not null default 1,
    given bigint not null default 0,
    done bigint not null default 0,
    at bigint not null default (${defaultNow}),
    reason text
  )`,
  // Signals sent to runs. One that was taken is kept with its run, so that sending it again with the same
  // id changes nothing.
  sql`create table ${table("task_signal")} (
    task_id ${keyText} not null,
    signal_id ${keyText} not null,
    seq integer not null,
    name ${keyText} not null,
    payload text not null default 'null',
    taken integer not null default 0,
    at bigint not null default (${defaultNow}),
    primary key (task_id, signal_id)
  )`,
  sql`create index ${index("task_signal_open")}
    on ${table("task_signal")} (task_id, name, seq) where taken = 0`,
  sql`${leaveSpace("task")}`,
];

const schedulesAndRedrives: readonly Statement[] = [
  // Times up to `after_at` are done with; `next_at` is the first after it, 0 until the leader has computed
  // it, null where there is none. `mark` is of the write that moved it last.
  sql`create table ${table("schedule")} (
    schedule_id ${keyText} primary key not null,
    name ${keyText} not null,
    pattern text not null,
    zone text not null default 'UTC',
    payload text not null default 'null',
    options text not null default '{}',
    missed text not null default 'once' check (missed in ('skip', 'once', 'all')),
    paused integer not null default 0,
    revision bigint not null default 1,
    after_at bigint not null default (${defaultNow}),
    next_at bigint default 0,
    last_at bigint,
    last_task_id ${keyText},
    mark ${keyText},
    error text,
    created_at bigint not null default (${defaultNow}),
    last_update bigint not null default (${defaultNow})
  )`,
  sql`create index ${index("schedule_due")} on ${table("schedule")} (next_at) where paused = 0`,
  // The counts are of the steps that are over; those of the present step are in the tasks themselves.
  sql`create table ${table("redrive")} (
    redrive_id ${keyText} primary key not null,
    filter text not null,
    state text not null default 'running'
      check (state in ('running', 'stopping', 'done', 'stopped', 'cancelled')),
    reason text,
    revision bigint not null default 1,
    last_write ${keyText},
    step_max integer not null,
    step integer not null default 0,
    step_size integer not null default 0,
    step_taken integer default 0,
    remaining integer,
    taken integer not null default 0,
    succeeded integer not null default 0,
    failed integer not null default 0,
    failed_otherwise integer not null default 0,
    gone integer not null default 0,
    created_at bigint not null default (${defaultNow}),
    last_update bigint not null default (${defaultNow})
  )`,
  sql`create index ${index("redrive_open")} on ${table("redrive")} (created_at)
    where state in ('running', 'stopping')`,
];

const throttles: readonly Statement[] = [
  // What is known of one downstream, for all pods. A write requires the `rev` that its pod has read; the
  // revisions of a row that was deleted and made again never meet. `shares` says which pod may have how
  // many calls in flight. `gate` is what pods obey besides the bound, since the `pass` in which the
  // leader has written it.
  sql`create table ${table("throttle")} (
    name ${keyText} not null,
    key ${keyText} not null default '',
    rev bigint not null default (${defaultNow}),
    bound integer not null,
    epoch bigint not null default 1,
    pinned integer,
    pinned_at bigint,
    settings text not null default '{}',
    state text,
    gate text not null default '{}',
    pass bigint not null default 0,
    shares text not null default '{}',
    stats text not null default '{}',
    created_at bigint not null default (${defaultNow}),
    last_update bigint not null default (${defaultNow}),
    primary key (name, key)
  )`,
  // What one pod reports of it: how many calls it wants, and what has come of its calls in all.
  sql`create table ${table("throttle_report")} (
    name ${keyText} not null,
    key ${keyText} not null,
    pod_id ${keyText} not null,
    seq bigint not null,
    demand integer not null,
    in_flight integer not null,
    waiting integer not null,
    -- How many of those are calls. The rest are tasks, which every pod counts that could claim them.
    calls_waiting integer not null default 0,
    totals text not null,
    at bigint not null,
    primary key (name, key, pod_id)
  )`,
  sql`${leaveSpace("throttle")}`,
  sql`${leaveSpace("throttle_report")}`,
];

const sessions: readonly Statement[] = [
  // One ordered log of records each. Its owner appends by comparing where it stands, so that `term`,
  // `owner` and `beat` say only who tries. `record_id` is of the last record, for its resend to find.
  sql`create table ${table("session_log")} (
    log_id integer primary key not null,
    incarnation text not null,
    term bigint not null default 0,
    owner ${keyText},
    host text,
    log_offset bigint not null default 0,
    record_id ${keyText} not null,
    beat bigint not null default 0
  )`,
  // `header` is the whole truth, as JSON; the columns beside it are what queries search by.
  sql`create table ${table("session")} (
    session_id ${keyText} primary key not null,
    tenant ${keyText} not null default 'default',
    log_id integer not null,
    last_offset bigint not null,
    status text not null default 'active' check (status in ('active', 'archived', 'deleted')),
    state text not null default 'idle'
      check (state in ('idle', 'catching_up', 'waiting', 'compacting')),
    agent ${keyText},
    last_seq bigint not null default 0,
    header text not null,
    metadata text,
    created_at bigint not null,
    active_at bigint not null
  )`,
  sql`create index ${index("session_recent")}
    on ${table("session")} (tenant, active_at, session_id)`,
  sql`create index ${index("session_busy")} on ${table("session")} (log_id)
    where state <> 'idle'`,
  // Who takes part, and up to where they have read.
  sql`create table ${table("session_user")} (
    session_id ${keyText} not null,
    user_id ${keyText} not null,
    tenant ${keyText} not null default 'default',
    read_seq bigint not null default 0,
    primary key (session_id, user_id)
  )`,
  sql`create index ${index("session_of_user")}
    on ${table("session_user")} (tenant, user_id, session_id)`,
  // The log of a session. A row never changes. `body` is all the rest of an entry, as JSON.
  sql`create table ${table("message")} (
    session_id ${keyText} not null,
    seq bigint not null,
    kind text not null default 'message',
    role text not null,
    author ${keyText} not null,
    message_id ${keyText} not null,
    client_id ${keyText},
    replaces bigint,
    body text not null,
    at bigint not null,
    primary key (session_id, seq)
  )`,
  sql`create unique index ${index("message_client")} on ${table("message")} (session_id, client_id)
    where client_id is not null`,
  // What a turn that is under way has produced so far, for the case that its runner dies.
  sql`create table ${table("turn_checkpoint")} (
    session_id ${keyText} primary key not null,
    epoch bigint not null,
    attempt integer not null,
    body text not null
  )`,
  // Agents that were made over HTTP; those in code have no row.
  sql`create table ${table("agent")} (
    tenant ${keyText} not null default 'default',
    name ${keyText} not null,
    settings text not null,
    secrets text not null default '{}',
    revision bigint not null default 1,
    created_at bigint not null default (${defaultNow}),
    last_update bigint not null default (${defaultNow}),
    primary key (tenant, name)
  )`,
  sql`${leaveSpace("session_log")}`,
  sql`${leaveSpace("session")}`,
];

const bus: readonly Statement[] = [
  // Envelopes between processes. The receiver deletes them; a sender that waits for a reply sends again.
  sql`create ${unlogged} table ${table("bus_message")} (
    address ${keyText} not null,
    sender ${keyText} not null,
    seq bigint not null,
    body text not null,
    at bigint not null default (${defaultNow}),
    primary key (address, sender, seq)
  )`,
  // Every role that may connect to the database can listen to a channel whose name it knows, so that the
  // names of channels that carry envelopes are derived from this.
  sql`create table ${table("bus_secret")} (secret text not null)`,
  sql`insert into ${table("bus_secret")} (secret) values (${newId})`,
];

const steps: readonly Statement[] = [
  // What steps have returned, by the task that they belong to. `part` tells journals of one owner apart.
  // `key` is the path of names that finds the row again, `seq` numbers the writes of a journal, and `token`
  // is of the claim that wrote the row: steps of a claim that is over are stored no more.
  sql`create table ${table("step_journal")} (
    owner_id ${keyText} not null,
    part ${keyText} not null default '',
    key ${keyText} not null,
    seq integer not null,
    token bigint not null,
    kind text not null,
    input_hash text,
    value text not null,
    usage text,
    started_at bigint not null,
    at bigint not null default (${defaultNow}),
    primary key (owner_id, part, key)
  )`,
];

const linksAndTurns: readonly Statement[] = [
  // Who started what: a turn of a session, a run, a task, a schedule, or a failure. A row goes with the
  // task that it leads to.
  sql`create table ${table("link")} (
    from_id ${keyText} not null,
    to_id ${keyText} not null,
    what text not null check (what in ('session', 'run', 'task', 'follow_up', 'schedule')),
    at bigint not null default (${defaultNow}),
    primary key (from_id, to_id)
  )`,
  sql`create index ${index("link_to")} on ${table("link")} (to_id)`,
  // The attempts at turns that have ended. The one under way is in the header of its session. Tokens are
  // null where nothing reported any, the cost where a price isn't known.
  sql`create table ${table("turn")} (
    session_id ${keyText} not null,
    epoch bigint not null,
    attempt integer not null,
    agent ${keyText} not null,
    pod_id ${keyText},
    began_at bigint not null,
    first_chunk_at bigint,
    ended_at bigint not null,
    outcome text not null check (outcome in (
      'completed', 'stopped', 'cut', 'failed', 'dropped', 'released', 'lost')),
    input_tokens bigint,
    output_tokens bigint,
    cached_tokens bigint,
    -- The models, the one with the most tokens first, with a comma between them.
    model text,
    cost_millionths bigint,
    primary key (session_id, epoch, attempt)
  )`,
];

const taskVersions: readonly Statement[] = [
  // The highest version of a task's code that has stored a step of it, and the version that stored the
  // first one: 0 for code without a version. Null as long as none with a version has stored any.
  sql`alter table ${table("task")} add column task_version integer`,
  sql`alter table ${table("task")} add column begun_version integer`,
  // 1 if a redrive forgets the stored steps of its tasks, and how many it has forgotten.
  sql`alter table ${table("redrive")} add column from_start integer not null default 0`,
  sql`alter table ${table("redrive")} add column forgotten_steps bigint not null default 0`,
];

export const migrations: readonly Migration[] = [
  {
    name: "the first release",
    needs: 1,
    statements: [...pods, ...tasks, ...schedulesAndRedrives, ...throttles, ...sessions, ...bus],
  },
  // A pod of the first release would start a task from its beginning that has stored steps, and would
  // leave them behind when it deletes the task.
  { name: "durable steps", needs: 2, statements: steps },
  // Pods of the version before leave both tables alone.
  { name: "links and turns", needs: 2, statements: linksAndTurns },
  // A pod of the version before would claim tasks that only a later version of their code may continue.
  { name: "versions of tasks, redrives from the start", needs: 4, statements: taskVersions },
  // What operators do through a pod of the version before would leave no entry.
  {
    name: "keys, sign-ins, revocations, quotas and the audit",
    needs: 5,
    statements: [...credentials, ...quotas, ...audit],
  },
  // Pods of the version before leave them empty, and work as before.
  { name: "facts of pages", needs: 5, statements: facts },
  // Pods of the version before leave its tables alone: they store no tasks with messages, and own no logs
  // on streams. `wake()` is for SQL that inserts tasks. What they change is recorded by triggers.
  {
    name: "logs on streams, tasks of messages, wake-ups by SQL, promotions, changes",
    needs: 5,
    statements: [...logArchive, sql`${wakeFunction}`, ...promotions, ...changes],
  },
  { name: "conversations", needs: 5, statements: conversations },
];
