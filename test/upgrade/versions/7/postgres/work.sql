insert into flotilla.pod
  (pod_id, beat, claim_floor, metadata, pauses, host, connection, begun_call, pulse, drain)
values ('pod-of-this-version', 1, 0, '{}', (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint), null, null::integer,
  0, null, 0)
on conflict (pod_id) do update
set beat = flotilla.pod.beat + 1, last_heartbeat = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint), status = 'up',
  host = excluded.host, connection = excluded.connection, pulse = excluded.pulse;

insert into flotilla.task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
  max_attempts, unique_key, trace, parked)
select task_id, tenant, name, payload, priority, (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) + delay_ms, (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint), (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  max_attempts, unique_key, trace, case when delay_ms > 0 then 1 else 0 end
from (select task_id collate "C" as task_id, tenant collate "C" as tenant, name collate "C" as name, payload collate "C" as payload, priority, delay_ms, max_attempts, unique_key collate "C" as unique_key, trace collate "C" as trace from unnest('{"worked-1"}'::text[], '{"default"}'::text[], '{"worked"}'::text[], '{"1"}'::text[], '{0}'::bigint[], '{0}'::bigint[], '{null}'::bigint[], '{null}'::text[], '{null}'::text[]) as each_row (task_id, tenant, name, payload, priority, delay_ms, max_attempts, unique_key, trace)) fresh where true
on conflict do nothing
returning task_id;

update flotilla.task set parked = case when limited = 1 then 4 else 0 end, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
where ctid = any(array(
  select ctid from flotilla.task
  where status = 'pending' and parked = 1 and run_at <= (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
  order by run_at limit cast(500 as integer) for update skip locked));

select
(select run_at - (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) from flotilla.task
  where status = 'pending' and parked = 1 order by run_at limit 1) as wait_ms,
exists (
  select 1 from (select name collate "C" as name from unnest('{"worked"}'::text[]) as each_row (name)) wanted where (select task_id from flotilla.task task
    where task.name = wanted.name and task.status = 'pending' and parked = 4 and deaths < 2
    order by tenant, priority desc, created_at, task_id limit 1) is not null) as limited,
exists (
  select 1 from (select name collate "C" as name from unnest('{"worked"}'::text[]) as each_row (name)) wanted where (select task_id from flotilla.task task
    where task.name = wanted.name and task.status = 'pending' and parked = 0 and deaths >= 2
    order by created_at, task_id limit 1) is not null)
or exists (
  select 1 from (select name collate "C" as name from unnest('{"worked"}'::text[]) as each_row (name)) wanted where (select task_id from flotilla.task task
    where task.name = wanted.name and task.status = 'pending' and parked = 4 and deaths >= 2
    order by created_at, task_id limit 1) is not null) as alone,
(select pauses from flotilla.pod where pod_id = '') as pauses, (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) as now;

update flotilla.task
  set status = 'claimed', claimed_by = 'pod-of-this-version', claim_token = claim_token + 1,
    claim_call = 1, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) 
  where ctid = any(array(
  select address from (select * from (
    select ctid as address, task_id, priority, created_at from flotilla.task
    where name = 'worked' and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) or run_at <= last_update)
       and flow_version is null and task_version is null 
    order by priority desc, created_at, task_id limit cast(1 as integer) for update skip locked) of_name) ready
  order by priority desc, created_at, task_id limit cast(1 as integer))) and status = 'pending'
    and exists (select 1 from flotilla.pod where pod_id = 'pod-of-this-version' and claim_floor < 1
       for key share)
    
  returning task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
nullif(priority, 0) as priority, nullif(wake, 0) as wake,
nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
nullif(limited, 0) as limited;

update flotilla.task set progress = newest.value, progress_token = newest.token
from (select task_id collate "C" as task_id, token, run_seq, value collate "C" as value from unnest('{"worked-1"}'::text[], '{1}'::bigint[], '{0}'::bigint[], '{"\"half\""}'::text[]) as each_row (task_id, token, run_seq, value)) newest
where flotilla.task.task_id = newest.task_id and flotilla.task.claim_token = newest.token
  and flotilla.task.run_seq = newest.run_seq and flotilla.task.status = 'claimed';

select task_id, status, claimed_by, claim_token, wake, dependents, cancel_requested, run_seq
from flotilla.task
where task_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest('{"worked-1"}'::text[]) as each_row (task_id)) wanted));

insert into flotilla.task_event (task_id, seq, type, attempt, pod_id, detail)
select noted.task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = noted.task_id), noted.type, noted.attempt, 'pod-of-this-version', noted.detail
from (select task_id collate "C" as task_id, token, wake, type collate "C" as type, attempt, detail collate "C" as detail from unnest('{"worked-1"}'::text[], '{1}'::bigint[], '{null}'::bigint[], '{"noted"}'::text[], '{1}'::bigint[], '{null}'::text[]) as each_row (task_id, token, wake, type, attempt, detail)) noted join flotilla.task task on task.task_id = noted.task_id
where task.claim_token = noted.token
  and task.status in ('claimed', 'pending')
  and (noted.wake is null or task.wake = noted.wake) and dependents = 0
for update of task;

update flotilla.task
set status = 'completed', result = done.result, started_at = done.started_at, claim_call = null, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
from (select task_id collate "C" as task_id, token, result collate "C" as result, started_at from unnest('{"worked-1"}'::text[], '{1}'::bigint[], '{"{\"doubled\":2}"}'::text[], '{null}'::bigint[]) as each_row (task_id, token, result, started_at)) done
where flotilla.task.task_id = done.task_id
  and flotilla.task.claim_token = done.token
  and flotilla.task.status in ('claimed', 'pending')
   and dependents = 0
returning flotilla.task.task_id;

insert into flotilla.task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
  max_attempts, unique_key, trace, parked)
select task_id, tenant, name, payload, priority, (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) + delay_ms, (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint), (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  max_attempts, unique_key, trace, case when delay_ms > 0 then 1 else 0 end
from (select task_id collate "C" as task_id, tenant collate "C" as tenant, name collate "C" as name, payload collate "C" as payload, priority, delay_ms, max_attempts, unique_key collate "C" as unique_key, trace collate "C" as trace from unnest('{"worked-2"}'::text[], '{"default"}'::text[], '{"worked"}'::text[], '{"1"}'::text[], '{0}'::bigint[], '{0}'::bigint[], '{null}'::bigint[], '{null}'::text[], '{null}'::text[]) as each_row (task_id, tenant, name, payload, priority, delay_ms, max_attempts, unique_key, trace)) fresh where true
on conflict do nothing
returning task_id;

with recursive level (name, priority) as (
  select wanted.name, (select max(priority) from flotilla.task task
    where task.name = wanted.name and status = 'pending' and parked = 0 and deaths < 2)
  from (select name collate "C" as name from unnest('{"worked"}'::text[]) as each_row (name)) wanted
  union all
  select level.name, (select max(priority) from flotilla.task task
    where task.name = level.name and status = 'pending' and parked = 0 and deaths < 2 and task.priority < level.priority)
  from level where level.priority is not null)
select name, priority from level where priority is not null
order by priority, name limit cast(400 as integer);

update flotilla.task
  set status = 'claimed', claimed_by = 'pod-of-this-version', claim_token = claim_token + 1,
    claim_call = 2, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) 
  where ctid = any(array(
  select address from (select * from (
    select ctid as address, task_id, created_at from flotilla.task
    where name = 'worked' and status = 'pending' and parked = 0 and deaths < 2
      and priority = 0 and (run_at <= (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) or run_at <= last_update) and flow_version is null and task_version is null 
    order by created_at, task_id limit cast(1 as integer) for update skip locked) of_level) ready
  order by created_at, task_id limit cast(1 as integer))) and status = 'pending'
    and exists (select 1 from flotilla.pod where pod_id = 'pod-of-this-version' and claim_floor < 2
       for key share)
    
  returning task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
nullif(priority, 0) as priority, nullif(wake, 0) as wake,
nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
nullif(limited, 0) as limited;

select task_id, claim_token, claimed_by, deaths, last_update from (
  select task_id, claim_token, claimed_by, deaths, last_update from flotilla.task
  where status = 'claimed' and claimed_by in (select pod_id from (select pod_id collate "C" as pod_id from unnest('{"pod-of-this-version"}'::text[]) as each_row (pod_id)) silent)
  order by claimed_by, claim_call limit cast(10 as integer)) held
order by task_id;

insert into flotilla.task_event (task_id, seq, type, attempt, pod_id, detail)
select orphan.task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = orphan.task_id), 'pod_died', task.retry_count + 1,
  orphan.pod_id, orphan.detail
from (select task_id collate "C" as task_id, token, pod_id collate "C" as pod_id, beat, detail collate "C" as detail from unnest('{"worked-2"}'::text[], '{1}'::bigint[], '{"pod-of-this-version"}'::text[], '{1}'::bigint[], '{null}'::text[]) as each_row (task_id, token, pod_id, beat, detail)) orphan join flotilla.task task on task.task_id = orphan.task_id and task.claim_token = orphan.token
and task.status = 'claimed' and task.claimed_by = orphan.pod_id
and coalesce((select pod.beat from flotilla.pod pod where pod.pod_id = orphan.pod_id), -1) = orphan.beat
where not exists (select 1 from flotilla.pod holder
where holder.pod_id = task.claimed_by and task.claim_call < 0 and holder.begun_call >= 0
  and (-task.claim_call > holder.begun_call
    or -task.claim_call = holder.begun_call and task.task_id > holder.begun_task)) for update of task skip locked;

update flotilla.task
set status = case when cancel_requested = 1 and flow_version is null then 'cancelled' when case when exists (
select 1 from flotilla.step_journal stored
where stored.owner_id = flotilla.task.task_id and stored.part = ''
  and stored.token = flotilla.task.claim_token) then 0 else flotilla.task.deaths end + case when exists (select 1 from flotilla.pod holder
where holder.pod_id = flotilla.task.claimed_by and flotilla.task.claim_call < 0 and holder.begun_call >= 0
  and (-flotilla.task.claim_call > holder.begun_call
    or -flotilla.task.claim_call = holder.begun_call and flotilla.task.task_id > holder.begun_task)) then 0 else 1 end >= 4 and flow_version is null then 'failed'
else 'pending' end,
  error = case when cancel_requested = 1 and flow_version is null then error when case when exists (
select 1 from flotilla.step_journal stored
where stored.owner_id = flotilla.task.task_id and stored.part = ''
  and stored.token = flotilla.task.claim_token) then 0 else flotilla.task.deaths end + case when exists (select 1 from flotilla.pod holder
where holder.pod_id = flotilla.task.claimed_by and flotilla.task.claim_call < 0 and holder.begun_call >= 0
  and (-flotilla.task.claim_call > holder.begun_call
    or -flotilla.task.claim_call = holder.begun_call and flotilla.task.task_id > holder.begun_task)) then 0 else 1 end >= 4 and flow_version is null then '{"code":"pod_died","message":"4 pods died while they ran this task, 2 of them with nothing else to run"}' else error end,
  claim_token = claim_token + case when cancel_requested = 1 and flow_version is null or case when exists (
select 1 from flotilla.step_journal stored
where stored.owner_id = flotilla.task.task_id and stored.part = ''
  and stored.token = flotilla.task.claim_token) then 0 else flotilla.task.deaths end + case when exists (select 1 from flotilla.pod holder
where holder.pod_id = flotilla.task.claimed_by and flotilla.task.claim_call < 0 and holder.begun_call >= 0
  and (-flotilla.task.claim_call > holder.begun_call
    or -flotilla.task.claim_call = holder.begun_call and flotilla.task.task_id > holder.begun_task)) then 0 else 1 end >= 4 and flow_version is null then 1 else 0 end,
  deaths = case when exists (
select 1 from flotilla.step_journal stored
where stored.owner_id = flotilla.task.task_id and stored.part = ''
  and stored.token = flotilla.task.claim_token) then 0 else flotilla.task.deaths end + case when exists (select 1 from flotilla.pod holder
where holder.pod_id = flotilla.task.claimed_by and flotilla.task.claim_call < 0 and holder.begun_call >= 0
  and (-flotilla.task.claim_call > holder.begun_call
    or -flotilla.task.claim_call = holder.begun_call and flotilla.task.task_id > holder.begun_task)) then 0 else 1 end, retry_count = case when exists (
select 1 from flotilla.step_journal stored
where stored.owner_id = flotilla.task.task_id and stored.part = ''
  and stored.token = flotilla.task.claim_token) then 0 else retry_count end, claimed_by = null, claim_call = null, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
from (select task_id collate "C" as task_id, token, pod_id collate "C" as pod_id, beat from unnest('{"worked-2"}'::text[], '{1}'::bigint[], '{"pod-of-this-version"}'::text[], '{1}'::bigint[]) as each_row (task_id, token, pod_id, beat)) orphan
where flotilla.task.task_id = orphan.task_id and flotilla.task.claim_token = orphan.token
and flotilla.task.status = 'claimed' and flotilla.task.claimed_by = orphan.pod_id
and coalesce((select pod.beat from flotilla.pod pod where pod.pod_id = orphan.pod_id), -1) = orphan.beat and flotilla.task.ctid = any(array(
  select ctid from flotilla.task
  where task_id = any(array(select task_id from (select task_id collate "C" as task_id, token, pod_id collate "C" as pod_id, beat from unnest('{"worked-2"}'::text[], '{1}'::bigint[], '{"pod-of-this-version"}'::text[], '{1}'::bigint[]) as each_row (task_id, token, pod_id, beat)) wanted)) for update skip locked))
returning flotilla.task.task_id, flotilla.task.name, flotilla.task.status, flotilla.task.claim_token;

select task_id from flotilla.task task where task_id = 'worked-2' and status in ('pending', 'claimed') for update of task;

select task_id from flotilla.task task where task_id = any(array(
select child.task_id from (select task_id collate "C" as task_id from unnest('{"worked-2"}'::text[]) as each_row (task_id)) parent
join flotilla.task_dependency wait on wait.dependent_id = parent.task_id
join flotilla.task child on child.task_id = wait.dependency_id
where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
  and child.cancel_requested = 0
  and parent.task_id in (select task.task_id from flotilla.task task
  where task.task_id in (
    select task_id from flotilla.task where task_id = 'worked-2' and status in ('pending', 'claimed') and status = 'pending' and flow_version is not null and parked = 6 and not exists (
select 1 from flotilla.task_event past
where past.task_id = 'worked-2'
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like '%"request":"request-0","wake":%' and past.detail not like '%"request":"request-0","wake":' || cast(wake + 1 as text) || '}' else false end) or (task_id = 'worked-2' and status in ('pending', 'claimed') and cancel_requested = 0 and not exists (
select 1 from flotilla.task_event past
where past.task_id = 'worked-2'
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like '%"request":"request-0","wake":%' and past.detail not like '%"request":"request-0","wake":' || cast(wake + 1 as text) || '}' else false end) and status = 'pending' and flow_version is null))))) order by task_id for update of task;

insert into flotilla.task_event (task_id, seq, type)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'cancel_requested' from flotilla.task task
  where task_id = any(array(
select child.task_id from (select task_id collate "C" as task_id from unnest('{"worked-2"}'::text[]) as each_row (task_id)) parent
join flotilla.task_dependency wait on wait.dependent_id = parent.task_id
join flotilla.task child on child.task_id = wait.dependency_id
where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
  and child.cancel_requested = 0
  and parent.task_id in (select task.task_id from flotilla.task task
  where task.task_id in (
    select task_id from flotilla.task where task_id = 'worked-2' and status in ('pending', 'claimed') and status = 'pending' and flow_version is not null and parked = 6 and not exists (
select 1 from flotilla.task_event past
where past.task_id = 'worked-2'
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like '%"request":"request-0","wake":%' and past.detail not like '%"request":"request-0","wake":' || cast(wake + 1 as text) || '}' else false end) or (task_id = 'worked-2' and status in ('pending', 'claimed') and cancel_requested = 0 and not exists (
select 1 from flotilla.task_event past
where past.task_id = 'worked-2'
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like '%"request":"request-0","wake":%' and past.detail not like '%"request":"request-0","wake":' || cast(wake + 1 as text) || '}' else false end) and status = 'pending' and flow_version is null)))));

update flotilla.task
    set 
cancel_requested = 1, wake = wake + 1, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
claim_token = claim_token + case when status = 'pending' and flow_version is null then 1 else 0 end,
status = case when status = 'pending' and flow_version is null then 'cancelled' else status end,
run_at = case when flow_version is not null and status = 'pending' and run_at > (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
  then (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) else run_at end,
parked = case when flow_version is not null and status = 'pending' and parked in (1, 2, 5)
  then case when limited = 1 then 4 else 0 end else parked end
    where task_id = any(array(
  select child.task_id from (select task_id collate "C" as task_id from unnest('{"worked-2"}'::text[]) as each_row (task_id)) parent
  join flotilla.task_dependency wait on wait.dependent_id = parent.task_id
  join flotilla.task child on child.task_id = wait.dependency_id
  where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
    and child.cancel_requested = 0
    and parent.task_id in (select task.task_id from flotilla.task task
    where task.task_id in (
      select task_id from flotilla.task where task_id = 'worked-2' and status in ('pending', 'claimed') and status = 'pending' and flow_version is not null and parked = 6 and not exists (
  select 1 from flotilla.task_event past
  where past.task_id = 'worked-2'
    and case when past.type in ('cancel_requested', 'given_up', 'resume')
      then past.detail like '%"request":"request-0","wake":%' and past.detail not like '%"request":"request-0","wake":' || cast(wake + 1 as text) || '}' else false end) or (task_id = 'worked-2' and status in ('pending', 'claimed') and cancel_requested = 0 and not exists (
  select 1 from flotilla.task_event past
  where past.task_id = 'worked-2'
    and case when past.type in ('cancel_requested', 'given_up', 'resume')
      then past.detail like '%"request":"request-0","wake":%' and past.detail not like '%"request":"request-0","wake":' || cast(wake + 1 as text) || '}' else false end) and status = 'pending' and flow_version is null)))));

insert into flotilla.task_event (task_id, seq, type, detail)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'cancel_requested', '{' || '"request":"request-0","wake":' || cast(wake + 1 as text) || '}'
  from flotilla.task task where task_id = 'worked-2' and status in ('pending', 'claimed') and cancel_requested = 0 and not exists (
select 1 from flotilla.task_event past
where past.task_id = 'worked-2'
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like '%"request":"request-0","wake":%' and past.detail not like '%"request":"request-0","wake":' || cast(wake + 1 as text) || '}' else false end);

insert into flotilla.task_event (task_id, seq, type, detail)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'given_up', '{' || '"request":"request-0","wake":' || cast(wake + 1 as text) || '}'
  from flotilla.task task where task_id = 'worked-2' and status in ('pending', 'claimed') and status = 'pending' and flow_version is not null and parked = 6 and not exists (
select 1 from flotilla.task_event past
where past.task_id = 'worked-2'
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like '%"request":"request-0","wake":%' and past.detail not like '%"request":"request-0","wake":' || cast(wake + 1 as text) || '}' else false end);

update flotilla.task
    set 
cancel_requested = 1, wake = wake + 1, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
claim_token = claim_token + case when (status = 'pending' and flow_version is null or status = 'pending' and flow_version is not null and parked = 6) then 1 else 0 end,
status = case when (status = 'pending' and flow_version is null or status = 'pending' and flow_version is not null and parked = 6) then 'cancelled' else status end,
run_at = case when flow_version is not null and status = 'pending' and run_at > (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
  then (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) else run_at end,
parked = case when flow_version is not null and status = 'pending' and parked in (1, 2, 5)
  then case when limited = 1 then 4 else 0 end else parked end
    where task_id = 'worked-2' and status in ('pending', 'claimed') and cancel_requested = 0 and not exists (
  select 1 from flotilla.task_event past
  where past.task_id = 'worked-2'
    and case when past.type in ('cancel_requested', 'given_up', 'resume')
      then past.detail like '%"request":"request-0","wake":%' and past.detail not like '%"request":"request-0","wake":' || cast(wake + 1 as text) || '}' else false end) or task_id = 'worked-2' and status in ('pending', 'claimed') and status = 'pending' and flow_version is not null and parked = 6 and not exists (
  select 1 from flotilla.task_event past
  where past.task_id = 'worked-2'
    and case when past.type in ('cancel_requested', 'given_up', 'resume')
      then past.detail like '%"request":"request-0","wake":%' and past.detail not like '%"request":"request-0","wake":' || cast(wake + 1 as text) || '}' else false end);

select task_id from flotilla.task task where ctid = any(array(
select (select ctid from flotilla.task task where task.task_id = named.id)
from (
select distinct wait.dependent_id as id
from flotilla.task_dependency own join flotilla.task_dependency wait on wait.dependency_id = own.dependency_id
where own.dependent_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest('{"worked-2"}'::text[]) as each_row (task_id)) parent))
  and (select task.status from flotilla.task task
    where task.task_id = own.dependency_id and task.parent_id = own.dependent_id) = 'cancelled') named)) order by task_id for update of task;

update flotilla.task
set wake = wake + 1, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint), (depends, parked, run_at) = (
  select case when verdict = 2 then 3 else flotilla.task.depends end,
    case when verdict = 1 then flotilla.task.parked when flotilla.task.parked <> 2 then case when limited = 1 then 4 else 0 end
      when flotilla.task.run_at > (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) then 1 else case when limited = 1 then 4 else 0 end end,
    case when verdict <> 1 and flotilla.task.parked <> 2 then (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) else flotilla.task.run_at end
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
where own.dependent_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest('{"worked-2"}'::text[]) as each_row (task_id)) parent))
  and (select task.status from flotilla.task task
    where task.task_id = own.dependency_id and task.parent_id = own.dependent_id) = 'cancelled') named)) and coalesce(flotilla.task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/');

select task_id from flotilla.task task where ctid = any(array(
select (select ctid from flotilla.task task where task.task_id = named.id)
from (
select distinct wait.dependent_id as id from flotilla.task_dependency wait
where wait.dependency_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest('{"worked-2"}'::text[]) as each_row (task_id)) ended))
  and (select task.status from flotilla.task task where task.task_id = wait.dependency_id)
    not in ('pending', 'claimed')) named)) order by task_id for update of task;

update flotilla.task
set wake = wake + 1, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint), (depends, parked, run_at) = (
  select case when verdict = 2 then 3 else flotilla.task.depends end,
    case when verdict = 1 then flotilla.task.parked when flotilla.task.parked <> 2 then case when limited = 1 then 4 else 0 end
      when flotilla.task.run_at > (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) then 1 else case when limited = 1 then 4 else 0 end end,
    case when verdict <> 1 and flotilla.task.parked <> 2 then (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) else flotilla.task.run_at end
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
where wait.dependency_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest('{"worked-2"}'::text[]) as each_row (task_id)) ended))
  and (select task.status from flotilla.task task where task.task_id = wait.dependency_id)
    not in ('pending', 'claimed')) named)) and coalesce(flotilla.task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/');

select status, cancel_requested, concurrency_key from flotilla.task where task_id = 'worked-2';

select task_id from flotilla.task task where ctid = any(array(
select (select ctid from flotilla.task task where task.task_id = named.id)
from (
select distinct child.parent_id as id from flotilla.task child
where child.task_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest('{"worked-2"}'::text[]) as each_row (task_id)) started))
  and child.parent_id is not null ) named))
  order by task_id for update of task;

insert into flotilla.task_event (task_id, seq, type, detail)
      select task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'retried',
        '{"request":"request-1","token":' || cast(task.claim_token + 1 as text) || '}'
      from flotilla.task task where task_id = 'worked-2' and status in ('failed', 'cancelled') and not exists (
select 1 from flotilla.task_event past
where past.task_id = 'worked-2' and past.type = 'retried' and past.detail like '{"request":"request-1","token":%') for update of task;

delete from flotilla.step_journal where owner_id in (select task_id from flotilla.task where task_id = 'worked-2' and status in ('failed', 'cancelled') and exists (
select 1 from flotilla.task_event past
where past.task_id = flotilla.task.task_id and past.type = 'retried'
  and past.detail = '{"request":"request-1","token":' || cast(flotilla.task.claim_token + 1 as text) || '}')) and (part = '' or part >= 'A') and kind = 'failed';

update flotilla.task set 
status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
depends = case when depends = 3 then 1 else depends end,
claim_token = claim_token + 1, claimed_by = null, run_at = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint), last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
error = null, progress = null, progress_token = claim_token + 1 
        where task_id = 'worked-2' and status in ('failed', 'cancelled') and exists (
  select 1 from flotilla.task_event past
  where past.task_id = flotilla.task.task_id and past.type = 'retried'
    and past.detail = '{"request":"request-1","token":' || cast(flotilla.task.claim_token + 1 as text) || '}');

update flotilla.task set wake = wake + 1
  where ctid = any(array(
select (select ctid from flotilla.task task where task.task_id = named.id)
from (
select distinct child.parent_id as id from flotilla.task child
where child.task_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest('{"worked-2"}'::text[]) as each_row (task_id)) started))
  and child.parent_id is not null and child.status in ('pending', 'claimed')) named))
    and status in ('pending', 'claimed');

update flotilla.task
set wake = wake + 1, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint), (depends, parked, run_at) = (
  select case when verdict = 2 then 3 else flotilla.task.depends end,
    case when verdict = 1 then flotilla.task.parked when flotilla.task.parked <> 2 then case when limited = 1 then 4 else 0 end
      when flotilla.task.run_at > (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) then 1 else case when limited = 1 then 4 else 0 end end,
    case when verdict <> 1 and flotilla.task.parked <> 2 then (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) else flotilla.task.run_at end
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
from (select task_id as id from (select task_id collate "C" as task_id from unnest('{"worked-2"}'::text[]) as each_row (task_id)) fresh) named)) and coalesce(flotilla.task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/');

select status, case when exists (
select 1 from flotilla.task_event past
where past.task_id = 'worked-2' and past.type = 'retried' and past.detail like '{"request":"request-1","token":%') then 1 else 0 end as retried
  from flotilla.task where task_id = 'worked-2';

update flotilla.task
  set status = 'claimed', claimed_by = 'pod-of-this-version', claim_token = claim_token + 1,
    claim_call = 3, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) 
  where ctid = any(array(
  select address from (select * from (
    select ctid as address, task_id, priority, created_at from flotilla.task
    where name = 'worked' and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) or run_at <= last_update)
       and flow_version is null and task_version is null 
    order by priority desc, created_at, task_id limit cast(1 as integer) for update skip locked) of_name) ready
  order by priority desc, created_at, task_id limit cast(1 as integer))) and status = 'pending'
    and exists (select 1 from flotilla.pod where pod_id = 'pod-of-this-version' and claim_floor < 3
       for key share)
    
  returning task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
nullif(priority, 0) as priority, nullif(wake, 0) as wake,
nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
nullif(limited, 0) as limited;

select 1 from flotilla.pod where pod_id = 'pod-of-this-version' for update;

insert into flotilla.pod (pod_id, claim_floor, pauses, begun_call)
values ('pod-of-this-version', 3, (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint), -1)
on conflict (pod_id) do update set claim_floor = excluded.claim_floor
where flotilla.pod.claim_floor < excluded.claim_floor;

select task_id from flotilla.task task
where claimed_by = 'pod-of-this-version' and claim_call in (3, -3) and status = 'claimed'
order by task_id for update of task;

select task_id from flotilla.task task where ctid = any(array(
select (select ctid from flotilla.task task where task.task_id = named.id)
from (select distinct dependent_id as id from flotilla.task_dependency where dependency_id in (
  select task.task_id from flotilla.task task where task.claimed_by = 'pod-of-this-version'
and task.claim_call in (3, -3) and task.status = 'claimed' and task.cancel_requested = 1
and task.flow_version is null)) named)) order by task_id for update of task;

update flotilla.task
set wake = wake + 1, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint), (depends, parked, run_at) = (
  select case when verdict = 2 then 3 else flotilla.task.depends end,
    case when verdict = 1 then flotilla.task.parked when flotilla.task.parked <> 2 then case when limited = 1 then 4 else 0 end
      when flotilla.task.run_at > (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) then 1 else case when limited = 1 then 4 else 0 end end,
    case when verdict <> 1 and flotilla.task.parked <> 2 then (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) else flotilla.task.run_at end
  from (
    select coalesce(max(
      case (select case when dependency.parent_id = flotilla.task.task_id
  then case when coalesce(substr(dependency.unique_key, 1, length(coalesce(flotilla.task.awaits, flotilla.task.task_id || '/' || flotilla.task.cursor || '/'))), coalesce(flotilla.task.awaits, flotilla.task.task_id || '/' || flotilla.task.cursor || '/')) = coalesce(flotilla.task.awaits, flotilla.task.task_id || '/' || flotilla.task.cursor || '/')
    then case when dependency.claimed_by = 'pod-of-this-version'
and dependency.claim_call in (3, -3) and dependency.status = 'claimed' and dependency.cancel_requested = 1
and dependency.flow_version is null then 'cancelled' else dependency.status end end
when flotilla.task.awaits is null then case when dependency.claimed_by = 'pod-of-this-version'
and dependency.claim_call in (3, -3) and dependency.status = 'claimed' and dependency.cancel_requested = 1
and dependency.flow_version is null then 'cancelled' else dependency.status end end from flotilla.task dependency
          where dependency.task_id = wait.dependency_id)
        when 'pending' then 1 when 'claimed' then 1
        when 'failed' then case when flotilla.task.depends = 1 then 2 else 0 end
        when 'cancelled' then case when flotilla.task.depends = 1 then 2 else 0 end
        else 0 end), 0) as verdict
    from flotilla.task_dependency wait where wait.dependent_id = flotilla.task.task_id) judged)
where ctid = any(array(
select (select ctid from flotilla.task task where task.task_id = named.id)
from (select distinct dependent_id as id from flotilla.task_dependency where dependency_id in (
  select task.task_id from flotilla.task task where task.claimed_by = 'pod-of-this-version'
and task.claim_call in (3, -3) and task.status = 'claimed' and task.cancel_requested = 1
and task.flow_version is null)) named)) and coalesce(flotilla.task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/');

update flotilla.task
set status = case when cancel_requested = 1 and flow_version is null then 'cancelled'
    else 'pending' end,
  claimed_by = null, claim_call = null, claim_token = claim_token + 1, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
where claimed_by = 'pod-of-this-version' and claim_call in (3, -3) and status = 'claimed';

update flotilla.task set claimed_by = 'pod-of-this-version'
  where status = 'pending' and ctid = any(array(
    select address from (select * from (
  select ctid as address, task_id, name, tenant, concurrency_key, limited, created_at
  from flotilla.task task
  where name in ('worked') and status = 'pending' and parked = 0 and deaths >= 2
    and (run_at <= (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) or run_at <= last_update) and (claimed_by is null or claimed_by = 'pod-of-this-version'
  or claimed_by not in (select pod_id from flotilla.pod where status = 'up' and drain = 0)
  or (select task_id from flotilla.task where status = 'claimed' and claimed_by = 'pod-of-this-version'
  order by claim_call limit 1) is null) and flow_version is null and task_version is null
  order by created_at, task_id limit 1 for update skip locked) of_kind union all
  select * from (
  select ctid as address, task_id, name, tenant, concurrency_key, limited, created_at
  from flotilla.task task
  where name in ('worked') and status = 'pending' and parked = 4 and not exists (select 1 from flotilla.task_limit given
  where given.scope = task.concurrency_key and given.max_running <= (select count(*) from flotilla.task held
  where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope))
and not exists (select 1 from flotilla.task_limit given
  where given.scope = 'tenant/' || task.tenant
    and given.max_running <= (select count(*) from flotilla.task held
  where coalesce(held.status, '') = 'claimed' and held.limited = 1 and held.tenant <> 'default'
    and held.tenant between task.tenant and task.tenant)) and deaths >= 2
    and (run_at <= (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) or run_at <= last_update) and (claimed_by is null or claimed_by = 'pod-of-this-version'
  or claimed_by not in (select pod_id from flotilla.pod where status = 'up' and drain = 0)
  or (select task_id from flotilla.task where status = 'claimed' and claimed_by = 'pod-of-this-version'
  order by claim_call limit 1) is null) and flow_version is null and task_version is null
  order by created_at, task_id limit 1 for update skip locked) of_kind) alone
    order by created_at, task_id limit 1))
  returning task_id, name, tenant, concurrency_key, limited;

update flotilla.task
  set status = 'claimed', claimed_by = 'pod-of-this-version', claim_token = claim_token + 1,
    claim_call = 4, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) 
  where task_id = 'worked-2' and parked = 0 and name in ('worked') and (run_at <= (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) or run_at <= last_update)
    and flow_version is null and task_version is null and status = 'pending'
    and exists (select 1 from flotilla.pod where pod_id = 'pod-of-this-version' and claim_floor < 4
       for key share)
    
  returning task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
nullif(priority, 0) as priority, nullif(wake, 0) as wake,
nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
nullif(limited, 0) as limited;

update flotilla.task
set status = 'completed', result = done.result, started_at = done.started_at, claim_call = null, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
from (select task_id collate "C" as task_id, token, result collate "C" as result, started_at from unnest('{"worked-2"}'::text[], '{6}'::bigint[], '{"{\"doubled\":2}"}'::text[], '{null}'::bigint[]) as each_row (task_id, token, result, started_at)) done
where flotilla.task.task_id = done.task_id
  and flotilla.task.claim_token = done.token
  and flotilla.task.status in ('claimed', 'pending')
   and dependents = 0
returning flotilla.task.task_id;

delete from flotilla.task where ctid = any(array(
    select ctid from flotilla.task
    where task_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest('{"worked-2"}'::text[]) as each_row (task_id)) old))
      and created_at < (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) - 60000
  and (status = 'completed' and last_update < (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) - -1000
    or status = 'failed' and last_update < (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) - -1000
    or status = 'cancelled' and last_update < (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) - -1000) and (dependents = 0 or not exists (
select 1 from flotilla.task_dependency wait where wait.dependency_id = flotilla.task.task_id
  and (select waiter.status from flotilla.task waiter where waiter.task_id = wait.dependent_id)
    in ('pending', 'claimed'))) for update skip locked));

delete from flotilla.task_event where task_id in (select task_id from (select task_id collate "C" as task_id from unnest('{"worked-2"}'::text[]) as each_row (task_id)) old
where not exists (select 1 from flotilla.task task where task.task_id = old.task_id));

delete from flotilla.task_dependency where dependent_id in (select task_id from (select task_id collate "C" as task_id from unnest('{"worked-2"}'::text[]) as each_row (task_id)) old
where not exists (select 1 from flotilla.task task where task.task_id = old.task_id));

delete from flotilla.task_signal where task_id in (select task_id from (select task_id collate "C" as task_id from unnest('{"worked-2"}'::text[]) as each_row (task_id)) old
where not exists (select 1 from flotilla.task task where task.task_id = old.task_id));

delete from flotilla.step_journal where owner_id in (select task_id from (select task_id collate "C" as task_id from unnest('{"worked-2"}'::text[]) as each_row (task_id)) old
where not exists (select 1 from flotilla.task task where task.task_id = old.task_id)) and (part = '' or part >= 'A');

delete from flotilla.link as link where to_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest('{"worked-2"}'::text[]) as each_row (task_id)) old
where not exists (select 1 from flotilla.task task where task.task_id = old.task_id)));

delete from flotilla.task_alias as alias where task_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest('{"worked-2"}'::text[]) as each_row (task_id)) old
where not exists (select 1 from flotilla.task task where task.task_id = old.task_id)));

update flotilla.pod set passes = passes + 1 where pod_id = 'pod-of-this-version';

update flotilla.pod set status = 'down'
where pod_id in (
  select pod_id from flotilla.pod pod
  where status = 'up' and exists (
    select 1 from (select pod_id collate "C" as pod_id, beat from unnest('{"pod-of-this-version"}'::text[], '{1}'::bigint[]) as each_row (pod_id, beat)) silent where silent.pod_id = pod.pod_id and silent.beat = pod.beat)
  for update skip locked);

update flotilla.pod set status = 'down', last_heartbeat = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) where pod_id = 'pod-of-this-version';
