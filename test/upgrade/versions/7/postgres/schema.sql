select pg_advisory_xact_lock(hashtext('flotilla migrations'));

do $$ begin if to_regnamespace('flotilla') is null then create schema flotilla; end if; end $$;

create table if not exists flotilla.migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla.migration (id, name, needs, applied_at)
values (1, 'the first release', 1, (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint));

create table flotilla.pod (
  pod_id text collate "C" primary key,
  started_at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  last_heartbeat bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  beat bigint not null default 0,
  passes bigint not null default 0,
  claim_floor bigint not null default 0,
  -- How far the pod has begun the tasks that it claimed ahead of free slots: the call, and the last task
  -- of it in the order of ids.
  begun_call bigint not null default 0,
  begun_task text collate "C" not null default '',
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

create table flotilla.probe (id integer primary key, at bigint not null);

alter table flotilla.pod set (fillfactor = 50);

create table flotilla.task (
  task_id text collate "C" primary key not null default (substr(lpad(to_hex(floor(extract(epoch from statement_timestamp()) * 1000)::bigint), 12, '0'), 1, 8) || '-' || substr(lpad(to_hex(floor(extract(epoch from statement_timestamp()) * 1000)::bigint), 12, '0'), 9, 4) || '-7' || substr(gen_random_uuid()::text, 16, 3) || '-a' || substr(gen_random_uuid()::text, 16, 3) || '-' || substr(gen_random_uuid()::text, 25, 12)),
  tenant text collate "C" not null default 'default',
  name text collate "C" not null,
  status text collate "C" not null default 'pending'
    check (status in ('pending', 'claimed', 'completed', 'failed', 'cancelled')),
  priority integer not null default 0,
  payload text not null default 'null',
  state text,
  run_at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  created_at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  last_update bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  claimed_by text collate "C",
  claim_token bigint not null default 0,
  -- The pod's claim call, as a negative number if it claimed ahead of a free slot.
  claim_call bigint,
  retry_count integer not null default 0,
  max_attempts bigint,
  deaths integer not null default 0,
  parked integer not null default 0,
  wake bigint not null default 0,
  cancel_requested integer not null default 0,
  unique_key text collate "C",
  concurrency_key text collate "C",
  parent_id text collate "C",
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
  blocked_by text collate "C",
  -- 1: waits until all its dependencies have completed, 2: until all have ended, 3: as 1, but one of them
  -- has failed or was cancelled, so that it never runs.
  depends integer not null default 0,
  -- How often other tasks began to depend on it, so that the pod that ends it wakes them.
  dependents integer not null default 0,
  -- The redrive that retried it last, and in which of its steps.
  redrive_id text collate "C",
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

create table flotilla.task_event (
  task_id text collate "C" not null,
  seq integer not null,
  at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  type text not null,
  attempt integer,
  pod_id text,
  detail text,
  primary key (task_id, seq)
);

create index task_ready
on flotilla.task (name, priority desc, created_at, task_id)
where status = 'pending' and parked = 0 and deaths < 2;

create index task_alone on flotilla.task (name, created_at, task_id)
where status = 'pending' and parked = 0 and deaths >= 2;

create index task_parked on flotilla.task (run_at)
where status = 'pending' and parked = 1;

create index task_for_dependencies on flotilla.task (task_id)
where status = 'pending' and parked = 2;

create index task_blocked
on flotilla.task (blocked_by, priority desc, created_at, task_id)
where status = 'pending' and parked = 3;

create index task_limited
on flotilla.task (name, tenant, priority desc, created_at, task_id)
where status = 'pending' and parked = 4 and deaths < 2;

create index task_alone_limited
on flotilla.task (name, created_at, task_id)
where status = 'pending' and parked = 4 and deaths >= 2;

create index task_for_signal on flotilla.task (name)
where status = 'pending' and parked = 5;

create index task_set_aside on flotilla.task (name)
where status = 'pending' and parked = 6;

create index task_claimed on flotilla.task (claimed_by, claim_call)
where status = 'claimed';

create index task_running_key on flotilla.task (concurrency_key)
where status = 'claimed' and concurrency_key is not null;

create index task_running_tenant on flotilla.task (tenant)
where status = 'claimed' and limited = 1 and tenant <> 'default';

create index task_failed on flotilla.task (task_id)
where status = 'failed';

create index task_failed_at on flotilla.task (last_update, task_id)
where status = 'failed';

create index task_redriven on flotilla.task (redrive_id, redrive_step)
where redrive_id is not null;

create unique index task_unique
on flotilla.task (tenant, name, unique_key) where unique_key is not null;

create index task_run on flotilla.task (name, task_id)
where flow_version is not null;

create table flotilla.task_dependency (
  dependency_id text collate "C" not null,
  dependent_id text collate "C" not null,
  place integer not null default 0,
  primary key (dependency_id, dependent_id)
);

create index task_dependent on flotilla.task_dependency (dependent_id);

create table flotilla.task_limit (
  scope text collate "C" primary key not null,
  max_running integer not null,
  by_hand integer not null default 0
);

create table flotilla.task_pause (
  name text collate "C" primary key not null,
  paused integer not null default 1,
  given bigint not null default 0,
  done bigint not null default 0,
  at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  reason text
);

create table flotilla.task_signal (
  task_id text collate "C" not null,
  signal_id text collate "C" not null,
  seq integer not null,
  name text collate "C" not null,
  payload text not null default 'null',
  taken integer not null default 0,
  at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  primary key (task_id, signal_id)
);

create index task_signal_open
on flotilla.task_signal (task_id, name, seq) where taken = 0;

alter table flotilla.task set (fillfactor = 50);

create table flotilla.schedule (
  schedule_id text collate "C" primary key not null,
  name text collate "C" not null,
  pattern text not null,
  zone text not null default 'UTC',
  payload text not null default 'null',
  options text not null default '{}',
  missed text not null default 'once' check (missed in ('skip', 'once', 'all')),
  paused integer not null default 0,
  revision bigint not null default 1,
  after_at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  next_at bigint default 0,
  last_at bigint,
  last_task_id text collate "C",
  mark text collate "C",
  error text,
  created_at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  last_update bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
);

create index schedule_due on flotilla.schedule (next_at) where paused = 0;

create table flotilla.redrive (
  redrive_id text collate "C" primary key not null,
  filter text not null,
  state text not null default 'running'
    check (state in ('running', 'stopping', 'done', 'stopped', 'cancelled')),
  reason text,
  revision bigint not null default 1,
  last_write text collate "C",
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
  created_at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  last_update bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
);

create index redrive_open on flotilla.redrive (created_at)
where state in ('running', 'stopping');

create table flotilla.throttle (
  name text collate "C" not null,
  key text collate "C" not null default '',
  rev bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
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
  created_at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  last_update bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  primary key (name, key)
);

create table flotilla.throttle_report (
  name text collate "C" not null,
  key text collate "C" not null,
  pod_id text collate "C" not null,
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

alter table flotilla.throttle set (fillfactor = 50);

alter table flotilla.throttle_report set (fillfactor = 50);

create table flotilla.session_log (
  log_id integer primary key not null,
  incarnation text not null,
  term bigint not null default 0,
  owner text collate "C",
  host text,
  log_offset bigint not null default 0,
  record_id text collate "C" not null,
  beat bigint not null default 0
);

create table flotilla.session (
  session_id text collate "C" primary key not null,
  tenant text collate "C" not null default 'default',
  log_id integer not null,
  last_offset bigint not null,
  status text not null default 'active' check (status in ('active', 'archived', 'deleted')),
  state text not null default 'idle'
    check (state in ('idle', 'catching_up', 'waiting', 'compacting')),
  agent text collate "C",
  last_seq bigint not null default 0,
  header text not null,
  metadata text,
  created_at bigint not null,
  active_at bigint not null
);

create index session_recent
on flotilla.session (tenant, active_at, session_id);

create index session_busy on flotilla.session (log_id)
where state <> 'idle';

create table flotilla.session_user (
  session_id text collate "C" not null,
  user_id text collate "C" not null,
  tenant text collate "C" not null default 'default',
  read_seq bigint not null default 0,
  primary key (session_id, user_id)
);

create index session_of_user
on flotilla.session_user (tenant, user_id, session_id);

create table flotilla.message (
  session_id text collate "C" not null,
  seq bigint not null,
  kind text not null default 'message',
  role text not null,
  author text collate "C" not null,
  message_id text collate "C" not null,
  client_id text collate "C",
  replaces bigint,
  body text not null,
  at bigint not null,
  primary key (session_id, seq)
);

create unique index message_client on flotilla.message (session_id, client_id)
where client_id is not null;

create table flotilla.turn_checkpoint (
  session_id text collate "C" primary key not null,
  epoch bigint not null,
  attempt integer not null,
  body text not null
);

create table flotilla.agent (
  tenant text collate "C" not null default 'default',
  name text collate "C" not null,
  settings text not null,
  secrets text not null default '{}',
  revision bigint not null default 1,
  created_at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  last_update bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  primary key (tenant, name)
);

alter table flotilla.session_log set (fillfactor = 50);

alter table flotilla.session set (fillfactor = 50);

create unlogged table flotilla.bus_message (
  address text collate "C" not null,
  sender text collate "C" not null,
  seq bigint not null,
  body text not null,
  at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  primary key (address, sender, seq)
);

create table flotilla.bus_secret (secret text not null);

insert into flotilla.bus_secret (secret) values (substr(lpad(to_hex(floor(extract(epoch from statement_timestamp()) * 1000)::bigint), 12, '0'), 1, 8) || '-' || substr(lpad(to_hex(floor(extract(epoch from statement_timestamp()) * 1000)::bigint), 12, '0'), 9, 4) || '-7' || substr(gen_random_uuid()::text, 16, 3) || '-a' || substr(gen_random_uuid()::text, 16, 3) || '-' || substr(gen_random_uuid()::text, 25, 12));

select pg_advisory_xact_lock(hashtext('flotilla migrations'));

do $$ begin if to_regnamespace('flotilla') is null then create schema flotilla; end if; end $$;

create table if not exists flotilla.migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla.migration (id, name, needs, applied_at)
values (2, 'durable steps', 2, (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint));

create table flotilla.step_journal (
  owner_id text collate "C" not null,
  part text collate "C" not null default '',
  key text collate "C" not null,
  seq integer not null,
  token bigint not null,
  kind text not null,
  input_hash text,
  value text not null,
  usage text,
  started_at bigint not null,
  at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  primary key (owner_id, part, key)
);

select pg_advisory_xact_lock(hashtext('flotilla migrations'));

do $$ begin if to_regnamespace('flotilla') is null then create schema flotilla; end if; end $$;

create table if not exists flotilla.migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla.migration (id, name, needs, applied_at)
values (3, 'links and turns', 2, (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint));

create table flotilla.link (
  from_id text collate "C" not null,
  to_id text collate "C" not null,
  what text not null check (what in ('session', 'run', 'task', 'follow_up', 'schedule')),
  at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  primary key (from_id, to_id)
);

create index link_to on flotilla.link (to_id);

create table flotilla.turn (
  session_id text collate "C" not null,
  epoch bigint not null,
  attempt integer not null,
  agent text collate "C" not null,
  pod_id text collate "C",
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

select pg_advisory_xact_lock(hashtext('flotilla migrations'));

do $$ begin if to_regnamespace('flotilla') is null then create schema flotilla; end if; end $$;

create table if not exists flotilla.migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla.migration (id, name, needs, applied_at)
values (4, 'versions of tasks, redrives from the start', 4, (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint));

alter table flotilla.task add column task_version integer;

alter table flotilla.task add column begun_version integer;

alter table flotilla.redrive add column from_start integer not null default 0;

alter table flotilla.redrive add column forgotten_steps bigint not null default 0;

select pg_advisory_xact_lock(hashtext('flotilla migrations'));

do $$ begin if to_regnamespace('flotilla') is null then create schema flotilla; end if; end $$;

create table if not exists flotilla.migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla.migration (id, name, needs, applied_at)
values (5, 'keys, sign-ins, revocations, quotas and the audit', 5, (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint));

create table flotilla.api_key (
  key_id text collate "C" primary key not null,
  name text not null,
  hash text collate "C" not null,
  role text not null,
  -- The only tenant that it may act for; null for any.
  tenant text collate "C",
  -- 1 if it may read what users have put in.
  payloads integer not null default 0,
  created_at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  created_by text,
  expires_at bigint,
  -- Written now and then, for display.
  last_used_at bigint,
  revoked_at bigint,
  -- The key that it was rotated to.
  replaced_by text collate "C",
  version bigint not null
);

create unique index api_key_hash on flotilla.api_key (hash);

create index api_key_version on flotilla.api_key (version);

create table flotilla.token_revocation (
  kind text not null check (kind in ('jti', 'user')),
  tenant text collate "C" not null default '',
  subject text collate "C" not null,
  before_at bigint not null,
  expires_at bigint not null,
  created_by text,
  version bigint not null,
  primary key (kind, tenant, subject)
);

create index token_revocation_version on flotilla.token_revocation (version);

create table flotilla.sign_in (
  sign_in_id text collate "C" primary key not null,
  hash text collate "C" not null,
  -- The key of the store that it was made with; null for a key of a config.
  key_id text collate "C",
  -- Proves to a server which key of its config it was made with, given the cookie.
  binding text,
  key_name text collate "C" not null,
  role text,
  tenant text collate "C",
  -- A list in JSON.
  verbs text not null,
  -- The only address at which it counts, such as https://ops.example.
  origin text not null,
  address text,
  created_at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  -- Written once a minute while it is used.
  last_used_at bigint not null,
  expires_at bigint not null,
  ended_at bigint,
  version bigint not null
);

create unique index sign_in_hash on flotilla.sign_in (hash);

create index sign_in_version on flotilla.sign_in (version);

create table flotilla.credential_version (
  id integer primary key not null,
  version bigint not null
);

create table flotilla.tenant_count (
  tenant text collate "C" not null,
  log_id integer not null,
  sessions bigint not null default 0,
  turns bigint not null default 0,
  bytes bigint not null default 0,
  primary key (tenant, log_id)
);

alter table flotilla.tenant_count set (fillfactor = 50);

alter table flotilla.session add column bytes bigint not null default 0;

create unlogged table flotilla.quota_server (
  server_id text collate "C" primary key not null,
  seen_at bigint not null
);

create table flotilla.audit (
  id text collate "C" primary key not null,
  at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  actor text collate "C" not null,
  tenant text collate "C" not null default 'default',
  user_id text collate "C" not null default '',
  key_name text,
  role text,
  address text,
  action text collate "C" not null,
  subject text collate "C",
  filter text,
  count bigint,
  before text,
  after text,
  outcome text not null check (outcome in ('begun', 'done', 'full', 'over')),
  reason text,
  act_id text collate "C"
);

create index audit_at on flotilla.audit (at, id);

create index audit_actor on flotilla.audit (actor, at, id);

create index audit_actor_action on flotilla.audit (actor, action, at, id);

create index audit_action on flotilla.audit (action, at, id);

create index audit_subject on flotilla.audit (subject, at, id)
where subject is not null;

create unique index audit_act on flotilla.audit (actor, tenant, user_id, act_id)
where act_id is not null;

select pg_advisory_xact_lock(hashtext('flotilla migrations'));

do $$ begin if to_regnamespace('flotilla') is null then create schema flotilla; end if; end $$;

create table if not exists flotilla.migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla.migration (id, name, needs, applied_at)
values (6, 'facts of pages', 5, (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint));

create or replace function flotilla.json_of(given text) returns jsonb
language plpgsql immutable strict as $$
begin
  return given::jsonb;
exception when data_exception or program_limit_exceeded then
  return null;
end $$;

alter table flotilla.task add column started_at bigint;

alter table flotilla.pod add column pulse text;

create table flotilla.series (
  -- The length of that time in ms, and when it begins.
  span bigint not null,
  at bigint not null,
  -- Such as task:mail.
  subject text collate "C" not null,
  -- The pod that has counted it; '' if it counts for all pods.
  pod text collate "C" not null,
  -- As JSON.
  counts text not null,
  primary key (span, at, subject, pod)
);

create index series_subject on flotilla.series (subject, span, at);

create index series_unfolded on flotilla.series (at) where pod <> '';

create table flotilla.series_fold (
  id integer primary key,
  -- The last minute that pods write nothing for any more.
  closed_to bigint not null,
  -- The id of the last fold. The next one is stored only if it has decided by this one.
  last_fold text not null
);

create table flotilla.failure_group (
  group_id text collate "C" primary key not null,
  state text not null default 'open' check (state in ('open', 'resolved', 'ignored')),
  -- When an operator or a failure gave it this state, and until when it is ignored: null until a task of
  -- it fails.
  state_at bigint,
  until_at bigint,
  first_at bigint not null,
  -- When a task of it failed though it was resolved or ignored.
  came_back_at bigint,
  last_update bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
);

create table flotilla.throttle_event (
  name text collate "C" not null,
  key text collate "C" not null default '',
  seq bigint not null,
  at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  cause text not null,
  bound_before integer,
  bound integer not null,
  epoch bigint not null,
  breaker text not null default 'closed',
  actor text,
  primary key (name, key, seq)
);

alter table flotilla.session add column approval_since bigint;

alter table flotilla.session add column approval_until bigint;

alter table flotilla.session add column approval_tool text;

alter table flotilla.session add column approval_seq bigint;

create index session_approval_until
on flotilla.session (approval_until, session_id) where approval_until is not null;

create index session_approval_until_tenant
on flotilla.session (tenant, approval_until, session_id) where approval_until is not null;

create index session_approval on flotilla.session (approval_since, session_id)
where approval_since is not null and approval_until is null;

create index session_approval_tenant
on flotilla.session (tenant, approval_since, session_id)
where approval_since is not null and approval_until is null;

create table flotilla.bulk (
  bulk_id text collate "C" primary key not null,
  action text not null check (action in ('cancel', 'delete', 'resume', 'retry', 'signal')),
  filter text not null,
  options text not null default '{}',
  -- Of the signal.
  payload text,
  state text not null default 'running' check (state in ('running', 'done', 'stopped')),
  revision bigint not null default 1,
  cursor_id text collate "C" not null default '',
  until_id text collate "C" not null,
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
  created_at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  last_update bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
);

create index bulk_open on flotilla.bulk (created_at)
where state = 'running';

alter table flotilla.pod add column drain integer not null default 0;

drop index flotilla.task_running_key;

create index task_running_key on flotilla.task (concurrency_key)
where coalesce(status, '') = 'claimed' and concurrency_key is not null;

drop index flotilla.task_running_tenant;

create index task_running_tenant on flotilla.task (tenant)
where coalesce(status, '') = 'claimed' and limited = 1 and tenant <> 'default';

drop index flotilla.task_parked;

create index task_parked on flotilla.task (run_at, name)
where status = 'pending' and parked = 1;

drop index flotilla.task_for_dependencies;

create index task_for_dependencies on flotilla.task (task_id, name)
where status = 'pending' and parked = 2;

drop index flotilla.task_blocked;

create index task_blocked
on flotilla.task (blocked_by, priority desc, created_at, task_id, name)
where status = 'pending' and parked = 3;

drop index flotilla.task_failed;

create index task_failed on flotilla.task (task_id, name)
where status = 'failed';

create index task_run_parked on flotilla.task (name, run_at)
where status = 'pending' and parked = 1 and flow_version is not null;

create index task_awaiting_until on flotilla.task (run_at, task_id)
where status = 'pending' and parked = 1 and awaits is not null;

create index task_awaiting
on flotilla.task (coalesce(advanced_at, last_update), task_id)
where status = 'pending' and parked = 5 and awaits is not null;

select pg_advisory_xact_lock(hashtext('flotilla migrations'));

do $$ begin if to_regnamespace('flotilla') is null then create schema flotilla; end if; end $$;

create table if not exists flotilla.migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla.migration (id, name, needs, applied_at)
values (7, 'logs on streams, tasks of messages, wake-ups by SQL, promotions, changes', 5, (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint));

create table flotilla.log_watermark (
  log_id integer primary key not null,
  -- The life of the log. Offsets of another one mean other records.
  incarnation text not null,
  -- The offset of the last record that is archived, its id, and the hash over all up to it.
  log_offset bigint not null,
  record_id text collate "C" not null,
  chain text not null,
  -- The transaction that has moved it here. Its other statements store something only if it is this one.
  flush_id text collate "C" not null,
  moved_at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
);

create table flotilla.archive_aside (
  log_id integer not null,
  incarnation text collate "C" not null,
  log_offset bigint not null,
  -- Which entry of the record it is; -1 for the record as a whole, -2 and below for its tasks.
  place integer not null,
  session_id text collate "C",
  seq bigint,
  body text not null,
  -- Why it was refused.
  reason text not null,
  at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  primary key (log_id, incarnation, log_offset, place)
);

create index archive_aside_at on flotilla.archive_aside (at);

create table flotilla.task_alias (
  alias_id text collate "C" primary key not null,
  task_id text collate "C" not null
);

create index task_alias_task on flotilla.task_alias (task_id);

create table flotilla.log_place (
  place text not null default 'sql' check (place in ('sql', 'nats')),
  cluster_id text not null
);

insert into flotilla.log_place (cluster_id) values (substr(lpad(to_hex(floor(extract(epoch from statement_timestamp()) * 1000)::bigint), 12, '0'), 1, 8) || '-' || substr(lpad(to_hex(floor(extract(epoch from statement_timestamp()) * 1000)::bigint), 12, '0'), 9, 4) || '-7' || substr(gen_random_uuid()::text, 16, 3) || '-a' || substr(gen_random_uuid()::text, 16, 3) || '-' || substr(gen_random_uuid()::text, 25, 12));

create or replace function flotilla.wake() returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  select pg_notify('flotilla_hint', '')
    where exists (select 1 from flotilla.pod where waiting = 1 and status = 'up')
$$;

create table flotilla.promotion (
  id integer primary key not null,
  promotion_id text collate "C" not null,
  -- The deployment that the rows come from, and where they were, for people.
  source_id text collate "C" not null,
  source text not null,
  state text not null default 'copying' check (state in ('copying', 'done')),
  -- How many logs its sessions are spread over; 0 where the store that they come from has none.
  logs integer not null,
  -- The process that copies, and until when another one leaves it alone.
  holder text collate "C",
  host text,
  held_until bigint not null default 0,
  -- Up to where each table is copied, as JSON.
  progress text not null default '{}',
  began_at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  last_update bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
);

create table flotilla.change (
  at bigint not null,
  subjects text not null,
  mark bigint not null, seq bigint generated by default as identity, primary key (mark, seq)
);

create table flotilla.change_state (
  id integer primary key,
  -- New whenever recording begins, so that a cursor from before a gap is known as one.
  life text collate "C" not null,
  -- Which triggers these are: a release with other ones makes them anew.
  revision integer not null,
  keep_ms bigint not null,
  since bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  -- The last row that was pruned.
  pruned_mark bigint not null default 0,
  pruned_seq bigint not null default 0,
  -- A horizon that there was. Below it, this is another server than the one that gave the marks.
  high bigint not null default 0
);

alter table flotilla.session add column turn_epoch bigint;

alter table flotilla.session add column turn_agent text collate "C";
