-- src/flows/sql.ts: childrenOf
select wait.dependency_id, child.name, child.status, child.result, child.error
from flotilla.task_dependency wait left join flotilla.task child on child.task_id = wait.dependency_id
where wait.dependent_id = $1
  and (child.task_id is null or child.parent_id = $2
    and substr(child.unique_key, 1, $3) = $4)
order by wait.place
-- values: ["run-1","run-1",13,"run-1/charge/"]

-- src/flows/sql.ts: retrySetAside
update flotilla.task set parked = case when limited = 1 then 4 else 0 end, set_aside = null, set_aside_version = null
where name = $1 and status = 'pending' and parked = 6 and set_aside_version < $2
-- values: ["order",2]

-- src/flows/sql.ts: resumeSetAside
  insert into flotilla.task_event (task_id, seq, type, detail)
  select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'resume',
    '{"version":' || cast(task.flow_version as text) || ',' || $1 || cast(wake + 1 as text) || '}'
  from flotilla.task task where task.task_id = $2 and task.status = 'pending'
and (task.parked = 6 or false) and not exists (
select 1 from flotilla.task_event past
where past.task_id = $3
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like $4 and past.detail not like $5 || cast(wake + 1 as text) || '}' else false end) for update of task
-- values: ["\"request\":\"request-1\",\"wake\":","run-1","run-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

  update flotilla.task
  set parked = case when parked = 6 then case when limited = 1 then 4 else 0 end else parked end, set_aside = null,
    set_aside_version = null, last_update = now_ms(), wake = wake + 1

  where task_id = any(array(select task.task_id from flotilla.task task where task.task_id = $1 and task.status = 'pending'
and (task.parked = 6 or false) and not exists (
select 1 from flotilla.task_event past
where past.task_id = $2
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like $3 and past.detail not like $4 || cast(wake + 1 as text) || '}' else false end)))
-- values: ["run-1","run-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

select status, case when exists (
    select 1 from flotilla.task_event past
    where past.task_id = $1
      and case when past.type in ('cancel_requested', 'given_up', 'resume')
        then past.detail like $2 and true else false end) then 1 else 0 end as resumed
      from flotilla.task where task_id = $3
-- values: ["run-1","%\"request\":\"request-1\",\"wake\":%","run-1"]

  insert into flotilla.task_event (task_id, seq, type, detail)
  select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'resume',
    '{"version":' || cast(cast($1 as integer) as text) || ',' || $2 || cast(wake + 1 as text) || '}'
  from flotilla.task task where task.task_id = $3 and task.status = 'pending'
and (task.parked = 6 or task.flow_version > $4) and not exists (
select 1 from flotilla.task_event past
where past.task_id = $5
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like $6 and past.detail not like $7 || cast(wake + 1 as text) || '}' else false end) for update of task
-- values: [2,"\"request\":\"request-1\",\"wake\":","run-1",2,"run-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, $8, $9, $10,
    cast($11 as bigint), case when task.parked = 6 then $12
      else '{"version":' || cast(task.flow_version as text) || '}' end, $13,
    case when exists (
select 1 from flotilla.audit past where past.action = $14 and past.outcome = 'full') then null else $15 end, $16, $17
  from flotilla.task task where task.task_id = $18 and task.status = 'pending'
  and (task.parked = 6 or task.flow_version > $19) and not exists (
  select 1 from flotilla.task_event past
  where past.task_id = $20
    and case when past.type in ('cancel_requested', 'given_up', 'resume')
      then past.detail like $21 and past.detail not like $22 || cast(wake + 1 as text) || '}' else false end)
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"{\"status\":\"set_aside\"}","{\"version\":2}","audit.full","done",null,"click-1","run-1",2,"run-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

delete from flotilla.step_journal where owner_id in (select task.task_id from flotilla.task task where task.task_id = $1 and task.status = 'pending'
and (task.parked = 6 or task.flow_version > $2) and not exists (
select 1 from flotilla.task_event past
where past.task_id = $3
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like $4 and past.detail not like $5 || cast(wake + 1 as text) || '}' else false end)) and (part = '' or part >= 'A')
  and exists (select 1 from (select low collate "C" as low, high collate "C" as high from unnest($6::text[], $7::text[]) as each_row (low, high)) wanted
    where flotilla.step_journal.key >= wanted.low and flotilla.step_journal.key < wanted.high)
-- values: ["run-1",2,"run-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":","{\"read\",\"read/\",\"read@\"}","{\"read\u0001\",\"read0\",\"readA\"}"]

  update flotilla.task
  set parked = case when parked = 6 then case when limited = 1 then 4 else 0 end else parked end, set_aside = null,
    set_aside_version = null, last_update = now_ms(), wake = wake + 1
    , flow_version = $1
  where task_id = any(array(select task.task_id from flotilla.task task where task.task_id = $2 and task.status = 'pending'
and (task.parked = 6 or task.flow_version > $3) and not exists (
select 1 from flotilla.task_event past
where past.task_id = $4
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like $5 and past.detail not like $6 || cast(wake + 1 as text) || '}' else false end)))
-- values: [2,"run-1",2,"run-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

select status, case when exists (
    select 1 from flotilla.task_event past
    where past.task_id = $1
      and case when past.type in ('cancel_requested', 'given_up', 'resume')
        then past.detail like $2 and true else false end) then 1 else 0 end as resumed
      from flotilla.task where task_id = $3
-- values: ["run-1","%\"request\":\"request-1\",\"wake\":%","run-1"]

-- src/flows/sql.ts: runConditions
flow_version is not null

flow_version is not null

status in ('pending', 'claimed')

status = 'pending' and parked = 6

cursor = $1
-- values: ["charge"]

parent_id = $1
-- values: ["run-1"]

flow_version = $1
-- values: [2]

-- src/flows/sql.ts: dependenciesOfRun
select dependency_id as task_id from flotilla.task_dependency where dependent_id = $1
order by dependent_id limit cast($2 as integer)
-- values: ["run-1",10]

-- src/flows/sql.ts: flowNames
with recursive step (name) as (
  select (select min(name) from flotilla.task where flow_version is not null)
  union all
  select (select min(task.name) from flotilla.task task
    where task.name > step.name and task.flow_version is not null)
  from step where step.name is not null)
select name from step where name is not null limit cast($1 as integer)
-- values: [100]

-- src/flows/sql.ts: walkRuns
with walked as materialized (select * from (
  select name, task_id, created_at,
    case when flow_version is not null and status in ('pending', 'claimed') then 500 + coalesce(octet_length(payload), 0) + coalesce(octet_length(state), 0) + coalesce(octet_length(progress), 0)
+ coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0) + coalesce(octet_length(waiting), 0)
+ coalesce(octet_length(intent), 0) + coalesce(octet_length(set_aside), 0)
+ case when depends = 0 then 0 else
  (select count(*) from flotilla.task_dependency wait where wait.dependent_id = task_id) * $1 end end as bytes
  from flotilla.task
  where flow_version is not null and name = $2 and task_id < $3 and task_id >= $4
  order by task_id desc limit cast($5 as integer)) of_flow union all select * from (
  select name, task_id, created_at,
    case when flow_version is not null and status in ('pending', 'claimed') then 500 + coalesce(octet_length(payload), 0) + coalesce(octet_length(state), 0) + coalesce(octet_length(progress), 0)
+ coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0) + coalesce(octet_length(waiting), 0)
+ coalesce(octet_length(intent), 0) + coalesce(octet_length(set_aside), 0)
+ case when depends = 0 then 0 else
  (select count(*) from flotilla.task_dependency wait where wait.dependent_id = task_id) * $6 end end as bytes
  from flotilla.task
  where flow_version is not null and name = $7 and task_id < $8 and task_id >= $9
  order by task_id desc limit cast($10 as integer)) of_flow)
select name, task_id, created_at, bytes, null as walked from (
  select name, task_id, created_at, bytes from walked where bytes is not null
  order by task_id desc limit cast($11 as integer)) found
union all
select last.name, last.task_id, walked.created_at, null, last.walked from (
  select name, min(task_id) as task_id, count(*) as walked from walked group by name) last
  join walked on walked.task_id = last.task_id
-- values: [40,"order","run-9","run-1",10,40,"report","run-9","run-1",10,51]

-- src/flows/sql.ts: getRun
select * from flotilla.task where task_id = $1 and flow_version is not null
-- values: ["run-1"]

-- src/flows/sql.ts: openSignals
select seq, signal_id, name, at from flotilla.task_signal
where task_id = $1 and taken = 0 and seq > $2
order by seq limit cast($3 as integer)
-- values: ["run-1",1,10]

-- src/flows/sql.ts: countOpenRuns
select kind, case when flow_version is null then '' else name end as name, status, cursor, parked,
  case when retry_count > 0 then 1 else 0 end as retrying, is_waiting as waiting, flow_version,
  count(*) as runs
from (
select cast($1 as integer) as kind, open_kind.* from (
  select task_id, name, status, cursor, parked, retry_count, awaits, run_at, created_at, advanced_at,
    flow_version, case when waiting is null then 0 else 1 end as is_waiting
  from flotilla.task where status = 'claimed' order by claimed_by, claim_call limit cast($2 as integer)) open_kind union all
select cast($3 as integer) as kind, open_kind.* from (
  select task_id, name, status, cursor, parked, retry_count, awaits, run_at, created_at, advanced_at,
    flow_version, case when waiting is null then 0 else 1 end as is_waiting
  from flotilla.task where status = 'pending' and parked = 2 order by task_id limit cast($4 as integer)) open_kind union all
select cast($5 as integer) as kind, open_kind.* from (
  select task_id, name, status, cursor, parked, retry_count, awaits, run_at, created_at, advanced_at,
    flow_version, case when waiting is null then 0 else 1 end as is_waiting
  from flotilla.task where status = 'pending' and parked = 3 order by blocked_by, priority desc, created_at, task_id limit cast($6 as integer)) open_kind union all
select cast($7 as integer) as kind, open_kind.* from (
  select task_id, name, status, cursor, parked, retry_count, awaits, run_at, created_at, advanced_at,
    flow_version, case when waiting is null then 0 else 1 end as is_waiting
  from flotilla.task where status = 'pending' and parked = 4 and deaths < 2 order by name, tenant, priority desc, created_at, task_id limit cast($8 as integer)) open_kind union all
select cast($9 as integer) as kind, open_kind.* from (
  select task_id, name, status, cursor, parked, retry_count, awaits, run_at, created_at, advanced_at,
    flow_version, case when waiting is null then 0 else 1 end as is_waiting
  from flotilla.task where status = 'pending' and parked = 4 and deaths >= 2 order by name, created_at, task_id limit cast($10 as integer)) open_kind union all
select cast($11 as integer) as kind, open_kind.* from (
  select task_id, name, status, cursor, parked, retry_count, awaits, run_at, created_at, advanced_at,
    flow_version, case when waiting is null then 0 else 1 end as is_waiting
  from flotilla.task where status = 'pending' and parked = 5 order by name limit cast($12 as integer)) open_kind union all
select cast($13 as integer) as kind, open_kind.* from (
  select task_id, name, status, cursor, parked, retry_count, awaits, run_at, created_at, advanced_at,
    flow_version, case when waiting is null then 0 else 1 end as is_waiting
  from flotilla.task where status = 'pending' and parked = 6 order by name limit cast($14 as integer)) open_kind union all
select cast($15 as integer) as kind, open_kind.* from (
  select task_id, name, status, cursor, parked, retry_count, awaits, run_at, created_at, advanced_at,
    flow_version, case when waiting is null then 0 else 1 end as is_waiting
  from flotilla.task where name = $16 and status = 'pending' and parked = 0 and deaths < 2 order by priority desc, created_at, task_id limit cast($17 as integer)) open_kind union all
select cast($18 as integer) as kind, open_kind.* from (
  select task_id, name, status, cursor, parked, retry_count, awaits, run_at, created_at, advanced_at,
    flow_version, case when waiting is null then 0 else 1 end as is_waiting
  from flotilla.task where name = $19 and status = 'pending' and parked = 0 and deaths >= 2 order by created_at, task_id limit cast($20 as integer)) open_kind union all
select cast($21 as integer) as kind, open_kind.* from (
  select task_id, name, status, cursor, parked, retry_count, awaits, run_at, created_at, advanced_at,
    flow_version, case when waiting is null then 0 else 1 end as is_waiting
  from flotilla.task where name = $22 and status = 'pending' and parked = 1 and flow_version is not null order by run_at limit cast($23 as integer)) open_kind) open group by 1, 2, 3, 4, 5, 6, 7, 8
-- values: [0,10000,1,10000,2,10000,3,10000,4,10000,5,10000,6,10000,7,"order",10000,8,"order",10000,9,"order",10000]

-- src/flows/sql.ts: countEndedRuns
select name, status, count(*) as runs from (
  select name, status from flotilla.task
  where flow_version is not null and name = $1 and task_id < $2 and task_id >= $3
  order by task_id desc limit cast($4 as integer)) newest
group by name, status
-- values: ["order","􏿿","",100]

-- src/flows/sql.ts: countReadyRuns
select 'ready' as doing, flow.name,
  (select count(*) from (
    select 1 from flotilla.task task
    where task.name = flow.name and task.status = 'pending' and task.parked = 0 and task.deaths < 2
    order by task.priority desc, task.created_at, task.task_id limit cast($1 as integer)) open) +
  (select count(*) from (
    select 1 from flotilla.task task
    where task.name = flow.name and task.status = 'pending' and task.parked = 0 and task.deaths >= 2
    order by task.created_at, task.task_id limit cast($2 as integer)) alone) as runs
from (select name collate "C" as name from unnest($3::text[]) as each_row (name)) flow
-- values: [10000,10000,"{\"order\"}"]

-- src/flows/sql.ts: countOtherRuns
select 'running' as doing, name, count(*) as runs from (
  select name, flow_version from flotilla.task where status = 'claimed'
  order by claimed_by, claim_call limit cast($1 as integer)) running
where flow_version is not null group by name
union all
select case when awaits is not null then 'waiting_for_signal' when waiting is not null then 'sleeping'
    when run_seq = 0 then 'delayed' else 'retrying' end, name, count(*) from (
  select name, awaits, waiting, run_seq from flotilla.task
  where status = 'pending' and parked = 1 and flow_version is not null order by name, run_at limit cast($2 as integer)) later
group by 1, 2
union all
select case when waiting is null then 'waiting_for_others' else 'waiting_for_children' end, name,
  count(*) from (
  select name, flow_version, waiting from flotilla.task where status = 'pending' and parked = 2
  order by task_id limit cast($3 as integer)) waiting
where flow_version is not null group by 1, 2
union all
select 'waiting_for_room', name, count(*) from (
  select name, flow_version from flotilla.task where status = 'pending' and parked = 3
  order by blocked_by, priority desc, created_at, task_id limit cast($4 as integer)) blocked
where flow_version is not null group by name
union all
select 'ready', name, count(*) from (
  select name, flow_version from flotilla.task
  where status = 'pending' and parked = 4 and deaths < 2
  order by name, tenant, priority desc, created_at, task_id limit cast($5 as integer)) limited
where flow_version is not null group by name
union all
select 'ready', name, count(*) from (
  select name, flow_version from flotilla.task
  where status = 'pending' and parked = 4 and deaths >= 2
  order by name, created_at, task_id limit cast($6 as integer)) alone
where flow_version is not null group by name
union all
select 'waiting_for_signal', name, count(*) from (
  select name from flotilla.task where status = 'pending' and parked = 5
  order by name limit cast($7 as integer)) told group by name
union all
select 'set_aside', name, count(*) from (
  select name from flotilla.task where status = 'pending' and parked = 6
  order by name limit cast($8 as integer)) set_aside group by name
-- values: [10000,10000,10000,10000,10000,10000,10000,10000]

-- src/flows/sql.ts: countStuck
select name, cursor, flow_version,
  case when parked = 6 then 'set_aside' when retry_count >= $1 then 'retrying'
    when (parked <> 1 or awaits is not null) and case when parked <> 1 and run_at > coalesce(advanced_at, created_at) then run_at else coalesce(advanced_at, created_at) end < now_ms() - $2 then 'waiting' else '' end as why,
  count(*) as runs, min(task_id) as oldest, min(case when parked <> 1 and run_at > coalesce(advanced_at, created_at) then run_at else coalesce(advanced_at, created_at) end) as since_at
from (
select cast($3 as integer) as kind, open_kind.* from (
  select task_id, name, status, cursor, parked, retry_count, awaits, run_at, created_at, advanced_at,
    flow_version, case when waiting is null then 0 else 1 end as is_waiting
  from flotilla.task where status = 'claimed' order by claimed_by, claim_call limit cast($4 as integer)) open_kind union all
select cast($5 as integer) as kind, open_kind.* from (
  select task_id, name, status, cursor, parked, retry_count, awaits, run_at, created_at, advanced_at,
    flow_version, case when waiting is null then 0 else 1 end as is_waiting
  from flotilla.task where status = 'pending' and parked = 2 order by task_id limit cast($6 as integer)) open_kind union all
select cast($7 as integer) as kind, open_kind.* from (
  select task_id, name, status, cursor, parked, retry_count, awaits, run_at, created_at, advanced_at,
    flow_version, case when waiting is null then 0 else 1 end as is_waiting
  from flotilla.task where status = 'pending' and parked = 3 order by blocked_by, priority desc, created_at, task_id limit cast($8 as integer)) open_kind union all
select cast($9 as integer) as kind, open_kind.* from (
  select task_id, name, status, cursor, parked, retry_count, awaits, run_at, created_at, advanced_at,
    flow_version, case when waiting is null then 0 else 1 end as is_waiting
  from flotilla.task where status = 'pending' and parked = 4 and deaths < 2 order by name, tenant, priority desc, created_at, task_id limit cast($10 as integer)) open_kind union all
select cast($11 as integer) as kind, open_kind.* from (
  select task_id, name, status, cursor, parked, retry_count, awaits, run_at, created_at, advanced_at,
    flow_version, case when waiting is null then 0 else 1 end as is_waiting
  from flotilla.task where status = 'pending' and parked = 4 and deaths >= 2 order by name, created_at, task_id limit cast($12 as integer)) open_kind union all
select cast($13 as integer) as kind, open_kind.* from (
  select task_id, name, status, cursor, parked, retry_count, awaits, run_at, created_at, advanced_at,
    flow_version, case when waiting is null then 0 else 1 end as is_waiting
  from flotilla.task where status = 'pending' and parked = 5 order by name limit cast($14 as integer)) open_kind union all
select cast($15 as integer) as kind, open_kind.* from (
  select task_id, name, status, cursor, parked, retry_count, awaits, run_at, created_at, advanced_at,
    flow_version, case when waiting is null then 0 else 1 end as is_waiting
  from flotilla.task where status = 'pending' and parked = 6 order by name limit cast($16 as integer)) open_kind union all
select cast($17 as integer) as kind, open_kind.* from (
  select task_id, name, status, cursor, parked, retry_count, awaits, run_at, created_at, advanced_at,
    flow_version, case when waiting is null then 0 else 1 end as is_waiting
  from flotilla.task where name = $18 and status = 'pending' and parked = 0 and deaths < 2 order by priority desc, created_at, task_id limit cast($19 as integer)) open_kind union all
select cast($20 as integer) as kind, open_kind.* from (
  select task_id, name, status, cursor, parked, retry_count, awaits, run_at, created_at, advanced_at,
    flow_version, case when waiting is null then 0 else 1 end as is_waiting
  from flotilla.task where name = $21 and status = 'pending' and parked = 0 and deaths >= 2 order by created_at, task_id limit cast($22 as integer)) open_kind union all
select cast($23 as integer) as kind, open_kind.* from (
  select task_id, name, status, cursor, parked, retry_count, awaits, run_at, created_at, advanced_at,
    flow_version, case when waiting is null then 0 else 1 end as is_waiting
  from flotilla.task where name = $24 and status = 'pending' and parked = 1 and flow_version is not null order by run_at limit cast($25 as integer)) open_kind) open where flow_version is not null
  and (status = 'pending' or (status = 'claimed' and retry_count >= $26))
group by 1, 2, 3, 4 order by name, flow_version, coalesce(cursor, ''), 4
-- values: [5,60000,0,10000,1,10000,2,10000,3,10000,4,10000,5,10000,6,10000,7,"order",10000,8,"order",10000,9,"order",10000,5]
