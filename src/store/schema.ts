import {
  dropIndex,
  index,
  unlogged,
  keyText,
  leaveSpace,
  newId,
  sql,
  defaultNow,
  type Statement,
  table,
} from "./sql.ts";

/** One step of the schema. Steps are numbered from 1, applied in order, never changed, never undone. */
export type Migration = {
  readonly name: string;
  /** The oldest schema version whose pods can still work beside this one. */
  readonly needs: number;
  readonly statements: readonly Statement[];
};

const firstTables: Migration = {
  name: "tasks and pods",
  needs: 1,
  statements: [
    sql`create table ${table("pod")} (
      pod_id ${keyText} primary key,
      birth_timestamp bigint not null default (${defaultNow}),
      last_heartbeat bigint not null default (${defaultNow}),
      beat bigint not null default 0,
      passes bigint not null default 0,
      claim_floor bigint not null default 0,
      status text not null default 'up' check (status in ('up', 'down')),
      metadata text not null default '{}'
    )`,
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
      result text,
      error text
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
    sql`create table ${table("probe")} (id integer primary key, at bigint not null)`,
    // What can be claimed, in the order of claiming. Rows that wait or run alone are in none of it.
    sql`create index ${index("task_ready")}
      on ${table("task")} (name, priority desc, created_at, task_id)
      where status = 'pending' and parked = 0 and deaths < 2`,
    sql`create index ${index("task_alone")} on ${table("task")} (name, created_at, task_id)
      where status = 'pending' and parked = 0 and deaths >= 2`,
    sql`create index ${index("task_parked")} on ${table("task")} (run_at)
      where status = 'pending' and parked = 1`,
    sql`create index ${index("task_claimed")} on ${table("task")} (claimed_by, claim_call)
      where status = 'claimed'`,
    sql`create index ${index("task_failed")} on ${table("task")} (task_id)
      where status = 'failed'`,
    sql`create unique index ${index("task_unique")}
      on ${table("task")} (tenant, name, unique_key) where unique_key is not null`,
  ],
};

const tracesAndWaiting: Migration = {
  name: "traces, and pods that wait",
  needs: 1,
  statements: [
    // The W3C trace context that a task was enqueued in, so that its runs belong to the same trace.
    sql`alter table ${table("task")} add column trace text`,
    sql`alter table ${table("pod")} add column waiting integer not null default 0`,
    sql`${leaveSpace("task")}`,
    sql`${leaveSpace("pod")}`,
  ],
};

const gatesWaitsAndSchedules: Migration = {
  name: "gates, tasks that wait for others, schedules, redrives",
  // An older pod would wake nobody who waits for its tasks, nor keep to a limit.
  needs: 3,
  statements: [
    // 1 where a limit is to be kept: by a key (`concurrency_key` names it) or by whose task it is.
    sql`alter table ${table("task")} add column limited integer not null default 0`,
    // The limit that it was found to be held up by.
    sql`alter table ${table("task")} add column blocked_by ${keyText}`,
    // Whether it waits for others: 1 until all have completed, 2 until all have ended. 3 instead of 1
    // says that one of them has failed or was cancelled, so that it won't run.
    sql`alter table ${table("task")} add column depends integer not null default 0`,
    // How many times somebody began to wait for it, so that whoever ends it knows to wake them.
    sql`alter table ${table("task")} add column dependents integer not null default 0`,
    // The redrive that has started it over last, and in which of its steps.
    sql`alter table ${table("task")} add column redrive_id ${keyText}`,
    // The attempt whose progress is stored: what a machine has kept of a later one is newer.
    sql`alter table ${table("task")} add column progress_token bigint`,
    // How often its handler has asked to be run again later.
    sql`alter table ${table("task")} add column snoozes integer not null default 0`,
    // The time of its schedule that it was made for.
    sql`alter table ${table("task")} add column scheduled_at bigint`,
    // Why a pod claims no more than it does, in its own words.
    sql`alter table ${table("pod")} add column state text`,
    sql`alter table ${table("task")} add column redrive_step integer`,
    // Changes with every pause, so that a claim can say which pauses it knows of.
    sql`alter table ${table("pod")} add column pauses bigint not null default 0`,
    sql`create index ${index("task_limited")}
      on ${table("task")} (name, tenant, priority desc, created_at, task_id)
      where status = 'pending' and parked = 4 and deaths < 2`,
    sql`create index ${index("task_blocked")}
      on ${table("task")} (blocked_by, priority desc, created_at, task_id)
      where status = 'pending' and parked = 3`,
    sql`create index ${index("task_for_dependencies")} on ${table("task")} (task_id)
      where status = 'pending' and parked = 2`,
    sql`create index ${index("task_alone_limited")}
      on ${table("task")} (name, created_at, task_id)
      where status = 'pending' and parked = 4 and deaths >= 2`,
    sql`create index ${index("task_running_key")} on ${table("task")} (concurrency_key)
      where status = 'claimed' and concurrency_key is not null`,
    sql`create index ${index("task_running_tenant")} on ${table("task")} (tenant)
      where status = 'claimed' and limited = 1`,
    sql`create index ${index("task_failed_at")} on ${table("task")} (last_update, task_id)
      where status = 'failed'`,
    sql`create index ${index("task_redriven")} on ${table("task")} (redrive_id, redrive_step)
      where redrive_id is not null`,
    sql`create table ${table("task_dependency")} (
      dependency_id ${keyText} not null,
      dependent_id ${keyText} not null,
      place integer not null default 0,
      primary key (dependency_id, dependent_id)
    )`,
    sql`create index ${index("task_dependent")} on ${table("task_dependency")} (dependent_id)`,
    // How many may run at once of what a scope names: `key/<name>/<key>` or `tenant/<tenant>`. What
    // wasn't set by hand is what the code of the pods says, and is forgotten where nothing needs it.
    sql`create table ${table("task_limit")} (
      scope ${keyText} primary key not null,
      max_running integer not null,
      by_hand integer not null default 0
    )`,
    // Names that are paused or have been. Whoever pauses or resumes is given a number first; `done` is the
    // number of the last who did, and what comes later with a lower one changes nothing.
    sql`create table ${table("task_pause")} (
      name ${keyText} primary key not null,
      paused integer not null default 1,
      given bigint not null default 0,
      done bigint not null default 0,
      at bigint not null default (${defaultNow}),
      reason text
    )`,
    // Times up to `after_at` are done with; `next_at` is the first after it, 0 until somebody has worked
    // it out, null where there is none. `mark` is of the write that moved it last.
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
    // What is counted here is of the steps that are over; of the present one the tasks themselves tell.
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
  ],
};

const throttles: Migration = {
  name: "throttles",
  needs: 3,
  statements: [
    // What is known of one downstream, for all pods. Whoever changes it requires the `rev` that it has
    // read; those of a row that was deleted and made again don't meet. `shares` says which pod may have
    // how many calls in flight. `gate` is what pods obey besides the bound, since the `pass` in which
    // the leader has said so.
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
    // What one pod has to say about it: how many it wants, and what has come of its calls in all.
    sql`create table ${table("throttle_report")} (
      name ${keyText} not null,
      key ${keyText} not null,
      pod_id ${keyText} not null,
      seq bigint not null,
      demand integer not null,
      in_flight integer not null,
      waiting integer not null,
      totals text not null,
      at bigint not null,
      primary key (name, key, pod_id)
    )`,
    sql`${leaveSpace("throttle")}`,
    sql`${leaveSpace("throttle_report")}`,
  ],
};

const runs: Migration = {
  name: "runs of flows",
  // An older pod that recovers a run would end it without its finalizers.
  needs: 5,
  statements: [
    // The highest version of its flow that has advanced it, 0 before any has; null where it is no run.
    sql`alter table ${table("task")} add column flow_version integer`,
    // The transition or finalizer that is next; null before the first write and once it has ended.
    sql`alter table ${table("task")} add column cursor text`,
    // The ending that its finalizers lead to, and what it waits for, as JSON.
    sql`alter table ${table("task")} add column intent text`,
    sql`alter table ${table("task")} add column waiting text`,
    // Where a run that has failed or was cancelled stood then, and goes on if it is started over.
    sql`alter table ${table("task")} add column stopped_at text`,
    // Counts the writes of whoever runs it: the next one follows this one, or isn't stored.
    sql`alter table ${table("task")} add column run_seq bigint not null default 0`,
    // When the last of them was. In no index, so that a run that goes on touches none.
    sql`alter table ${table("task")} add column advanced_at bigint`,
    // The signal that it is parked for.
    sql`alter table ${table("task")} add column awaits text`,
    // Why it was set aside, as JSON, and by which version of its flow.
    sql`alter table ${table("task")} add column set_aside text`,
    sql`alter table ${table("task")} add column set_aside_version integer`,
    sql`create index ${index("task_run")} on ${table("task")} (name, task_id)
      where flow_version is not null`,
    sql`create index ${index("task_set_aside")} on ${table("task")} (name)
      where status = 'pending' and parked = 6`,
    sql`create index ${index("task_for_signal")} on ${table("task")} (name)
      where status = 'pending' and parked = 5`,
    // What was said to runs from outside. One that was taken is kept with its run, so that to say it
    // again with the same id says nothing new.
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
  ],
};

const sessions: Migration = {
  name: "sessions",
  needs: 5,
  statements: [
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
    // `header` is the whole truth, as JSON; the columns beside it are what is looked for.
    sql`create table ${table("session")} (
      session_id ${keyText} primary key not null,
      tenant ${keyText} not null default 'default',
      log_id integer not null,
      last_offset bigint not null,
      status text not null default 'active' check (status in ('active', 'archived', 'deleted')),
      state text not null default 'idle' check (state in ('idle', 'catching_up', 'compacting')),
      agent ${keyText},
      last_seq bigint not null default 0,
      header text not null,
      metadata text,
      created_at bigint not null,
      active_at bigint not null
    )`,
    sql`create index ${index("session_tenant")} on ${table("session")} (tenant, session_id)`,
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
    // What a turn that is under way has said so far, for the case that its runner dies.
    sql`create table ${table("turn_checkpoint")} (
      session_id ${keyText} primary key not null,
      epoch bigint not null,
      attempt integer not null,
      body text not null
    )`,
    // Agents that were made over HTTP; those in code are nowhere here.
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
    // Letters between processes. Whoever they are for takes them out; whoever waits for one asks again.
    sql`create ${unlogged} table ${table("bus_message")} (
      address ${keyText} not null,
      sender ${keyText} not null,
      seq bigint not null,
      body text not null,
      at bigint not null default (${defaultNow}),
      primary key (address, sender, seq)
    )`,
    // Anybody who may connect to the database hears every channel whose name they know, so that names of
    // channels with letters are made with this.
    sql`create table ${table("bus_secret")} (secret text not null)`,
    sql`insert into ${table("bus_secret")} (secret) values (${newId})`,
    sql`${leaveSpace("session_log")}`,
    sql`${leaveSpace("session")}`,
  ],
};

const recency: Migration = {
  name: "sessions by their last activity, turns and calls that wait",
  needs: 5,
  statements: [
    sql`create index ${index("session_recent")}
      on ${table("session")} (tenant, active_at, session_id)`,
    sql`${dropIndex("session_tenant")}`,
    // SQLite can't change the check of a column, so that another column takes its place.
    sql`alter table ${table("session")} add column next_state text not null default 'idle'
      check (next_state in ('idle', 'catching_up', 'waiting', 'compacting'))`,
    sql`update ${table("session")} set next_state = state where state <> 'idle'`,
    sql`${dropIndex("session_busy")}`,
    sql`alter table ${table("session")} drop column state`,
    sql`alter table ${table("session")} rename column next_state to state`,
    sql`create index ${index("session_busy")} on ${table("session")} (log_id)
      where state <> 'idle'`,
    // How many of those that wait are calls. The rest are tasks, which every pod counts that could have them.
    sql`alter table ${table("throttle_report")} add column calls_waiting integer not null default 0`,
  ],
};

export const migrations: readonly Migration[] = [
  firstTables,
  tracesAndWaiting,
  gatesWaitsAndSchedules,
  throttles,
  runs,
  sessions,
  recency,
];
