select pg_advisory_xact_lock(hashtext('flotilla migrations'));

do $$ begin if to_regnamespace('flotilla') is null then create schema flotilla; end if; end $$;

create table if not exists flotilla.migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla.migration (id, name, needs, applied_at)
values (1, 'tasks and pods', 1, (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint));

create table flotilla.pod_health (
  pod_id text collate "C" primary key,
  birth_timestamp bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  last_heartbeat bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  beat bigint not null default 0,
  passes bigint not null default 0,
  claim_floor bigint not null default 0,
  status text not null default 'up' check (status in ('up', 'down')),
  metadata text not null default '{}'
);

create table flotilla.step_tracker (
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
  claim_call bigint,
  retry_count integer not null default 0,
  max_attempts bigint,
  deaths integer not null default 0,
  parked integer not null default 0,
  wake bigint not null default 0,
  cancel_requested integer not null default 0,
  unique_key text collate "C",
  group_key text collate "C",
  parent_id text collate "C",
  progress text,
  result text,
  error text
);

create table flotilla.step_event (
  task_id text collate "C" not null,
  seq integer not null,
  at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  type text not null,
  attempt integer,
  pod_id text,
  detail text,
  primary key (task_id, seq)
);

create table flotilla.probe (id integer primary key, at bigint not null);

create index step_ready
on flotilla.step_tracker (name, priority desc, created_at, task_id)
where status = 'pending' and parked = 0 and deaths < 2;

create index step_alone on flotilla.step_tracker (name, created_at, task_id)
where status = 'pending' and parked = 0 and deaths >= 2;

create index step_parked on flotilla.step_tracker (run_at)
where status = 'pending' and parked = 1;

create index step_claimed on flotilla.step_tracker (claimed_by, claim_call)
where status = 'claimed';

create index step_failed on flotilla.step_tracker (task_id)
where status = 'failed';

create unique index step_unique
on flotilla.step_tracker (tenant, name, unique_key) where unique_key is not null;

select pg_advisory_xact_lock(hashtext('flotilla migrations'));

do $$ begin if to_regnamespace('flotilla') is null then create schema flotilla; end if; end $$;

create table if not exists flotilla.migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla.migration (id, name, needs, applied_at)
values (2, 'traces, and pods that wait', 1, (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint));

alter table flotilla.step_tracker add column trace text;

alter table flotilla.pod_health add column waiting integer not null default 0;

alter table flotilla.step_tracker set (fillfactor = 50);

alter table flotilla.pod_health set (fillfactor = 50);

select pg_advisory_xact_lock(hashtext('flotilla migrations'));

do $$ begin if to_regnamespace('flotilla') is null then create schema flotilla; end if; end $$;

create table if not exists flotilla.migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla.migration (id, name, needs, applied_at)
values (3, 'gates, tasks that wait for others, schedules, redrives', 3, (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint));

alter table flotilla.step_tracker add column gated integer not null default 0;

alter table flotilla.step_tracker add column blocked_by text collate "C";

alter table flotilla.step_tracker add column waits integer not null default 0;

alter table flotilla.step_tracker add column awaited integer not null default 0;

alter table flotilla.step_tracker add column redrive_id text collate "C";

alter table flotilla.step_tracker add column progress_token bigint;

alter table flotilla.step_tracker add column snoozes integer not null default 0;

alter table flotilla.step_tracker add column scheduled_at bigint;

alter table flotilla.pod_health add column state text;

alter table flotilla.step_tracker add column redrive_step integer;

alter table flotilla.pod_health add column pauses bigint not null default 0;

create index step_gated
on flotilla.step_tracker (name, tenant, priority desc, created_at, task_id)
where status = 'pending' and parked = 4 and deaths < 2;

create index step_blocked
on flotilla.step_tracker (blocked_by, priority desc, created_at, task_id)
where status = 'pending' and parked = 3;

create index step_waiting on flotilla.step_tracker (task_id)
where status = 'pending' and parked = 2;

create index step_alone_gated
on flotilla.step_tracker (name, created_at, task_id)
where status = 'pending' and parked = 4 and deaths >= 2;

create index step_held_group on flotilla.step_tracker (group_key)
where status = 'claimed' and group_key is not null;

create index step_held_tenant on flotilla.step_tracker (tenant)
where status = 'claimed' and gated = 1;

create index step_failed_at on flotilla.step_tracker (last_update, task_id)
where status = 'failed';

create index step_redriven on flotilla.step_tracker (redrive_id, redrive_step)
where redrive_id is not null;

create table flotilla.step_wait (
  awaited_id text collate "C" not null,
  waiter_id text collate "C" not null,
  place integer not null default 0,
  primary key (awaited_id, waiter_id)
);

create index step_waiter on flotilla.step_wait (waiter_id);

create table flotilla.step_limit (
  scope text collate "C" primary key not null,
  max_running integer not null,
  by_hand integer not null default 0
);

create table flotilla.step_pause (
  name text collate "C" primary key not null,
  paused integer not null default 1,
  given bigint not null default 0,
  done bigint not null default 0,
  at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  reason text
);

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
  created_at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  last_update bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
);

create index redrive_open on flotilla.redrive (created_at)
where state in ('running', 'stopping');

select pg_advisory_xact_lock(hashtext('flotilla migrations'));

do $$ begin if to_regnamespace('flotilla') is null then create schema flotilla; end if; end $$;

create table if not exists flotilla.migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla.migration (id, name, needs, applied_at)
values (4, 'throttles', 3, (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint));

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
  totals text not null,
  at bigint not null,
  primary key (name, key, pod_id)
);

alter table flotilla.throttle set (fillfactor = 50);

alter table flotilla.throttle_report set (fillfactor = 50);

select pg_advisory_xact_lock(hashtext('flotilla migrations'));

do $$ begin if to_regnamespace('flotilla') is null then create schema flotilla; end if; end $$;

create table if not exists flotilla.migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla.migration (id, name, needs, applied_at)
values (5, 'runs of flows', 5, (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint));

alter table flotilla.step_tracker add column flow_version integer;

alter table flotilla.step_tracker add column cursor text;

alter table flotilla.step_tracker add column intent text;

alter table flotilla.step_tracker add column waiting text;

alter table flotilla.step_tracker add column stopped_at text;

alter table flotilla.step_tracker add column run_seq bigint not null default 0;

alter table flotilla.step_tracker add column advanced_at bigint;

alter table flotilla.step_tracker add column awaits text;

alter table flotilla.step_tracker add column aside text;

alter table flotilla.step_tracker add column aside_version integer;

create index step_run on flotilla.step_tracker (name, task_id)
where flow_version is not null;

create index step_aside on flotilla.step_tracker (name)
where status = 'pending' and parked = 6;

create index step_told on flotilla.step_tracker (name)
where status = 'pending' and parked = 5;

create table flotilla.step_signal (
  task_id text collate "C" not null,
  signal_id text collate "C" not null,
  seq integer not null,
  name text collate "C" not null,
  payload text not null default 'null',
  taken integer not null default 0,
  at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  primary key (task_id, signal_id)
);

create index step_signal_open
on flotilla.step_signal (task_id, name, seq) where taken = 0;

select pg_advisory_xact_lock(hashtext('flotilla migrations'));

do $$ begin if to_regnamespace('flotilla') is null then create schema flotilla; end if; end $$;

create table if not exists flotilla.migration (
  id integer primary key, name text not null, needs integer not null, applied_at bigint not null
);

insert into flotilla.migration (id, name, needs, applied_at)
values (6, 'sessions', 5, (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint));

create table flotilla.log_head (
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
  state text not null default 'idle' check (state in ('idle', 'catching_up', 'compacting')),
  agent text collate "C",
  last_seq bigint not null default 0,
  header text not null,
  metadata text,
  created_at bigint not null,
  active_at bigint not null
);

create index session_tenant on flotilla.session (tenant, session_id);

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

create unlogged table flotilla.mailbox (
  address text collate "C" not null,
  sender text collate "C" not null,
  seq bigint not null,
  body text not null,
  at bigint not null default (floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  primary key (address, sender, seq)
);

create table flotilla.mail_secret (secret text not null);

insert into flotilla.mail_secret (secret) values (substr(lpad(to_hex(floor(extract(epoch from statement_timestamp()) * 1000)::bigint), 12, '0'), 1, 8) || '-' || substr(lpad(to_hex(floor(extract(epoch from statement_timestamp()) * 1000)::bigint), 12, '0'), 9, 4) || '-7' || substr(gen_random_uuid()::text, 16, 3) || '-a' || substr(gen_random_uuid()::text, 16, 3) || '-' || substr(gen_random_uuid()::text, 25, 12));

alter table flotilla.log_head set (fillfactor = 50);

alter table flotilla.session set (fillfactor = 50);
