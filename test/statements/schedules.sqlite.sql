-- src/schedules/sql.ts: readDue
select schedule_id, name, pattern, zone, payload, options, missed, revision, after_at, next_at,
  now_ms() as now_at
from flotilla_schedule where paused = 0 and next_at <= now_ms() + ?
order by next_at limit cast(? as integer)
-- values: [1000,10]

-- src/schedules/sql.ts: moveSchedules
update flotilla_schedule
set mark = moved.mark, after_at = moved.after_at, next_at = moved.next_at, error = moved.error,
  last_at = coalesce(moved.last_at, flotilla_schedule.last_at),
  last_task_id = coalesce(moved.last_task_id, flotilla_schedule.last_task_id)
from (select value ->> 0 as schedule_id, value ->> 1 as seen_at, value ->> 2 as seen_revision, value ->> 3 as mark, value ->> 4 as after_at, value ->> 5 as next_at, value ->> 6 as last_at, value ->> 7 as last_task_id, value ->> 8 as error from jsonb_each(?)) moved
where flotilla_schedule.schedule_id = moved.schedule_id and flotilla_schedule.paused = 0
  and flotilla_schedule.next_at = moved.seen_at and flotilla_schedule.revision = moved.seen_revision
  and flotilla_schedule.rowid in (
  select rowid from flotilla_schedule
  where schedule_id in (select schedule_id from (select value ->> 0 as schedule_id from jsonb_each(?)) wanted) )
returning flotilla_schedule.schedule_id
-- instead of returning:
select schedule_id from flotilla_schedule where mark in (select mark from (select value ->> 0 as schedule_id, value ->> 1 as seen_at, value ->> 2 as seen_revision, value ->> 3 as mark, value ->> 4 as after_at, value ->> 5 as next_at, value ->> 6 as last_at, value ->> 7 as last_task_id, value ->> 8 as error from jsonb_each(?)) moved)
-- values: ["[[\"nightly\",10,1,\"mark-1\",10,20,10,\"task-1\",null]]","[[\"nightly\"]]"]

-- src/schedules/sql.ts: insertFired
  insert into flotilla_task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
    max_attempts, unique_key, trace, concurrency_key, limited, depends, scheduled_at, flow_version, parent_id, parked)
  select task_id, tenant, name, payload, priority, case when fresh.start_at is null then now_ms() + fresh.delay_ms
  when fresh.start_at > now_ms() then fresh.start_at else now_ms() end, now_ms(), now_ms(),
    max_attempts, unique_key, trace, concurrency_key, limited, depends, scheduled_at, flow_version, parent_id,
case when depends > 0 then 2 when delay_ms > 0 or start_at > now_ms() then 1
  when limited = 1 then 4 else 0 end
  from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as name, value ->> 3 as payload, value ->> 4 as priority, value ->> 5 as delay_ms, value ->> 6 as max_attempts, value ->> 7 as unique_key, value ->> 8 as trace, value ->> 9 as start_at, value ->> 10 as concurrency_key, value ->> 11 as limited, value ->> 12 as depends, value ->> 13 as scheduled_at, value ->> 14 as flow_version, value ->> 15 as parent_id from jsonb_each(?)) fresh where task_id in (
  select made.task_id from (select value ->> 0 as task_id, value ->> 1 as schedule_id, value ->> 2 as mark from jsonb_each(?)) made join flotilla_schedule schedule
    on schedule.schedule_id = made.schedule_id and schedule.mark = made.mark)
  on conflict do nothing
  returning task_id
-- instead of returning:
select task_id from flotilla_task where task_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as name, value ->> 3 as payload, value ->> 4 as priority, value ->> 5 as delay_ms, value ->> 6 as max_attempts, value ->> 7 as unique_key, value ->> 8 as trace from jsonb_each(?)) fresh)
-- values: ["[[\"task-1\",\"default\",\"mail\",\"{}\",0,0,null,null,null,null,null,0,0,10,null,null]]","[[\"task-1\",\"nightly\",\"mark-1\"]]"]

-- src/schedules/sql.ts: linkFired
insert into flotilla_link (from_id, to_id, what, at)
select from_id, to_id, what, now_ms() from (select value ->> 0 as from_id, value ->> 1 as to_id, value ->> 2 as what from jsonb_each(?)) wanted
where to_id = (select task_id from flotilla_task where task_id = wanted.to_id)
on conflict do nothing
-- values: ["[[\"nightly\",\"task-1\",\"schedule\"]]"]

-- src/schedules/sql.ts: putSchedule
insert into flotilla_schedule (schedule_id, name, pattern, zone, payload, options, missed, mark)
values (?, ?, ?, ?, ?, ?, ?, ?)
on conflict (schedule_id) do nothing
-- values: ["nightly","report","0 3 * * *","UTC","null","{}","once",null]

  update flotilla_schedule
  set name = ?, pattern = ?, zone = ?, payload = ?,
    options = ?, missed = ?,
    revision = revision + 1, error = null, last_update = case when flotilla_schedule.last_update < now_ms() then now_ms()
else flotilla_schedule.last_update + 1 end, mark = coalesce(?, mark),
    after_at = case when (pattern <> ? or zone <> ? or error is not null) then now_ms() else after_at end, next_at = 0
  where schedule_id = ? and created_at = ? and last_update = ? and ((pattern <> ? or zone <> ? or error is not null) or name <> ? or ? = 1
    or options <> ? or missed <> ?)
-- values: ["report","0 3 * * *","UTC","null","{}","once","mark-1","0 3 * * *","UTC","nightly",1,2,"0 3 * * *","UTC","report",1,"{}","once"]

-- src/schedules/sql.ts: getSchedules
select *, now_ms() as now_at from flotilla_schedule
where schedule_id in (select schedule_id from (select value ->> 0 as schedule_id from jsonb_each(?)) wanted)
-- values: ["[[\"nightly\"]]"]

-- src/schedules/sql.ts: listSchedules
  with listed as (
    select schedule_id as place, 500 + coalesce(octet_length(payload), 0) + coalesce(octet_length(options), 0) + coalesce(octet_length(error), 0) as bytes from flotilla_schedule where schedule_id > ?
    order by schedule_id asc limit cast(? as integer)),
  measured as (
    select place, row_number() over (order by place asc) as nth,
      sum(bytes) over (order by place asc) as up_to
    from listed)
select *, (select count(*) from listed) as found from flotilla_schedule where schedule_id in (select place from measured
  where nth = 1 or (nth <= ? and up_to <= ?))
order by schedule_id
-- values: ["",11,10,1048576]

-- src/schedules/sql.ts: listFirings
select made.to_id as task_id, task.name, task.tenant, task.status, task.scheduled_at,
  task.created_at, task.last_update, task.retry_count
from (select link.to_id from flotilla_link link
  where link.from_id = ? and link.what = 'schedule'
  order by link.to_id desc limit cast(? as integer)) made
left join flotilla_task task on task.task_id = made.to_id
order by made.to_id desc
-- values: ["nightly",51]

select made.to_id as task_id, task.name, task.tenant, task.status, task.scheduled_at,
  task.created_at, task.last_update, task.retry_count
from (select link.to_id from flotilla_link link
  where link.from_id = ? and link.what = 'schedule' and link.to_id < ?
  order by link.to_id desc limit cast(? as integer)) made
left join flotilla_task task on task.task_id = made.to_id
order by made.to_id desc
-- values: ["nightly","task-9",51]

-- src/schedules/sql.ts: pauseSchedule
  update flotilla_schedule set paused = 1, last_update = case when flotilla_schedule.last_update < now_ms() then now_ms()
else flotilla_schedule.last_update + 1 end, mark = ?
  where schedule_id = ? and created_at = ? and last_update = ? and paused = 0
-- values: ["mark-1","nightly",1,2]

-- src/schedules/sql.ts: resumeSchedule
  update flotilla_schedule set paused = 0, after_at = now_ms(), next_at = 0, last_update = case when flotilla_schedule.last_update < now_ms() then now_ms()
else flotilla_schedule.last_update + 1 end,
    mark = ?
  where schedule_id = ? and created_at = ? and last_update = ? and paused = 1
-- values: ["mark-1","nightly",1,2]

-- src/schedules/sql.ts: removeSchedule
select schedule_id from flotilla_schedule where schedule_id = ? and created_at = ?
-- values: ["nightly",1]

  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, ?, ?, ?,
    cast(? as bigint), ?, ?,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?
  from flotilla_schedule where schedule_id = ? and created_at = ?
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"{}",null,"audit.full","done",null,"click-1","nightly",1]

delete from flotilla_schedule where schedule_id = ? and created_at = ?
-- values: ["nightly",1]

-- src/schedules/sql.ts: entryOfChange
  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, ?, ?, ?,
    cast(? as bigint), ?, ?,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?
  from flotilla_schedule where schedule_id = ? and mark = ?
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,null,"{}","audit.full","done",null,"click-1","nightly","mark-1"]

-- src/schedules/sql.ts: fireSchedule
select schedule_id from flotilla_schedule where schedule_id = ? and created_at = ? and last_update = ?
-- values: ["nightly",1,2]

  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, ?, ?, ?,
    cast(? as bigint), ?, ?,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?
  from flotilla_schedule where schedule_id = ? and created_at = ? and last_update = ?
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,null,"{\"taskId\":\"task-1\"}","audit.full","done",null,"click-1","nightly",1,2]

insert into flotilla_task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
  max_attempts, unique_key, trace, parked)
select task_id, tenant, name, payload, priority, now_ms() + delay_ms, now_ms(), now_ms(),
  max_attempts, unique_key, trace, case when delay_ms > 0 then 1 else 0 end
from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as name, value ->> 3 as payload, value ->> 4 as priority, value ->> 5 as delay_ms, value ->> 6 as max_attempts, value ->> 7 as unique_key, value ->> 8 as trace from jsonb_each(?)) fresh where exists (select 1 from flotilla_schedule where schedule_id = ? and created_at = ? and last_update = ?)
on conflict do nothing
returning task_id
-- instead of returning:
select task_id from flotilla_task where task_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as name, value ->> 3 as payload, value ->> 4 as priority, value ->> 5 as delay_ms, value ->> 6 as max_attempts, value ->> 7 as unique_key, value ->> 8 as trace from jsonb_each(?)) fresh)
-- values: ["[[\"task-1\",\"default\",\"mail\",\"{}\",0,0,null,null,null]]","nightly",1,2]

select task_id from flotilla_task where task_id = ?
-- values: ["task-1"]
