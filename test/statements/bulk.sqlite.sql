-- src/bulk/sql.ts: insertBulk
insert into flotilla_bulk (bulk_id, action, filter, options, payload, matched, is_exact, created_by,
  reason, until_id)
select bulk_id, action, filter, options, payload, matched, is_exact, created_by, reason,
  coalesce((select max(task_id) from flotilla_task), '')
from (select value ->> 0 as bulk_id, value ->> 1 as action, value ->> 2 as filter, value ->> 3 as options, value ->> 4 as payload, value ->> 5 as matched, value ->> 6 as is_exact, value ->> 7 as created_by, value ->> 8 as reason from jsonb_each(?)) fresh
where (select count(*) from flotilla_bulk where state = 'running') < ?
on conflict (bulk_id) do nothing
-- values: ["[[\"bulk-1\",\"signal\",\"{\\\"name\\\":\\\"order\\\"}\",\"{\\\"signal\\\":\\\"paid\\\"}\",\"{}\",3,1,\"key/web\",\"paid by hand\"]]",20]

  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, ?, ?, ?,
    cast(? as bigint), ?, ?,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?
  from flotilla_bulk where bulk_id = ?
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,0,null,"{\"bulkId\":\"bulk-1\",\"signal\":\"paid\"}","audit.full","begun",null,"click-1","bulk-1"]

select * from flotilla_bulk where bulk_id = ?
-- values: ["bulk-1"]

-- src/bulk/sql.ts: getBulk
select * from flotilla_bulk where bulk_id = ?
-- values: ["bulk-1"]

-- src/bulk/sql.ts: listBulks
select bulk_id, action, filter, options, state, revision, cursor_id, until_id, matched, is_exact, done,
  skipped, refused, created_by, reason, created_at, last_update
from flotilla_bulk  order by bulk_id desc limit cast(? as integer)
-- values: [10]

select bulk_id, action, filter, options, state, revision, cursor_id, until_id, matched, is_exact, done,
  skipped, refused, created_by, reason, created_at, last_update
from flotilla_bulk where bulk_id < ? order by bulk_id desc limit cast(? as integer)
-- values: ["bulk-1",10]

-- src/bulk/sql.ts: openBulks
select * from flotilla_bulk where state = 'running' order by created_at, bulk_id limit cast(? as integer)
-- values: [20]

-- src/bulk/sql.ts: stopBulk
select bulk_id from flotilla_bulk where bulk_id = ?
-- values: ["bulk-1"]

  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, ?, ?, ?,
    cast(? as bigint), ?, ?,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?
  from flotilla_bulk where bulk_id = ? and state = 'running'
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"{\"state\":\"running\"}","{\"state\":\"stopped\"}","audit.full","done",null,"click-1","bulk-1"]

update flotilla_bulk set state = 'stopped', revision = revision + 1, last_update = now_ms()
where bulk_id = ? and state = 'running'
-- values: ["bulk-1"]

update flotilla_audit set outcome = 'done' where id = ? and outcome = 'begun' and exists (select 1 from flotilla_bulk where bulk_id = ? and not (state = 'running'))
-- values: ["bulk-1","bulk-1"]

select * from flotilla_bulk where bulk_id = ?
-- values: ["bulk-1"]

-- src/bulk/sql.ts: pruneBulks
delete from flotilla_bulk where not (state = 'running') and last_update < now_ms() - ?
-- values: [60000]

-- src/bulk/sql.ts: walkMatching
with page as materialized (
  select task_id, name, status, claim_token,
    case when status in (?, ?) and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and tenant = ? and task_id >= ? and task_id <= ? then 1 else 0 end as fits
  from flotilla_task where task_id >= ? and task_id <= ?
  order by task_id limit cast(? as integer))
select * from (
  select task_id, name, status, claim_token, 0 as walked from page
  where fits = 1 order by task_id limit cast(? as integer)) matching
union all
select max(task_id), null, null, null, count(*) from page
-- values: ["pending","claimed","acme","a","b","a","b",10000,500]

with page as materialized (
  select task_id, name, status, claim_token, error,
    case when status in (?, ?) and task_id <= ? and created_at <= ? and status = ? then 1 else 0 end as fits
  from flotilla_task where task_id > ? and task_id <= ? and status = 'failed'
  order by task_id limit cast(? as integer))
select * from (
  select task_id, name, status, claim_token, error, 0 as walked from page
  where fits = 1 order by task_id limit cast(? as integer)) matching
union all
select max(task_id), null, null, null, null, count(*) from page
-- values: ["failed","cancelled","task-9",10,"failed","task-1","task-9",2000,500]

with page as materialized (
  select task_id, name, status, claim_token,
    case when status in (?, ?) and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = ? and case when json_valid(payload) then json_type(payload, ?) in ('integer', 'real') and json_extract(payload, ?) is json_extract(?, '$') else false end and task_id >= ? and task_id < ? then 1 else 0 end as fits
  from flotilla_task where task_id >= ? and task_id <= ?
  order by task_id limit cast(? as integer))
select * from (
  select task_id, name, status, claim_token, 0 as walked from page
  where fits = 1 order by task_id limit cast(? as integer)) matching
union all
select max(task_id), null, null, null, count(*) from page
-- values: ["pending","claimed","mail","$.\"order\".\"id\"","$.\"order\".\"id\"","7","00000000-0001","00000000-0003","00000000-0001","00000000-0003",2000,500]

with page as materialized (
  select task_id, name, status, claim_token,
    case when status in (?) and flow_version is not null and (parked = 6 or flow_version > ?) and name = ? and cursor = ? and status = 'pending' and parked = 6 then 1 else 0 end as fits
  from flotilla_task where task_id > ? and flow_version is not null and name = ?
  order by task_id limit cast(? as integer))
select * from (
  select task_id, name, status, claim_token, 0 as walked from page
  where fits = 1 order by task_id limit cast(? as integer)) matching
union all
select max(task_id), null, null, null, count(*) from page
-- values: ["pending",3,"order","charge","","order",10000,500]

-- src/bulk/sql.ts: checkMatching
select task_id, name, status, claim_token, 0 as walked from flotilla_task
where task_id in (select given.task_id from (select value ->> 0 as task_id from jsonb_each(?)) given) and status in (?, ?) and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = ?
order by task_id limit cast(? as integer)
-- values: ["[[\"task-1\"],[\"task-2\"]]","pending","claimed","mail",500]

select task_id, name, status, claim_token, 0 as walked from flotilla_task
where task_id in (select given.task_id from (select value ->> 0 as task_id from jsonb_each(?)) given) and status in (?, ?) and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and flow_version = ? and task_id in (select given.task_id from (select value ->> 0 as task_id from jsonb_each(?)) given)
order by task_id limit cast(? as integer)
-- values: ["[[\"task-1\"]]","pending","claimed",2,"[[\"task-1\"]]",500]

-- src/bulk/sql.ts: readOutcomes
select task_id, status, case when exists (select 1 from flotilla_task_event event where event.task_id = task.task_id
      and event.type in ('cancel_requested', 'given_up', 'retried', 'resume')
      and event.detail like ?) then 1 else 0 end as acted_on from flotilla_task task
where task_id in (select given.task_id from (select value ->> 0 as task_id from jsonb_each(?)) given) and tenant = ?
-- values: ["%\"request\":\"bulk-1\"%","[[\"task-1\"],[\"task-2\"]]","acme"]

select task_id, status, case when exists (select 1 from flotilla_task_signal sent
      where sent.task_id = task.task_id and sent.signal_id = ?) then 1 else 0 end as acted_on from flotilla_task task
where task_id in (select given.task_id from (select value ->> 0 as task_id from jsonb_each(?)) given)
-- values: ["bulk-1","[[\"task-1\"]]"]

-- src/bulk/sql.ts: writeBatch
select task_id from flotilla_task task
      where task_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted)
      order by task_id
-- values: ["[[\"task-1\",\"pending\",2]]"]

update flotilla_bulk
set revision = revision + 1, cursor_id = ?,
  batch = (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = ?),
  last_update = now_ms()
where bulk_id = ? and revision = ? and state = 'running'
-- values: ["task-1","[[\"task-1\",\"pending\",2]]","mail","bulk-1",2]

insert into flotilla_task_event (task_id, seq, type, detail)
select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), ?, ?
from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task on task.task_id = wanted.task_id
where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = ? and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null) and cancel_requested = 0
-- values: ["cancel_requested","{\"request\":\"bulk-1\"}","[[\"task-1\",\"pending\",2]]","mail","bulk-1"]

insert into flotilla_task_event (task_id, seq, type, detail)
select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), ?, ?
from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task on task.task_id = wanted.task_id
where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = ? and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null) and status = 'pending' and flow_version is not null and parked = 6
-- values: ["given_up","{\"request\":\"bulk-1\"}","[[\"task-1\",\"pending\",2]]","mail","bulk-1"]

    update flotilla_task set
cancel_requested = 1, wake = wake + 1, last_update = now_ms(),
claim_token = claim_token + case when (status = 'pending' and flow_version is null or status = 'pending' and flow_version is not null and parked = 6) then 1 else 0 end,
status = case when (status = 'pending' and flow_version is null or status = 'pending' and flow_version is not null and parked = 6) then 'cancelled' else status end,
run_at = case when flow_version is not null and status = 'pending' and run_at > now_ms()
  then now_ms() else run_at end,
parked = case when flow_version is not null and status = 'pending' and parked in (1, 2, 5)
  then case when limited = 1 then 4 else 0 end else parked end
    from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
    where flotilla_task.task_id = wanted.task_id and flotilla_task.status = wanted.seen_status and flotilla_task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = ? and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null)
-- values: ["[[\"task-1\",\"pending\",2]]","mail","bulk-1"]

select task_id from flotilla_task task where task_id in (
    select child.task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent
    join flotilla_task_dependency wait on wait.dependent_id = parent.task_id
    join flotilla_task child on child.task_id = wait.dependency_id
    where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
      and child.cancel_requested = 0
      and parent.task_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
    join flotilla_task task on task.task_id = wanted.task_id
    where task.status = 'cancelled' and task.claim_token = wanted.token + 1
      and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null))) order by task_id
-- values: ["[[\"task-1\"]]","[[\"task-1\",\"pending\",2]]","bulk-1"]

  insert into flotilla_task_event (task_id, seq, type)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), 'cancel_requested' from flotilla_task task
  where task_id in (
select child.task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent
join flotilla_task_dependency wait on wait.dependent_id = parent.task_id
join flotilla_task child on child.task_id = wait.dependency_id
where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
  and child.cancel_requested = 0
  and parent.task_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
join flotilla_task task on task.task_id = wanted.task_id
where task.status = 'cancelled' and task.claim_token = wanted.token + 1
  and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null)))
-- values: ["[[\"task-1\"]]","[[\"task-1\",\"pending\",2]]","bulk-1"]

    update flotilla_task
    set
cancel_requested = 1, wake = wake + 1, last_update = now_ms(),
claim_token = claim_token + case when status = 'pending' and flow_version is null then 1 else 0 end,
status = case when status = 'pending' and flow_version is null then 'cancelled' else status end,
run_at = case when flow_version is not null and status = 'pending' and run_at > now_ms()
  then now_ms() else run_at end,
parked = case when flow_version is not null and status = 'pending' and parked in (1, 2, 5)
  then case when limited = 1 then 4 else 0 end else parked end
    where task_id in (
  select child.task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent
  join flotilla_task_dependency wait on wait.dependent_id = parent.task_id
  join flotilla_task child on child.task_id = wait.dependency_id
  where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
    and child.cancel_requested = 0
    and parent.task_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
  join flotilla_task task on task.task_id = wanted.task_id
  where task.status = 'cancelled' and task.claim_token = wanted.token + 1
    and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null)))
-- values: ["[[\"task-1\"]]","[[\"task-1\",\"pending\",2]]","bulk-1"]

select task_id from flotilla_task task where rowid in (
    select (select rowid from flotilla_task task where task.task_id = named.id)
    from (
    select distinct wait.dependent_id as id
    from flotilla_task_dependency own join flotilla_task_dependency wait on wait.dependency_id = own.dependency_id
    where own.dependent_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent)
      and (select task.status from flotilla_task task
        where task.task_id = own.dependency_id and task.parent_id = own.dependent_id) = 'cancelled') named) order by task_id
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
from (
select distinct wait.dependent_id as id
from flotilla_task_dependency own join flotilla_task_dependency wait on wait.dependency_id = own.dependency_id
where own.dependent_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent)
  and (select task.status from flotilla_task task
    where task.task_id = own.dependency_id and task.parent_id = own.dependent_id) = 'cancelled') named) and coalesce(flotilla_task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["[[\"task-1\"]]"]

select task_id from flotilla_task task where rowid in (
    select (select rowid from flotilla_task task where task.task_id = named.id)
    from (
    select distinct wait.dependent_id as id from flotilla_task_dependency wait
    where wait.dependency_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) ended)
      and (select task.status from flotilla_task task where task.task_id = wait.dependency_id)
        not in ('pending', 'claimed')) named) order by task_id
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
from (
select distinct wait.dependent_id as id from flotilla_task_dependency wait
where wait.dependency_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) ended)
  and (select task.status from flotilla_task task where task.task_id = wait.dependency_id)
    not in ('pending', 'claimed')) named) and coalesce(flotilla_task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["[[\"task-1\"]]"]

update flotilla_bulk
set done = done + batch - (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = ?
  ), refused = refused + (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = ?
  ),
  skipped = skipped + cast(? as integer) - batch, batch = null
  , state = 'done'
where bulk_id = ? and batch is not null
-- values: ["[[\"task-1\",\"pending\",2]]","mail","[[\"task-1\",\"pending\",2]]","mail",1,"bulk-1"]

update flotilla_audit set count = cast(? as bigint) + cast((select done from flotilla_bulk where bulk_id = ?) as bigint)
where id = ?
-- values: [0,"bulk-1","bulk-1"]

update flotilla_audit set outcome = 'done' where id = ? and outcome = 'begun' and exists (select 1 from flotilla_bulk where bulk_id = ? and not (state = 'running'))
-- values: ["bulk-1","bulk-1"]

select * from flotilla_bulk where bulk_id = ?
-- values: ["bulk-1"]

select task_id from flotilla_task task
      where task_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted)
      order by task_id
-- values: ["[[\"task-1\",\"pending\",2]]"]

update flotilla_bulk
set revision = revision + 1, cursor_id = ?,
  batch = (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = ? and unique_key = ? and claimed_by = ? and status = 'claimed' and case when json_valid(payload) then json_type(payload, ?) in ('integer', 'real') and json_extract(payload, ?) is json_extract(?, '$') else false end),
  last_update = now_ms()
where bulk_id = ? and revision = ? and state = 'running'
-- values: ["task-1","[[\"task-1\",\"pending\",2]]","mail","k","pod-1","$.\"order\".\"id\"","$.\"order\".\"id\"","7","bulk-1",2]

insert into flotilla_task_event (task_id, seq, type, detail)
select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), ?, ?
from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task on task.task_id = wanted.task_id
where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = ? and unique_key = ? and claimed_by = ? and status = 'claimed' and case when json_valid(payload) then json_type(payload, ?) in ('integer', 'real') and json_extract(payload, ?) is json_extract(?, '$') else false end and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null) and cancel_requested = 0
-- values: ["cancel_requested","{\"request\":\"bulk-1\"}","[[\"task-1\",\"pending\",2]]","mail","k","pod-1","$.\"order\".\"id\"","$.\"order\".\"id\"","7","bulk-1"]

insert into flotilla_task_event (task_id, seq, type, detail)
select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), ?, ?
from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task on task.task_id = wanted.task_id
where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = ? and unique_key = ? and claimed_by = ? and status = 'claimed' and case when json_valid(payload) then json_type(payload, ?) in ('integer', 'real') and json_extract(payload, ?) is json_extract(?, '$') else false end and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null) and status = 'pending' and flow_version is not null and parked = 6
-- values: ["given_up","{\"request\":\"bulk-1\"}","[[\"task-1\",\"pending\",2]]","mail","k","pod-1","$.\"order\".\"id\"","$.\"order\".\"id\"","7","bulk-1"]

    update flotilla_task set
cancel_requested = 1, wake = wake + 1, last_update = now_ms(),
claim_token = claim_token + case when (status = 'pending' and flow_version is null or status = 'pending' and flow_version is not null and parked = 6) then 1 else 0 end,
status = case when (status = 'pending' and flow_version is null or status = 'pending' and flow_version is not null and parked = 6) then 'cancelled' else status end,
run_at = case when flow_version is not null and status = 'pending' and run_at > now_ms()
  then now_ms() else run_at end,
parked = case when flow_version is not null and status = 'pending' and parked in (1, 2, 5)
  then case when limited = 1 then 4 else 0 end else parked end
    from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
    where flotilla_task.task_id = wanted.task_id and flotilla_task.status = wanted.seen_status and flotilla_task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = ? and unique_key = ? and claimed_by = ? and status = 'claimed' and case when json_valid(payload) then json_type(payload, ?) in ('integer', 'real') and json_extract(payload, ?) is json_extract(?, '$') else false end and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null)
-- values: ["[[\"task-1\",\"pending\",2]]","mail","k","pod-1","$.\"order\".\"id\"","$.\"order\".\"id\"","7","bulk-1"]

select task_id from flotilla_task task where task_id in (
    select child.task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent
    join flotilla_task_dependency wait on wait.dependent_id = parent.task_id
    join flotilla_task child on child.task_id = wait.dependency_id
    where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
      and child.cancel_requested = 0
      and parent.task_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
    join flotilla_task task on task.task_id = wanted.task_id
    where task.status = 'cancelled' and task.claim_token = wanted.token + 1
      and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null))) order by task_id
-- values: ["[[\"task-1\"]]","[[\"task-1\",\"pending\",2]]","bulk-1"]

  insert into flotilla_task_event (task_id, seq, type)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), 'cancel_requested' from flotilla_task task
  where task_id in (
select child.task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent
join flotilla_task_dependency wait on wait.dependent_id = parent.task_id
join flotilla_task child on child.task_id = wait.dependency_id
where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
  and child.cancel_requested = 0
  and parent.task_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
join flotilla_task task on task.task_id = wanted.task_id
where task.status = 'cancelled' and task.claim_token = wanted.token + 1
  and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null)))
-- values: ["[[\"task-1\"]]","[[\"task-1\",\"pending\",2]]","bulk-1"]

    update flotilla_task
    set
cancel_requested = 1, wake = wake + 1, last_update = now_ms(),
claim_token = claim_token + case when status = 'pending' and flow_version is null then 1 else 0 end,
status = case when status = 'pending' and flow_version is null then 'cancelled' else status end,
run_at = case when flow_version is not null and status = 'pending' and run_at > now_ms()
  then now_ms() else run_at end,
parked = case when flow_version is not null and status = 'pending' and parked in (1, 2, 5)
  then case when limited = 1 then 4 else 0 end else parked end
    where task_id in (
  select child.task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent
  join flotilla_task_dependency wait on wait.dependent_id = parent.task_id
  join flotilla_task child on child.task_id = wait.dependency_id
  where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
    and child.cancel_requested = 0
    and parent.task_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
  join flotilla_task task on task.task_id = wanted.task_id
  where task.status = 'cancelled' and task.claim_token = wanted.token + 1
    and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null)))
-- values: ["[[\"task-1\"]]","[[\"task-1\",\"pending\",2]]","bulk-1"]

select task_id from flotilla_task task where rowid in (
    select (select rowid from flotilla_task task where task.task_id = named.id)
    from (
    select distinct wait.dependent_id as id
    from flotilla_task_dependency own join flotilla_task_dependency wait on wait.dependency_id = own.dependency_id
    where own.dependent_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent)
      and (select task.status from flotilla_task task
        where task.task_id = own.dependency_id and task.parent_id = own.dependent_id) = 'cancelled') named) order by task_id
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
from (
select distinct wait.dependent_id as id
from flotilla_task_dependency own join flotilla_task_dependency wait on wait.dependency_id = own.dependency_id
where own.dependent_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent)
  and (select task.status from flotilla_task task
    where task.task_id = own.dependency_id and task.parent_id = own.dependent_id) = 'cancelled') named) and coalesce(flotilla_task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["[[\"task-1\"]]"]

select task_id from flotilla_task task where rowid in (
    select (select rowid from flotilla_task task where task.task_id = named.id)
    from (
    select distinct wait.dependent_id as id from flotilla_task_dependency wait
    where wait.dependency_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) ended)
      and (select task.status from flotilla_task task where task.task_id = wait.dependency_id)
        not in ('pending', 'claimed')) named) order by task_id
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
from (
select distinct wait.dependent_id as id from flotilla_task_dependency wait
where wait.dependency_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) ended)
  and (select task.status from flotilla_task task where task.task_id = wait.dependency_id)
    not in ('pending', 'claimed')) named) and coalesce(flotilla_task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["[[\"task-1\"]]"]

update flotilla_bulk
set done = done + batch - (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = ? and unique_key = ? and claimed_by = ? and status = 'claimed' and case when json_valid(payload) then json_type(payload, ?) in ('integer', 'real') and json_extract(payload, ?) is json_extract(?, '$') else false end
  ), refused = refused + (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = ? and unique_key = ? and claimed_by = ? and status = 'claimed' and case when json_valid(payload) then json_type(payload, ?) in ('integer', 'real') and json_extract(payload, ?) is json_extract(?, '$') else false end
  ),
  skipped = skipped + cast(? as integer) - batch, batch = null
  , state = 'done'
where bulk_id = ? and batch is not null
-- values: ["[[\"task-1\",\"pending\",2]]","mail","k","pod-1","$.\"order\".\"id\"","$.\"order\".\"id\"","7","[[\"task-1\",\"pending\",2]]","mail","k","pod-1","$.\"order\".\"id\"","$.\"order\".\"id\"","7",1,"bulk-1"]

update flotilla_audit set count = cast(? as bigint) + cast((select done from flotilla_bulk where bulk_id = ?) as bigint)
where id = ?
-- values: [0,"bulk-1","bulk-1"]

update flotilla_audit set outcome = 'done' where id = ? and outcome = 'begun' and exists (select 1 from flotilla_bulk where bulk_id = ? and not (state = 'running'))
-- values: ["bulk-1","bulk-1"]

select * from flotilla_bulk where bulk_id = ?
-- values: ["bulk-1"]

select task_id from flotilla_task task
      where task_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted)
      order by task_id
-- values: ["[[\"task-1\",\"pending\",2]]"]

update flotilla_bulk
set revision = revision + 1, cursor_id = ?,
  batch = (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and flow_version = ?),
  last_update = now_ms()
where bulk_id = ? and revision = ? and state = 'running'
-- values: ["task-1","[[\"task-1\",\"pending\",2]]",2,"bulk-1",2]

insert into flotilla_task_event (task_id, seq, type, detail)
select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), ?, ?
from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task on task.task_id = wanted.task_id
where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and flow_version = ? and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null) and cancel_requested = 0
-- values: ["cancel_requested","{\"request\":\"bulk-1\"}","[[\"task-1\",\"pending\",2]]",2,"bulk-1"]

insert into flotilla_task_event (task_id, seq, type, detail)
select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), ?, ?
from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task on task.task_id = wanted.task_id
where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and flow_version = ? and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null) and status = 'pending' and flow_version is not null and parked = 6
-- values: ["given_up","{\"request\":\"bulk-1\"}","[[\"task-1\",\"pending\",2]]",2,"bulk-1"]

    update flotilla_task set
cancel_requested = 1, wake = wake + 1, last_update = now_ms(),
claim_token = claim_token + case when (status = 'pending' and flow_version is null or status = 'pending' and flow_version is not null and parked = 6) then 1 else 0 end,
status = case when (status = 'pending' and flow_version is null or status = 'pending' and flow_version is not null and parked = 6) then 'cancelled' else status end,
run_at = case when flow_version is not null and status = 'pending' and run_at > now_ms()
  then now_ms() else run_at end,
parked = case when flow_version is not null and status = 'pending' and parked in (1, 2, 5)
  then case when limited = 1 then 4 else 0 end else parked end
    from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
    where flotilla_task.task_id = wanted.task_id and flotilla_task.status = wanted.seen_status and flotilla_task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and flow_version = ? and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null)
-- values: ["[[\"task-1\",\"pending\",2]]",2,"bulk-1"]

select task_id from flotilla_task task where task_id in (
    select child.task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent
    join flotilla_task_dependency wait on wait.dependent_id = parent.task_id
    join flotilla_task child on child.task_id = wait.dependency_id
    where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
      and child.cancel_requested = 0
      and parent.task_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
    join flotilla_task task on task.task_id = wanted.task_id
    where task.status = 'cancelled' and task.claim_token = wanted.token + 1
      and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null))) order by task_id
-- values: ["[[\"task-1\"]]","[[\"task-1\",\"pending\",2]]","bulk-1"]

  insert into flotilla_task_event (task_id, seq, type)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), 'cancel_requested' from flotilla_task task
  where task_id in (
select child.task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent
join flotilla_task_dependency wait on wait.dependent_id = parent.task_id
join flotilla_task child on child.task_id = wait.dependency_id
where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
  and child.cancel_requested = 0
  and parent.task_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
join flotilla_task task on task.task_id = wanted.task_id
where task.status = 'cancelled' and task.claim_token = wanted.token + 1
  and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null)))
-- values: ["[[\"task-1\"]]","[[\"task-1\",\"pending\",2]]","bulk-1"]

    update flotilla_task
    set
cancel_requested = 1, wake = wake + 1, last_update = now_ms(),
claim_token = claim_token + case when status = 'pending' and flow_version is null then 1 else 0 end,
status = case when status = 'pending' and flow_version is null then 'cancelled' else status end,
run_at = case when flow_version is not null and status = 'pending' and run_at > now_ms()
  then now_ms() else run_at end,
parked = case when flow_version is not null and status = 'pending' and parked in (1, 2, 5)
  then case when limited = 1 then 4 else 0 end else parked end
    where task_id in (
  select child.task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent
  join flotilla_task_dependency wait on wait.dependent_id = parent.task_id
  join flotilla_task child on child.task_id = wait.dependency_id
  where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
    and child.cancel_requested = 0
    and parent.task_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
  join flotilla_task task on task.task_id = wanted.task_id
  where task.status = 'cancelled' and task.claim_token = wanted.token + 1
    and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null)))
-- values: ["[[\"task-1\"]]","[[\"task-1\",\"pending\",2]]","bulk-1"]

select task_id from flotilla_task task where rowid in (
    select (select rowid from flotilla_task task where task.task_id = named.id)
    from (
    select distinct wait.dependent_id as id
    from flotilla_task_dependency own join flotilla_task_dependency wait on wait.dependency_id = own.dependency_id
    where own.dependent_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent)
      and (select task.status from flotilla_task task
        where task.task_id = own.dependency_id and task.parent_id = own.dependent_id) = 'cancelled') named) order by task_id
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
from (
select distinct wait.dependent_id as id
from flotilla_task_dependency own join flotilla_task_dependency wait on wait.dependency_id = own.dependency_id
where own.dependent_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent)
  and (select task.status from flotilla_task task
    where task.task_id = own.dependency_id and task.parent_id = own.dependent_id) = 'cancelled') named) and coalesce(flotilla_task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["[[\"task-1\"]]"]

select task_id from flotilla_task task where rowid in (
    select (select rowid from flotilla_task task where task.task_id = named.id)
    from (
    select distinct wait.dependent_id as id from flotilla_task_dependency wait
    where wait.dependency_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) ended)
      and (select task.status from flotilla_task task where task.task_id = wait.dependency_id)
        not in ('pending', 'claimed')) named) order by task_id
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
from (
select distinct wait.dependent_id as id from flotilla_task_dependency wait
where wait.dependency_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) ended)
  and (select task.status from flotilla_task task where task.task_id = wait.dependency_id)
    not in ('pending', 'claimed')) named) and coalesce(flotilla_task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["[[\"task-1\"]]"]

update flotilla_bulk
set done = done + batch - (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and flow_version = ?
  ), refused = refused + (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and flow_version = ?
  ),
  skipped = skipped + cast(? as integer) - batch, batch = null
  , state = 'done'
where bulk_id = ? and batch is not null
-- values: ["[[\"task-1\",\"pending\",2]]",2,"[[\"task-1\",\"pending\",2]]",2,1,"bulk-1"]

update flotilla_audit set count = cast(? as bigint) + cast((select done from flotilla_bulk where bulk_id = ?) as bigint)
where id = ?
-- values: [0,"bulk-1","bulk-1"]

update flotilla_audit set outcome = 'done' where id = ? and outcome = 'begun' and exists (select 1 from flotilla_bulk where bulk_id = ? and not (state = 'running'))
-- values: ["bulk-1","bulk-1"]

select * from flotilla_bulk where bulk_id = ?
-- values: ["bulk-1"]

select task_id from flotilla_task task
      where task_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted)
      order by task_id
-- values: ["[]"]

update flotilla_bulk
set revision = revision + 1, cursor_id = ?,
  batch = (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = ?),
  last_update = now_ms()
where bulk_id = ? and revision = ? and state = 'running'
-- values: ["task-1","[]","mail","bulk-1",2]

update flotilla_bulk
set done = done + batch - (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = ?
  ), refused = refused + (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = ?
  ),
  skipped = skipped + cast(? as integer) - batch, batch = null

where bulk_id = ? and batch is not null
-- values: ["[]","mail","[]","mail",0,"bulk-1"]

update flotilla_audit set count = cast(? as bigint) + cast((select done from flotilla_bulk where bulk_id = ?) as bigint)
where id = ?
-- values: [0,"bulk-1","bulk-1"]

select * from flotilla_bulk where bulk_id = ?
-- values: ["bulk-1"]

select task_id from flotilla_task task where rowid in (
    select (select rowid from flotilla_task task where task.task_id = named.id)
    from (
    select distinct child.parent_id as id from flotilla_task child
    where child.task_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) started)
      and child.parent_id is not null ) named)
      order by task_id
-- values: ["[[\"task-1\"]]"]

select task_id from flotilla_task task
      where task_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted)
      order by task_id
-- values: ["[[\"task-1\",\"pending\",2]]"]

update flotilla_bulk
set revision = revision + 1, cursor_id = ?,
  batch = (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = ?),
  last_update = now_ms()
where bulk_id = ? and revision = ? and state = 'running'
-- values: ["task-1","[[\"task-1\",\"pending\",2]]","mail","bulk-1",2]

insert into flotilla_task_event (task_id, seq, type, detail)
select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), ?, ? || cast(task.claim_token + 1 as text) || '}'
from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task on task.task_id = wanted.task_id
where task.status = wanted.seen_status and task.claim_token = wanted.token and name = ? and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null)
-- values: ["retried","{\"request\":\"bulk-1\",\"token\":","[[\"task-1\",\"pending\",2]]","mail","bulk-1"]

delete from flotilla_step_journal where owner_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = ? and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null)) and (part = '' or part >= 'A') and kind = 'failed'
-- values: ["[[\"task-1\",\"pending\",2]]","mail","bulk-1"]

    update flotilla_task set
status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
depends = case when depends = 3 then 1 else depends end,
claim_token = claim_token + 1, claimed_by = null, run_at = now_ms(), last_update = now_ms(),
cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
error = null, progress = null, progress_token = claim_token + 1
    from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
    where flotilla_task.task_id = wanted.task_id and flotilla_task.status = wanted.seen_status and flotilla_task.claim_token = wanted.token and name = ? and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null)
-- values: ["[[\"task-1\",\"pending\",2]]","mail","bulk-1"]

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

update flotilla_bulk
set done = done + batch - (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = ?
  ), refused = refused + (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = ?
  ),
  skipped = skipped + cast(? as integer) - batch, batch = null
  , state = 'done'
where bulk_id = ? and batch is not null
-- values: ["[[\"task-1\",\"pending\",2]]","mail","[[\"task-1\",\"pending\",2]]","mail",1,"bulk-1"]

update flotilla_audit set count = cast(? as bigint) + cast((select done from flotilla_bulk where bulk_id = ?) as bigint)
where id = ?
-- values: [0,"bulk-1","bulk-1"]

update flotilla_audit set outcome = 'done' where id = ? and outcome = 'begun' and exists (select 1 from flotilla_bulk where bulk_id = ? and not (state = 'running'))
-- values: ["bulk-1","bulk-1"]

select * from flotilla_bulk where bulk_id = ?
-- values: ["bulk-1"]

select task_id from flotilla_task task where rowid in (
    select (select rowid from flotilla_task task where task.task_id = named.id)
    from (
    select distinct child.parent_id as id from flotilla_task child
    where child.task_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) started)
      and child.parent_id is not null ) named)
      order by task_id
-- values: ["[[\"task-1\"]]"]

select task_id from flotilla_task task
      where task_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted)
      order by task_id
-- values: ["[[\"task-1\",\"pending\",2]]"]

update flotilla_bulk
set revision = revision + 1, cursor_id = ?,
  batch = (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = ?),
  last_update = now_ms()
where bulk_id = ? and revision = ? and state = 'running'
-- values: ["task-1","[[\"task-1\",\"pending\",2]]","mail","bulk-1",2]

insert into flotilla_task_event (task_id, seq, type, detail)
select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), ?, ? || cast(task.claim_token + 1 as text) || '}'
from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task on task.task_id = wanted.task_id
where task.status = wanted.seen_status and task.claim_token = wanted.token and name = ? and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null)
-- values: ["retried","{\"request\":\"bulk-1\",\"token\":","[[\"task-1\",\"pending\",2]]","mail","bulk-1"]

delete from flotilla_step_journal where owner_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = ? and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null)) and (part = '' or part >= 'A')
-- values: ["[[\"task-1\",\"pending\",2]]","mail","bulk-1"]

    update flotilla_task set
status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
depends = case when depends = 3 then 1 else depends end,
claim_token = claim_token + 1, claimed_by = null, run_at = now_ms(), last_update = now_ms(),
cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
error = null, progress = null, progress_token = claim_token + 1 , task_version = null, begun_version = null
    from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
    where flotilla_task.task_id = wanted.task_id and flotilla_task.status = wanted.seen_status and flotilla_task.claim_token = wanted.token and name = ? and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null)
-- values: ["[[\"task-1\",\"pending\",2]]","mail","bulk-1"]

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

update flotilla_bulk
set done = done + batch - (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = ?
  ), refused = refused + (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = ?
  ),
  skipped = skipped + cast(? as integer) - batch, batch = null
  , state = 'done'
where bulk_id = ? and batch is not null
-- values: ["[[\"task-1\",\"pending\",2]]","mail","[[\"task-1\",\"pending\",2]]","mail",1,"bulk-1"]

update flotilla_audit set count = cast(? as bigint) + cast((select done from flotilla_bulk where bulk_id = ?) as bigint)
where id = ?
-- values: [0,"bulk-1","bulk-1"]

update flotilla_audit set outcome = 'done' where id = ? and outcome = 'begun' and exists (select 1 from flotilla_bulk where bulk_id = ? and not (state = 'running'))
-- values: ["bulk-1","bulk-1"]

select * from flotilla_bulk where bulk_id = ?
-- values: ["bulk-1"]

select task_id from flotilla_task task
      where task_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted)
      order by task_id
-- values: ["[[\"task-1\",\"pending\",2]]"]

update flotilla_bulk
set revision = revision + 1, cursor_id = ?,
  batch = (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = ?),
  last_update = now_ms()
where bulk_id = ? and revision = ? and state = 'running'
-- values: ["task-1","[[\"task-1\",\"pending\",2]]","mail","bulk-1",2]

delete from flotilla_task where rowid in (
      select flotilla_task.rowid from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
      join flotilla_task on flotilla_task.task_id = wanted.task_id
      where flotilla_task.status = wanted.seen_status and flotilla_task.claim_token = wanted.token and name = ? and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null) and created_at < now_ms() - ? and last_update < now_ms() - ? and (dependents = 0 or not exists (
  select 1 from flotilla_task_dependency wait where wait.dependency_id = flotilla_task.task_id
    and (select waiter.status from flotilla_task waiter where waiter.task_id = wait.dependent_id)
      in ('pending', 'claimed'))))
-- values: ["[[\"task-1\",\"pending\",2]]","mail","bulk-1",60000,60000]

delete from flotilla_task_event where task_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
    where not exists (select 1 from flotilla_task task where task.task_id = wanted.task_id))
-- values: ["[[\"task-1\",\"pending\",2]]"]

delete from flotilla_task_dependency where dependent_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
    where not exists (select 1 from flotilla_task task where task.task_id = wanted.task_id))
-- values: ["[[\"task-1\",\"pending\",2]]"]

delete from flotilla_task_signal where task_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
    where not exists (select 1 from flotilla_task task where task.task_id = wanted.task_id))
-- values: ["[[\"task-1\",\"pending\",2]]"]

delete from flotilla_step_journal where owner_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
    where not exists (select 1 from flotilla_task task where task.task_id = wanted.task_id)) and (part = '' or part >= 'A')
-- values: ["[[\"task-1\",\"pending\",2]]"]

delete from flotilla_link as link where to_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
    where not exists (select 1 from flotilla_task task where task.task_id = wanted.task_id))
-- values: ["[[\"task-1\",\"pending\",2]]"]

delete from flotilla_task_alias as alias where task_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
    where not exists (select 1 from flotilla_task task where task.task_id = wanted.task_id))
-- values: ["[[\"task-1\",\"pending\",2]]"]

  update flotilla_file set unused_at = now_ms()
  where file_id in (select file_id from flotilla_file_reference where owner_kind = ? and owner_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
where not exists (select 1 from flotilla_task task where task.task_id = wanted.task_id)))
-- values: ["task","[[\"task-1\",\"pending\",2]]"]

delete from flotilla_file_reference where owner_kind = ? and owner_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
    where not exists (select 1 from flotilla_task task where task.task_id = wanted.task_id))
-- values: ["task","[[\"task-1\",\"pending\",2]]"]

update flotilla_bulk
set done = done + batch - (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = ?
  ), refused = refused + (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = ?
  ),
  skipped = skipped + cast(? as integer) - batch, batch = null
  , state = 'done'
where bulk_id = ? and batch is not null
-- values: ["[[\"task-1\",\"pending\",2]]","mail","[[\"task-1\",\"pending\",2]]","mail",1,"bulk-1"]

update flotilla_audit set count = cast(? as bigint) + cast((select done from flotilla_bulk where bulk_id = ?) as bigint)
where id = ?
-- values: [0,"bulk-1","bulk-1"]

update flotilla_audit set outcome = 'done' where id = ? and outcome = 'begun' and exists (select 1 from flotilla_bulk where bulk_id = ? and not (state = 'running'))
-- values: ["bulk-1","bulk-1"]

select * from flotilla_bulk where bulk_id = ?
-- values: ["bulk-1"]

select task_id from flotilla_task task
      where task_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted)
      order by task_id
-- values: ["[[\"task-1\",\"pending\",2]]"]

update flotilla_bulk
set revision = revision + 1, cursor_id = ?,
  batch = (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = ?),
  last_update = now_ms()
where bulk_id = ? and revision = ? and state = 'running'
-- values: ["task-1","[[\"task-1\",\"pending\",2]]","mail","bulk-1",2]

insert into flotilla_task_signal (task_id, signal_id, seq, name, payload)
select task.task_id, ?, (select coalesce(max(seq), 0) + 1 from flotilla_task_signal past where past.task_id = task.task_id), ?,
  ?
from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task on task.task_id = wanted.task_id
    where task.status = wanted.seen_status and task.claim_token = wanted.token and name = ? and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null) and not exists (select 1 from flotilla_task_signal past where past.task_id = task.task_id and past.signal_id = ?)
  and (select count(*) from flotilla_task_signal past where past.task_id = task.task_id and past.taken = 0) < ?
-- values: ["bulk-1","paid","{}","[[\"task-1\",\"pending\",2]]","mail","bulk-1","bulk-1",1000]

  update flotilla_task
  set wake = wake + 1,
    last_update = case when status = 'pending' then now_ms() else last_update end,
    run_at = case when status = 'pending' and parked in (1, 5) and awaits is not null then now_ms() else run_at end,
    parked = case when status = 'pending' and parked in (1, 5) and awaits is not null then case when limited = 1 then 4 else 0 end else parked end
  where task_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
on task.task_id = wanted.task_id
where exists (select 1 from flotilla_task_signal sent
where sent.task_id = task.task_id and sent.signal_id = ?) and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null))
-- values: ["[[\"task-1\",\"pending\",2]]","bulk-1","bulk-1"]

update flotilla_bulk
set done = done + batch - (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = ?
  and not exists (select 1 from flotilla_task_signal sent
where sent.task_id = task.task_id and sent.signal_id = ?)), refused = refused + (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = ?
  and not exists (select 1 from flotilla_task_signal sent
where sent.task_id = task.task_id and sent.signal_id = ?)),
  skipped = skipped + cast(? as integer) - batch, batch = null
  , state = 'done'
where bulk_id = ? and batch is not null
-- values: ["[[\"task-1\",\"pending\",2]]","mail","bulk-1","[[\"task-1\",\"pending\",2]]","mail","bulk-1",1,"bulk-1"]

update flotilla_audit set count = cast(? as bigint) + cast((select done from flotilla_bulk where bulk_id = ?) as bigint)
where id = ?
-- values: [0,"bulk-1","bulk-1"]

update flotilla_audit set outcome = 'done' where id = ? and outcome = 'begun' and exists (select 1 from flotilla_bulk where bulk_id = ? and not (state = 'running'))
-- values: ["bulk-1","bulk-1"]

select * from flotilla_bulk where bulk_id = ?
-- values: ["bulk-1"]

select task_id from flotilla_task task
      where task_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted)
      order by task_id
-- values: ["[[\"task-1\",\"pending\",2]]"]

update flotilla_bulk
set revision = revision + 1, cursor_id = ?,
  batch = (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and parked = 6 and name = ?),
  last_update = now_ms()
where bulk_id = ? and revision = ? and state = 'running'
-- values: ["task-1","[[\"task-1\",\"pending\",2]]","mail","bulk-1",2]

insert into flotilla_task_event (task_id, seq, type, detail)
select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), ?, case when task.flow_version is null then ?
    else '{"version":' || cast(task.flow_version as text) || ? end
from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task on task.task_id = wanted.task_id
where task.status = wanted.seen_status and task.claim_token = wanted.token and parked = 6 and name = ? and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null)
-- values: ["resume","{\"request\":\"bulk-1\"}",",\"request\":\"bulk-1\"}","[[\"task-1\",\"pending\",2]]","mail","bulk-1"]

update flotilla_task
set parked = case when parked = 6 then case when limited = 1 then 4 else 0 end else parked end,
  set_aside = null, set_aside_version = null, last_update = now_ms(), wake = wake + 1

from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
where flotilla_task.task_id = wanted.task_id and flotilla_task.status = wanted.seen_status and flotilla_task.claim_token = wanted.token and parked = 6 and name = ? and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null)
-- values: ["[[\"task-1\",\"pending\",2]]","mail","bulk-1"]

update flotilla_bulk
set done = done + batch - (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and parked = 6 and name = ?
  ), refused = refused + (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and parked = 6 and name = ?
  ),
  skipped = skipped + cast(? as integer) - batch, batch = null
  , state = 'done'
where bulk_id = ? and batch is not null
-- values: ["[[\"task-1\",\"pending\",2]]","mail","[[\"task-1\",\"pending\",2]]","mail",1,"bulk-1"]

update flotilla_audit set count = cast(? as bigint) + cast((select done from flotilla_bulk where bulk_id = ?) as bigint)
where id = ?
-- values: [0,"bulk-1","bulk-1"]

update flotilla_audit set outcome = 'done' where id = ? and outcome = 'begun' and exists (select 1 from flotilla_bulk where bulk_id = ? and not (state = 'running'))
-- values: ["bulk-1","bulk-1"]

select * from flotilla_bulk where bulk_id = ?
-- values: ["bulk-1"]

select task_id from flotilla_task task
      where task_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted)
      order by task_id
-- values: ["[[\"task-1\",\"pending\",2]]"]

update flotilla_bulk
set revision = revision + 1, cursor_id = ?,
  batch = (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and flow_version is not null and (parked = 6 or flow_version > ?) and name = ?),
  last_update = now_ms()
where bulk_id = ? and revision = ? and state = 'running'
-- values: ["task-1","[[\"task-1\",\"pending\",2]]",3,"mail","bulk-1",2]

insert into flotilla_task_event (task_id, seq, type, detail)
select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), ?, case when task.flow_version is null then ?
    else '{"version":' || cast(cast(? as integer) as text) || ? end
from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task on task.task_id = wanted.task_id
where task.status = wanted.seen_status and task.claim_token = wanted.token and flow_version is not null and (parked = 6 or flow_version > ?) and name = ? and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null)
-- values: ["resume","{\"request\":\"bulk-1\"}",3,",\"request\":\"bulk-1\"}","[[\"task-1\",\"pending\",2]]",3,"mail","bulk-1"]

update flotilla_task
set parked = case when parked = 6 then case when limited = 1 then 4 else 0 end else parked end,
  set_aside = null, set_aside_version = null, last_update = now_ms(), wake = wake + 1
  , flow_version = ?
from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted
where flotilla_task.task_id = wanted.task_id and flotilla_task.status = wanted.seen_status and flotilla_task.claim_token = wanted.token and flow_version is not null and (parked = 6 or flow_version > ?) and name = ? and exists (select 1 from flotilla_bulk where bulk_id = ? and batch is not null)
-- values: [3,"[[\"task-1\",\"pending\",2]]",3,"mail","bulk-1"]

update flotilla_bulk
set done = done + batch - (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and flow_version is not null and (parked = 6 or flow_version > ?) and name = ?
  ), refused = refused + (select count(*) from (select value ->> 0 as task_id, value ->> 1 as seen_status, value ->> 2 as token from jsonb_each(?)) wanted join flotilla_task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and flow_version is not null and (parked = 6 or flow_version > ?) and name = ?
  ),
  skipped = skipped + cast(? as integer) - batch, batch = null
  , state = 'done'
where bulk_id = ? and batch is not null
-- values: ["[[\"task-1\",\"pending\",2]]",3,"mail","[[\"task-1\",\"pending\",2]]",3,"mail",1,"bulk-1"]

update flotilla_audit set count = cast(? as bigint) + cast((select done from flotilla_bulk where bulk_id = ?) as bigint)
where id = ?
-- values: [0,"bulk-1","bulk-1"]

update flotilla_audit set outcome = 'done' where id = ? and outcome = 'begun' and exists (select 1 from flotilla_bulk where bulk_id = ? and not (state = 'running'))
-- values: ["bulk-1","bulk-1"]

select * from flotilla_bulk where bulk_id = ?
-- values: ["bulk-1"]
