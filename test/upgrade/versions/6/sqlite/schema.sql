select 1;

select 1;

create table if not exists flotilla_migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla_migration (id, name, needs, applied_at)
values (1, 'tasks and pods', 1, cast(unixepoch('subsec') * 1000 as integer));

create table flotilla_pod_health (
  pod_id text primary key,
  birth_timestamp bigint not null default (cast(unixepoch('subsec') * 1000 as integer)),
  last_heartbeat bigint not null default (cast(unixepoch('subsec') * 1000 as integer)),
  beat bigint not null default 0,
  passes bigint not null default 0,
  claim_floor bigint not null default 0,
  status text not null default 'up' check (status in ('up', 'down')),
  metadata text not null default '{}'
);

create table flotilla_step_tracker (
  task_id text primary key not null default (printf('%08x-%04x-7', cast(unixepoch('subsec') * 1000 as integer) >> 16, cast(unixepoch('subsec') * 1000 as integer) & 65535) || substr(lower(hex(randomblob(8))), 1, 3) || '-a' || substr(lower(hex(randomblob(8))), 1, 3) || '-' || substr(lower(hex(randomblob(8))), 1, 12)),
  tenant text not null default 'default',
  name text not null,
  status text not null default 'pending'
    check (status in ('pending', 'claimed', 'completed', 'failed', 'cancelled')),
  priority integer not null default 0,
  payload text not null default 'null',
  state text,
  run_at bigint not null default (cast(unixepoch('subsec') * 1000 as integer)),
  created_at bigint not null default (cast(unixepoch('subsec') * 1000 as integer)),
  last_update bigint not null default (cast(unixepoch('subsec') * 1000 as integer)),
  claimed_by text,
  claim_token bigint not null default 0,
  claim_call bigint,
  retry_count integer not null default 0,
  max_attempts bigint,
  deaths integer not null default 0,
  parked integer not null default 0,
  wake bigint not null default 0,
  cancel_requested integer not null default 0,
  unique_key text,
  group_key text,
  parent_id text,
  progress text,
  result text,
  error text
);

create table flotilla_step_event (
  task_id text not null,
  seq integer not null,
  at bigint not null default (cast(unixepoch('subsec') * 1000 as integer)),
  type text not null,
  attempt integer,
  pod_id text,
  detail text,
  primary key (task_id, seq)
);

create table flotilla_probe (id integer primary key, at bigint not null);

create index flotilla_step_ready
on flotilla_step_tracker (name, priority desc, created_at, task_id)
where status = 'pending' and parked = 0 and deaths < 2;

create index flotilla_step_alone on flotilla_step_tracker (name, created_at, task_id)
where status = 'pending' and parked = 0 and deaths >= 2;

create index flotilla_step_parked on flotilla_step_tracker (run_at)
where status = 'pending' and parked = 1;

create index flotilla_step_claimed on flotilla_step_tracker (claimed_by, claim_call)
where status = 'claimed';

create index flotilla_step_failed on flotilla_step_tracker (task_id)
where status = 'failed';

create unique index flotilla_step_unique
on flotilla_step_tracker (tenant, name, unique_key) where unique_key is not null;

select 1;

select 1;

create table if not exists flotilla_migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla_migration (id, name, needs, applied_at)
values (2, 'traces, and pods that wait', 1, cast(unixepoch('subsec') * 1000 as integer));

alter table flotilla_step_tracker add column trace text;

alter table flotilla_pod_health add column waiting integer not null default 0;

select 1;

select 1;

select 1;

select 1;

create table if not exists flotilla_migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla_migration (id, name, needs, applied_at)
values (3, 'gates, tasks that wait for others, schedules, redrives', 3, cast(unixepoch('subsec') * 1000 as integer));

alter table flotilla_step_tracker add column gated integer not null default 0;

alter table flotilla_step_tracker add column blocked_by text;

alter table flotilla_step_tracker add column waits integer not null default 0;

alter table flotilla_step_tracker add column awaited integer not null default 0;

alter table flotilla_step_tracker add column redrive_id text;

alter table flotilla_step_tracker add column progress_token bigint;

alter table flotilla_step_tracker add column snoozes integer not null default 0;

alter table flotilla_step_tracker add column scheduled_at bigint;

alter table flotilla_pod_health add column state text;

alter table flotilla_step_tracker add column redrive_step integer;

alter table flotilla_pod_health add column pauses bigint not null default 0;

create index flotilla_step_gated
on flotilla_step_tracker (name, tenant, priority desc, created_at, task_id)
where status = 'pending' and parked = 4 and deaths < 2;

create index flotilla_step_blocked
on flotilla_step_tracker (blocked_by, priority desc, created_at, task_id)
where status = 'pending' and parked = 3;

create index flotilla_step_waiting on flotilla_step_tracker (task_id)
where status = 'pending' and parked = 2;

create index flotilla_step_alone_gated
on flotilla_step_tracker (name, created_at, task_id)
where status = 'pending' and parked = 4 and deaths >= 2;

create index flotilla_step_held_group on flotilla_step_tracker (group_key)
where status = 'claimed' and group_key is not null;

create index flotilla_step_held_tenant on flotilla_step_tracker (tenant)
where status = 'claimed' and gated = 1;

create index flotilla_step_failed_at on flotilla_step_tracker (last_update, task_id)
where status = 'failed';

create index flotilla_step_redriven on flotilla_step_tracker (redrive_id, redrive_step)
where redrive_id is not null;

create table flotilla_step_wait (
  awaited_id text not null,
  waiter_id text not null,
  place integer not null default 0,
  primary key (awaited_id, waiter_id)
);

create index flotilla_step_waiter on flotilla_step_wait (waiter_id);

create table flotilla_step_limit (
  scope text primary key not null,
  max_running integer not null,
  by_hand integer not null default 0
);

create table flotilla_step_pause (
  name text primary key not null,
  paused integer not null default 1,
  given bigint not null default 0,
  done bigint not null default 0,
  at bigint not null default (cast(unixepoch('subsec') * 1000 as integer)),
  reason text
);

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
  after_at bigint not null default (cast(unixepoch('subsec') * 1000 as integer)),
  next_at bigint default 0,
  last_at bigint,
  last_task_id text,
  mark text,
  error text,
  created_at bigint not null default (cast(unixepoch('subsec') * 1000 as integer)),
  last_update bigint not null default (cast(unixepoch('subsec') * 1000 as integer))
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
  step_most integer not null,
  step integer not null default 0,
  step_size integer not null default 0,
  step_taken integer default 0,
  remaining integer,
  taken integer not null default 0,
  succeeded integer not null default 0,
  failed integer not null default 0,
  failed_otherwise integer not null default 0,
  gone integer not null default 0,
  created_at bigint not null default (cast(unixepoch('subsec') * 1000 as integer)),
  last_update bigint not null default (cast(unixepoch('subsec') * 1000 as integer))
);

create index flotilla_redrive_open on flotilla_redrive (created_at)
where state in ('running', 'stopping');

select 1;

select 1;

create table if not exists flotilla_migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla_migration (id, name, needs, applied_at)
values (4, 'throttles', 3, cast(unixepoch('subsec') * 1000 as integer));

create table flotilla_throttle (
  name text not null,
  key text not null default '',
  rev bigint not null default (cast(unixepoch('subsec') * 1000 as integer)),
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
  created_at bigint not null default (cast(unixepoch('subsec') * 1000 as integer)),
  last_update bigint not null default (cast(unixepoch('subsec') * 1000 as integer)),
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
  totals text not null,
  at bigint not null,
  primary key (name, key, pod_id)
);

select 1;

select 1;

select 1;

select 1;

create table if not exists flotilla_migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla_migration (id, name, needs, applied_at)
values (5, 'runs of flows', 5, cast(unixepoch('subsec') * 1000 as integer));

alter table flotilla_step_tracker add column flow_version integer;

alter table flotilla_step_tracker add column cursor text;

alter table flotilla_step_tracker add column intent text;

alter table flotilla_step_tracker add column waiting text;

alter table flotilla_step_tracker add column stopped_at text;

alter table flotilla_step_tracker add column run_seq bigint not null default 0;

alter table flotilla_step_tracker add column advanced_at bigint;

alter table flotilla_step_tracker add column awaits text;

alter table flotilla_step_tracker add column aside text;

alter table flotilla_step_tracker add column aside_version integer;

create index flotilla_step_run on flotilla_step_tracker (name, task_id)
where flow_version is not null;

create index flotilla_step_aside on flotilla_step_tracker (name)
where status = 'pending' and parked = 6;

create index flotilla_step_told on flotilla_step_tracker (name)
where status = 'pending' and parked = 5;

create table flotilla_step_signal (
  task_id text not null,
  signal_id text not null,
  seq integer not null,
  name text not null,
  payload text not null default 'null',
  taken integer not null default 0,
  at bigint not null default (cast(unixepoch('subsec') * 1000 as integer)),
  primary key (task_id, signal_id)
);

create index flotilla_step_signal_open
on flotilla_step_signal (task_id, name, seq) where taken = 0;

select 1;

select 1;

create table if not exists flotilla_migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla_migration (id, name, needs, applied_at)
values (6, 'sessions', 5, cast(unixepoch('subsec') * 1000 as integer));

create table flotilla_log_head (
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
  state text not null default 'idle' check (state in ('idle', 'catching_up', 'compacting')),
  agent text,
  last_seq bigint not null default 0,
  header text not null,
  metadata text,
  created_at bigint not null,
  active_at bigint not null
);

create index flotilla_session_tenant on flotilla_session (tenant, session_id);

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
  created_at bigint not null default (cast(unixepoch('subsec') * 1000 as integer)),
  last_update bigint not null default (cast(unixepoch('subsec') * 1000 as integer)),
  primary key (tenant, name)
);

create  table flotilla_mailbox (
  address text not null,
  sender text not null,
  seq bigint not null,
  body text not null,
  at bigint not null default (cast(unixepoch('subsec') * 1000 as integer)),
  primary key (address, sender, seq)
);

create table flotilla_mail_secret (secret text not null);

insert into flotilla_mail_secret (secret) values (printf('%08x-%04x-7', cast(unixepoch('subsec') * 1000 as integer) >> 16, cast(unixepoch('subsec') * 1000 as integer) & 65535) || substr(lower(hex(randomblob(8))), 1, 3) || '-a' || substr(lower(hex(randomblob(8))), 1, 3) || '-' || substr(lower(hex(randomblob(8))), 1, 12));

select 1;

select 1;
