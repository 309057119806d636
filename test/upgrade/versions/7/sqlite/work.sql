insert into flotilla_pod
  (pod_id, beat, claim_floor, metadata, pauses, host, connection, begun_call, pulse, drain)
values ('pod-of-this-version', 1, 0, '{}', cast(round((julianday('now') - 2440587.5) * 86400000) as integer), null, null,
  0, null, 0)
on conflict (pod_id) do update
set beat = flotilla_pod.beat + 1, last_heartbeat = cast(round((julianday('now') - 2440587.5) * 86400000) as integer), status = 'up',
  host = excluded.host, connection = excluded.connection, pulse = excluded.pulse;

insert into flotilla_task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
  max_attempts, unique_key, trace, parked)
select task_id, tenant, name, payload, priority, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) + delay_ms, cast(round((julianday('now') - 2440587.5) * 86400000) as integer), cast(round((julianday('now') - 2440587.5) * 86400000) as integer),
  max_attempts, unique_key, trace, case when delay_ms > 0 then 1 else 0 end
from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as name, value ->> 3 as payload, value ->> 4 as priority, value ->> 5 as delay_ms, value ->> 6 as max_attempts, value ->> 7 as unique_key, value ->> 8 as trace from json_each('[["worked-1","default","worked","1",0,0,null,null,null]]')) fresh where true
on conflict do nothing
returning task_id;

update flotilla_task set parked = case when limited = 1 then 4 else 0 end, last_update = cast(round((julianday('now') - 2440587.5) * 86400000) as integer)
where rowid in (
  select rowid from flotilla_task
  where status = 'pending' and parked = 1 and run_at <= cast(round((julianday('now') - 2440587.5) * 86400000) as integer)
  order by run_at limit cast(500 as integer) );

select
(select run_at - cast(round((julianday('now') - 2440587.5) * 86400000) as integer) from flotilla_task
  where status = 'pending' and parked = 1 order by run_at limit 1) as wait_ms,
exists (
  select 1 from (select value ->> 0 as name from json_each('[["worked"]]')) wanted where (select task_id from flotilla_task task
    where task.name = wanted.name and task.status = 'pending' and parked = 4 and deaths < 2
    order by tenant, priority desc, created_at, task_id limit 1) is not null) as limited,
exists (
  select 1 from (select value ->> 0 as name from json_each('[["worked"]]')) wanted where (select task_id from flotilla_task task
    where task.name = wanted.name and task.status = 'pending' and parked = 0 and deaths >= 2
    order by created_at, task_id limit 1) is not null)
or exists (
  select 1 from (select value ->> 0 as name from json_each('[["worked"]]')) wanted where (select task_id from flotilla_task task
    where task.name = wanted.name and task.status = 'pending' and parked = 4 and deaths >= 2
    order by created_at, task_id limit 1) is not null) as alone,
(select pauses from flotilla_pod where pod_id = '') as pauses, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) as now;

update flotilla_task
  set status = 'claimed', claimed_by = 'pod-of-this-version', claim_token = claim_token + 1,
    claim_call = 1, last_update = cast(round((julianday('now') - 2440587.5) * 86400000) as integer) 
  where rowid in (
  select address from (select * from (
    select rowid as address, task_id, priority, created_at from flotilla_task
    where name = 'worked' and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= cast(round((julianday('now') - 2440587.5) * 86400000) as integer) or run_at <= last_update)
       and flow_version is null and task_version is null 
    order by priority desc, created_at, task_id limit cast(1 as integer) ) of_name) ready
  order by priority desc, created_at, task_id limit cast(1 as integer)) and status = 'pending'
    and exists (select 1 from flotilla_pod where pod_id = 'pod-of-this-version' and claim_floor < 1
       )
    
  returning task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
nullif(priority, 0) as priority, nullif(wake, 0) as wake,
nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
nullif(limited, 0) as limited;

update flotilla_task set progress = newest.value, progress_token = newest.token
from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as value from json_each('[["worked-1",1,0,"\"half\""]]')) newest
where flotilla_task.task_id = newest.task_id and flotilla_task.claim_token = newest.token
  and flotilla_task.run_seq = newest.run_seq and flotilla_task.status = 'claimed';

select task_id, status, claimed_by, claim_token, wake, dependents, cancel_requested, run_seq
from flotilla_task
where task_id in (select task_id from (select value ->> 0 as task_id from json_each('[["worked-1"]]')) wanted);

insert into flotilla_task_event (task_id, seq, type, attempt, pod_id, detail)
select noted.task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = noted.task_id), noted.type, noted.attempt, 'pod-of-this-version', noted.detail
from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as wake, value ->> 3 as type, value ->> 4 as attempt, value ->> 5 as detail from json_each('[["worked-1",1,null,"noted",1,null]]')) noted join flotilla_task task on task.task_id = noted.task_id
where task.claim_token = noted.token
  and task.status in ('claimed', 'pending')
  and (noted.wake is null or task.wake = noted.wake) and dependents = 0;

update flotilla_task
set status = 'completed', result = done.result, started_at = done.started_at, claim_call = null, last_update = cast(round((julianday('now') - 2440587.5) * 86400000) as integer)
from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as result, value ->> 3 as started_at from json_each('[["worked-1",1,"{\"doubled\":2}",null]]')) done
where flotilla_task.task_id = done.task_id
  and flotilla_task.claim_token = done.token
  and flotilla_task.status in ('claimed', 'pending')
   and dependents = 0
returning flotilla_task.task_id;

insert into flotilla_task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
  max_attempts, unique_key, trace, parked)
select task_id, tenant, name, payload, priority, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) + delay_ms, cast(round((julianday('now') - 2440587.5) * 86400000) as integer), cast(round((julianday('now') - 2440587.5) * 86400000) as integer),
  max_attempts, unique_key, trace, case when delay_ms > 0 then 1 else 0 end
from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as name, value ->> 3 as payload, value ->> 4 as priority, value ->> 5 as delay_ms, value ->> 6 as max_attempts, value ->> 7 as unique_key, value ->> 8 as trace from json_each('[["worked-2","default","worked","1",0,0,null,null,null]]')) fresh where true
on conflict do nothing
returning task_id;

with recursive level (name, priority) as (
  select wanted.name, (select max(priority) from flotilla_task task
    where task.name = wanted.name and status = 'pending' and parked = 0 and deaths < 2)
  from (select value ->> 0 as name from json_each('[["worked"]]')) wanted
  union all
  select level.name, (select max(priority) from flotilla_task task
    where task.name = level.name and status = 'pending' and parked = 0 and deaths < 2 and task.priority < level.priority)
  from level where level.priority is not null)
select name, priority from level where priority is not null
order by priority, name limit cast(400 as integer);

update flotilla_task
  set status = 'claimed', claimed_by = 'pod-of-this-version', claim_token = claim_token + 1,
    claim_call = 2, last_update = cast(round((julianday('now') - 2440587.5) * 86400000) as integer) 
  where rowid in (
  select address from (select * from (
    select rowid as address, task_id, created_at from flotilla_task
    where name = 'worked' and status = 'pending' and parked = 0 and deaths < 2
      and priority = 0 and (run_at <= cast(round((julianday('now') - 2440587.5) * 86400000) as integer) or run_at <= last_update) and flow_version is null and task_version is null 
    order by created_at, task_id limit cast(1 as integer) ) of_level) ready
  order by created_at, task_id limit cast(1 as integer)) and status = 'pending'
    and exists (select 1 from flotilla_pod where pod_id = 'pod-of-this-version' and claim_floor < 2
       )
    
  returning task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
nullif(priority, 0) as priority, nullif(wake, 0) as wake,
nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
nullif(limited, 0) as limited;

select task_id, claim_token, claimed_by, deaths, last_update from (
  select task_id, claim_token, claimed_by, deaths, last_update from flotilla_task
  where status = 'claimed' and claimed_by in (select pod_id from (select value ->> 0 as pod_id from json_each('[["pod-of-this-version"]]')) silent)
  order by claimed_by, claim_call limit cast(10 as integer)) held
order by task_id;

insert into flotilla_task_event (task_id, seq, type, attempt, pod_id, detail)
select orphan.task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = orphan.task_id), 'pod_died', task.retry_count + 1,
  orphan.pod_id, orphan.detail
from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as pod_id, value ->> 3 as beat, value ->> 4 as detail from json_each('[["worked-2",1,"pod-of-this-version",1,null]]')) orphan join flotilla_task task on task.task_id = orphan.task_id and task.claim_token = orphan.token
and task.status = 'claimed' and task.claimed_by = orphan.pod_id
and coalesce((select pod.beat from flotilla_pod pod where pod.pod_id = orphan.pod_id), -1) = orphan.beat
where not exists (select 1 from flotilla_pod holder
where holder.pod_id = task.claimed_by and task.claim_call < 0 and holder.begun_call >= 0
  and (-task.claim_call > holder.begun_call
    or -task.claim_call = holder.begun_call and task.task_id > holder.begun_task));

update flotilla_task
set status = case when cancel_requested = 1 and flow_version is null then 'cancelled' when case when exists (
select 1 from flotilla_step_journal stored
where stored.owner_id = flotilla_task.task_id and stored.part = ''
  and stored.token = flotilla_task.claim_token) then 0 else flotilla_task.deaths end + case when exists (select 1 from flotilla_pod holder
where holder.pod_id = flotilla_task.claimed_by and flotilla_task.claim_call < 0 and holder.begun_call >= 0
  and (-flotilla_task.claim_call > holder.begun_call
    or -flotilla_task.claim_call = holder.begun_call and flotilla_task.task_id > holder.begun_task)) then 0 else 1 end >= 4 and flow_version is null then 'failed'
else 'pending' end,
  error = case when cancel_requested = 1 and flow_version is null then error when case when exists (
select 1 from flotilla_step_journal stored
where stored.owner_id = flotilla_task.task_id and stored.part = ''
  and stored.token = flotilla_task.claim_token) then 0 else flotilla_task.deaths end + case when exists (select 1 from flotilla_pod holder
where holder.pod_id = flotilla_task.claimed_by and flotilla_task.claim_call < 0 and holder.begun_call >= 0
  and (-flotilla_task.claim_call > holder.begun_call
    or -flotilla_task.claim_call = holder.begun_call and flotilla_task.task_id > holder.begun_task)) then 0 else 1 end >= 4 and flow_version is null then '{"code":"pod_died","message":"4 pods died while they ran this task, 2 of them with nothing else to run"}' else error end,
  claim_token = claim_token + case when cancel_requested = 1 and flow_version is null or case when exists (
select 1 from flotilla_step_journal stored
where stored.owner_id = flotilla_task.task_id and stored.part = ''
  and stored.token = flotilla_task.claim_token) then 0 else flotilla_task.deaths end + case when exists (select 1 from flotilla_pod holder
where holder.pod_id = flotilla_task.claimed_by and flotilla_task.claim_call < 0 and holder.begun_call >= 0
  and (-flotilla_task.claim_call > holder.begun_call
    or -flotilla_task.claim_call = holder.begun_call and flotilla_task.task_id > holder.begun_task)) then 0 else 1 end >= 4 and flow_version is null then 1 else 0 end,
  deaths = case when exists (
select 1 from flotilla_step_journal stored
where stored.owner_id = flotilla_task.task_id and stored.part = ''
  and stored.token = flotilla_task.claim_token) then 0 else flotilla_task.deaths end + case when exists (select 1 from flotilla_pod holder
where holder.pod_id = flotilla_task.claimed_by and flotilla_task.claim_call < 0 and holder.begun_call >= 0
  and (-flotilla_task.claim_call > holder.begun_call
    or -flotilla_task.claim_call = holder.begun_call and flotilla_task.task_id > holder.begun_task)) then 0 else 1 end, retry_count = case when exists (
select 1 from flotilla_step_journal stored
where stored.owner_id = flotilla_task.task_id and stored.part = ''
  and stored.token = flotilla_task.claim_token) then 0 else retry_count end, claimed_by = null, claim_call = null, last_update = cast(round((julianday('now') - 2440587.5) * 86400000) as integer)
from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as pod_id, value ->> 3 as beat from json_each('[["worked-2",1,"pod-of-this-version",1]]')) orphan
where flotilla_task.task_id = orphan.task_id and flotilla_task.claim_token = orphan.token
and flotilla_task.status = 'claimed' and flotilla_task.claimed_by = orphan.pod_id
and coalesce((select pod.beat from flotilla_pod pod where pod.pod_id = orphan.pod_id), -1) = orphan.beat and true
returning flotilla_task.task_id, flotilla_task.name, flotilla_task.status, flotilla_task.claim_token;

select task_id from flotilla_task task where task_id = 'worked-2' and status in ('pending', 'claimed');

select task_id from flotilla_task task where task_id in (
select child.task_id from (select value ->> 0 as task_id from json_each('[["worked-2"]]')) parent
join flotilla_task_dependency wait on wait.dependent_id = parent.task_id
join flotilla_task child on child.task_id = wait.dependency_id
where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
  and child.cancel_requested = 0
  and parent.task_id in (select task.task_id from flotilla_task task
  where task.task_id in (
    select task_id from flotilla_task where task_id = 'worked-2' and status in ('pending', 'claimed') and status = 'pending' and flow_version is not null and parked = 6 and not exists (
select 1 from flotilla_task_event past
where past.task_id = 'worked-2'
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like '%"request":"request-0","wake":%' and past.detail not like '%"request":"request-0","wake":' || cast(wake + 1 as text) || '}' else false end) or (task_id = 'worked-2' and status in ('pending', 'claimed') and cancel_requested = 0 and not exists (
select 1 from flotilla_task_event past
where past.task_id = 'worked-2'
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like '%"request":"request-0","wake":%' and past.detail not like '%"request":"request-0","wake":' || cast(wake + 1 as text) || '}' else false end) and status = 'pending' and flow_version is null)))) order by task_id;

insert into flotilla_task_event (task_id, seq, type)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), 'cancel_requested' from flotilla_task task
  where task_id in (
select child.task_id from (select value ->> 0 as task_id from json_each('[["worked-2"]]')) parent
join flotilla_task_dependency wait on wait.dependent_id = parent.task_id
join flotilla_task child on child.task_id = wait.dependency_id
where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
  and child.cancel_requested = 0
  and parent.task_id in (select task.task_id from flotilla_task task
  where task.task_id in (
    select task_id from flotilla_task where task_id = 'worked-2' and status in ('pending', 'claimed') and status = 'pending' and flow_version is not null and parked = 6 and not exists (
select 1 from flotilla_task_event past
where past.task_id = 'worked-2'
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like '%"request":"request-0","wake":%' and past.detail not like '%"request":"request-0","wake":' || cast(wake + 1 as text) || '}' else false end) or (task_id = 'worked-2' and status in ('pending', 'claimed') and cancel_requested = 0 and not exists (
select 1 from flotilla_task_event past
where past.task_id = 'worked-2'
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like '%"request":"request-0","wake":%' and past.detail not like '%"request":"request-0","wake":' || cast(wake + 1 as text) || '}' else false end) and status = 'pending' and flow_version is null))));

update flotilla_task
    set 
cancel_requested = 1, wake = wake + 1, last_update = cast(round((julianday('now') - 2440587.5) * 86400000) as integer),
claim_token = claim_token + case when status = 'pending' and flow_version is null then 1 else 0 end,
status = case when status = 'pending' and flow_version is null then 'cancelled' else status end,
run_at = case when flow_version is not null and status = 'pending' and run_at > cast(round((julianday('now') - 2440587.5) * 86400000) as integer)
  then cast(round((julianday('now') - 2440587.5) * 86400000) as integer) else run_at end,
parked = case when flow_version is not null and status = 'pending' and parked in (1, 2, 5)
  then case when limited = 1 then 4 else 0 end else parked end
    where task_id in (
  select child.task_id from (select value ->> 0 as task_id from json_each('[["worked-2"]]')) parent
  join flotilla_task_dependency wait on wait.dependent_id = parent.task_id
  join flotilla_task child on child.task_id = wait.dependency_id
  where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
    and child.cancel_requested = 0
    and parent.task_id in (select task.task_id from flotilla_task task
    where task.task_id in (
      select task_id from flotilla_task where task_id = 'worked-2' and status in ('pending', 'claimed') and status = 'pending' and flow_version is not null and parked = 6 and not exists (
  select 1 from flotilla_task_event past
  where past.task_id = 'worked-2'
    and case when past.type in ('cancel_requested', 'given_up', 'resume')
      then past.detail like '%"request":"request-0","wake":%' and past.detail not like '%"request":"request-0","wake":' || cast(wake + 1 as text) || '}' else false end) or (task_id = 'worked-2' and status in ('pending', 'claimed') and cancel_requested = 0 and not exists (
  select 1 from flotilla_task_event past
  where past.task_id = 'worked-2'
    and case when past.type in ('cancel_requested', 'given_up', 'resume')
      then past.detail like '%"request":"request-0","wake":%' and past.detail not like '%"request":"request-0","wake":' || cast(wake + 1 as text) || '}' else false end) and status = 'pending' and flow_version is null))));

insert into flotilla_task_event (task_id, seq, type, detail)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), 'cancel_requested', '{' || '"request":"request-0","wake":' || cast(wake + 1 as text) || '}'
  from flotilla_task task where task_id = 'worked-2' and status in ('pending', 'claimed') and cancel_requested = 0 and not exists (
select 1 from flotilla_task_event past
where past.task_id = 'worked-2'
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like '%"request":"request-0","wake":%' and past.detail not like '%"request":"request-0","wake":' || cast(wake + 1 as text) || '}' else false end);

insert into flotilla_task_event (task_id, seq, type, detail)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), 'given_up', '{' || '"request":"request-0","wake":' || cast(wake + 1 as text) || '}'
  from flotilla_task task where task_id = 'worked-2' and status in ('pending', 'claimed') and status = 'pending' and flow_version is not null and parked = 6 and not exists (
select 1 from flotilla_task_event past
where past.task_id = 'worked-2'
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like '%"request":"request-0","wake":%' and past.detail not like '%"request":"request-0","wake":' || cast(wake + 1 as text) || '}' else false end);

update flotilla_task
    set 
cancel_requested = 1, wake = wake + 1, last_update = cast(round((julianday('now') - 2440587.5) * 86400000) as integer),
claim_token = claim_token + case when (status = 'pending' and flow_version is null or status = 'pending' and flow_version is not null and parked = 6) then 1 else 0 end,
status = case when (status = 'pending' and flow_version is null or status = 'pending' and flow_version is not null and parked = 6) then 'cancelled' else status end,
run_at = case when flow_version is not null and status = 'pending' and run_at > cast(round((julianday('now') - 2440587.5) * 86400000) as integer)
  then cast(round((julianday('now') - 2440587.5) * 86400000) as integer) else run_at end,
parked = case when flow_version is not null and status = 'pending' and parked in (1, 2, 5)
  then case when limited = 1 then 4 else 0 end else parked end
    where task_id = 'worked-2' and status in ('pending', 'claimed') and cancel_requested = 0 and not exists (
  select 1 from flotilla_task_event past
  where past.task_id = 'worked-2'
    and case when past.type in ('cancel_requested', 'given_up', 'resume')
      then past.detail like '%"request":"request-0","wake":%' and past.detail not like '%"request":"request-0","wake":' || cast(wake + 1 as text) || '}' else false end) or task_id = 'worked-2' and status in ('pending', 'claimed') and status = 'pending' and flow_version is not null and parked = 6 and not exists (
  select 1 from flotilla_task_event past
  where past.task_id = 'worked-2'
    and case when past.type in ('cancel_requested', 'given_up', 'resume')
      then past.detail like '%"request":"request-0","wake":%' and past.detail not like '%"request":"request-0","wake":' || cast(wake + 1 as text) || '}' else false end);

select task_id from flotilla_task task where rowid in (
select (select rowid from flotilla_task task where task.task_id = named.id)
from (
select distinct wait.dependent_id as id
from flotilla_task_dependency own join flotilla_task_dependency wait on wait.dependency_id = own.dependency_id
where own.dependent_id in (select task_id from (select value ->> 0 as task_id from json_each('[["worked-2"]]')) parent)
  and (select task.status from flotilla_task task
    where task.task_id = own.dependency_id and task.parent_id = own.dependent_id) = 'cancelled') named) order by task_id;

update flotilla_task
set wake = wake + 1, last_update = cast(round((julianday('now') - 2440587.5) * 86400000) as integer), (depends, parked, run_at) = (
  select case when verdict = 2 then 3 else flotilla_task.depends end,
    case when verdict = 1 then flotilla_task.parked when flotilla_task.parked <> 2 then case when limited = 1 then 4 else 0 end
      when flotilla_task.run_at > cast(round((julianday('now') - 2440587.5) * 86400000) as integer) then 1 else case when limited = 1 then 4 else 0 end end,
    case when verdict <> 1 and flotilla_task.parked <> 2 then cast(round((julianday('now') - 2440587.5) * 86400000) as integer) else flotilla_task.run_at end
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
where own.dependent_id in (select task_id from (select value ->> 0 as task_id from json_each('[["worked-2"]]')) parent)
  and (select task.status from flotilla_task task
    where task.task_id = own.dependency_id and task.parent_id = own.dependent_id) = 'cancelled') named) and coalesce(flotilla_task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/');

select task_id from flotilla_task task where rowid in (
select (select rowid from flotilla_task task where task.task_id = named.id)
from (
select distinct wait.dependent_id as id from flotilla_task_dependency wait
where wait.dependency_id in (select task_id from (select value ->> 0 as task_id from json_each('[["worked-2"]]')) ended)
  and (select task.status from flotilla_task task where task.task_id = wait.dependency_id)
    not in ('pending', 'claimed')) named) order by task_id;

update flotilla_task
set wake = wake + 1, last_update = cast(round((julianday('now') - 2440587.5) * 86400000) as integer), (depends, parked, run_at) = (
  select case when verdict = 2 then 3 else flotilla_task.depends end,
    case when verdict = 1 then flotilla_task.parked when flotilla_task.parked <> 2 then case when limited = 1 then 4 else 0 end
      when flotilla_task.run_at > cast(round((julianday('now') - 2440587.5) * 86400000) as integer) then 1 else case when limited = 1 then 4 else 0 end end,
    case when verdict <> 1 and flotilla_task.parked <> 2 then cast(round((julianday('now') - 2440587.5) * 86400000) as integer) else flotilla_task.run_at end
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
where wait.dependency_id in (select task_id from (select value ->> 0 as task_id from json_each('[["worked-2"]]')) ended)
  and (select task.status from flotilla_task task where task.task_id = wait.dependency_id)
    not in ('pending', 'claimed')) named) and coalesce(flotilla_task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/');

select status, cancel_requested, concurrency_key from flotilla_task where task_id = 'worked-2';

select task_id from flotilla_task task where rowid in (
select (select rowid from flotilla_task task where task.task_id = named.id)
from (
select distinct child.parent_id as id from flotilla_task child
where child.task_id in (select task_id from (select value ->> 0 as task_id from json_each('[["worked-2"]]')) started)
  and child.parent_id is not null ) named)
  order by task_id;

insert into flotilla_task_event (task_id, seq, type, detail)
      select task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), 'retried',
        '{"request":"request-1","token":' || cast(task.claim_token + 1 as text) || '}'
      from flotilla_task task where task_id = 'worked-2' and status in ('failed', 'cancelled') and not exists (
select 1 from flotilla_task_event past
where past.task_id = 'worked-2' and past.type = 'retried' and past.detail like '{"request":"request-1","token":%');

delete from flotilla_step_journal where owner_id in (select task_id from flotilla_task where task_id = 'worked-2' and status in ('failed', 'cancelled') and exists (
select 1 from flotilla_task_event past
where past.task_id = flotilla_task.task_id and past.type = 'retried'
  and past.detail = '{"request":"request-1","token":' || cast(flotilla_task.claim_token + 1 as text) || '}')) and (part = '' or part >= 'A') and kind = 'failed';

update flotilla_task set 
status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
depends = case when depends = 3 then 1 else depends end,
claim_token = claim_token + 1, claimed_by = null, run_at = cast(round((julianday('now') - 2440587.5) * 86400000) as integer), last_update = cast(round((julianday('now') - 2440587.5) * 86400000) as integer),
cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
error = null, progress = null, progress_token = claim_token + 1 
        where task_id = 'worked-2' and status in ('failed', 'cancelled') and exists (
  select 1 from flotilla_task_event past
  where past.task_id = flotilla_task.task_id and past.type = 'retried'
    and past.detail = '{"request":"request-1","token":' || cast(flotilla_task.claim_token + 1 as text) || '}');

update flotilla_task set wake = wake + 1
  where rowid in (
select (select rowid from flotilla_task task where task.task_id = named.id)
from (
select distinct child.parent_id as id from flotilla_task child
where child.task_id in (select task_id from (select value ->> 0 as task_id from json_each('[["worked-2"]]')) started)
  and child.parent_id is not null and child.status in ('pending', 'claimed')) named)
    and status in ('pending', 'claimed');

update flotilla_task
set wake = wake + 1, last_update = cast(round((julianday('now') - 2440587.5) * 86400000) as integer), (depends, parked, run_at) = (
  select case when verdict = 2 then 3 else flotilla_task.depends end,
    case when verdict = 1 then flotilla_task.parked when flotilla_task.parked <> 2 then case when limited = 1 then 4 else 0 end
      when flotilla_task.run_at > cast(round((julianday('now') - 2440587.5) * 86400000) as integer) then 1 else case when limited = 1 then 4 else 0 end end,
    case when verdict <> 1 and flotilla_task.parked <> 2 then cast(round((julianday('now') - 2440587.5) * 86400000) as integer) else flotilla_task.run_at end
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
from (select task_id as id from (select value ->> 0 as task_id from json_each('[["worked-2"]]')) fresh) named) and coalesce(flotilla_task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/');

select status, case when exists (
select 1 from flotilla_task_event past
where past.task_id = 'worked-2' and past.type = 'retried' and past.detail like '{"request":"request-1","token":%') then 1 else 0 end as retried
  from flotilla_task where task_id = 'worked-2';

update flotilla_task
  set status = 'claimed', claimed_by = 'pod-of-this-version', claim_token = claim_token + 1,
    claim_call = 3, last_update = cast(round((julianday('now') - 2440587.5) * 86400000) as integer) 
  where rowid in (
  select address from (select * from (
    select rowid as address, task_id, priority, created_at from flotilla_task
    where name = 'worked' and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= cast(round((julianday('now') - 2440587.5) * 86400000) as integer) or run_at <= last_update)
       and flow_version is null and task_version is null 
    order by priority desc, created_at, task_id limit cast(1 as integer) ) of_name) ready
  order by priority desc, created_at, task_id limit cast(1 as integer)) and status = 'pending'
    and exists (select 1 from flotilla_pod where pod_id = 'pod-of-this-version' and claim_floor < 3
       )
    
  returning task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
nullif(priority, 0) as priority, nullif(wake, 0) as wake,
nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
nullif(limited, 0) as limited;

select 1 from flotilla_pod where pod_id = 'pod-of-this-version';

insert into flotilla_pod (pod_id, claim_floor, pauses, begun_call)
values ('pod-of-this-version', 3, cast(round((julianday('now') - 2440587.5) * 86400000) as integer), -1)
on conflict (pod_id) do update set claim_floor = excluded.claim_floor
where flotilla_pod.claim_floor < excluded.claim_floor;

select task_id from flotilla_task task
where claimed_by = 'pod-of-this-version' and claim_call in (3, -3) and status = 'claimed'
order by task_id;

select task_id from flotilla_task task where rowid in (
select (select rowid from flotilla_task task where task.task_id = named.id)
from (select distinct dependent_id as id from flotilla_task_dependency where dependency_id in (
  select task.task_id from flotilla_task task where task.claimed_by = 'pod-of-this-version'
and task.claim_call in (3, -3) and task.status = 'claimed' and task.cancel_requested = 1
and task.flow_version is null)) named) order by task_id;

update flotilla_task
set wake = wake + 1, last_update = cast(round((julianday('now') - 2440587.5) * 86400000) as integer), (depends, parked, run_at) = (
  select case when verdict = 2 then 3 else flotilla_task.depends end,
    case when verdict = 1 then flotilla_task.parked when flotilla_task.parked <> 2 then case when limited = 1 then 4 else 0 end
      when flotilla_task.run_at > cast(round((julianday('now') - 2440587.5) * 86400000) as integer) then 1 else case when limited = 1 then 4 else 0 end end,
    case when verdict <> 1 and flotilla_task.parked <> 2 then cast(round((julianday('now') - 2440587.5) * 86400000) as integer) else flotilla_task.run_at end
  from (
    select coalesce(max(
      case (select case when dependency.parent_id = flotilla_task.task_id
  then case when coalesce(substr(dependency.unique_key, 1, length(coalesce(flotilla_task.awaits, flotilla_task.task_id || '/' || flotilla_task.cursor || '/'))), coalesce(flotilla_task.awaits, flotilla_task.task_id || '/' || flotilla_task.cursor || '/')) = coalesce(flotilla_task.awaits, flotilla_task.task_id || '/' || flotilla_task.cursor || '/')
    then case when dependency.claimed_by = 'pod-of-this-version'
and dependency.claim_call in (3, -3) and dependency.status = 'claimed' and dependency.cancel_requested = 1
and dependency.flow_version is null then 'cancelled' else dependency.status end end
when flotilla_task.awaits is null then case when dependency.claimed_by = 'pod-of-this-version'
and dependency.claim_call in (3, -3) and dependency.status = 'claimed' and dependency.cancel_requested = 1
and dependency.flow_version is null then 'cancelled' else dependency.status end end from flotilla_task dependency
          where dependency.task_id = wait.dependency_id)
        when 'pending' then 1 when 'claimed' then 1
        when 'failed' then case when flotilla_task.depends = 1 then 2 else 0 end
        when 'cancelled' then case when flotilla_task.depends = 1 then 2 else 0 end
        else 0 end), 0) as verdict
    from flotilla_task_dependency wait where wait.dependent_id = flotilla_task.task_id) judged)
where rowid in (
select (select rowid from flotilla_task task where task.task_id = named.id)
from (select distinct dependent_id as id from flotilla_task_dependency where dependency_id in (
  select task.task_id from flotilla_task task where task.claimed_by = 'pod-of-this-version'
and task.claim_call in (3, -3) and task.status = 'claimed' and task.cancel_requested = 1
and task.flow_version is null)) named) and coalesce(flotilla_task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/');

update flotilla_task
set status = case when cancel_requested = 1 and flow_version is null then 'cancelled'
    else 'pending' end,
  claimed_by = null, claim_call = null, claim_token = claim_token + 1, last_update = cast(round((julianday('now') - 2440587.5) * 86400000) as integer)
where claimed_by = 'pod-of-this-version' and claim_call in (3, -3) and status = 'claimed';

update flotilla_task set claimed_by = 'pod-of-this-version'
  where status = 'pending' and rowid in (
    select address from (select * from (
  select rowid as address, task_id, name, tenant, concurrency_key, limited, created_at
  from flotilla_task task
  where name in ('worked') and status = 'pending' and parked = 0 and deaths >= 2
    and (run_at <= cast(round((julianday('now') - 2440587.5) * 86400000) as integer) or run_at <= last_update) and (claimed_by is null or claimed_by = 'pod-of-this-version'
  or claimed_by not in (select pod_id from flotilla_pod where status = 'up' and drain = 0)
  or (select task_id from flotilla_task where status = 'claimed' and claimed_by = 'pod-of-this-version'
  order by claim_call limit 1) is null) and flow_version is null and task_version is null
  order by created_at, task_id limit 1 ) of_kind union all
  select * from (
  select rowid as address, task_id, name, tenant, concurrency_key, limited, created_at
  from flotilla_task task
  where name in ('worked') and status = 'pending' and parked = 4 and not exists (select 1 from flotilla_task_limit given
  where given.scope = task.concurrency_key and given.max_running <= (select count(*) from flotilla_task held
  where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope))
and not exists (select 1 from flotilla_task_limit given
  where given.scope = 'tenant/' || task.tenant
    and given.max_running <= (select count(*) from flotilla_task held
  where coalesce(held.status, '') = 'claimed' and held.limited = 1 and held.tenant <> 'default'
    and held.tenant between task.tenant and task.tenant)) and deaths >= 2
    and (run_at <= cast(round((julianday('now') - 2440587.5) * 86400000) as integer) or run_at <= last_update) and (claimed_by is null or claimed_by = 'pod-of-this-version'
  or claimed_by not in (select pod_id from flotilla_pod where status = 'up' and drain = 0)
  or (select task_id from flotilla_task where status = 'claimed' and claimed_by = 'pod-of-this-version'
  order by claim_call limit 1) is null) and flow_version is null and task_version is null
  order by created_at, task_id limit 1 ) of_kind) alone
    order by created_at, task_id limit 1)
  returning task_id, name, tenant, concurrency_key, limited;

update flotilla_task
  set status = 'claimed', claimed_by = 'pod-of-this-version', claim_token = claim_token + 1,
    claim_call = 4, last_update = cast(round((julianday('now') - 2440587.5) * 86400000) as integer) 
  where task_id = 'worked-2' and parked = 0 and name in ('worked') and (run_at <= cast(round((julianday('now') - 2440587.5) * 86400000) as integer) or run_at <= last_update)
    and flow_version is null and task_version is null and status = 'pending'
    and exists (select 1 from flotilla_pod where pod_id = 'pod-of-this-version' and claim_floor < 4
       )
    
  returning task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
nullif(priority, 0) as priority, nullif(wake, 0) as wake,
nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
nullif(limited, 0) as limited;

update flotilla_task
set status = 'completed', result = done.result, started_at = done.started_at, claim_call = null, last_update = cast(round((julianday('now') - 2440587.5) * 86400000) as integer)
from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as result, value ->> 3 as started_at from json_each('[["worked-2",6,"{\"doubled\":2}",null]]')) done
where flotilla_task.task_id = done.task_id
  and flotilla_task.claim_token = done.token
  and flotilla_task.status in ('claimed', 'pending')
   and dependents = 0
returning flotilla_task.task_id;

delete from flotilla_task where rowid in (
    select rowid from flotilla_task
    where task_id in (select task_id from (select value ->> 0 as task_id from json_each('[["worked-2"]]')) old)
      and created_at < cast(round((julianday('now') - 2440587.5) * 86400000) as integer) - 60000
  and (status = 'completed' and last_update < cast(round((julianday('now') - 2440587.5) * 86400000) as integer) - -1000
    or status = 'failed' and last_update < cast(round((julianday('now') - 2440587.5) * 86400000) as integer) - -1000
    or status = 'cancelled' and last_update < cast(round((julianday('now') - 2440587.5) * 86400000) as integer) - -1000) and (dependents = 0 or not exists (
select 1 from flotilla_task_dependency wait where wait.dependency_id = flotilla_task.task_id
  and (select waiter.status from flotilla_task waiter where waiter.task_id = wait.dependent_id)
    in ('pending', 'claimed'))) );

delete from flotilla_task_event where task_id in (select task_id from (select value ->> 0 as task_id from json_each('[["worked-2"]]')) old
where not exists (select 1 from flotilla_task task where task.task_id = old.task_id));

delete from flotilla_task_dependency where dependent_id in (select task_id from (select value ->> 0 as task_id from json_each('[["worked-2"]]')) old
where not exists (select 1 from flotilla_task task where task.task_id = old.task_id));

delete from flotilla_task_signal where task_id in (select task_id from (select value ->> 0 as task_id from json_each('[["worked-2"]]')) old
where not exists (select 1 from flotilla_task task where task.task_id = old.task_id));

delete from flotilla_step_journal where owner_id in (select task_id from (select value ->> 0 as task_id from json_each('[["worked-2"]]')) old
where not exists (select 1 from flotilla_task task where task.task_id = old.task_id)) and (part = '' or part >= 'A');

delete from flotilla_link as link where to_id in (select task_id from (select value ->> 0 as task_id from json_each('[["worked-2"]]')) old
where not exists (select 1 from flotilla_task task where task.task_id = old.task_id));

delete from flotilla_task_alias as alias where task_id in (select task_id from (select value ->> 0 as task_id from json_each('[["worked-2"]]')) old
where not exists (select 1 from flotilla_task task where task.task_id = old.task_id));

update flotilla_pod set passes = passes + 1 where pod_id = 'pod-of-this-version';

update flotilla_pod set status = 'down'
where pod_id in (
  select pod_id from flotilla_pod pod
  where status = 'up' and exists (
    select 1 from (select value ->> 0 as pod_id, value ->> 1 as beat from json_each('[["pod-of-this-version",1]]')) silent where silent.pod_id = pod.pod_id and silent.beat = pod.beat)
  );

update flotilla_pod set status = 'down', last_heartbeat = cast(round((julianday('now') - 2440587.5) * 86400000) as integer) where pod_id = 'pod-of-this-version';
