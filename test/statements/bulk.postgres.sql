-- src/bulk/sql.ts: insertBulk
insert into flotilla.bulk (bulk_id, action, filter, options, payload, matched, is_exact, created_by,
  reason, until_id)
select bulk_id, action, filter, options, payload, matched, is_exact, created_by, reason,
  coalesce((select max(task_id) from flotilla.task), '')
from (select bulk_id collate "C" as bulk_id, action collate "C" as action, filter collate "C" as filter, options collate "C" as options, payload collate "C" as payload, matched, is_exact, created_by collate "C" as created_by, reason collate "C" as reason from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::text[], $9::text[]) as each_row (bulk_id, action, filter, options, payload, matched, is_exact, created_by, reason)) fresh
where (select count(*) from flotilla.bulk where state = 'running') < $10
on conflict (bulk_id) do nothing
-- values: ["{\"bulk-1\"}","{\"signal\"}","{\"{\\\"name\\\":\\\"order\\\"}\"}","{\"{\\\"signal\\\":\\\"paid\\\"}\"}","{\"{}\"}","{3}","{1}","{\"key/web\"}","{\"paid by hand\"}",20]

  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, $8, $9, $10,
    cast($11 as bigint), $12, $13,
    case when exists (
select 1 from flotilla.audit past where past.action = $14 and past.outcome = 'full') then null else $15 end, $16, $17
  from flotilla.bulk where bulk_id = $18
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,0,null,"{\"bulkId\":\"bulk-1\",\"signal\":\"paid\"}","audit.full","begun",null,"click-1","bulk-1"]

select * from flotilla.bulk where bulk_id = $1
-- values: ["bulk-1"]

-- src/bulk/sql.ts: getBulk
select * from flotilla.bulk where bulk_id = $1
-- values: ["bulk-1"]

-- src/bulk/sql.ts: listBulks
select bulk_id, action, filter, options, state, revision, cursor_id, until_id, matched, is_exact, done,
  skipped, refused, created_by, reason, created_at, last_update
from flotilla.bulk  order by bulk_id desc limit cast($1 as integer)
-- values: [10]

select bulk_id, action, filter, options, state, revision, cursor_id, until_id, matched, is_exact, done,
  skipped, refused, created_by, reason, created_at, last_update
from flotilla.bulk where bulk_id < $1 order by bulk_id desc limit cast($2 as integer)
-- values: ["bulk-1",10]

-- src/bulk/sql.ts: openBulks
select * from flotilla.bulk where state = 'running' order by created_at, bulk_id limit cast($1 as integer)
-- values: [20]

-- src/bulk/sql.ts: stopBulk
select bulk_id from flotilla.bulk where bulk_id = $1 for update
-- values: ["bulk-1"]

  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, $8, $9, $10,
    cast($11 as bigint), $12, $13,
    case when exists (
select 1 from flotilla.audit past where past.action = $14 and past.outcome = 'full') then null else $15 end, $16, $17
  from flotilla.bulk where bulk_id = $18 and state = 'running'
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"{\"state\":\"running\"}","{\"state\":\"stopped\"}","audit.full","done",null,"click-1","bulk-1"]

update flotilla.bulk set state = 'stopped', revision = revision + 1, last_update = now_ms()
where bulk_id = $1 and state = 'running'
-- values: ["bulk-1"]

update flotilla.audit set outcome = 'done' where id = $1 and outcome = 'begun' and exists (select 1 from flotilla.bulk where bulk_id = $2 and not (state = 'running'))
-- values: ["bulk-1","bulk-1"]

select * from flotilla.bulk where bulk_id = $1
-- values: ["bulk-1"]

-- src/bulk/sql.ts: pruneBulks
delete from flotilla.bulk where not (state = 'running') and last_update < now_ms() - $1
-- values: [60000]

-- src/bulk/sql.ts: walkMatching
with page as materialized (
  select task_id, name, status, claim_token,
    case when status in ($1, $2) and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and tenant = $3 and task_id >= $4 and task_id <= $5 then 1 else 0 end as fits
  from flotilla.task where task_id >= $6 and task_id <= $7
  order by task_id limit cast($8 as integer))
select * from (
  select task_id, name, status, claim_token, 0 as walked from page
  where fits = 1 order by task_id limit cast($9 as integer)) matching
union all
select max(task_id), null, null, null, count(*) from page
-- values: ["pending","claimed","acme","a","b","a","b",10000,500]

with page as materialized (
  select task_id, name, status, claim_token, error,
    case when status in ($1, $2) and task_id <= $3 and created_at <= $4 and status = $5 then 1 else 0 end as fits
  from flotilla.task where task_id > $6 and task_id <= $7 and status = 'failed'
  order by task_id limit cast($8 as integer))
select * from (
  select task_id, name, status, claim_token, error, 0 as walked from page
  where fits = 1 order by task_id limit cast($9 as integer)) matching
union all
select max(task_id), null, null, null, null, count(*) from page
-- values: ["failed","cancelled","task-9",10,"failed","task-1","task-9",2000,500]

with page as materialized (
  select task_id, name, status, claim_token,
    case when status in ($1, $2) and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = $3 and flotilla.json_of(payload) #> $4::text[] = $5::jsonb and task_id >= $6 and task_id < $7 then 1 else 0 end as fits
  from flotilla.task where task_id >= $8 and task_id <= $9
  order by task_id limit cast($10 as integer))
select * from (
  select task_id, name, status, claim_token, 0 as walked from page
  where fits = 1 order by task_id limit cast($11 as integer)) matching
union all
select max(task_id), null, null, null, count(*) from page
-- values: ["pending","claimed","mail","{\"order\",\"id\"}","7","00000000-0001","00000000-0003","00000000-0001","00000000-0003",2000,500]

with page as materialized (
  select task_id, name, status, claim_token,
    case when status in ($1) and flow_version is not null and (parked = 6 or flow_version > $2) and name = $3 and cursor = $4 and status = 'pending' and parked = 6 then 1 else 0 end as fits
  from flotilla.task where task_id > $5 and flow_version is not null and name = $6
  order by task_id limit cast($7 as integer))
select * from (
  select task_id, name, status, claim_token, 0 as walked from page
  where fits = 1 order by task_id limit cast($8 as integer)) matching
union all
select max(task_id), null, null, null, count(*) from page
-- values: ["pending",3,"order","charge","","order",10000,500]

-- src/bulk/sql.ts: checkMatching
select task_id, name, status, claim_token, 0 as walked from flotilla.task
where task_id = any(array(select given.task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) given)) and status in ($2, $3) and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = $4
order by task_id limit cast($5 as integer)
-- values: ["{\"task-1\",\"task-2\"}","pending","claimed","mail",500]

select task_id, name, status, claim_token, 0 as walked from flotilla.task
where task_id = any(array(select given.task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) given)) and status in ($2, $3) and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and flow_version = $4 and task_id = any(array(select given.task_id from (select task_id collate "C" as task_id from unnest($5::text[]) as each_row (task_id)) given))
order by task_id limit cast($6 as integer)
-- values: ["{\"task-1\"}","pending","claimed",2,"{\"task-1\"}",500]

-- src/bulk/sql.ts: readOutcomes
select task_id, status, case when exists (select 1 from flotilla.task_event event where event.task_id = task.task_id
      and event.type in ('cancel_requested', 'given_up', 'retried', 'resume')
      and event.detail like $1) then 1 else 0 end as acted_on from flotilla.task task
where task_id = any(array(select given.task_id from (select task_id collate "C" as task_id from unnest($2::text[]) as each_row (task_id)) given)) and tenant = $3
-- values: ["%\"request\":\"bulk-1\"%","{\"task-1\",\"task-2\"}","acme"]

select task_id, status, case when exists (select 1 from flotilla.task_signal sent
      where sent.task_id = task.task_id and sent.signal_id = $1) then 1 else 0 end as acted_on from flotilla.task task
where task_id = any(array(select given.task_id from (select task_id collate "C" as task_id from unnest($2::text[]) as each_row (task_id)) given))
-- values: ["bulk-1","{\"task-1\"}"]

-- src/bulk/sql.ts: writeBatch
select task_id from flotilla.task task
      where task_id = any(array(select task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted))
      order by task_id for update of task
-- values: ["{\"task-1\"}","{\"pending\"}","{2}"]

update flotilla.bulk
set revision = revision + 1, cursor_id = $1,
  batch = (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($2::text[], $3::text[], $4::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = $5),
  last_update = now_ms()
where bulk_id = $6 and revision = $7 and state = 'running'
-- values: ["task-1","{\"task-1\"}","{\"pending\"}","{2}","mail","bulk-1",2]

insert into flotilla.task_event (task_id, seq, type, detail)
select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), $1, $2
from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($3::text[], $4::text[], $5::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task on task.task_id = wanted.task_id
where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = $6 and exists (select 1 from flotilla.bulk where bulk_id = $7 and batch is not null) and cancel_requested = 0
-- values: ["cancel_requested","{\"request\":\"bulk-1\"}","{\"task-1\"}","{\"pending\"}","{2}","mail","bulk-1"]

insert into flotilla.task_event (task_id, seq, type, detail)
select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), $1, $2
from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($3::text[], $4::text[], $5::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task on task.task_id = wanted.task_id
where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = $6 and exists (select 1 from flotilla.bulk where bulk_id = $7 and batch is not null) and status = 'pending' and flow_version is not null and parked = 6
-- values: ["given_up","{\"request\":\"bulk-1\"}","{\"task-1\"}","{\"pending\"}","{2}","mail","bulk-1"]

    update flotilla.task set
cancel_requested = 1, wake = wake + 1, last_update = now_ms(),
claim_token = claim_token + case when (status = 'pending' and flow_version is null or status = 'pending' and flow_version is not null and parked = 6) then 1 else 0 end,
status = case when (status = 'pending' and flow_version is null or status = 'pending' and flow_version is not null and parked = 6) then 'cancelled' else status end,
run_at = case when flow_version is not null and status = 'pending' and run_at > now_ms()
  then now_ms() else run_at end,
parked = case when flow_version is not null and status = 'pending' and parked in (1, 2, 5)
  then case when limited = 1 then 4 else 0 end else parked end
    from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted
    where flotilla.task.task_id = wanted.task_id and flotilla.task.status = wanted.seen_status and flotilla.task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = $4 and exists (select 1 from flotilla.bulk where bulk_id = $5 and batch is not null)
-- values: ["{\"task-1\"}","{\"pending\"}","{2}","mail","bulk-1"]

select task_id from flotilla.task task where task_id = any(array(
    select child.task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent
    join flotilla.task_dependency wait on wait.dependent_id = parent.task_id
    join flotilla.task child on child.task_id = wait.dependency_id
    where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
      and child.cancel_requested = 0
      and parent.task_id in (select task.task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($2::text[], $3::text[], $4::bigint[]) as each_row (task_id, seen_status, token)) wanted
    join flotilla.task task on task.task_id = wanted.task_id
    where task.status = 'cancelled' and task.claim_token = wanted.token + 1
      and exists (select 1 from flotilla.bulk where bulk_id = $5 and batch is not null)))) order by task_id for update of task
-- values: ["{\"task-1\"}","{\"task-1\"}","{\"pending\"}","{2}","bulk-1"]

  insert into flotilla.task_event (task_id, seq, type)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'cancel_requested' from flotilla.task task
  where task_id = any(array(
select child.task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent
join flotilla.task_dependency wait on wait.dependent_id = parent.task_id
join flotilla.task child on child.task_id = wait.dependency_id
where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
  and child.cancel_requested = 0
  and parent.task_id in (select task.task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($2::text[], $3::text[], $4::bigint[]) as each_row (task_id, seen_status, token)) wanted
join flotilla.task task on task.task_id = wanted.task_id
where task.status = 'cancelled' and task.claim_token = wanted.token + 1
  and exists (select 1 from flotilla.bulk where bulk_id = $5 and batch is not null))))
-- values: ["{\"task-1\"}","{\"task-1\"}","{\"pending\"}","{2}","bulk-1"]

    update flotilla.task
    set
cancel_requested = 1, wake = wake + 1, last_update = now_ms(),
claim_token = claim_token + case when status = 'pending' and flow_version is null then 1 else 0 end,
status = case when status = 'pending' and flow_version is null then 'cancelled' else status end,
run_at = case when flow_version is not null and status = 'pending' and run_at > now_ms()
  then now_ms() else run_at end,
parked = case when flow_version is not null and status = 'pending' and parked in (1, 2, 5)
  then case when limited = 1 then 4 else 0 end else parked end
    where task_id = any(array(
  select child.task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent
  join flotilla.task_dependency wait on wait.dependent_id = parent.task_id
  join flotilla.task child on child.task_id = wait.dependency_id
  where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
    and child.cancel_requested = 0
    and parent.task_id in (select task.task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($2::text[], $3::text[], $4::bigint[]) as each_row (task_id, seen_status, token)) wanted
  join flotilla.task task on task.task_id = wanted.task_id
  where task.status = 'cancelled' and task.claim_token = wanted.token + 1
    and exists (select 1 from flotilla.bulk where bulk_id = $5 and batch is not null))))
-- values: ["{\"task-1\"}","{\"task-1\"}","{\"pending\"}","{2}","bulk-1"]

select task_id from flotilla.task task where ctid = any(array(
    select (select ctid from flotilla.task task where task.task_id = named.id)
    from (
    select distinct wait.dependent_id as id
    from flotilla.task_dependency own join flotilla.task_dependency wait on wait.dependency_id = own.dependency_id
    where own.dependent_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent))
      and (select task.status from flotilla.task task
        where task.task_id = own.dependency_id and task.parent_id = own.dependent_id) = 'cancelled') named)) order by task_id for update of task
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
from (
select distinct wait.dependent_id as id
from flotilla.task_dependency own join flotilla.task_dependency wait on wait.dependency_id = own.dependency_id
where own.dependent_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent))
  and (select task.status from flotilla.task task
    where task.task_id = own.dependency_id and task.parent_id = own.dependent_id) = 'cancelled') named)) and coalesce(flotilla.task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["{\"task-1\"}"]

select task_id from flotilla.task task where ctid = any(array(
    select (select ctid from flotilla.task task where task.task_id = named.id)
    from (
    select distinct wait.dependent_id as id from flotilla.task_dependency wait
    where wait.dependency_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) ended))
      and (select task.status from flotilla.task task where task.task_id = wait.dependency_id)
        not in ('pending', 'claimed')) named)) order by task_id for update of task
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
from (
select distinct wait.dependent_id as id from flotilla.task_dependency wait
where wait.dependency_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) ended))
  and (select task.status from flotilla.task task where task.task_id = wait.dependency_id)
    not in ('pending', 'claimed')) named)) and coalesce(flotilla.task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["{\"task-1\"}"]

update flotilla.bulk
set done = done + batch - (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = $4
  ), refused = refused + (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($5::text[], $6::text[], $7::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = $8
  ),
  skipped = skipped + cast($9 as integer) - batch, batch = null
  , state = 'done'
where bulk_id = $10 and batch is not null
-- values: ["{\"task-1\"}","{\"pending\"}","{2}","mail","{\"task-1\"}","{\"pending\"}","{2}","mail",1,"bulk-1"]

update flotilla.audit set count = cast($1 as bigint) + cast((select done from flotilla.bulk where bulk_id = $2) as bigint)
where id = $3
-- values: [0,"bulk-1","bulk-1"]

update flotilla.audit set outcome = 'done' where id = $1 and outcome = 'begun' and exists (select 1 from flotilla.bulk where bulk_id = $2 and not (state = 'running'))
-- values: ["bulk-1","bulk-1"]

select * from flotilla.bulk where bulk_id = $1
-- values: ["bulk-1"]

select task_id from flotilla.task task
      where task_id = any(array(select task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted))
      order by task_id for update of task
-- values: ["{\"task-1\"}","{\"pending\"}","{2}"]

update flotilla.bulk
set revision = revision + 1, cursor_id = $1,
  batch = (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($2::text[], $3::text[], $4::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = $5 and unique_key = $6 and claimed_by = $7 and status = 'claimed' and flotilla.json_of(payload) #> $8::text[] = $9::jsonb),
  last_update = now_ms()
where bulk_id = $10 and revision = $11 and state = 'running'
-- values: ["task-1","{\"task-1\"}","{\"pending\"}","{2}","mail","k","pod-1","{\"order\",\"id\"}","7","bulk-1",2]

insert into flotilla.task_event (task_id, seq, type, detail)
select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), $1, $2
from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($3::text[], $4::text[], $5::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task on task.task_id = wanted.task_id
where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = $6 and unique_key = $7 and claimed_by = $8 and status = 'claimed' and flotilla.json_of(payload) #> $9::text[] = $10::jsonb and exists (select 1 from flotilla.bulk where bulk_id = $11 and batch is not null) and cancel_requested = 0
-- values: ["cancel_requested","{\"request\":\"bulk-1\"}","{\"task-1\"}","{\"pending\"}","{2}","mail","k","pod-1","{\"order\",\"id\"}","7","bulk-1"]

insert into flotilla.task_event (task_id, seq, type, detail)
select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), $1, $2
from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($3::text[], $4::text[], $5::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task on task.task_id = wanted.task_id
where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = $6 and unique_key = $7 and claimed_by = $8 and status = 'claimed' and flotilla.json_of(payload) #> $9::text[] = $10::jsonb and exists (select 1 from flotilla.bulk where bulk_id = $11 and batch is not null) and status = 'pending' and flow_version is not null and parked = 6
-- values: ["given_up","{\"request\":\"bulk-1\"}","{\"task-1\"}","{\"pending\"}","{2}","mail","k","pod-1","{\"order\",\"id\"}","7","bulk-1"]

    update flotilla.task set
cancel_requested = 1, wake = wake + 1, last_update = now_ms(),
claim_token = claim_token + case when (status = 'pending' and flow_version is null or status = 'pending' and flow_version is not null and parked = 6) then 1 else 0 end,
status = case when (status = 'pending' and flow_version is null or status = 'pending' and flow_version is not null and parked = 6) then 'cancelled' else status end,
run_at = case when flow_version is not null and status = 'pending' and run_at > now_ms()
  then now_ms() else run_at end,
parked = case when flow_version is not null and status = 'pending' and parked in (1, 2, 5)
  then case when limited = 1 then 4 else 0 end else parked end
    from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted
    where flotilla.task.task_id = wanted.task_id and flotilla.task.status = wanted.seen_status and flotilla.task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = $4 and unique_key = $5 and claimed_by = $6 and status = 'claimed' and flotilla.json_of(payload) #> $7::text[] = $8::jsonb and exists (select 1 from flotilla.bulk where bulk_id = $9 and batch is not null)
-- values: ["{\"task-1\"}","{\"pending\"}","{2}","mail","k","pod-1","{\"order\",\"id\"}","7","bulk-1"]

select task_id from flotilla.task task where task_id = any(array(
    select child.task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent
    join flotilla.task_dependency wait on wait.dependent_id = parent.task_id
    join flotilla.task child on child.task_id = wait.dependency_id
    where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
      and child.cancel_requested = 0
      and parent.task_id in (select task.task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($2::text[], $3::text[], $4::bigint[]) as each_row (task_id, seen_status, token)) wanted
    join flotilla.task task on task.task_id = wanted.task_id
    where task.status = 'cancelled' and task.claim_token = wanted.token + 1
      and exists (select 1 from flotilla.bulk where bulk_id = $5 and batch is not null)))) order by task_id for update of task
-- values: ["{\"task-1\"}","{\"task-1\"}","{\"pending\"}","{2}","bulk-1"]

  insert into flotilla.task_event (task_id, seq, type)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'cancel_requested' from flotilla.task task
  where task_id = any(array(
select child.task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent
join flotilla.task_dependency wait on wait.dependent_id = parent.task_id
join flotilla.task child on child.task_id = wait.dependency_id
where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
  and child.cancel_requested = 0
  and parent.task_id in (select task.task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($2::text[], $3::text[], $4::bigint[]) as each_row (task_id, seen_status, token)) wanted
join flotilla.task task on task.task_id = wanted.task_id
where task.status = 'cancelled' and task.claim_token = wanted.token + 1
  and exists (select 1 from flotilla.bulk where bulk_id = $5 and batch is not null))))
-- values: ["{\"task-1\"}","{\"task-1\"}","{\"pending\"}","{2}","bulk-1"]

    update flotilla.task
    set
cancel_requested = 1, wake = wake + 1, last_update = now_ms(),
claim_token = claim_token + case when status = 'pending' and flow_version is null then 1 else 0 end,
status = case when status = 'pending' and flow_version is null then 'cancelled' else status end,
run_at = case when flow_version is not null and status = 'pending' and run_at > now_ms()
  then now_ms() else run_at end,
parked = case when flow_version is not null and status = 'pending' and parked in (1, 2, 5)
  then case when limited = 1 then 4 else 0 end else parked end
    where task_id = any(array(
  select child.task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent
  join flotilla.task_dependency wait on wait.dependent_id = parent.task_id
  join flotilla.task child on child.task_id = wait.dependency_id
  where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
    and child.cancel_requested = 0
    and parent.task_id in (select task.task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($2::text[], $3::text[], $4::bigint[]) as each_row (task_id, seen_status, token)) wanted
  join flotilla.task task on task.task_id = wanted.task_id
  where task.status = 'cancelled' and task.claim_token = wanted.token + 1
    and exists (select 1 from flotilla.bulk where bulk_id = $5 and batch is not null))))
-- values: ["{\"task-1\"}","{\"task-1\"}","{\"pending\"}","{2}","bulk-1"]

select task_id from flotilla.task task where ctid = any(array(
    select (select ctid from flotilla.task task where task.task_id = named.id)
    from (
    select distinct wait.dependent_id as id
    from flotilla.task_dependency own join flotilla.task_dependency wait on wait.dependency_id = own.dependency_id
    where own.dependent_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent))
      and (select task.status from flotilla.task task
        where task.task_id = own.dependency_id and task.parent_id = own.dependent_id) = 'cancelled') named)) order by task_id for update of task
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
from (
select distinct wait.dependent_id as id
from flotilla.task_dependency own join flotilla.task_dependency wait on wait.dependency_id = own.dependency_id
where own.dependent_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent))
  and (select task.status from flotilla.task task
    where task.task_id = own.dependency_id and task.parent_id = own.dependent_id) = 'cancelled') named)) and coalesce(flotilla.task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["{\"task-1\"}"]

select task_id from flotilla.task task where ctid = any(array(
    select (select ctid from flotilla.task task where task.task_id = named.id)
    from (
    select distinct wait.dependent_id as id from flotilla.task_dependency wait
    where wait.dependency_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) ended))
      and (select task.status from flotilla.task task where task.task_id = wait.dependency_id)
        not in ('pending', 'claimed')) named)) order by task_id for update of task
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
from (
select distinct wait.dependent_id as id from flotilla.task_dependency wait
where wait.dependency_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) ended))
  and (select task.status from flotilla.task task where task.task_id = wait.dependency_id)
    not in ('pending', 'claimed')) named)) and coalesce(flotilla.task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["{\"task-1\"}"]

update flotilla.bulk
set done = done + batch - (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = $4 and unique_key = $5 and claimed_by = $6 and status = 'claimed' and flotilla.json_of(payload) #> $7::text[] = $8::jsonb
  ), refused = refused + (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($9::text[], $10::text[], $11::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = $12 and unique_key = $13 and claimed_by = $14 and status = 'claimed' and flotilla.json_of(payload) #> $15::text[] = $16::jsonb
  ),
  skipped = skipped + cast($17 as integer) - batch, batch = null
  , state = 'done'
where bulk_id = $18 and batch is not null
-- values: ["{\"task-1\"}","{\"pending\"}","{2}","mail","k","pod-1","{\"order\",\"id\"}","7","{\"task-1\"}","{\"pending\"}","{2}","mail","k","pod-1","{\"order\",\"id\"}","7",1,"bulk-1"]

update flotilla.audit set count = cast($1 as bigint) + cast((select done from flotilla.bulk where bulk_id = $2) as bigint)
where id = $3
-- values: [0,"bulk-1","bulk-1"]

update flotilla.audit set outcome = 'done' where id = $1 and outcome = 'begun' and exists (select 1 from flotilla.bulk where bulk_id = $2 and not (state = 'running'))
-- values: ["bulk-1","bulk-1"]

select * from flotilla.bulk where bulk_id = $1
-- values: ["bulk-1"]

select task_id from flotilla.task task
      where task_id = any(array(select task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted))
      order by task_id for update of task
-- values: ["{\"task-1\"}","{\"pending\"}","{2}"]

update flotilla.bulk
set revision = revision + 1, cursor_id = $1,
  batch = (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($2::text[], $3::text[], $4::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and flow_version = $5),
  last_update = now_ms()
where bulk_id = $6 and revision = $7 and state = 'running'
-- values: ["task-1","{\"task-1\"}","{\"pending\"}","{2}",2,"bulk-1",2]

insert into flotilla.task_event (task_id, seq, type, detail)
select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), $1, $2
from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($3::text[], $4::text[], $5::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task on task.task_id = wanted.task_id
where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and flow_version = $6 and exists (select 1 from flotilla.bulk where bulk_id = $7 and batch is not null) and cancel_requested = 0
-- values: ["cancel_requested","{\"request\":\"bulk-1\"}","{\"task-1\"}","{\"pending\"}","{2}",2,"bulk-1"]

insert into flotilla.task_event (task_id, seq, type, detail)
select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), $1, $2
from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($3::text[], $4::text[], $5::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task on task.task_id = wanted.task_id
where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and flow_version = $6 and exists (select 1 from flotilla.bulk where bulk_id = $7 and batch is not null) and status = 'pending' and flow_version is not null and parked = 6
-- values: ["given_up","{\"request\":\"bulk-1\"}","{\"task-1\"}","{\"pending\"}","{2}",2,"bulk-1"]

    update flotilla.task set
cancel_requested = 1, wake = wake + 1, last_update = now_ms(),
claim_token = claim_token + case when (status = 'pending' and flow_version is null or status = 'pending' and flow_version is not null and parked = 6) then 1 else 0 end,
status = case when (status = 'pending' and flow_version is null or status = 'pending' and flow_version is not null and parked = 6) then 'cancelled' else status end,
run_at = case when flow_version is not null and status = 'pending' and run_at > now_ms()
  then now_ms() else run_at end,
parked = case when flow_version is not null and status = 'pending' and parked in (1, 2, 5)
  then case when limited = 1 then 4 else 0 end else parked end
    from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted
    where flotilla.task.task_id = wanted.task_id and flotilla.task.status = wanted.seen_status and flotilla.task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and flow_version = $4 and exists (select 1 from flotilla.bulk where bulk_id = $5 and batch is not null)
-- values: ["{\"task-1\"}","{\"pending\"}","{2}",2,"bulk-1"]

select task_id from flotilla.task task where task_id = any(array(
    select child.task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent
    join flotilla.task_dependency wait on wait.dependent_id = parent.task_id
    join flotilla.task child on child.task_id = wait.dependency_id
    where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
      and child.cancel_requested = 0
      and parent.task_id in (select task.task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($2::text[], $3::text[], $4::bigint[]) as each_row (task_id, seen_status, token)) wanted
    join flotilla.task task on task.task_id = wanted.task_id
    where task.status = 'cancelled' and task.claim_token = wanted.token + 1
      and exists (select 1 from flotilla.bulk where bulk_id = $5 and batch is not null)))) order by task_id for update of task
-- values: ["{\"task-1\"}","{\"task-1\"}","{\"pending\"}","{2}","bulk-1"]

  insert into flotilla.task_event (task_id, seq, type)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'cancel_requested' from flotilla.task task
  where task_id = any(array(
select child.task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent
join flotilla.task_dependency wait on wait.dependent_id = parent.task_id
join flotilla.task child on child.task_id = wait.dependency_id
where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
  and child.cancel_requested = 0
  and parent.task_id in (select task.task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($2::text[], $3::text[], $4::bigint[]) as each_row (task_id, seen_status, token)) wanted
join flotilla.task task on task.task_id = wanted.task_id
where task.status = 'cancelled' and task.claim_token = wanted.token + 1
  and exists (select 1 from flotilla.bulk where bulk_id = $5 and batch is not null))))
-- values: ["{\"task-1\"}","{\"task-1\"}","{\"pending\"}","{2}","bulk-1"]

    update flotilla.task
    set
cancel_requested = 1, wake = wake + 1, last_update = now_ms(),
claim_token = claim_token + case when status = 'pending' and flow_version is null then 1 else 0 end,
status = case when status = 'pending' and flow_version is null then 'cancelled' else status end,
run_at = case when flow_version is not null and status = 'pending' and run_at > now_ms()
  then now_ms() else run_at end,
parked = case when flow_version is not null and status = 'pending' and parked in (1, 2, 5)
  then case when limited = 1 then 4 else 0 end else parked end
    where task_id = any(array(
  select child.task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent
  join flotilla.task_dependency wait on wait.dependent_id = parent.task_id
  join flotilla.task child on child.task_id = wait.dependency_id
  where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
    and child.cancel_requested = 0
    and parent.task_id in (select task.task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($2::text[], $3::text[], $4::bigint[]) as each_row (task_id, seen_status, token)) wanted
  join flotilla.task task on task.task_id = wanted.task_id
  where task.status = 'cancelled' and task.claim_token = wanted.token + 1
    and exists (select 1 from flotilla.bulk where bulk_id = $5 and batch is not null))))
-- values: ["{\"task-1\"}","{\"task-1\"}","{\"pending\"}","{2}","bulk-1"]

select task_id from flotilla.task task where ctid = any(array(
    select (select ctid from flotilla.task task where task.task_id = named.id)
    from (
    select distinct wait.dependent_id as id
    from flotilla.task_dependency own join flotilla.task_dependency wait on wait.dependency_id = own.dependency_id
    where own.dependent_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent))
      and (select task.status from flotilla.task task
        where task.task_id = own.dependency_id and task.parent_id = own.dependent_id) = 'cancelled') named)) order by task_id for update of task
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
from (
select distinct wait.dependent_id as id
from flotilla.task_dependency own join flotilla.task_dependency wait on wait.dependency_id = own.dependency_id
where own.dependent_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent))
  and (select task.status from flotilla.task task
    where task.task_id = own.dependency_id and task.parent_id = own.dependent_id) = 'cancelled') named)) and coalesce(flotilla.task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["{\"task-1\"}"]

select task_id from flotilla.task task where ctid = any(array(
    select (select ctid from flotilla.task task where task.task_id = named.id)
    from (
    select distinct wait.dependent_id as id from flotilla.task_dependency wait
    where wait.dependency_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) ended))
      and (select task.status from flotilla.task task where task.task_id = wait.dependency_id)
        not in ('pending', 'claimed')) named)) order by task_id for update of task
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
from (
select distinct wait.dependent_id as id from flotilla.task_dependency wait
where wait.dependency_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) ended))
  and (select task.status from flotilla.task task where task.task_id = wait.dependency_id)
    not in ('pending', 'claimed')) named)) and coalesce(flotilla.task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["{\"task-1\"}"]

update flotilla.bulk
set done = done + batch - (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and flow_version = $4
  ), refused = refused + (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($5::text[], $6::text[], $7::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and flow_version = $8
  ),
  skipped = skipped + cast($9 as integer) - batch, batch = null
  , state = 'done'
where bulk_id = $10 and batch is not null
-- values: ["{\"task-1\"}","{\"pending\"}","{2}",2,"{\"task-1\"}","{\"pending\"}","{2}",2,1,"bulk-1"]

update flotilla.audit set count = cast($1 as bigint) + cast((select done from flotilla.bulk where bulk_id = $2) as bigint)
where id = $3
-- values: [0,"bulk-1","bulk-1"]

update flotilla.audit set outcome = 'done' where id = $1 and outcome = 'begun' and exists (select 1 from flotilla.bulk where bulk_id = $2 and not (state = 'running'))
-- values: ["bulk-1","bulk-1"]

select * from flotilla.bulk where bulk_id = $1
-- values: ["bulk-1"]

select task_id from flotilla.task task
      where task_id = any(array(select task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted))
      order by task_id for update of task
-- values: ["{}","{}","{}"]

update flotilla.bulk
set revision = revision + 1, cursor_id = $1,
  batch = (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($2::text[], $3::text[], $4::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = $5),
  last_update = now_ms()
where bulk_id = $6 and revision = $7 and state = 'running'
-- values: ["task-1","{}","{}","{}","mail","bulk-1",2]

update flotilla.bulk
set done = done + batch - (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = $4
  ), refused = refused + (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($5::text[], $6::text[], $7::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and (cancel_requested = 0 or status = 'pending' and flow_version is not null and parked = 6) and name = $8
  ),
  skipped = skipped + cast($9 as integer) - batch, batch = null

where bulk_id = $10 and batch is not null
-- values: ["{}","{}","{}","mail","{}","{}","{}","mail",0,"bulk-1"]

update flotilla.audit set count = cast($1 as bigint) + cast((select done from flotilla.bulk where bulk_id = $2) as bigint)
where id = $3
-- values: [0,"bulk-1","bulk-1"]

select * from flotilla.bulk where bulk_id = $1
-- values: ["bulk-1"]

select task_id from flotilla.task task where ctid = any(array(
    select (select ctid from flotilla.task task where task.task_id = named.id)
    from (
    select distinct child.parent_id as id from flotilla.task child
    where child.task_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) started))
      and child.parent_id is not null ) named))
      order by task_id for update of task
-- values: ["{\"task-1\"}"]

select task_id from flotilla.task task
      where task_id = any(array(select task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted))
      order by task_id for update of task
-- values: ["{\"task-1\"}","{\"pending\"}","{2}"]

update flotilla.bulk
set revision = revision + 1, cursor_id = $1,
  batch = (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($2::text[], $3::text[], $4::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = $5),
  last_update = now_ms()
where bulk_id = $6 and revision = $7 and state = 'running'
-- values: ["task-1","{\"task-1\"}","{\"pending\"}","{2}","mail","bulk-1",2]

insert into flotilla.task_event (task_id, seq, type, detail)
select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), $1, $2 || cast(task.claim_token + 1 as text) || '}'
from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($3::text[], $4::text[], $5::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task on task.task_id = wanted.task_id
where task.status = wanted.seen_status and task.claim_token = wanted.token and name = $6 and exists (select 1 from flotilla.bulk where bulk_id = $7 and batch is not null)
-- values: ["retried","{\"request\":\"bulk-1\",\"token\":","{\"task-1\"}","{\"pending\"}","{2}","mail","bulk-1"]

delete from flotilla.step_journal where owner_id in (select task.task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = $4 and exists (select 1 from flotilla.bulk where bulk_id = $5 and batch is not null)) and (part = '' or part >= 'A') and kind = 'failed'
-- values: ["{\"task-1\"}","{\"pending\"}","{2}","mail","bulk-1"]

    update flotilla.task set
status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
depends = case when depends = 3 then 1 else depends end,
claim_token = claim_token + 1, claimed_by = null, run_at = now_ms(), last_update = now_ms(),
cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
error = null, progress = null, progress_token = claim_token + 1
    from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted
    where flotilla.task.task_id = wanted.task_id and flotilla.task.status = wanted.seen_status and flotilla.task.claim_token = wanted.token and name = $4 and exists (select 1 from flotilla.bulk where bulk_id = $5 and batch is not null)
-- values: ["{\"task-1\"}","{\"pending\"}","{2}","mail","bulk-1"]

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

update flotilla.bulk
set done = done + batch - (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = $4
  ), refused = refused + (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($5::text[], $6::text[], $7::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = $8
  ),
  skipped = skipped + cast($9 as integer) - batch, batch = null
  , state = 'done'
where bulk_id = $10 and batch is not null
-- values: ["{\"task-1\"}","{\"pending\"}","{2}","mail","{\"task-1\"}","{\"pending\"}","{2}","mail",1,"bulk-1"]

update flotilla.audit set count = cast($1 as bigint) + cast((select done from flotilla.bulk where bulk_id = $2) as bigint)
where id = $3
-- values: [0,"bulk-1","bulk-1"]

update flotilla.audit set outcome = 'done' where id = $1 and outcome = 'begun' and exists (select 1 from flotilla.bulk where bulk_id = $2 and not (state = 'running'))
-- values: ["bulk-1","bulk-1"]

select * from flotilla.bulk where bulk_id = $1
-- values: ["bulk-1"]

select task_id from flotilla.task task where ctid = any(array(
    select (select ctid from flotilla.task task where task.task_id = named.id)
    from (
    select distinct child.parent_id as id from flotilla.task child
    where child.task_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) started))
      and child.parent_id is not null ) named))
      order by task_id for update of task
-- values: ["{\"task-1\"}"]

select task_id from flotilla.task task
      where task_id = any(array(select task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted))
      order by task_id for update of task
-- values: ["{\"task-1\"}","{\"pending\"}","{2}"]

update flotilla.bulk
set revision = revision + 1, cursor_id = $1,
  batch = (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($2::text[], $3::text[], $4::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = $5),
  last_update = now_ms()
where bulk_id = $6 and revision = $7 and state = 'running'
-- values: ["task-1","{\"task-1\"}","{\"pending\"}","{2}","mail","bulk-1",2]

insert into flotilla.task_event (task_id, seq, type, detail)
select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), $1, $2 || cast(task.claim_token + 1 as text) || '}'
from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($3::text[], $4::text[], $5::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task on task.task_id = wanted.task_id
where task.status = wanted.seen_status and task.claim_token = wanted.token and name = $6 and exists (select 1 from flotilla.bulk where bulk_id = $7 and batch is not null)
-- values: ["retried","{\"request\":\"bulk-1\",\"token\":","{\"task-1\"}","{\"pending\"}","{2}","mail","bulk-1"]

delete from flotilla.step_journal where owner_id in (select task.task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = $4 and exists (select 1 from flotilla.bulk where bulk_id = $5 and batch is not null)) and (part = '' or part >= 'A')
-- values: ["{\"task-1\"}","{\"pending\"}","{2}","mail","bulk-1"]

    update flotilla.task set
status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
depends = case when depends = 3 then 1 else depends end,
claim_token = claim_token + 1, claimed_by = null, run_at = now_ms(), last_update = now_ms(),
cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
error = null, progress = null, progress_token = claim_token + 1 , task_version = null, begun_version = null
    from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted
    where flotilla.task.task_id = wanted.task_id and flotilla.task.status = wanted.seen_status and flotilla.task.claim_token = wanted.token and name = $4 and exists (select 1 from flotilla.bulk where bulk_id = $5 and batch is not null)
-- values: ["{\"task-1\"}","{\"pending\"}","{2}","mail","bulk-1"]

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

update flotilla.bulk
set done = done + batch - (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = $4
  ), refused = refused + (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($5::text[], $6::text[], $7::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = $8
  ),
  skipped = skipped + cast($9 as integer) - batch, batch = null
  , state = 'done'
where bulk_id = $10 and batch is not null
-- values: ["{\"task-1\"}","{\"pending\"}","{2}","mail","{\"task-1\"}","{\"pending\"}","{2}","mail",1,"bulk-1"]

update flotilla.audit set count = cast($1 as bigint) + cast((select done from flotilla.bulk where bulk_id = $2) as bigint)
where id = $3
-- values: [0,"bulk-1","bulk-1"]

update flotilla.audit set outcome = 'done' where id = $1 and outcome = 'begun' and exists (select 1 from flotilla.bulk where bulk_id = $2 and not (state = 'running'))
-- values: ["bulk-1","bulk-1"]

select * from flotilla.bulk where bulk_id = $1
-- values: ["bulk-1"]

select task_id from flotilla.task task
      where task_id = any(array(select task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted))
      order by task_id for update of task
-- values: ["{\"task-1\"}","{\"pending\"}","{2}"]

update flotilla.bulk
set revision = revision + 1, cursor_id = $1,
  batch = (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($2::text[], $3::text[], $4::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = $5),
  last_update = now_ms()
where bulk_id = $6 and revision = $7 and state = 'running'
-- values: ["task-1","{\"task-1\"}","{\"pending\"}","{2}","mail","bulk-1",2]

delete from flotilla.task where ctid = any(array(
      select flotilla.task.ctid from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted
      join flotilla.task on flotilla.task.task_id = wanted.task_id
      where flotilla.task.status = wanted.seen_status and flotilla.task.claim_token = wanted.token and name = $4 and exists (select 1 from flotilla.bulk where bulk_id = $5 and batch is not null) and created_at < now_ms() - $6 and last_update < now_ms() - $7 and (dependents = 0 or not exists (
  select 1 from flotilla.task_dependency wait where wait.dependency_id = flotilla.task.task_id
    and (select waiter.status from flotilla.task waiter where waiter.task_id = wait.dependent_id)
      in ('pending', 'claimed')))))
-- values: ["{\"task-1\"}","{\"pending\"}","{2}","mail","bulk-1",60000,60000]

delete from flotilla.task_event where task_id in (select task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted
    where not exists (select 1 from flotilla.task task where task.task_id = wanted.task_id))
-- values: ["{\"task-1\"}","{\"pending\"}","{2}"]

delete from flotilla.task_dependency where dependent_id in (select task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted
    where not exists (select 1 from flotilla.task task where task.task_id = wanted.task_id))
-- values: ["{\"task-1\"}","{\"pending\"}","{2}"]

delete from flotilla.task_signal where task_id in (select task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted
    where not exists (select 1 from flotilla.task task where task.task_id = wanted.task_id))
-- values: ["{\"task-1\"}","{\"pending\"}","{2}"]

delete from flotilla.step_journal where owner_id in (select task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted
    where not exists (select 1 from flotilla.task task where task.task_id = wanted.task_id)) and (part = '' or part >= 'A')
-- values: ["{\"task-1\"}","{\"pending\"}","{2}"]

delete from flotilla.link as link where to_id = any(array(select task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted
    where not exists (select 1 from flotilla.task task where task.task_id = wanted.task_id)))
-- values: ["{\"task-1\"}","{\"pending\"}","{2}"]

delete from flotilla.task_alias as alias where task_id = any(array(select task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted
    where not exists (select 1 from flotilla.task task where task.task_id = wanted.task_id)))
-- values: ["{\"task-1\"}","{\"pending\"}","{2}"]

  update flotilla.file set unused_at = now_ms()
  where file_id = any(array(select file_id from flotilla.file_reference where owner_kind = $1 and owner_id = any(array(select task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($2::text[], $3::text[], $4::bigint[]) as each_row (task_id, seen_status, token)) wanted
where not exists (select 1 from flotilla.task task where task.task_id = wanted.task_id)))))
-- values: ["task","{\"task-1\"}","{\"pending\"}","{2}"]

delete from flotilla.file_reference where owner_kind = $1 and owner_id = any(array(select task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($2::text[], $3::text[], $4::bigint[]) as each_row (task_id, seen_status, token)) wanted
    where not exists (select 1 from flotilla.task task where task.task_id = wanted.task_id)))
-- values: ["task","{\"task-1\"}","{\"pending\"}","{2}"]

update flotilla.bulk
set done = done + batch - (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = $4
  ), refused = refused + (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($5::text[], $6::text[], $7::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = $8
  ),
  skipped = skipped + cast($9 as integer) - batch, batch = null
  , state = 'done'
where bulk_id = $10 and batch is not null
-- values: ["{\"task-1\"}","{\"pending\"}","{2}","mail","{\"task-1\"}","{\"pending\"}","{2}","mail",1,"bulk-1"]

update flotilla.audit set count = cast($1 as bigint) + cast((select done from flotilla.bulk where bulk_id = $2) as bigint)
where id = $3
-- values: [0,"bulk-1","bulk-1"]

update flotilla.audit set outcome = 'done' where id = $1 and outcome = 'begun' and exists (select 1 from flotilla.bulk where bulk_id = $2 and not (state = 'running'))
-- values: ["bulk-1","bulk-1"]

select * from flotilla.bulk where bulk_id = $1
-- values: ["bulk-1"]

select task_id from flotilla.task task
      where task_id = any(array(select task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted))
      order by task_id for update of task
-- values: ["{\"task-1\"}","{\"pending\"}","{2}"]

update flotilla.bulk
set revision = revision + 1, cursor_id = $1,
  batch = (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($2::text[], $3::text[], $4::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = $5),
  last_update = now_ms()
where bulk_id = $6 and revision = $7 and state = 'running'
-- values: ["task-1","{\"task-1\"}","{\"pending\"}","{2}","mail","bulk-1",2]

insert into flotilla.task_signal (task_id, signal_id, seq, name, payload)
select task.task_id, $1, (select coalesce(max(seq), 0) + 1 from flotilla.task_signal past where past.task_id = task.task_id), $2,
  $3
from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($4::text[], $5::text[], $6::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task on task.task_id = wanted.task_id
    where task.status = wanted.seen_status and task.claim_token = wanted.token and name = $7 and exists (select 1 from flotilla.bulk where bulk_id = $8 and batch is not null) and not exists (select 1 from flotilla.task_signal past where past.task_id = task.task_id and past.signal_id = $9)
  and (select count(*) from flotilla.task_signal past where past.task_id = task.task_id and past.taken = 0) < $10
-- values: ["bulk-1","paid","{}","{\"task-1\"}","{\"pending\"}","{2}","mail","bulk-1","bulk-1",1000]

  update flotilla.task
  set wake = wake + 1,
    last_update = case when status = 'pending' then now_ms() else last_update end,
    run_at = case when status = 'pending' and parked in (1, 5) and awaits is not null then now_ms() else run_at end,
    parked = case when status = 'pending' and parked in (1, 5) and awaits is not null then case when limited = 1 then 4 else 0 end else parked end
  where task_id = any(array(select task.task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
on task.task_id = wanted.task_id
where exists (select 1 from flotilla.task_signal sent
where sent.task_id = task.task_id and sent.signal_id = $4) and exists (select 1 from flotilla.bulk where bulk_id = $5 and batch is not null)))
-- values: ["{\"task-1\"}","{\"pending\"}","{2}","bulk-1","bulk-1"]

update flotilla.bulk
set done = done + batch - (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = $4
  and not exists (select 1 from flotilla.task_signal sent
where sent.task_id = task.task_id and sent.signal_id = $5)), refused = refused + (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($6::text[], $7::text[], $8::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and name = $9
  and not exists (select 1 from flotilla.task_signal sent
where sent.task_id = task.task_id and sent.signal_id = $10)),
  skipped = skipped + cast($11 as integer) - batch, batch = null
  , state = 'done'
where bulk_id = $12 and batch is not null
-- values: ["{\"task-1\"}","{\"pending\"}","{2}","mail","bulk-1","{\"task-1\"}","{\"pending\"}","{2}","mail","bulk-1",1,"bulk-1"]

update flotilla.audit set count = cast($1 as bigint) + cast((select done from flotilla.bulk where bulk_id = $2) as bigint)
where id = $3
-- values: [0,"bulk-1","bulk-1"]

update flotilla.audit set outcome = 'done' where id = $1 and outcome = 'begun' and exists (select 1 from flotilla.bulk where bulk_id = $2 and not (state = 'running'))
-- values: ["bulk-1","bulk-1"]

select * from flotilla.bulk where bulk_id = $1
-- values: ["bulk-1"]

select task_id from flotilla.task task
      where task_id = any(array(select task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted))
      order by task_id for update of task
-- values: ["{\"task-1\"}","{\"pending\"}","{2}"]

update flotilla.bulk
set revision = revision + 1, cursor_id = $1,
  batch = (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($2::text[], $3::text[], $4::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and parked = 6 and name = $5),
  last_update = now_ms()
where bulk_id = $6 and revision = $7 and state = 'running'
-- values: ["task-1","{\"task-1\"}","{\"pending\"}","{2}","mail","bulk-1",2]

insert into flotilla.task_event (task_id, seq, type, detail)
select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), $1, case when task.flow_version is null then $2
    else '{"version":' || cast(task.flow_version as text) || $3 end
from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($4::text[], $5::text[], $6::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task on task.task_id = wanted.task_id
where task.status = wanted.seen_status and task.claim_token = wanted.token and parked = 6 and name = $7 and exists (select 1 from flotilla.bulk where bulk_id = $8 and batch is not null)
-- values: ["resume","{\"request\":\"bulk-1\"}",",\"request\":\"bulk-1\"}","{\"task-1\"}","{\"pending\"}","{2}","mail","bulk-1"]

update flotilla.task
set parked = case when parked = 6 then case when limited = 1 then 4 else 0 end else parked end,
  set_aside = null, set_aside_version = null, last_update = now_ms(), wake = wake + 1

from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted
where flotilla.task.task_id = wanted.task_id and flotilla.task.status = wanted.seen_status and flotilla.task.claim_token = wanted.token and parked = 6 and name = $4 and exists (select 1 from flotilla.bulk where bulk_id = $5 and batch is not null)
-- values: ["{\"task-1\"}","{\"pending\"}","{2}","mail","bulk-1"]

update flotilla.bulk
set done = done + batch - (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and parked = 6 and name = $4
  ), refused = refused + (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($5::text[], $6::text[], $7::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and parked = 6 and name = $8
  ),
  skipped = skipped + cast($9 as integer) - batch, batch = null
  , state = 'done'
where bulk_id = $10 and batch is not null
-- values: ["{\"task-1\"}","{\"pending\"}","{2}","mail","{\"task-1\"}","{\"pending\"}","{2}","mail",1,"bulk-1"]

update flotilla.audit set count = cast($1 as bigint) + cast((select done from flotilla.bulk where bulk_id = $2) as bigint)
where id = $3
-- values: [0,"bulk-1","bulk-1"]

update flotilla.audit set outcome = 'done' where id = $1 and outcome = 'begun' and exists (select 1 from flotilla.bulk where bulk_id = $2 and not (state = 'running'))
-- values: ["bulk-1","bulk-1"]

select * from flotilla.bulk where bulk_id = $1
-- values: ["bulk-1"]

select task_id from flotilla.task task
      where task_id = any(array(select task_id from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted))
      order by task_id for update of task
-- values: ["{\"task-1\"}","{\"pending\"}","{2}"]

update flotilla.bulk
set revision = revision + 1, cursor_id = $1,
  batch = (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($2::text[], $3::text[], $4::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
    on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and flow_version is not null and (parked = 6 or flow_version > $5) and name = $6),
  last_update = now_ms()
where bulk_id = $7 and revision = $8 and state = 'running'
-- values: ["task-1","{\"task-1\"}","{\"pending\"}","{2}",3,"mail","bulk-1",2]

insert into flotilla.task_event (task_id, seq, type, detail)
select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), $1, case when task.flow_version is null then $2
    else '{"version":' || cast(cast($3 as integer) as text) || $4 end
from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($5::text[], $6::text[], $7::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task on task.task_id = wanted.task_id
where task.status = wanted.seen_status and task.claim_token = wanted.token and flow_version is not null and (parked = 6 or flow_version > $8) and name = $9 and exists (select 1 from flotilla.bulk where bulk_id = $10 and batch is not null)
-- values: ["resume","{\"request\":\"bulk-1\"}",3,",\"request\":\"bulk-1\"}","{\"task-1\"}","{\"pending\"}","{2}",3,"mail","bulk-1"]

update flotilla.task
set parked = case when parked = 6 then case when limited = 1 then 4 else 0 end else parked end,
  set_aside = null, set_aside_version = null, last_update = now_ms(), wake = wake + 1
  , flow_version = $1
from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($2::text[], $3::text[], $4::bigint[]) as each_row (task_id, seen_status, token)) wanted
where flotilla.task.task_id = wanted.task_id and flotilla.task.status = wanted.seen_status and flotilla.task.claim_token = wanted.token and flow_version is not null and (parked = 6 or flow_version > $5) and name = $6 and exists (select 1 from flotilla.bulk where bulk_id = $7 and batch is not null)
-- values: [3,"{\"task-1\"}","{\"pending\"}","{2}",3,"mail","bulk-1"]

update flotilla.bulk
set done = done + batch - (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and flow_version is not null and (parked = 6 or flow_version > $4) and name = $5
  ), refused = refused + (select count(*) from (select task_id collate "C" as task_id, seen_status collate "C" as seen_status, token from unnest($6::text[], $7::text[], $8::bigint[]) as each_row (task_id, seen_status, token)) wanted join flotilla.task task
  on task.task_id = wanted.task_id where task.status = wanted.seen_status and task.claim_token = wanted.token and flow_version is not null and (parked = 6 or flow_version > $9) and name = $10
  ),
  skipped = skipped + cast($11 as integer) - batch, batch = null
  , state = 'done'
where bulk_id = $12 and batch is not null
-- values: ["{\"task-1\"}","{\"pending\"}","{2}",3,"mail","{\"task-1\"}","{\"pending\"}","{2}",3,"mail",1,"bulk-1"]

update flotilla.audit set count = cast($1 as bigint) + cast((select done from flotilla.bulk where bulk_id = $2) as bigint)
where id = $3
-- values: [0,"bulk-1","bulk-1"]

update flotilla.audit set outcome = 'done' where id = $1 and outcome = 'begun' and exists (select 1 from flotilla.bulk where bulk_id = $2 and not (state = 'running'))
-- values: ["bulk-1","bulk-1"]

select * from flotilla.bulk where bulk_id = $1
-- values: ["bulk-1"]
