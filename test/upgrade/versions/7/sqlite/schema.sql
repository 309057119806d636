select 1;

select 1;

create table if not exists flotilla_migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla_migration (id, name, needs, applied_at)
values (1, 'the first release', 1, cast(round((julianday('now') - 2440587.5) * 86400000) as integer));

create table flotilla_pod (
  pod_id text primary key,
  started_at bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  last_heartbeat bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  beat bigint not null default 0,
  passes bigint not null default 0,
  claim_floor bigint not null default 0,
  -- How far the pod has begun the tasks that it claimed ahead of free slots: the call, and the last task
  -- of it in the order of ids.
  begun_call bigint not null default 0,
  begun_task text not null default '',
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
);

create table flotilla_probe (id integer primary key, at bigint not null);

select 1;

create table flotilla_task (
  task_id text primary key not null default (printf('%08x-%04x-7', cast(round((julianday('now') - 2440587.5) * 86400000) as integer) >> 16, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) & 65535) || substr(lower(hex(randomblob(8))), 1, 3) || '-a' || substr(lower(hex(randomblob(8))), 1, 3) || '-' || substr(lower(hex(randomblob(8))), 1, 12)),
  tenant text not null default 'default',
  name text not null,
  status text not null default 'pending'
    check (status in ('pending', 'claimed', 'completed', 'failed', 'cancelled')),
  priority integer not null default 0,
  payload text not null default 'null',
  state text,
  run_at bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  created_at bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  last_update bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  claimed_by text,
  claim_token bigint not null default 0,
  -- The pod's claim call, as a negative number if it claimed ahead of a free slot.
  claim_call bigint,
  retry_count integer not null default 0,
  max_attempts bigint,
  deaths integer not null default 0,
  parked integer not null default 0,
  wake bigint not null default 0,
  cancel_requested integer not null default 0,
  unique_key text,
  concurrency_key text,
  parent_id text,
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
  blocked_by text,
  -- 1: waits until all its dependencies have completed, 2: until all have ended, 3: as 1, but one of them
  -- has failed or was cancelled, so that it never runs.
  depends integer not null default 0,
  -- How often other tasks began to depend on it, so that the pod that ends it wakes them.
  dependents integer not null default 0,
  -- The redrive that retried it last, and in which of its steps.
  redrive_id text,
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
);

create table flotilla_task_event (
  task_id text not null,
  seq integer not null,
  at bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  type text not null,
  attempt integer,
  pod_id text,
  detail text,
  primary key (task_id, seq)
);

create index flotilla_task_ready
on flotilla_task (name, priority desc, created_at, task_id)
where status = 'pending' and parked = 0 and deaths < 2;

create index flotilla_task_alone on flotilla_task (name, created_at, task_id)
where status = 'pending' and parked = 0 and deaths >= 2;

create index flotilla_task_parked on flotilla_task (run_at)
where status = 'pending' and parked = 1;

create index flotilla_task_for_dependencies on flotilla_task (task_id)
where status = 'pending' and parked = 2;

create index flotilla_task_blocked
on flotilla_task (blocked_by, priority desc, created_at, task_id)
where status = 'pending' and parked = 3;

create index flotilla_task_limited
on flotilla_task (name, tenant, priority desc, created_at, task_id)
where status = 'pending' and parked = 4 and deaths < 2;

create index flotilla_task_alone_limited
on flotilla_task (name, created_at, task_id)
where status = 'pending' and parked = 4 and deaths >= 2;

create index flotilla_task_for_signal on flotilla_task (name)
where status = 'pending' and parked = 5;

create index flotilla_task_set_aside on flotilla_task (name)
where status = 'pending' and parked = 6;

create index flotilla_task_claimed on flotilla_task (claimed_by, claim_call)
where status = 'claimed';

create index flotilla_task_running_key on flotilla_task (concurrency_key)
where status = 'claimed' and concurrency_key is not null;

create index flotilla_task_running_tenant on flotilla_task (tenant)
where status = 'claimed' and limited = 1 and tenant <> 'default';

create index flotilla_task_failed on flotilla_task (task_id)
where status = 'failed';

create index flotilla_task_failed_at on flotilla_task (last_update, task_id)
where status = 'failed';

create index flotilla_task_redriven on flotilla_task (redrive_id, redrive_step)
where redrive_id is not null;

create unique index flotilla_task_unique
on flotilla_task (tenant, name, unique_key) where unique_key is not null;

create index flotilla_task_run on flotilla_task (name, task_id)
where flow_version is not null;

create table flotilla_task_dependency (
  dependency_id text not null,
  dependent_id text not null,
  place integer not null default 0,
  primary key (dependency_id, dependent_id)
);

create index flotilla_task_dependent on flotilla_task_dependency (dependent_id);

create table flotilla_task_limit (
  scope text primary key not null,
  max_running integer not null,
  by_hand integer not null default 0
);

create table flotilla_task_pause (
  name text primary key not null,
  paused integer not null default 1,
  given bigint not null default 0,
  done bigint not null default 0,
  at bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  reason text
);

create table flotilla_task_signal (
  task_id text not null,
  signal_id text not null,
  seq integer not null,
  name text not null,
  payload text not null default 'null',
  taken integer not null default 0,
  at bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  primary key (task_id, signal_id)
);

create index flotilla_task_signal_open
on flotilla_task_signal (task_id, name, seq) where taken = 0;

select 1;

create table flotilla_schedule (
  schedule_id text primary key not null,
  name text not null,
  pattern text not null,
  zone text not null default 'UTC',
  payload text not null default 'null',
  options text not null default '{}',
  missed text not null default 'once' check (missed in ('skip', 'once', 'all')),
  paused integer not null default 0,
  revision bigint not null default 1,
  after_at bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  next_at bigint default 0,
  last_at bigint,
  last_task_id text,
  mark text,
  error text,
  created_at bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  last_update bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer))
);

create index flotilla_schedule_due on flotilla_schedule (next_at) where paused = 0;

create table flotilla_redrive (
  redrive_id text primary key not null,
  filter text not null,
  state text not null default 'running'
    check (state in ('running', 'stopping', 'done', 'stopped', 'cancelled')),
  reason text,
  revision bigint not null default 1,
  last_write text,
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
  created_at bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  last_update bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer))
);

create index flotilla_redrive_open on flotilla_redrive (created_at)
where state in ('running', 'stopping');

create table flotilla_throttle (
  name text not null,
  key text not null default '',
  rev bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
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
  created_at bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  last_update bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  primary key (name, key)
);

create table flotilla_throttle_report (
  name text not null,
  key text not null,
  pod_id text not null,
  seq bigint not null,
  demand integer not null,
  in_flight integer not null,
  waiting integer not null,
  -- How many of those are calls. The rest are tasks, which every pod counts that could claim them.
  calls_waiting integer not null default 0,
  totals text not null,
  at bigint not null,
  primary key (name, key, pod_id)
);

select 1;

select 1;

create table flotilla_session_log (
  log_id integer primary key not null,
  incarnation text not null,
  term bigint not null default 0,
  owner text,
  host text,
  log_offset bigint not null default 0,
  record_id text not null,
  beat bigint not null default 0
);

create table flotilla_session (
  session_id text primary key not null,
  tenant text not null default 'default',
  log_id integer not null,
  last_offset bigint not null,
  status text not null default 'active' check (status in ('active', 'archived', 'deleted')),
  state text not null default 'idle'
    check (state in ('idle', 'catching_up', 'waiting', 'compacting')),
  agent text,
  last_seq bigint not null default 0,
  header text not null,
  metadata text,
  created_at bigint not null,
  active_at bigint not null
);

create index flotilla_session_recent
on flotilla_session (tenant, active_at, session_id);

create index flotilla_session_busy on flotilla_session (log_id)
where state <> 'idle';

create table flotilla_session_user (
  session_id text not null,
  user_id text not null,
  tenant text not null default 'default',
  read_seq bigint not null default 0,
  primary key (session_id, user_id)
);

create index flotilla_session_of_user
on flotilla_session_user (tenant, user_id, session_id);

create table flotilla_message (
  session_id text not null,
  seq bigint not null,
  kind text not null default 'message',
  role text not null,
  author text not null,
  message_id text not null,
  client_id text,
  replaces bigint,
  body text not null,
  at bigint not null,
  primary key (session_id, seq)
);

create unique index flotilla_message_client on flotilla_message (session_id, client_id)
where client_id is not null;

create table flotilla_turn_checkpoint (
  session_id text primary key not null,
  epoch bigint not null,
  attempt integer not null,
  body text not null
);

create table flotilla_agent (
  tenant text not null default 'default',
  name text not null,
  settings text not null,
  secrets text not null default '{}',
  revision bigint not null default 1,
  created_at bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  last_update bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  primary key (tenant, name)
);

select 1;

select 1;

create  table flotilla_bus_message (
  address text not null,
  sender text not null,
  seq bigint not null,
  body text not null,
  at bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  primary key (address, sender, seq)
);

create table flotilla_bus_secret (secret text not null);

insert into flotilla_bus_secret (secret) values (printf('%08x-%04x-7', cast(round((julianday('now') - 2440587.5) * 86400000) as integer) >> 16, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) & 65535) || substr(lower(hex(randomblob(8))), 1, 3) || '-a' || substr(lower(hex(randomblob(8))), 1, 3) || '-' || substr(lower(hex(randomblob(8))), 1, 12));

select 1;

select 1;

create table if not exists flotilla_migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla_migration (id, name, needs, applied_at)
values (2, 'durable steps', 2, cast(round((julianday('now') - 2440587.5) * 86400000) as integer));

create table flotilla_step_journal (
  owner_id text not null,
  part text not null default '',
  key text not null,
  seq integer not null,
  token bigint not null,
  kind text not null,
  input_hash text,
  value text not null,
  usage text,
  started_at bigint not null,
  at bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  primary key (owner_id, part, key)
);

select 1;

select 1;

create table if not exists flotilla_migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla_migration (id, name, needs, applied_at)
values (3, 'links and turns', 2, cast(round((julianday('now') - 2440587.5) * 86400000) as integer));

create table flotilla_link (
  from_id text not null,
  to_id text not null,
  what text not null check (what in ('session', 'run', 'task', 'follow_up', 'schedule')),
  at bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  primary key (from_id, to_id)
);

create index flotilla_link_to on flotilla_link (to_id);

create table flotilla_turn (
  session_id text not null,
  epoch bigint not null,
  attempt integer not null,
  agent text not null,
  pod_id text,
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
);

select 1;

select 1;

create table if not exists flotilla_migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla_migration (id, name, needs, applied_at)
values (4, 'versions of tasks, redrives from the start', 4, cast(round((julianday('now') - 2440587.5) * 86400000) as integer));

alter table flotilla_task add column task_version integer;

alter table flotilla_task add column begun_version integer;

alter table flotilla_redrive add column from_start integer not null default 0;

alter table flotilla_redrive add column forgotten_steps bigint not null default 0;

select 1;

select 1;

create table if not exists flotilla_migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla_migration (id, name, needs, applied_at)
values (5, 'keys, sign-ins, revocations, quotas and the audit', 5, cast(round((julianday('now') - 2440587.5) * 86400000) as integer));

create table flotilla_api_key (
  key_id text primary key not null,
  name text not null,
  hash text not null,
  role text not null,
  -- The only tenant that it may act for; null for any.
  tenant text,
  -- 1 if it may read what users have put in.
  payloads integer not null default 0,
  created_at bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  created_by text,
  expires_at bigint,
  -- Written now and then, for display.
  last_used_at bigint,
  revoked_at bigint,
  -- The key that it was rotated to.
  replaced_by text,
  version bigint not null
);

create unique index flotilla_api_key_hash on flotilla_api_key (hash);

create index flotilla_api_key_version on flotilla_api_key (version);

create table flotilla_token_revocation (
  kind text not null check (kind in ('jti', 'user')),
  tenant text not null default '',
  subject text not null,
  before_at bigint not null,
  expires_at bigint not null,
  created_by text,
  version bigint not null,
  primary key (kind, tenant, subject)
);

create index flotilla_token_revocation_version on flotilla_token_revocation (version);

create table flotilla_sign_in (
  sign_in_id text primary key not null,
  hash text not null,
  -- The key of the store that it was made with; null for a key of a config.
  key_id text,
  -- Proves to a server which key of its config it was made with, given the cookie.
  binding text,
  key_name text not null,
  role text,
  tenant text,
  -- A list in JSON.
  verbs text not null,
  -- The only address at which it counts, such as https://ops.example.
  origin text not null,
  address text,
  created_at bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  -- Written once a minute while it is used.
  last_used_at bigint not null,
  expires_at bigint not null,
  ended_at bigint,
  version bigint not null
);

create unique index flotilla_sign_in_hash on flotilla_sign_in (hash);

create index flotilla_sign_in_version on flotilla_sign_in (version);

create table flotilla_credential_version (
  id integer primary key not null,
  version bigint not null
);

create table flotilla_tenant_count (
  tenant text not null,
  log_id integer not null,
  sessions bigint not null default 0,
  turns bigint not null default 0,
  bytes bigint not null default 0,
  primary key (tenant, log_id)
);

select 1;

alter table flotilla_session add column bytes bigint not null default 0;

create  table flotilla_quota_server (
  server_id text primary key not null,
  seen_at bigint not null
);

create table flotilla_audit (
  id text primary key not null,
  at bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  actor text not null,
  tenant text not null default 'default',
  user_id text not null default '',
  key_name text,
  role text,
  address text,
  action text not null,
  subject text,
  filter text,
  count bigint,
  before text,
  after text,
  outcome text not null check (outcome in ('begun', 'done', 'full', 'over')),
  reason text,
  act_id text
);

create index flotilla_audit_at on flotilla_audit (at, id);

create index flotilla_audit_actor on flotilla_audit (actor, at, id);

create index flotilla_audit_actor_action on flotilla_audit (actor, action, at, id);

create index flotilla_audit_action on flotilla_audit (action, at, id);

create index flotilla_audit_subject on flotilla_audit (subject, at, id)
where subject is not null;

create unique index flotilla_audit_act on flotilla_audit (actor, tenant, user_id, act_id)
where act_id is not null;

select 1;

select 1;

create table if not exists flotilla_migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla_migration (id, name, needs, applied_at)
values (6, 'facts of pages', 5, cast(round((julianday('now') - 2440587.5) * 86400000) as integer));

select 1;

alter table flotilla_task add column started_at bigint;

alter table flotilla_pod add column pulse text;

create table flotilla_series (
  -- The length of that time in ms, and when it begins.
  span bigint not null,
  at bigint not null,
  -- Such as task:mail.
  subject text not null,
  -- The pod that has counted it; '' if it counts for all pods.
  pod text not null,
  -- As JSON.
  counts text not null,
  primary key (span, at, subject, pod)
);

create index flotilla_series_subject on flotilla_series (subject, span, at);

create index flotilla_series_unfolded on flotilla_series (at) where pod <> '';

create table flotilla_series_fold (
  id integer primary key,
  -- The last minute that pods write nothing for any more.
  closed_to bigint not null,
  -- The id of the last fold. The next one is stored only if it has decided by this one.
  last_fold text not null
);

create table flotilla_failure_group (
  group_id text primary key not null,
  state text not null default 'open' check (state in ('open', 'resolved', 'ignored')),
  -- When an operator or a failure gave it this state, and until when it is ignored: null until a task of
  -- it fails.
  state_at bigint,
  until_at bigint,
  first_at bigint not null,
  -- When a task of it failed though it was resolved or ignored.
  came_back_at bigint,
  last_update bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer))
);

create table flotilla_throttle_event (
  name text not null,
  key text not null default '',
  seq bigint not null,
  at bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  cause text not null,
  bound_before integer,
  bound integer not null,
  epoch bigint not null,
  breaker text not null default 'closed',
  actor text,
  primary key (name, key, seq)
);

alter table flotilla_session add column approval_since bigint;

alter table flotilla_session add column approval_until bigint;

alter table flotilla_session add column approval_tool text;

alter table flotilla_session add column approval_seq bigint;

create index flotilla_session_approval_until
on flotilla_session (approval_until, session_id) where approval_until is not null;

create index flotilla_session_approval_until_tenant
on flotilla_session (tenant, approval_until, session_id) where approval_until is not null;

create index flotilla_session_approval on flotilla_session (approval_since, session_id)
where approval_since is not null and approval_until is null;

create index flotilla_session_approval_tenant
on flotilla_session (tenant, approval_since, session_id)
where approval_since is not null and approval_until is null;

create table flotilla_bulk (
  bulk_id text primary key not null,
  action text not null check (action in ('cancel', 'delete', 'resume', 'retry', 'signal')),
  filter text not null,
  options text not null default '{}',
  -- Of the signal.
  payload text,
  state text not null default 'running' check (state in ('running', 'done', 'stopped')),
  revision bigint not null default 1,
  cursor_id text not null default '',
  until_id text not null,
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
  created_at bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  last_update bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer))
);

create index flotilla_bulk_open on flotilla_bulk (created_at)
where state = 'running';

alter table flotilla_pod add column drain integer not null default 0;

drop index flotilla_task_running_key;

create index flotilla_task_running_key on flotilla_task (concurrency_key)
where coalesce(status, '') = 'claimed' and concurrency_key is not null;

drop index flotilla_task_running_tenant;

create index flotilla_task_running_tenant on flotilla_task (tenant)
where coalesce(status, '') = 'claimed' and limited = 1 and tenant <> 'default';

drop index flotilla_task_parked;

create index flotilla_task_parked on flotilla_task (run_at, name)
where status = 'pending' and parked = 1;

drop index flotilla_task_for_dependencies;

create index flotilla_task_for_dependencies on flotilla_task (task_id, name)
where status = 'pending' and parked = 2;

drop index flotilla_task_blocked;

create index flotilla_task_blocked
on flotilla_task (blocked_by, priority desc, created_at, task_id, name)
where status = 'pending' and parked = 3;

drop index flotilla_task_failed;

create index flotilla_task_failed on flotilla_task (task_id, name)
where status = 'failed';

create index flotilla_task_run_parked on flotilla_task (name, run_at)
where status = 'pending' and parked = 1 and flow_version is not null;

create index flotilla_task_awaiting_until on flotilla_task (run_at, task_id)
where status = 'pending' and parked = 1 and awaits is not null;

create index flotilla_task_awaiting
on flotilla_task (coalesce(advanced_at, last_update), task_id)
where status = 'pending' and parked = 5 and awaits is not null;

select 1;

select 1;

create table if not exists flotilla_migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla_migration (id, name, needs, applied_at)
values (7, 'logs on streams, tasks of messages, wake-ups by SQL, promotions, changes', 5, cast(round((julianday('now') - 2440587.5) * 86400000) as integer));

create table flotilla_log_watermark (
  log_id integer primary key not null,
  -- The life of the log. Offsets of another one mean other records.
  incarnation text not null,
  -- The offset of the last record that is archived, its id, and the hash over all up to it.
  log_offset bigint not null,
  record_id text not null,
  chain text not null,
  -- The transaction that has moved it here. Its other statements store something only if it is this one.
  flush_id text not null,
  moved_at bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer))
);

create table flotilla_archive_aside (
  log_id integer not null,
  incarnation text not null,
  log_offset bigint not null,
  -- Which entry of the record it is; -1 for the record as a whole, -2 and below for its tasks.
  place integer not null,
  session_id text,
  seq bigint,
  body text not null,
  -- Why it was refused.
  reason text not null,
  at bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  primary key (log_id, incarnation, log_offset, place)
);

create index flotilla_archive_aside_at on flotilla_archive_aside (at);

create table flotilla_task_alias (
  alias_id text primary key not null,
  task_id text not null
);

create index flotilla_task_alias_task on flotilla_task_alias (task_id);

create table flotilla_log_place (
  place text not null default 'sql' check (place in ('sql', 'nats')),
  cluster_id text not null
);

insert into flotilla_log_place (cluster_id) values (printf('%08x-%04x-7', cast(round((julianday('now') - 2440587.5) * 86400000) as integer) >> 16, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) & 65535) || substr(lower(hex(randomblob(8))), 1, 3) || '-a' || substr(lower(hex(randomblob(8))), 1, 3) || '-' || substr(lower(hex(randomblob(8))), 1, 12));

select 1;

create table flotilla_promotion (
  id integer primary key not null,
  promotion_id text not null,
  -- The deployment that the rows come from, and where they were, for people.
  source_id text not null,
  source text not null,
  state text not null default 'copying' check (state in ('copying', 'done')),
  -- How many logs its sessions are spread over; 0 where the store that they come from has none.
  logs integer not null,
  -- The process that copies, and until when another one leaves it alone.
  holder text,
  host text,
  held_until bigint not null default 0,
  -- Up to where each table is copied, as JSON.
  progress text not null default '{}',
  began_at bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  last_update bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer))
);

create table flotilla_change (
  at bigint not null,
  subjects text not null,
  mark integer primary key autoincrement not null, seq integer not null default 0
);

create table flotilla_change_state (
  id integer primary key,
  -- New whenever recording begins, so that a cursor from before a gap is known as one.
  life text not null,
  -- Which triggers these are: a release with other ones makes them anew.
  revision integer not null,
  keep_ms bigint not null,
  since bigint not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer)),
  -- The last row that was pruned.
  pruned_mark bigint not null default 0,
  pruned_seq bigint not null default 0,
  -- A horizon that there was. Below it, this is another server than the one that gave the marks.
  high bigint not null default 0
);

alter table flotilla_session add column turn_epoch bigint;

alter table flotilla_session add column turn_agent text;
