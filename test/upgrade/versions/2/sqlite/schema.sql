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
