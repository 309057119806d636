-- src/dead-letters/sql.ts: readGroupSecret
select secret from flotilla_bus_secret limit cast(? as integer)
-- values: [1]

-- src/dead-letters/sql.ts: failedAfter
select task_id, claim_token, last_update, redrive_id, now_ms() as now from flotilla_task
where status = 'failed' and (last_update, task_id) > (?, ?)
order by last_update, task_id limit cast(? as integer)
-- values: [10,"task-1",10]

-- src/dead-letters/sql.ts: manyFailed
select task_id from flotilla_task where status = 'failed' order by last_update, task_id limit 1 offset 999

-- src/dead-letters/sql.ts: failedSince
select task_id, claim_token, last_update, redrive_id, now_ms() as now from flotilla_task
where status = 'failed'
  and last_update >= (case when ? < now_ms() then ? else now_ms() end) - ?
order by last_update, task_id limit cast(? as integer)
-- values: [10,10,5,100]

-- src/dead-letters/sql.ts: failedTasks
select task_id, name, tenant, claim_token, last_update, retry_count, deaths, redrive_id, error
from flotilla_task task
where task_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) wanted) and coalesce(task.status, '') = 'failed'
-- values: ["[[\"task-1\"]]"]

-- src/dead-letters/sql.ts: insertRedrive
insert into flotilla_redrive (redrive_id, filter, step_max, from_start)
select redrive_id, filter, step_max, from_start
from (select value ->> 0 as redrive_id, value ->> 1 as filter, value ->> 2 as step_max, value ->> 3 as from_start from jsonb_each(?)) fresh
where (select count(*) from flotilla_redrive where state in ('running', 'stopping')) < ?
on conflict (redrive_id) do nothing
-- values: ["[[\"redrive-1\",\"{\\\"all\\\":true}\",100,1]]",50]

  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, ?, ?, ?,
    cast(null as bigint), ?, ?,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?
  from flotilla_redrive where redrive_id = ?
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,null,"{\"redriveId\":\"redrive-1\",\"maxStep\":100,\"fromStart\":true}","audit.full","done",null,"click-1","redrive-1"]

select * from flotilla_redrive where redrive_id = ?
-- values: ["redrive-1"]

-- src/dead-letters/sql.ts: getRedrive
select * from flotilla_redrive where redrive_id = ?
-- values: ["redrive-1"]

-- src/dead-letters/sql.ts: listRedrives
select * from flotilla_redrive  order by redrive_id desc limit cast(? as integer)
-- values: [10]

select * from flotilla_redrive where redrive_id < ? order by redrive_id desc limit cast(? as integer)
-- values: ["redrive-1",10]

-- src/dead-letters/sql.ts: openRedrives
select * from flotilla_redrive where state in ('running', 'stopping') order by created_at, redrive_id limit cast(? as integer)
-- values: [50]

-- src/dead-letters/sql.ts: stepTasks
select task_id, name, status,
  case when status = 'failed' then error end as error,
  case when status = 'failed' then (
    select detail from flotilla_task_event event
    where event.task_id = task.task_id and event.type = 'redriven'
    order by seq desc limit 1) end as redriven
from flotilla_task task where redrive_id = ? and redrive_step = ?
order by task_id
-- values: ["redrive-1",1]

-- src/dead-letters/sql.ts: takeStep
  update flotilla_redrive
  set
revision = revision + 1, step = step + 1, last_update = now_ms(),
succeeded = succeeded + ?, failed = failed + ?,
failed_otherwise = failed_otherwise + ?, gone = gone + ?, last_write = ?, step_size = ?, step_taken = null,
    remaining = ?
  where redrive_id = ? and revision = ? and state = 'running'
-- values: [1,0,0,0,"write-1",2,3,"redrive-1",2]

select task_id from flotilla_task task where rowid in (
    select (select rowid from flotilla_task task where task.task_id = named.id)
    from (
    select distinct child.parent_id as id from flotilla_task child
    where child.task_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) started)
      and child.parent_id is not null ) named)
      order by task_id
-- values: ["[[\"task-1\"]]"]

    insert into flotilla_task_event (task_id, seq, type, detail)
    select wanted.task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = wanted.task_id), 'redriven', wanted.detail
    from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as detail from jsonb_each(?)) wanted join flotilla_task task on task.task_id = wanted.task_id
    where
coalesce(task.status, '') = 'failed' and task.claim_token = wanted.token
and exists (select 1 from flotilla_redrive where redrive_id = ? and last_write = ? and step_taken is null)
and not exists (select 1 from flotilla_redrive holder
  where holder.redrive_id = task.redrive_id and holder.state in ('running', 'stopping'))
-- values: ["[[\"task-1\",3,\"{\\\"redriveId\\\":\\\"redrive-1\\\",\\\"step\\\":2,\\\"group\\\":\\\"group-1\\\"}\"]]","redrive-1","write-1"]

delete from flotilla_step_journal where owner_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as detail from jsonb_each(?)) wanted
    join flotilla_task task on task.task_id = wanted.task_id where
    coalesce(task.status, '') = 'failed' and task.claim_token = wanted.token
    and exists (select 1 from flotilla_redrive where redrive_id = ? and last_write = ? and step_taken is null)
    and not exists (select 1 from flotilla_redrive holder
      where holder.redrive_id = task.redrive_id and holder.state in ('running', 'stopping'))) and (part = '' or part >= 'A') and kind = 'failed'
-- values: ["[[\"task-1\",3,\"{\\\"redriveId\\\":\\\"redrive-1\\\",\\\"step\\\":2,\\\"group\\\":\\\"group-1\\\"}\"]]","redrive-1","write-1"]

      update flotilla_task
      set
status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
depends = case when depends = 3 then 1 else depends end,
claim_token = claim_token + 1, claimed_by = null, run_at = now_ms(), last_update = now_ms(),
cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
error = null, progress = null, progress_token = claim_token + 1 , redrive_id = ?,
        redrive_step = ?
      from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as detail from jsonb_each(?)) wanted
      where flotilla_task.task_id = wanted.task_id and
  coalesce(flotilla_task.status, '') = 'failed' and flotilla_task.claim_token = wanted.token
  and exists (select 1 from flotilla_redrive where redrive_id = ? and last_write = ? and step_taken is null)
  and not exists (select 1 from flotilla_redrive holder
    where holder.redrive_id = flotilla_task.redrive_id and holder.state in ('running', 'stopping'))
-- values: ["redrive-1",2,"[[\"task-1\",3,\"{\\\"redriveId\\\":\\\"redrive-1\\\",\\\"step\\\":2,\\\"group\\\":\\\"group-1\\\"}\"]]","redrive-1","write-1"]

update flotilla_task set wake = wake + 1
      where rowid in (
    select (select rowid from flotilla_task task where task.task_id = named.id)
    from (
    select distinct child.parent_id as id from flotilla_task child
    where child.task_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) started)
      and child.parent_id is not null and child.status in ('pending', 'claimed')) named)
        and status in ('pending', 'claimed')
-- values: ["[[\"task-1\"]]"]

update flotilla_task
set wake = wake + 1, last_update = now_ms(), (depends, parked, run_at) = (
  select case when verdict = 2 then 3 else flotilla_task.depends end,
    case when verdict = 1 then flotilla_task.parked when flotilla_task.parked <> 2 then case when limited = 1 then 4 else 0 end
      when flotilla_task.run_at > now_ms() then 1 else case when limited = 1 then 4 else 0 end end,
    case when verdict <> 1 and flotilla_task.parked <> 2 then now_ms() else flotilla_task.run_at end
  from (
    select coalesce(max(
      case (select case when dependency.parent_id = flotilla_task.task_id
  then case when coalesce(substr(dependency.unique_key, 1, length(coalesce(flotilla_task.awaits, flotilla_task.task_id || '/' || flotilla_task.cursor || '/'))), coalesce(flotilla_task.awaits, flotilla_task.task_id || '/' || flotilla_task.cursor || '/')) = coalesce(flotilla_task.awaits, flotilla_task.task_id || '/' || flotilla_task.cursor || '/')
    then dependency.status end
when flotilla_task.awaits is null then dependency.status end from flotilla_task dependency
          where dependency.task_id = wait.dependency_id)
        when 'pending' then 1 when 'claimed' then 1
        when 'failed' then case when flotilla_task.depends = 1 then 2 else 0 end
        when 'cancelled' then case when flotilla_task.depends = 1 then 2 else 0 end
        else 0 end), 0) as verdict
    from flotilla_task_dependency wait where wait.dependent_id = flotilla_task.task_id) judged)
where rowid in (
select (select rowid from flotilla_task task where task.task_id = named.id)
from (select task_id as id from (select value ->> 0 as task_id from jsonb_each(?)) fresh) named) and coalesce(flotilla_task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["[[\"task-1\"]]"]

update flotilla_redrive set step_taken = (select count(*) from flotilla_task
    where redrive_id = ? and redrive_step = ?), taken = taken + (select count(*) from flotilla_task
    where redrive_id = ? and redrive_step = ?) where redrive_id = ? and last_write = ? and step_taken is null
-- values: ["redrive-1",2,"redrive-1",2,"redrive-1","write-1"]

select * from flotilla_redrive where redrive_id = ?
-- values: ["redrive-1"]

  update flotilla_redrive
  set
revision = revision + 1, step = step + 1, last_update = now_ms(),
succeeded = succeeded + ?, failed = failed + ?,
failed_otherwise = failed_otherwise + ?, gone = gone + ?, last_write = ?, step_size = ?, step_taken = null,
    remaining = ?
  where redrive_id = ? and revision = ? and state = 'running'
-- values: [1,0,0,0,"write-1",2,3,"redrive-1",2]

select task_id from flotilla_task task where rowid in (
    select (select rowid from flotilla_task task where task.task_id = named.id)
    from (
    select distinct child.parent_id as id from flotilla_task child
    where child.task_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) started)
      and child.parent_id is not null ) named)
      order by task_id
-- values: ["[[\"task-1\"]]"]

    insert into flotilla_task_event (task_id, seq, type, detail)
    select wanted.task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = wanted.task_id), 'redriven', wanted.detail
    from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as detail from jsonb_each(?)) wanted join flotilla_task task on task.task_id = wanted.task_id
    where
coalesce(task.status, '') = 'failed' and task.claim_token = wanted.token
and exists (select 1 from flotilla_redrive where redrive_id = ? and last_write = ? and step_taken is null)
and not exists (select 1 from flotilla_redrive holder
  where holder.redrive_id = task.redrive_id and holder.state in ('running', 'stopping'))
-- values: ["[[\"task-1\",3,\"{\\\"redriveId\\\":\\\"redrive-1\\\",\\\"step\\\":2,\\\"group\\\":\\\"group-1\\\"}\"]]","redrive-1","write-1"]

          update flotilla_redrive set forgotten_steps = forgotten_steps + (select count(*) from flotilla_step_journal where owner_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as detail from jsonb_each(?)) wanted
join flotilla_task task on task.task_id = wanted.task_id where
coalesce(task.status, '') = 'failed' and task.claim_token = wanted.token
and exists (select 1 from flotilla_redrive where redrive_id = ? and last_write = ? and step_taken is null)
and not exists (select 1 from flotilla_redrive holder
  where holder.redrive_id = task.redrive_id and holder.state in ('running', 'stopping'))) and (part = '' or part >= 'A'))
          where redrive_id = ? and last_write = ? and step_taken is null
-- values: ["[[\"task-1\",3,\"{\\\"redriveId\\\":\\\"redrive-1\\\",\\\"step\\\":2,\\\"group\\\":\\\"group-1\\\"}\"]]","redrive-1","write-1","redrive-1","write-1"]

delete from flotilla_step_journal where owner_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as detail from jsonb_each(?)) wanted
    join flotilla_task task on task.task_id = wanted.task_id where
    coalesce(task.status, '') = 'failed' and task.claim_token = wanted.token
    and exists (select 1 from flotilla_redrive where redrive_id = ? and last_write = ? and step_taken is null)
    and not exists (select 1 from flotilla_redrive holder
      where holder.redrive_id = task.redrive_id and holder.state in ('running', 'stopping'))) and (part = '' or part >= 'A')
-- values: ["[[\"task-1\",3,\"{\\\"redriveId\\\":\\\"redrive-1\\\",\\\"step\\\":2,\\\"group\\\":\\\"group-1\\\"}\"]]","redrive-1","write-1"]

      update flotilla_task
      set
status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
depends = case when depends = 3 then 1 else depends end,
claim_token = claim_token + 1, claimed_by = null, run_at = now_ms(), last_update = now_ms(),
cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
error = null, progress = null, progress_token = claim_token + 1 , task_version = null, begun_version = null, redrive_id = ?,
        redrive_step = ?
      from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as detail from jsonb_each(?)) wanted
      where flotilla_task.task_id = wanted.task_id and
  coalesce(flotilla_task.status, '') = 'failed' and flotilla_task.claim_token = wanted.token
  and exists (select 1 from flotilla_redrive where redrive_id = ? and last_write = ? and step_taken is null)
  and not exists (select 1 from flotilla_redrive holder
    where holder.redrive_id = flotilla_task.redrive_id and holder.state in ('running', 'stopping'))
-- values: ["redrive-1",2,"[[\"task-1\",3,\"{\\\"redriveId\\\":\\\"redrive-1\\\",\\\"step\\\":2,\\\"group\\\":\\\"group-1\\\"}\"]]","redrive-1","write-1"]

update flotilla_task set wake = wake + 1
      where rowid in (
    select (select rowid from flotilla_task task where task.task_id = named.id)
    from (
    select distinct child.parent_id as id from flotilla_task child
    where child.task_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) started)
      and child.parent_id is not null and child.status in ('pending', 'claimed')) named)
        and status in ('pending', 'claimed')
-- values: ["[[\"task-1\"]]"]

update flotilla_task
set wake = wake + 1, last_update = now_ms(), (depends, parked, run_at) = (
  select case when verdict = 2 then 3 else flotilla_task.depends end,
    case when verdict = 1 then flotilla_task.parked when flotilla_task.parked <> 2 then case when limited = 1 then 4 else 0 end
      when flotilla_task.run_at > now_ms() then 1 else case when limited = 1 then 4 else 0 end end,
    case when verdict <> 1 and flotilla_task.parked <> 2 then now_ms() else flotilla_task.run_at end
  from (
    select coalesce(max(
      case (select case when dependency.parent_id = flotilla_task.task_id
  then case when coalesce(substr(dependency.unique_key, 1, length(coalesce(flotilla_task.awaits, flotilla_task.task_id || '/' || flotilla_task.cursor || '/'))), coalesce(flotilla_task.awaits, flotilla_task.task_id || '/' || flotilla_task.cursor || '/')) = coalesce(flotilla_task.awaits, flotilla_task.task_id || '/' || flotilla_task.cursor || '/')
    then dependency.status end
when flotilla_task.awaits is null then dependency.status end from flotilla_task dependency
          where dependency.task_id = wait.dependency_id)
        when 'pending' then 1 when 'claimed' then 1
        when 'failed' then case when flotilla_task.depends = 1 then 2 else 0 end
        when 'cancelled' then case when flotilla_task.depends = 1 then 2 else 0 end
        else 0 end), 0) as verdict
    from flotilla_task_dependency wait where wait.dependent_id = flotilla_task.task_id) judged)
where rowid in (
select (select rowid from flotilla_task task where task.task_id = named.id)
from (select task_id as id from (select value ->> 0 as task_id from jsonb_each(?)) fresh) named) and coalesce(flotilla_task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["[[\"task-1\"]]"]

update flotilla_redrive set step_taken = (select count(*) from flotilla_task
    where redrive_id = ? and redrive_step = ?), taken = taken + (select count(*) from flotilla_task
    where redrive_id = ? and redrive_step = ?) where redrive_id = ? and last_write = ? and step_taken is null
-- values: ["redrive-1",2,"redrive-1",2,"redrive-1","write-1"]

select * from flotilla_redrive where redrive_id = ?
-- values: ["redrive-1"]

-- src/dead-letters/sql.ts: stopRedrive
update flotilla_redrive
set state = 'stopping', reason = ?, last_write = ?,
  revision = revision + 1, last_update = now_ms()
where redrive_id = ? and revision = ? and state = 'running'
-- values: ["{\"code\":\"same_error\",\"message\":\"refused\"}","write-1","redrive-1",2]

-- src/dead-letters/sql.ts: cancelRedrive
select redrive_id from flotilla_redrive where redrive_id = ?
-- values: ["redrive-1"]

  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, ?, ?, ?,
    cast(? as bigint), ?, ?,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?
  from flotilla_redrive where redrive_id = ? and state = 'running'
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"{\"state\":\"running\"}","{\"state\":\"stopping\"}","audit.full","done",null,"click-1","redrive-1"]

update flotilla_redrive
set state = 'stopping', reason = ?,
  revision = revision + 1, last_update = now_ms()
where redrive_id = ? and state = 'running'
-- values: ["{\"code\":\"same_error\",\"message\":\"refused\"}","redrive-1"]

select * from flotilla_redrive where redrive_id = ?
-- values: ["redrive-1"]

-- src/dead-letters/sql.ts: endRedrive
update flotilla_redrive
set
revision = revision + 1, step = step + 1, last_update = now_ms(),
succeeded = succeeded + ?, failed = failed + ?,
failed_otherwise = failed_otherwise + ?, gone = gone + ?, last_write = ?, state = ?, step_size = 0, step_taken = 0,
  remaining = case when ? = 'done' then 0 else remaining end
where redrive_id = ? and revision = ?
  and state = ?
-- values: [1,0,0,0,"write-1","done","done","redrive-1",2,"running"]

-- src/dead-letters/sql.ts: pruneRedrives
delete from flotilla_redrive where not (state in ('running', 'stopping')) and last_update < now_ms() - ?
-- values: [60000]

-- src/dead-letters/sql.ts: getGroups
select *, now_ms() as now from flotilla_failure_group
where group_id in (select group_id from (select value ->> 0 as group_id from jsonb_each(?)) wanted)
-- values: ["[[\"g2-1\"]]"]

-- src/dead-letters/sql.ts: closedGroups
select *, now_ms() as now from flotilla_failure_group where state <> 'open' limit cast(? as integer)
-- values: [10000]

-- src/dead-letters/sql.ts: insertGroups
insert into flotilla_failure_group (group_id, first_at)
select group_id, first_at from (select value ->> 0 as group_id, value ->> 1 as first_at from jsonb_each(?)) fresh
where (select count(*) from flotilla_failure_group) < ?
on conflict (group_id) do nothing
-- values: ["[[\"g2-1\",10]]",10000]

-- src/dead-letters/sql.ts: returnGroups
update flotilla_failure_group
set state = 'open', state_at = now_ms(), until_at = null, came_back_at = back.back_at,
  last_update = now_ms()
from (select value ->> 0 as group_id, value ->> 1 as seen_at, value ->> 2 as back_at from jsonb_each(?)) back
where flotilla_failure_group.group_id = back.group_id and flotilla_failure_group.state <> 'open'
  and flotilla_failure_group.state_at = back.seen_at
-- values: ["[[\"g2-1\",15,20]]"]

-- src/dead-letters/sql.ts: keepGroups
update flotilla_failure_group set last_update = now_ms()
where group_id in (select group_id from (select value ->> 0 as group_id from jsonb_each(?)) wanted)
-- values: ["[[\"g2-1\"]]"]

-- src/dead-letters/sql.ts: oldGroups
select group_id from flotilla_failure_group where last_update < now_ms() - ?
order by last_update limit cast(? as integer)
-- values: [60000,10]

-- src/dead-letters/sql.ts: pruneGroups
delete from flotilla_failure_group
where group_id in (select group_id from (select value ->> 0 as group_id from jsonb_each(?)) wanted)
  and last_update < now_ms() - ?
-- values: ["[[\"g2-1\"]]",60000]

-- src/dead-letters/sql.ts: changeGroup
insert into flotilla_failure_group (group_id, first_at)
select group_id, first_at from (select value ->> 0 as group_id, value ->> 1 as first_at from jsonb_each(?)) fresh
where (select count(*) from flotilla_failure_group) < ?
on conflict (group_id) do nothing
-- values: ["[[\"g2-1\",10]]",10000]

select group_id from flotilla_failure_group where group_id = ?
-- values: ["g2-1"]

  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, ?, ?, ?,
    cast(? as bigint), '{"state":"' || state || '"}', ?,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?
  from flotilla_failure_group where group_id = ? and (state <> ?
  or coalesce(until_at, 0) <> ?
  or (state <> 'open' and until_at is null and state_at < ?))
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"{\"state\":\"resolved\"}","audit.full","done",null,"click-1","g2-1","resolved",0,20]

  update flotilla_failure_group
  set state = ?, state_at = now_ms(), until_at = ?, came_back_at = null,
    last_update = now_ms()
  where group_id = ? and (state <> ?
or coalesce(until_at, 0) <> ?
or (state <> 'open' and until_at is null and state_at < ?))
-- values: ["resolved",null,"g2-1","resolved",0,20]

select *, now_ms() as now from flotilla_failure_group
where group_id in (select group_id from (select value ->> 0 as group_id from jsonb_each(?)) wanted)
-- values: ["[[\"g2-1\"]]"]

insert into flotilla_failure_group (group_id, first_at)
select group_id, first_at from (select value ->> 0 as group_id, value ->> 1 as first_at from jsonb_each(?)) fresh
where (select count(*) from flotilla_failure_group) < ?
on conflict (group_id) do nothing
-- values: ["[[\"g2-1\",10]]",10000]

select group_id from flotilla_failure_group where group_id = ?
-- values: ["g2-1"]

  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, ?, ?, ?,
    cast(? as bigint), '{"state":"' || state || '"}', ?,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?
  from flotilla_failure_group where group_id = ? and (state <> ?
  or coalesce(until_at, 0) <> ?
  or (state <> 'open' and until_at is null and state_at < ?))
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"{\"state\":\"ignored\",\"untilMs\":99}","audit.full","done",null,"click-1","g2-1","ignored",99,20]

  update flotilla_failure_group
  set state = ?, state_at = now_ms(), until_at = ?, came_back_at = null,
    last_update = now_ms()
  where group_id = ? and (state <> ?
or coalesce(until_at, 0) <> ?
or (state <> 'open' and until_at is null and state_at < ?))
-- values: ["ignored",99,"g2-1","ignored",99,20]

select *, now_ms() as now from flotilla_failure_group
where group_id in (select group_id from (select value ->> 0 as group_id from jsonb_each(?)) wanted)
-- values: ["[[\"g2-1\"]]"]

-- src/dead-letters/sql.ts: discardTasks
insert into flotilla_task_event (task_id, seq, type, detail)
select wanted.task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = wanted.task_id), 'discarded', ?
from (select value ->> 0 as task_id, value ->> 1 as token from jsonb_each(?)) wanted join flotilla_task task on task.task_id = wanted.task_id
where coalesce(task.status, '') = 'failed' and task.claim_token = wanted.token
-- values: ["{\"writeId\":\"write-1\"}","[[\"task-1\",3]]"]

update flotilla_task set status = 'cancelled', last_update = now_ms()
from (select value ->> 0 as task_id, value ->> 1 as token from jsonb_each(?)) wanted
where flotilla_task.task_id = wanted.task_id and coalesce(flotilla_task.status, '') = 'failed' and flotilla_task.claim_token = wanted.token
-- values: ["[[\"task-1\",3]]"]

  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, ?, ?, ?,
    cast((
  select count(*) as discarded from (select value ->> 0 as task_id, value ->> 1 as token from jsonb_each(?)) wanted
  where (select max(event.seq) from flotilla_task_event event
    where event.task_id = wanted.task_id and event.type = 'discarded'
      and event.detail = ?) is not null) as bigint), ?, ?,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?
  where (
  select count(*) as discarded from (select value ->> 0 as task_id, value ->> 1 as token from jsonb_each(?)) wanted
  where (select max(event.seq) from flotilla_task_event event
    where event.task_id = wanted.task_id and event.type = 'discarded'
      and event.detail = ?) is not null) > 0
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,"[[\"task-1\",3]]","{\"writeId\":\"write-1\"}",null,"{\"status\":\"cancelled\"}","audit.full","begun",null,"click-1","[[\"task-1\",3]]","{\"writeId\":\"write-1\"}"]

select count(*) as discarded from (select value ->> 0 as task_id, value ->> 1 as token from jsonb_each(?)) wanted
where (select max(event.seq) from flotilla_task_event event
  where event.task_id = wanted.task_id and event.type = 'discarded'
    and event.detail = ?) is not null
-- values: ["[[\"task-1\",3]]","{\"writeId\":\"write-1\"}"]
