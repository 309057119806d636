-- src/schedules/sql.ts: readDue
select schedule_id, name, pattern, zone, payload, options, missed, revision, after_at, next_at,
  now_ms() as now_at
from flotilla.schedule where paused = 0 and next_at <= now_ms() + $1
order by next_at limit cast($2 as integer)
-- values: [1000,10]

-- src/schedules/sql.ts: moveSchedules
update flotilla.schedule
set mark = moved.mark, after_at = moved.after_at, next_at = moved.next_at, error = moved.error,
  last_at = coalesce(moved.last_at, flotilla.schedule.last_at),
  last_task_id = coalesce(moved.last_task_id, flotilla.schedule.last_task_id)
from (select schedule_id collate "C" as schedule_id, seen_at, seen_revision, mark collate "C" as mark, after_at, next_at, last_at, last_task_id collate "C" as last_task_id, error collate "C" as error from unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[]) as each_row (schedule_id, seen_at, seen_revision, mark, after_at, next_at, last_at, last_task_id, error)) moved
where flotilla.schedule.schedule_id = moved.schedule_id and flotilla.schedule.paused = 0
  and flotilla.schedule.next_at = moved.seen_at and flotilla.schedule.revision = moved.seen_revision
  and flotilla.schedule.ctid = any(array(
  select ctid from flotilla.schedule
  where schedule_id in (select schedule_id from (select schedule_id collate "C" as schedule_id from unnest($10::text[]) as each_row (schedule_id)) wanted) for update skip locked))
returning flotilla.schedule.schedule_id
-- instead of returning:
select schedule_id from flotilla.schedule where mark in (select mark from (select schedule_id collate "C" as schedule_id, seen_at, seen_revision, mark collate "C" as mark, after_at, next_at, last_at, last_task_id collate "C" as last_task_id, error collate "C" as error from unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[]) as each_row (schedule_id, seen_at, seen_revision, mark, after_at, next_at, last_at, last_task_id, error)) moved)
-- values: ["{\"nightly\"}","{10}","{1}","{\"mark-1\"}","{10}","{20}","{10}","{\"task-1\"}","{null}","{\"nightly\"}"]

-- src/schedules/sql.ts: insertFired
  insert into flotilla.task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
    max_attempts, unique_key, trace, concurrency_key, limited, depends, scheduled_at, flow_version, parent_id, parked)
  select task_id, tenant, name, payload, priority, case when fresh.start_at is null then now_ms() + fresh.delay_ms
  when fresh.start_at > now_ms() then fresh.start_at else now_ms() end, now_ms(), now_ms(),
    max_attempts, unique_key, trace, concurrency_key, limited, depends, scheduled_at, flow_version, parent_id,
case when depends > 0 then 2 when delay_ms > 0 or start_at > now_ms() then 1
  when limited = 1 then 4 else 0 end
  from (select task_id collate "C" as task_id, tenant collate "C" as tenant, name collate "C" as name, payload collate "C" as payload, priority, delay_ms, max_attempts, unique_key collate "C" as unique_key, trace collate "C" as trace, start_at, concurrency_key collate "C" as concurrency_key, limited, depends, scheduled_at, flow_version, parent_id collate "C" as parent_id from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[], $10::bigint[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::text[]) as each_row (task_id, tenant, name, payload, priority, delay_ms, max_attempts, unique_key, trace, start_at, concurrency_key, limited, depends, scheduled_at, flow_version, parent_id)) fresh where task_id in (
  select made.task_id from (select task_id collate "C" as task_id, schedule_id collate "C" as schedule_id, mark collate "C" as mark from unnest($17::text[], $18::text[], $19::text[]) as each_row (task_id, schedule_id, mark)) made join flotilla.schedule schedule
    on schedule.schedule_id = made.schedule_id and schedule.mark = made.mark)
  on conflict do nothing
  returning task_id
-- instead of returning:
select task_id from flotilla.task where task_id in (select task_id from (select task_id collate "C" as task_id, tenant collate "C" as tenant, name collate "C" as name, payload collate "C" as payload, priority, delay_ms, max_attempts, unique_key collate "C" as unique_key, trace collate "C" as trace from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[]) as each_row (task_id, tenant, name, payload, priority, delay_ms, max_attempts, unique_key, trace)) fresh)
-- values: ["{\"task-1\"}","{\"default\"}","{\"mail\"}","{\"{}\"}","{0}","{0}","{null}","{null}","{null}","{null}","{null}","{0}","{0}","{10}","{null}","{null}","{\"task-1\"}","{\"nightly\"}","{\"mark-1\"}"]

-- src/schedules/sql.ts: linkFired
insert into flotilla.link (from_id, to_id, what, at)
select from_id, to_id, what, now_ms() from (select from_id collate "C" as from_id, to_id collate "C" as to_id, what collate "C" as what from unnest($1::text[], $2::text[], $3::text[]) as each_row (from_id, to_id, what)) wanted
where to_id = (select task_id from flotilla.task where task_id = wanted.to_id)
on conflict do nothing
-- values: ["{\"nightly\"}","{\"task-1\"}","{\"schedule\"}"]

-- src/schedules/sql.ts: putSchedule
insert into flotilla.schedule (schedule_id, name, pattern, zone, payload, options, missed, mark)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (schedule_id) do nothing
-- values: ["nightly","report","0 3 * * *","UTC","null","{}","once",null]

  update flotilla.schedule
  set name = $1, pattern = $2, zone = $3, payload = $4,
    options = $5, missed = $6,
    revision = revision + 1, error = null, last_update = case when flotilla.schedule.last_update < now_ms() then now_ms()
else flotilla.schedule.last_update + 1 end, mark = coalesce($7, mark),
    after_at = case when (pattern <> $8 or zone <> $9 or error is not null) then now_ms() else after_at end, next_at = 0
  where schedule_id = $10 and created_at = $11 and last_update = $12 and ((pattern <> $13 or zone <> $14 or error is not null) or name <> $15 or $16 = 1
    or options <> $17 or missed <> $18)
-- values: ["report","0 3 * * *","UTC","null","{}","once","mark-1","0 3 * * *","UTC","nightly",1,2,"0 3 * * *","UTC","report",1,"{}","once"]

-- src/schedules/sql.ts: getSchedules
select *, now_ms() as now_at from flotilla.schedule
where schedule_id in (select schedule_id from (select schedule_id collate "C" as schedule_id from unnest($1::text[]) as each_row (schedule_id)) wanted)
-- values: ["{\"nightly\"}"]

-- src/schedules/sql.ts: listSchedules
  with listed as (
    select schedule_id as place, 500 + coalesce(octet_length(payload), 0) + coalesce(octet_length(options), 0) + coalesce(octet_length(error), 0) as bytes from flotilla.schedule where schedule_id > $1
    order by schedule_id asc limit cast($2 as integer)),
  measured as (
    select place, row_number() over (order by place asc) as nth,
      sum(bytes) over (order by place asc) as up_to
    from listed)
select *, (select count(*) from listed) as found from flotilla.schedule where schedule_id = any(array(select place from measured
  where nth = 1 or (nth <= $3 and up_to <= $4)))
order by schedule_id
-- values: ["",11,10,1048576]

-- src/schedules/sql.ts: listFirings
select made.to_id as task_id, task.name, task.tenant, task.status, task.scheduled_at,
  task.created_at, task.last_update, task.retry_count
from (select link.to_id from flotilla.link link
  where link.from_id = $1 and link.what = 'schedule'
  order by link.to_id desc limit cast($2 as integer)) made
left join flotilla.task task on task.task_id = made.to_id
order by made.to_id desc
-- values: ["nightly",51]

select made.to_id as task_id, task.name, task.tenant, task.status, task.scheduled_at,
  task.created_at, task.last_update, task.retry_count
from (select link.to_id from flotilla.link link
  where link.from_id = $1 and link.what = 'schedule' and link.to_id < $2
  order by link.to_id desc limit cast($3 as integer)) made
left join flotilla.task task on task.task_id = made.to_id
order by made.to_id desc
-- values: ["nightly","task-9",51]

-- src/schedules/sql.ts: pauseSchedule
  update flotilla.schedule set paused = 1, last_update = case when flotilla.schedule.last_update < now_ms() then now_ms()
else flotilla.schedule.last_update + 1 end, mark = $1
  where schedule_id = $2 and created_at = $3 and last_update = $4 and paused = 0
-- values: ["mark-1","nightly",1,2]

-- src/schedules/sql.ts: resumeSchedule
  update flotilla.schedule set paused = 0, after_at = now_ms(), next_at = 0, last_update = case when flotilla.schedule.last_update < now_ms() then now_ms()
else flotilla.schedule.last_update + 1 end,
    mark = $1
  where schedule_id = $2 and created_at = $3 and last_update = $4 and paused = 1
-- values: ["mark-1","nightly",1,2]

-- src/schedules/sql.ts: removeSchedule
select schedule_id from flotilla.schedule where schedule_id = $1 and created_at = $2 for update
-- values: ["nightly",1]

  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, $8, $9, $10,
    cast($11 as bigint), $12, $13,
    case when exists (
select 1 from flotilla.audit past where past.action = $14 and past.outcome = 'full') then null else $15 end, $16, $17
  from flotilla.schedule where schedule_id = $18 and created_at = $19
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"{}",null,"audit.full","done",null,"click-1","nightly",1]

delete from flotilla.schedule where schedule_id = $1 and created_at = $2
-- values: ["nightly",1]

-- src/schedules/sql.ts: entryOfChange
  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, $8, $9, $10,
    cast($11 as bigint), $12, $13,
    case when exists (
select 1 from flotilla.audit past where past.action = $14 and past.outcome = 'full') then null else $15 end, $16, $17
  from flotilla.schedule where schedule_id = $18 and mark = $19
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,null,"{}","audit.full","done",null,"click-1","nightly","mark-1"]

-- src/schedules/sql.ts: fireSchedule
select schedule_id from flotilla.schedule where schedule_id = $1 and created_at = $2 and last_update = $3 for update
-- values: ["nightly",1,2]

  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, $8, $9, $10,
    cast($11 as bigint), $12, $13,
    case when exists (
select 1 from flotilla.audit past where past.action = $14 and past.outcome = 'full') then null else $15 end, $16, $17
  from flotilla.schedule where schedule_id = $18 and created_at = $19 and last_update = $20
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,null,"{\"taskId\":\"task-1\"}","audit.full","done",null,"click-1","nightly",1,2]

insert into flotilla.task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
  max_attempts, unique_key, trace, parked)
select task_id, tenant, name, payload, priority, now_ms() + delay_ms, now_ms(), now_ms(),
  max_attempts, unique_key, trace, case when delay_ms > 0 then 1 else 0 end
from (select task_id collate "C" as task_id, tenant collate "C" as tenant, name collate "C" as name, payload collate "C" as payload, priority, delay_ms, max_attempts, unique_key collate "C" as unique_key, trace collate "C" as trace from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[]) as each_row (task_id, tenant, name, payload, priority, delay_ms, max_attempts, unique_key, trace)) fresh where exists (select 1 from flotilla.schedule where schedule_id = $10 and created_at = $11 and last_update = $12)
on conflict do nothing
returning task_id
-- instead of returning:
select task_id from flotilla.task where task_id in (select task_id from (select task_id collate "C" as task_id, tenant collate "C" as tenant, name collate "C" as name, payload collate "C" as payload, priority, delay_ms, max_attempts, unique_key collate "C" as unique_key, trace collate "C" as trace from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[]) as each_row (task_id, tenant, name, payload, priority, delay_ms, max_attempts, unique_key, trace)) fresh)
-- values: ["{\"task-1\"}","{\"default\"}","{\"mail\"}","{\"{}\"}","{0}","{0}","{null}","{null}","{null}","nightly",1,2]

select task_id from flotilla.task where task_id = $1
-- values: ["task-1"]
