-- src/dead-letters/sql.ts: readGroupSecret
select secret from flotilla.bus_secret limit cast($1 as integer)
-- values: [1]

-- src/dead-letters/sql.ts: failedAfter
select task_id, claim_token, last_update, redrive_id, now_ms() as now from flotilla.task
where status = 'failed' and (last_update, task_id) > ($1, $2)
order by last_update, task_id limit cast($3 as integer)
-- values: [10,"task-1",10]

-- src/dead-letters/sql.ts: manyFailed
select task_id from flotilla.task where status = 'failed' order by last_update, task_id limit 1 offset 999

-- src/dead-letters/sql.ts: failedSince
select task_id, claim_token, last_update, redrive_id, now_ms() as now from flotilla.task
where status = 'failed'
  and last_update >= (case when $1 < now_ms() then $2 else now_ms() end) - $3
order by last_update, task_id limit cast($4 as integer)
-- values: [10,10,5,100]

-- src/dead-letters/sql.ts: failedTasks
select task_id, name, tenant, claim_token, last_update, retry_count, deaths, redrive_id, error
from flotilla.task task
where task_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) wanted)) and coalesce(task.status, '') = 'failed'
-- values: ["{\"task-1\"}"]

-- src/dead-letters/sql.ts: insertRedrive
insert into flotilla.redrive (redrive_id, filter, step_max, from_start)
select redrive_id, filter, step_max, from_start
from (select redrive_id collate "C" as redrive_id, filter collate "C" as filter, step_max, from_start from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) as each_row (redrive_id, filter, step_max, from_start)) fresh
where (select count(*) from flotilla.redrive where state in ('running', 'stopping')) < $5
on conflict (redrive_id) do nothing
-- values: ["{\"redrive-1\"}","{\"{\\\"all\\\":true}\"}","{100}","{1}",50]

  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, $8, $9, $10,
    cast(null as bigint), $11, $12,
    case when exists (
select 1 from flotilla.audit past where past.action = $13 and past.outcome = 'full') then null else $14 end, $15, $16
  from flotilla.redrive where redrive_id = $17
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,null,"{\"redriveId\":\"redrive-1\",\"maxStep\":100,\"fromStart\":true}","audit.full","done",null,"click-1","redrive-1"]

select * from flotilla.redrive where redrive_id = $1
-- values: ["redrive-1"]

-- src/dead-letters/sql.ts: getRedrive
select * from flotilla.redrive where redrive_id = $1
-- values: ["redrive-1"]

-- src/dead-letters/sql.ts: listRedrives
select * from flotilla.redrive  order by redrive_id desc limit cast($1 as integer)
-- values: [10]

select * from flotilla.redrive where redrive_id < $1 order by redrive_id desc limit cast($2 as integer)
-- values: ["redrive-1",10]

-- src/dead-letters/sql.ts: openRedrives
select * from flotilla.redrive where state in ('running', 'stopping') order by created_at, redrive_id limit cast($1 as integer)
-- values: [50]

-- src/dead-letters/sql.ts: stepTasks
select task_id, name, status,
  case when status = 'failed' then error end as error,
  case when status = 'failed' then (
    select detail from flotilla.task_event event
    where event.task_id = task.task_id and event.type = 'redriven'
    order by seq desc limit 1) end as redriven
from flotilla.task task where redrive_id = $1 and redrive_step = $2
order by task_id
-- values: ["redrive-1",1]

-- src/dead-letters/sql.ts: takeStep
  update flotilla.redrive
  set
revision = revision + 1, step = step + 1, last_update = now_ms(),
succeeded = succeeded + $1, failed = failed + $2,
failed_otherwise = failed_otherwise + $3, gone = gone + $4, last_write = $5, step_size = $6, step_taken = null,
    remaining = $7
  where redrive_id = $8 and revision = $9 and state = 'running'
-- values: [1,0,0,0,"write-1",2,3,"redrive-1",2]

select task_id from flotilla.task task where ctid = any(array(
    select (select ctid from flotilla.task task where task.task_id = named.id)
    from (
    select distinct child.parent_id as id from flotilla.task child
    where child.task_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) started))
      and child.parent_id is not null ) named))
      order by task_id for update of task
-- values: ["{\"task-1\"}"]

    insert into flotilla.task_event (task_id, seq, type, detail)
    select wanted.task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = wanted.task_id), 'redriven', wanted.detail
    from (select task_id collate "C" as task_id, token, detail collate "C" as detail from unnest($1::text[], $2::bigint[], $3::text[]) as each_row (task_id, token, detail)) wanted join flotilla.task task on task.task_id = wanted.task_id
    where
coalesce(task.status, '') = 'failed' and task.claim_token = wanted.token
and exists (select 1 from flotilla.redrive where redrive_id = $4 and last_write = $5 and step_taken is null)
and not exists (select 1 from flotilla.redrive holder
  where holder.redrive_id = task.redrive_id and holder.state in ('running', 'stopping')) for update of task
-- values: ["{\"task-1\"}","{3}","{\"{\\\"redriveId\\\":\\\"redrive-1\\\",\\\"step\\\":2,\\\"group\\\":\\\"group-1\\\"}\"}","redrive-1","write-1"]

delete from flotilla.step_journal where owner_id in (select task.task_id from (select task_id collate "C" as task_id, token, detail collate "C" as detail from unnest($1::text[], $2::bigint[], $3::text[]) as each_row (task_id, token, detail)) wanted
    join flotilla.task task on task.task_id = wanted.task_id where
    coalesce(task.status, '') = 'failed' and task.claim_token = wanted.token
    and exists (select 1 from flotilla.redrive where redrive_id = $4 and last_write = $5 and step_taken is null)
    and not exists (select 1 from flotilla.redrive holder
      where holder.redrive_id = task.redrive_id and holder.state in ('running', 'stopping'))) and (part = '' or part >= 'A') and kind = 'failed'
-- values: ["{\"task-1\"}","{3}","{\"{\\\"redriveId\\\":\\\"redrive-1\\\",\\\"step\\\":2,\\\"group\\\":\\\"group-1\\\"}\"}","redrive-1","write-1"]

      update flotilla.task
      set
status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
depends = case when depends = 3 then 1 else depends end,
claim_token = claim_token + 1, claimed_by = null, run_at = now_ms(), last_update = now_ms(),
cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
error = null, progress = null, progress_token = claim_token + 1 , redrive_id = $1,
        redrive_step = $2
      from (select task_id collate "C" as task_id, token, detail collate "C" as detail from unnest($3::text[], $4::bigint[], $5::text[]) as each_row (task_id, token, detail)) wanted
      where flotilla.task.task_id = wanted.task_id and
  coalesce(flotilla.task.status, '') = 'failed' and flotilla.task.claim_token = wanted.token
  and exists (select 1 from flotilla.redrive where redrive_id = $6 and last_write = $7 and step_taken is null)
  and not exists (select 1 from flotilla.redrive holder
    where holder.redrive_id = flotilla.task.redrive_id and holder.state in ('running', 'stopping'))
-- values: ["redrive-1",2,"{\"task-1\"}","{3}","{\"{\\\"redriveId\\\":\\\"redrive-1\\\",\\\"step\\\":2,\\\"group\\\":\\\"group-1\\\"}\"}","redrive-1","write-1"]

update flotilla.task set wake = wake + 1
      where ctid = any(array(
    select (select ctid from flotilla.task task where task.task_id = named.id)
    from (
    select distinct child.parent_id as id from flotilla.task child
    where child.task_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) started))
      and child.parent_id is not null and child.status in ('pending', 'claimed')) named))
        and status in ('pending', 'claimed')
-- values: ["{\"task-1\"}"]

update flotilla.task
set wake = wake + 1, last_update = now_ms(), (depends, parked, run_at) = (
  select case when verdict = 2 then 3 else flotilla.task.depends end,
    case when verdict = 1 then flotilla.task.parked when flotilla.task.parked <> 2 then case when limited = 1 then 4 else 0 end
      when flotilla.task.run_at > now_ms() then 1 else case when limited = 1 then 4 else 0 end end,
    case when verdict <> 1 and flotilla.task.parked <> 2 then now_ms() else flotilla.task.run_at end
  from (
    select coalesce(max(
      case (select case when dependency.parent_id = flotilla.task.task_id
  then case when coalesce(substr(dependency.unique_key, 1, length(coalesce(flotilla.task.awaits, flotilla.task.task_id || '/' || flotilla.task.cursor || '/'))), coalesce(flotilla.task.awaits, flotilla.task.task_id || '/' || flotilla.task.cursor || '/')) = coalesce(flotilla.task.awaits, flotilla.task.task_id || '/' || flotilla.task.cursor || '/')
    then dependency.status end
when flotilla.task.awaits is null then dependency.status end from flotilla.task dependency
          where dependency.task_id = wait.dependency_id)
        when 'pending' then 1 when 'claimed' then 1
        when 'failed' then case when flotilla.task.depends = 1 then 2 else 0 end
        when 'cancelled' then case when flotilla.task.depends = 1 then 2 else 0 end
        else 0 end), 0) as verdict
    from flotilla.task_dependency wait where wait.dependent_id = flotilla.task.task_id) judged)
where ctid = any(array(
select (select ctid from flotilla.task task where task.task_id = named.id)
from (select task_id as id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) fresh) named)) and coalesce(flotilla.task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["{\"task-1\"}"]

update flotilla.redrive set step_taken = (select count(*) from flotilla.task
    where redrive_id = $1 and redrive_step = $2), taken = taken + (select count(*) from flotilla.task
    where redrive_id = $3 and redrive_step = $4) where redrive_id = $5 and last_write = $6 and step_taken is null
-- values: ["redrive-1",2,"redrive-1",2,"redrive-1","write-1"]

select * from flotilla.redrive where redrive_id = $1
-- values: ["redrive-1"]

  update flotilla.redrive
  set
revision = revision + 1, step = step + 1, last_update = now_ms(),
succeeded = succeeded + $1, failed = failed + $2,
failed_otherwise = failed_otherwise + $3, gone = gone + $4, last_write = $5, step_size = $6, step_taken = null,
    remaining = $7
  where redrive_id = $8 and revision = $9 and state = 'running'
-- values: [1,0,0,0,"write-1",2,3,"redrive-1",2]

select task_id from flotilla.task task where ctid = any(array(
    select (select ctid from flotilla.task task where task.task_id = named.id)
    from (
    select distinct child.parent_id as id from flotilla.task child
    where child.task_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) started))
      and child.parent_id is not null ) named))
      order by task_id for update of task
-- values: ["{\"task-1\"}"]

    insert into flotilla.task_event (task_id, seq, type, detail)
    select wanted.task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = wanted.task_id), 'redriven', wanted.detail
    from (select task_id collate "C" as task_id, token, detail collate "C" as detail from unnest($1::text[], $2::bigint[], $3::text[]) as each_row (task_id, token, detail)) wanted join flotilla.task task on task.task_id = wanted.task_id
    where
coalesce(task.status, '') = 'failed' and task.claim_token = wanted.token
and exists (select 1 from flotilla.redrive where redrive_id = $4 and last_write = $5 and step_taken is null)
and not exists (select 1 from flotilla.redrive holder
  where holder.redrive_id = task.redrive_id and holder.state in ('running', 'stopping')) for update of task
-- values: ["{\"task-1\"}","{3}","{\"{\\\"redriveId\\\":\\\"redrive-1\\\",\\\"step\\\":2,\\\"group\\\":\\\"group-1\\\"}\"}","redrive-1","write-1"]

          update flotilla.redrive set forgotten_steps = forgotten_steps + (select count(*) from flotilla.step_journal where owner_id in (select task.task_id from (select task_id collate "C" as task_id, token, detail collate "C" as detail from unnest($1::text[], $2::bigint[], $3::text[]) as each_row (task_id, token, detail)) wanted
join flotilla.task task on task.task_id = wanted.task_id where
coalesce(task.status, '') = 'failed' and task.claim_token = wanted.token
and exists (select 1 from flotilla.redrive where redrive_id = $4 and last_write = $5 and step_taken is null)
and not exists (select 1 from flotilla.redrive holder
  where holder.redrive_id = task.redrive_id and holder.state in ('running', 'stopping'))) and (part = '' or part >= 'A'))
          where redrive_id = $6 and last_write = $7 and step_taken is null
-- values: ["{\"task-1\"}","{3}","{\"{\\\"redriveId\\\":\\\"redrive-1\\\",\\\"step\\\":2,\\\"group\\\":\\\"group-1\\\"}\"}","redrive-1","write-1","redrive-1","write-1"]

delete from flotilla.step_journal where owner_id in (select task.task_id from (select task_id collate "C" as task_id, token, detail collate "C" as detail from unnest($1::text[], $2::bigint[], $3::text[]) as each_row (task_id, token, detail)) wanted
    join flotilla.task task on task.task_id = wanted.task_id where
    coalesce(task.status, '') = 'failed' and task.claim_token = wanted.token
    and exists (select 1 from flotilla.redrive where redrive_id = $4 and last_write = $5 and step_taken is null)
    and not exists (select 1 from flotilla.redrive holder
      where holder.redrive_id = task.redrive_id and holder.state in ('running', 'stopping'))) and (part = '' or part >= 'A')
-- values: ["{\"task-1\"}","{3}","{\"{\\\"redriveId\\\":\\\"redrive-1\\\",\\\"step\\\":2,\\\"group\\\":\\\"group-1\\\"}\"}","redrive-1","write-1"]

      update flotilla.task
      set
status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
depends = case when depends = 3 then 1 else depends end,
claim_token = claim_token + 1, claimed_by = null, run_at = now_ms(), last_update = now_ms(),
cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
error = null, progress = null, progress_token = claim_token + 1 , task_version = null, begun_version = null, redrive_id = $1,
        redrive_step = $2
      from (select task_id collate "C" as task_id, token, detail collate "C" as detail from unnest($3::text[], $4::bigint[], $5::text[]) as each_row (task_id, token, detail)) wanted
      where flotilla.task.task_id = wanted.task_id and
  coalesce(flotilla.task.status, '') = 'failed' and flotilla.task.claim_token = wanted.token
  and exists (select 1 from flotilla.redrive where redrive_id = $6 and last_write = $7 and step_taken is null)
  and not exists (select 1 from flotilla.redrive holder
    where holder.redrive_id = flotilla.task.redrive_id and holder.state in ('running', 'stopping'))
-- values: ["redrive-1",2,"{\"task-1\"}","{3}","{\"{\\\"redriveId\\\":\\\"redrive-1\\\",\\\"step\\\":2,\\\"group\\\":\\\"group-1\\\"}\"}","redrive-1","write-1"]

update flotilla.task set wake = wake + 1
      where ctid = any(array(
    select (select ctid from flotilla.task task where task.task_id = named.id)
    from (
    select distinct child.parent_id as id from flotilla.task child
    where child.task_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) started))
      and child.parent_id is not null and child.status in ('pending', 'claimed')) named))
        and status in ('pending', 'claimed')
-- values: ["{\"task-1\"}"]

update flotilla.task
set wake = wake + 1, last_update = now_ms(), (depends, parked, run_at) = (
  select case when verdict = 2 then 3 else flotilla.task.depends end,
    case when verdict = 1 then flotilla.task.parked when flotilla.task.parked <> 2 then case when limited = 1 then 4 else 0 end
      when flotilla.task.run_at > now_ms() then 1 else case when limited = 1 then 4 else 0 end end,
    case when verdict <> 1 and flotilla.task.parked <> 2 then now_ms() else flotilla.task.run_at end
  from (
    select coalesce(max(
      case (select case when dependency.parent_id = flotilla.task.task_id
  then case when coalesce(substr(dependency.unique_key, 1, length(coalesce(flotilla.task.awaits, flotilla.task.task_id || '/' || flotilla.task.cursor || '/'))), coalesce(flotilla.task.awaits, flotilla.task.task_id || '/' || flotilla.task.cursor || '/')) = coalesce(flotilla.task.awaits, flotilla.task.task_id || '/' || flotilla.task.cursor || '/')
    then dependency.status end
when flotilla.task.awaits is null then dependency.status end from flotilla.task dependency
          where dependency.task_id = wait.dependency_id)
        when 'pending' then 1 when 'claimed' then 1
        when 'failed' then case when flotilla.task.depends = 1 then 2 else 0 end
        when 'cancelled' then case when flotilla.task.depends = 1 then 2 else 0 end
        else 0 end), 0) as verdict
    from flotilla.task_dependency wait where wait.dependent_id = flotilla.task.task_id) judged)
where ctid = any(array(
select (select ctid from flotilla.task task where task.task_id = named.id)
from (select task_id as id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) fresh) named)) and coalesce(flotilla.task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["{\"task-1\"}"]

update flotilla.redrive set step_taken = (select count(*) from flotilla.task
    where redrive_id = $1 and redrive_step = $2), taken = taken + (select count(*) from flotilla.task
    where redrive_id = $3 and redrive_step = $4) where redrive_id = $5 and last_write = $6 and step_taken is null
-- values: ["redrive-1",2,"redrive-1",2,"redrive-1","write-1"]

select * from flotilla.redrive where redrive_id = $1
-- values: ["redrive-1"]

-- src/dead-letters/sql.ts: stopRedrive
update flotilla.redrive
set state = 'stopping', reason = $1, last_write = $2,
  revision = revision + 1, last_update = now_ms()
where redrive_id = $3 and revision = $4 and state = 'running'
-- values: ["{\"code\":\"same_error\",\"message\":\"refused\"}","write-1","redrive-1",2]

-- src/dead-letters/sql.ts: cancelRedrive
select redrive_id from flotilla.redrive where redrive_id = $1 for update
-- values: ["redrive-1"]

  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, $8, $9, $10,
    cast($11 as bigint), $12, $13,
    case when exists (
select 1 from flotilla.audit past where past.action = $14 and past.outcome = 'full') then null else $15 end, $16, $17
  from flotilla.redrive where redrive_id = $18 and state = 'running'
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"{\"state\":\"running\"}","{\"state\":\"stopping\"}","audit.full","done",null,"click-1","redrive-1"]

update flotilla.redrive
set state = 'stopping', reason = $1,
  revision = revision + 1, last_update = now_ms()
where redrive_id = $2 and state = 'running'
-- values: ["{\"code\":\"same_error\",\"message\":\"refused\"}","redrive-1"]

select * from flotilla.redrive where redrive_id = $1
-- values: ["redrive-1"]

-- src/dead-letters/sql.ts: endRedrive
update flotilla.redrive
set
revision = revision + 1, step = step + 1, last_update = now_ms(),
succeeded = succeeded + $1, failed = failed + $2,
failed_otherwise = failed_otherwise + $3, gone = gone + $4, last_write = $5, state = $6, step_size = 0, step_taken = 0,
  remaining = case when $7 = 'done' then 0 else remaining end
where redrive_id = $8 and revision = $9
  and state = $10
-- values: [1,0,0,0,"write-1","done","done","redrive-1",2,"running"]

-- src/dead-letters/sql.ts: pruneRedrives
delete from flotilla.redrive where not (state in ('running', 'stopping')) and last_update < now_ms() - $1
-- values: [60000]

-- src/dead-letters/sql.ts: getGroups
select *, now_ms() as now from flotilla.failure_group
where group_id = any(array(select group_id from (select group_id collate "C" as group_id from unnest($1::text[]) as each_row (group_id)) wanted))
-- values: ["{\"g2-1\"}"]

-- src/dead-letters/sql.ts: closedGroups
select *, now_ms() as now from flotilla.failure_group where state <> 'open' limit cast($1 as integer)
-- values: [10000]

-- src/dead-letters/sql.ts: insertGroups
insert into flotilla.failure_group (group_id, first_at)
select group_id, first_at from (select group_id collate "C" as group_id, first_at from unnest($1::text[], $2::bigint[]) as each_row (group_id, first_at)) fresh
where (select count(*) from flotilla.failure_group) < $3
on conflict (group_id) do nothing
-- values: ["{\"g2-1\"}","{10}",10000]

-- src/dead-letters/sql.ts: returnGroups
update flotilla.failure_group
set state = 'open', state_at = now_ms(), until_at = null, came_back_at = back.back_at,
  last_update = now_ms()
from (select group_id collate "C" as group_id, seen_at, back_at from unnest($1::text[], $2::bigint[], $3::bigint[]) as each_row (group_id, seen_at, back_at)) back
where flotilla.failure_group.group_id = back.group_id and flotilla.failure_group.state <> 'open'
  and flotilla.failure_group.state_at = back.seen_at
-- values: ["{\"g2-1\"}","{15}","{20}"]

-- src/dead-letters/sql.ts: keepGroups
update flotilla.failure_group set last_update = now_ms()
where group_id = any(array(select group_id from (select group_id collate "C" as group_id from unnest($1::text[]) as each_row (group_id)) wanted))
-- values: ["{\"g2-1\"}"]

-- src/dead-letters/sql.ts: oldGroups
select group_id from flotilla.failure_group where last_update < now_ms() - $1
order by last_update limit cast($2 as integer)
-- values: [60000,10]

-- src/dead-letters/sql.ts: pruneGroups
delete from flotilla.failure_group
where group_id = any(array(select group_id from (select group_id collate "C" as group_id from unnest($1::text[]) as each_row (group_id)) wanted))
  and last_update < now_ms() - $2
-- values: ["{\"g2-1\"}",60000]

-- src/dead-letters/sql.ts: changeGroup
insert into flotilla.failure_group (group_id, first_at)
select group_id, first_at from (select group_id collate "C" as group_id, first_at from unnest($1::text[], $2::bigint[]) as each_row (group_id, first_at)) fresh
where (select count(*) from flotilla.failure_group) < $3
on conflict (group_id) do nothing
-- values: ["{\"g2-1\"}","{10}",10000]

select group_id from flotilla.failure_group where group_id = $1 for update
-- values: ["g2-1"]

  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, $8, $9, $10,
    cast($11 as bigint), '{"state":"' || state || '"}', $12,
    case when exists (
select 1 from flotilla.audit past where past.action = $13 and past.outcome = 'full') then null else $14 end, $15, $16
  from flotilla.failure_group where group_id = $17 and (state <> $18
  or coalesce(until_at, 0) <> $19
  or (state <> 'open' and until_at is null and state_at < $20))
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"{\"state\":\"resolved\"}","audit.full","done",null,"click-1","g2-1","resolved",0,20]

  update flotilla.failure_group
  set state = $1, state_at = now_ms(), until_at = $2, came_back_at = null,
    last_update = now_ms()
  where group_id = $3 and (state <> $4
or coalesce(until_at, 0) <> $5
or (state <> 'open' and until_at is null and state_at < $6))
-- values: ["resolved",null,"g2-1","resolved",0,20]

select *, now_ms() as now from flotilla.failure_group
where group_id = any(array(select group_id from (select group_id collate "C" as group_id from unnest($1::text[]) as each_row (group_id)) wanted))
-- values: ["{\"g2-1\"}"]

insert into flotilla.failure_group (group_id, first_at)
select group_id, first_at from (select group_id collate "C" as group_id, first_at from unnest($1::text[], $2::bigint[]) as each_row (group_id, first_at)) fresh
where (select count(*) from flotilla.failure_group) < $3
on conflict (group_id) do nothing
-- values: ["{\"g2-1\"}","{10}",10000]

select group_id from flotilla.failure_group where group_id = $1 for update
-- values: ["g2-1"]

  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, $8, $9, $10,
    cast($11 as bigint), '{"state":"' || state || '"}', $12,
    case when exists (
select 1 from flotilla.audit past where past.action = $13 and past.outcome = 'full') then null else $14 end, $15, $16
  from flotilla.failure_group where group_id = $17 and (state <> $18
  or coalesce(until_at, 0) <> $19
  or (state <> 'open' and until_at is null and state_at < $20))
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"{\"state\":\"ignored\",\"untilMs\":99}","audit.full","done",null,"click-1","g2-1","ignored",99,20]

  update flotilla.failure_group
  set state = $1, state_at = now_ms(), until_at = $2, came_back_at = null,
    last_update = now_ms()
  where group_id = $3 and (state <> $4
or coalesce(until_at, 0) <> $5
or (state <> 'open' and until_at is null and state_at < $6))
-- values: ["ignored",99,"g2-1","ignored",99,20]

select *, now_ms() as now from flotilla.failure_group
where group_id = any(array(select group_id from (select group_id collate "C" as group_id from unnest($1::text[]) as each_row (group_id)) wanted))
-- values: ["{\"g2-1\"}"]

-- src/dead-letters/sql.ts: discardTasks
insert into flotilla.task_event (task_id, seq, type, detail)
select wanted.task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = wanted.task_id), 'discarded', $1
from (select task_id collate "C" as task_id, token from unnest($2::text[], $3::bigint[]) as each_row (task_id, token)) wanted join flotilla.task task on task.task_id = wanted.task_id
where coalesce(task.status, '') = 'failed' and task.claim_token = wanted.token for update of task
-- values: ["{\"writeId\":\"write-1\"}","{\"task-1\"}","{3}"]

update flotilla.task set status = 'cancelled', last_update = now_ms()
from (select task_id collate "C" as task_id, token from unnest($1::text[], $2::bigint[]) as each_row (task_id, token)) wanted
where flotilla.task.task_id = wanted.task_id and coalesce(flotilla.task.status, '') = 'failed' and flotilla.task.claim_token = wanted.token
-- values: ["{\"task-1\"}","{3}"]

  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, $8, $9, $10,
    cast((
  select count(*) as discarded from (select task_id collate "C" as task_id, token from unnest($11::text[], $12::bigint[]) as each_row (task_id, token)) wanted
  where (select max(event.seq) from flotilla.task_event event
    where event.task_id = wanted.task_id and event.type = 'discarded'
      and event.detail = $13) is not null) as bigint), $14, $15,
    case when exists (
select 1 from flotilla.audit past where past.action = $16 and past.outcome = 'full') then null else $17 end, $18, $19
  where (
  select count(*) as discarded from (select task_id collate "C" as task_id, token from unnest($20::text[], $21::bigint[]) as each_row (task_id, token)) wanted
  where (select max(event.seq) from flotilla.task_event event
    where event.task_id = wanted.task_id and event.type = 'discarded'
      and event.detail = $22) is not null) > 0
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,"{\"task-1\"}","{3}","{\"writeId\":\"write-1\"}",null,"{\"status\":\"cancelled\"}","audit.full","begun",null,"click-1","{\"task-1\"}","{3}","{\"writeId\":\"write-1\"}"]

select count(*) as discarded from (select task_id collate "C" as task_id, token from unnest($1::text[], $2::bigint[]) as each_row (task_id, token)) wanted
where (select max(event.seq) from flotilla.task_event event
  where event.task_id = wanted.task_id and event.type = 'discarded'
    and event.detail = $3) is not null
-- values: ["{\"task-1\"}","{3}","{\"writeId\":\"write-1\"}"]
