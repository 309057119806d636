insert into flotilla.pod_health (pod_id, beat, claim_floor, metadata)
values ('pod-of-this-version', 1, 0, '{}')
on conflict (pod_id) do update
set beat = flotilla.pod_health.beat + 1, last_heartbeat = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint), status = 'up';

insert into flotilla.step_tracker (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
  parked, max_attempts, unique_key, trace)
select task_id, tenant, name, payload, priority, (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) + delay_ms, (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint), (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  case when delay_ms > 0 then 1 else 0 end, max_attempts, unique_key, trace
from (select task_id collate "C" as task_id, tenant collate "C" as tenant, name collate "C" as name, payload collate "C" as payload, priority, delay_ms, max_attempts, unique_key collate "C" as unique_key, trace collate "C" as trace from unnest('{"worked-1"}'::text[], '{"default"}'::text[], '{"worked"}'::text[], '{"1"}'::text[], '{0}'::bigint[], '{0}'::bigint[], '{null}'::bigint[], '{null}'::text[], '{null}'::text[]) as each_row (task_id, tenant, name, payload, priority, delay_ms, max_attempts, unique_key, trace)) fresh where true
on conflict do nothing
returning task_id;

update flotilla.step_tracker set parked = 0, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
where ctid = any(array(
  select ctid from flotilla.step_tracker
  where status = 'pending' and parked = 1 and run_at <= (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
  order by run_at limit cast(500 as integer) for update skip locked));

select
(select run_at - (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) from flotilla.step_tracker
  where status = 'pending' and parked = 1 order by run_at limit 1) as wait_ms,
exists (select 1 from flotilla.step_tracker
  where name in ('worked') and status = 'pending' and parked = 0 and deaths >= 2) as alone;

update flotilla.step_tracker
  set status = 'claimed', claimed_by = 'pod-of-this-version', claim_token = claim_token + 1,
    claim_call = 1, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
  where ctid = any(array(
  select address from (select * from (
    select ctid as address, task_id, priority, created_at from flotilla.step_tracker
    where name = 'worked' and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) or run_at <= last_update)
       
    order by priority desc, created_at, task_id limit cast(1 as integer) for update skip locked) of_name) ready
  order by priority desc, created_at, task_id limit cast(1 as integer))) and status = 'pending'
    and exists (select 1 from flotilla.pod_health where pod_id = 'pod-of-this-version' and claim_floor < 1
      for key share)
  returning task_id, name, payload, claim_token, wake, retry_count, max_attempts, deaths,
trace, priority, created_at;

update flotilla.step_tracker set progress = newest.value
from (select task_id collate "C" as task_id, token, value collate "C" as value from unnest('{"worked-1"}'::text[], '{1}'::bigint[], '{"\"half\""}'::text[]) as each_row (task_id, token, value)) newest
where flotilla.step_tracker.task_id = newest.task_id and flotilla.step_tracker.claim_token = newest.token
  and flotilla.step_tracker.status = 'claimed';

select task_id, status, claimed_by, claim_token, wake, cancel_requested from flotilla.step_tracker
where task_id in (select task_id from (select task_id collate "C" as task_id from unnest('{"worked-1"}'::text[]) as each_row (task_id)) wanted);

insert into flotilla.step_event (task_id, seq, type, attempt, pod_id, detail)
select noted.task_id, (select coalesce(max(seq), 0) + 1 from flotilla.step_event past where past.task_id = noted.task_id), noted.type, noted.attempt, 'pod-of-this-version', noted.detail
from (select task_id collate "C" as task_id, token, wake, type collate "C" as type, attempt, detail collate "C" as detail from unnest('{"worked-1"}'::text[], '{1}'::bigint[], '{null}'::bigint[], '{"noted"}'::text[], '{1}'::bigint[], '{null}'::text[]) as each_row (task_id, token, wake, type, attempt, detail)) noted join flotilla.step_tracker task on task.task_id = noted.task_id
where task.claim_token = noted.token
  and task.status in ('claimed', 'pending')
  and (noted.wake is null or task.wake = noted.wake)
for update of task;

update flotilla.step_tracker
set status = 'completed', result = done.result, claim_call = null, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
from (select task_id collate "C" as task_id, token, result collate "C" as result from unnest('{"worked-1"}'::text[], '{1}'::bigint[], '{"{\"doubled\":2}"}'::text[]) as each_row (task_id, token, result)) done
where flotilla.step_tracker.task_id = done.task_id
  and flotilla.step_tracker.claim_token = done.token
  and flotilla.step_tracker.status in ('claimed', 'pending')
  
returning flotilla.step_tracker.task_id;

insert into flotilla.step_tracker (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
  parked, max_attempts, unique_key, trace)
select task_id, tenant, name, payload, priority, (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) + delay_ms, (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint), (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  case when delay_ms > 0 then 1 else 0 end, max_attempts, unique_key, trace
from (select task_id collate "C" as task_id, tenant collate "C" as tenant, name collate "C" as name, payload collate "C" as payload, priority, delay_ms, max_attempts, unique_key collate "C" as unique_key, trace collate "C" as trace from unnest('{"worked-2"}'::text[], '{"default"}'::text[], '{"worked"}'::text[], '{"1"}'::text[], '{0}'::bigint[], '{0}'::bigint[], '{null}'::bigint[], '{null}'::text[], '{null}'::text[]) as each_row (task_id, tenant, name, payload, priority, delay_ms, max_attempts, unique_key, trace)) fresh where true
on conflict do nothing
returning task_id;

with recursive level (name, priority) as (
  select wanted.name, (select max(priority) from flotilla.step_tracker task
    where task.name = wanted.name and status = 'pending' and parked = 0 and deaths < 2)
  from (select name collate "C" as name from unnest('{"worked"}'::text[]) as each_row (name)) wanted
  union all
  select level.name, (select max(priority) from flotilla.step_tracker task
    where task.name = level.name and status = 'pending' and parked = 0 and deaths < 2 and task.priority < level.priority)
  from level where level.priority is not null)
select name, priority from level where priority is not null
order by priority, name limit cast(400 as integer);

update flotilla.step_tracker
  set status = 'claimed', claimed_by = 'pod-of-this-version', claim_token = claim_token + 1,
    claim_call = 2, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
  where ctid = any(array(
  select address from (select * from (
    select ctid as address, task_id, created_at from flotilla.step_tracker
    where name = 'worked' and status = 'pending' and parked = 0 and deaths < 2
      and priority = 0 and (run_at <= (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) or run_at <= last_update) 
    order by created_at, task_id limit cast(1 as integer) for update skip locked) of_level) ready
  order by created_at, task_id limit cast(1 as integer))) and status = 'pending'
    and exists (select 1 from flotilla.pod_health where pod_id = 'pod-of-this-version' and claim_floor < 2
      for key share)
  returning task_id, name, payload, claim_token, wake, retry_count, max_attempts, deaths,
trace, priority, created_at;

select task_id, claim_token, claimed_by from (
  select task_id, claim_token, claimed_by from flotilla.step_tracker
  where status = 'claimed' and claimed_by in (select pod_id from (select pod_id collate "C" as pod_id from unnest('{"pod-of-this-version"}'::text[]) as each_row (pod_id)) silent)
  order by claimed_by, claim_call limit cast(10 as integer)) held
order by task_id;

insert into flotilla.step_event (task_id, seq, type, attempt, pod_id)
select orphan.task_id, (select coalesce(max(seq), 0) + 1 from flotilla.step_event past where past.task_id = orphan.task_id), 'pod_died', task.retry_count + 1, orphan.pod_id
from (select task_id collate "C" as task_id, token, pod_id collate "C" as pod_id, beat from unnest('{"worked-2"}'::text[], '{1}'::bigint[], '{"pod-of-this-version"}'::text[], '{1}'::bigint[]) as each_row (task_id, token, pod_id, beat)) orphan join flotilla.step_tracker task on task.task_id = orphan.task_id and task.claim_token = orphan.token
and task.status = 'claimed' and task.claimed_by = orphan.pod_id
and not exists (select 1 from flotilla.pod_health pod
  where pod.pod_id = orphan.pod_id and pod.beat <> orphan.beat) for update of task skip locked;

update flotilla.step_tracker
set status = case when cancel_requested = 1 then 'cancelled' when deaths + 1 >= 4 then 'failed'
else 'pending' end,
  error = case when cancel_requested = 1 then error when deaths + 1 >= 4 then '{"code":"pod_died","message":"4 pods died while they ran this task, 2 of them with nothing else to run"}' else error end,
  claim_token = claim_token + case when cancel_requested = 1 or deaths + 1 >= 4 then 1 else 0 end,
  deaths = deaths + 1, claimed_by = null, claim_call = null, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
from (select task_id collate "C" as task_id, token, pod_id collate "C" as pod_id, beat from unnest('{"worked-2"}'::text[], '{1}'::bigint[], '{"pod-of-this-version"}'::text[], '{1}'::bigint[]) as each_row (task_id, token, pod_id, beat)) orphan
where flotilla.step_tracker.task_id = orphan.task_id and flotilla.step_tracker.claim_token = orphan.token
and flotilla.step_tracker.status = 'claimed' and flotilla.step_tracker.claimed_by = orphan.pod_id
and not exists (select 1 from flotilla.pod_health pod
  where pod.pod_id = orphan.pod_id and pod.beat <> orphan.beat) and ctid = any(array(
  select ctid from flotilla.step_tracker
  where task_id in (select task_id from (select task_id collate "C" as task_id, token, pod_id collate "C" as pod_id, beat from unnest('{"worked-2"}'::text[], '{1}'::bigint[], '{"pod-of-this-version"}'::text[], '{1}'::bigint[]) as each_row (task_id, token, pod_id, beat)) wanted) for update skip locked))
returning flotilla.step_tracker.task_id, flotilla.step_tracker.name, flotilla.step_tracker.status, flotilla.step_tracker.claim_token;

insert into flotilla.step_event (task_id, seq, type)
select task_id, (select coalesce(max(seq), 0) + 1 from flotilla.step_event past where past.task_id = task.task_id), 'cancel_requested' from flotilla.step_tracker task
where task_id = 'worked-2' and status in ('pending', 'claimed') and cancel_requested = 0
for update of task;

update flotilla.step_tracker
set cancel_requested = 1, wake = wake + 1, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  claim_token = claim_token + case when status = 'pending' then 1 else 0 end,
  status = case when status = 'pending' then 'cancelled' else status end
where task_id = 'worked-2' and status in ('pending', 'claimed') and cancel_requested = 0;

select status, cancel_requested from flotilla.step_tracker where task_id = 'worked-2';

insert into flotilla.step_event (task_id, seq, type)
select task_id, (select coalesce(max(seq), 0) + 1 from flotilla.step_event past where past.task_id = task.task_id), 'retried' from flotilla.step_tracker task
where task_id = 'worked-2' and status in ('failed', 'cancelled') for update of task;

update flotilla.step_tracker
set status = 'pending', retry_count = 0, deaths = 0, parked = 0, cancel_requested = 0,
  claim_token = claim_token + 1, claimed_by = null, run_at = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint), last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint),
  error = null, progress = null
where task_id = 'worked-2' and status in ('failed', 'cancelled')
returning task_id;

select status from flotilla.step_tracker where task_id = 'worked-2';

update flotilla.step_tracker
  set status = 'claimed', claimed_by = 'pod-of-this-version', claim_token = claim_token + 1,
    claim_call = 3, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
  where ctid = any(array(
  select address from (select * from (
    select ctid as address, task_id, priority, created_at from flotilla.step_tracker
    where name = 'worked' and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) or run_at <= last_update)
       
    order by priority desc, created_at, task_id limit cast(1 as integer) for update skip locked) of_name) ready
  order by priority desc, created_at, task_id limit cast(1 as integer))) and status = 'pending'
    and exists (select 1 from flotilla.pod_health where pod_id = 'pod-of-this-version' and claim_floor < 3
      for key share)
  returning task_id, name, payload, claim_token, wake, retry_count, max_attempts, deaths,
trace, priority, created_at;

select 1 from flotilla.pod_health where pod_id = 'pod-of-this-version' for update;

insert into flotilla.pod_health (pod_id, claim_floor) values ('pod-of-this-version', 3)
on conflict (pod_id) do update set claim_floor = excluded.claim_floor
where flotilla.pod_health.claim_floor < excluded.claim_floor;

update flotilla.step_tracker
set status = case when cancel_requested = 1 then 'cancelled' else 'pending' end,
  claimed_by = null, claim_call = null, claim_token = claim_token + 1, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
where claimed_by = 'pod-of-this-version' and claim_call = 3 and status = 'claimed';

update flotilla.step_tracker set claimed_by = 'pod-of-this-version'
where status = 'pending' and ctid = any(array(
  select ctid from flotilla.step_tracker
  where name in ('worked') and status = 'pending' and parked = 0 and deaths >= 2
    and (run_at <= (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) or run_at <= last_update)
    and (claimed_by is null or claimed_by = 'pod-of-this-version'
      or claimed_by not in (select pod_id from flotilla.pod_health where status = 'up')
      or (select task_id from flotilla.step_tracker where status = 'claimed' and claimed_by = 'pod-of-this-version'
order by claim_call limit 1) is null)
  order by created_at, task_id limit 1 for update skip locked))
returning task_id;

update flotilla.step_tracker
  set status = 'claimed', claimed_by = 'pod-of-this-version', claim_token = claim_token + 1,
    claim_call = 4, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
  where task_id = 'worked-2' and parked = 0 and (run_at <= (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) or run_at <= last_update) and status = 'pending'
    and exists (select 1 from flotilla.pod_health where pod_id = 'pod-of-this-version' and claim_floor < 4
      for key share)
  returning task_id, name, payload, claim_token, wake, retry_count, max_attempts, deaths,
trace, priority, created_at;

update flotilla.step_tracker
set status = 'completed', result = done.result, claim_call = null, last_update = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint)
from (select task_id collate "C" as task_id, token, result collate "C" as result from unnest('{"worked-2"}'::text[], '{6}'::bigint[], '{"{\"doubled\":2}"}'::text[]) as each_row (task_id, token, result)) done
where flotilla.step_tracker.task_id = done.task_id
  and flotilla.step_tracker.claim_token = done.token
  and flotilla.step_tracker.status in ('claimed', 'pending')
  
returning flotilla.step_tracker.task_id;

delete from flotilla.step_tracker where ctid = any(array(
select ctid from flotilla.step_tracker
where task_id in (select task_id from (select task_id collate "C" as task_id from unnest('{"worked-2"}'::text[]) as each_row (task_id)) old)
  and status in ('completed', 'failed', 'cancelled') and last_update < (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) - -1000 for update skip locked));

delete from flotilla.step_event where task_id in (
select task_id from (select task_id collate "C" as task_id from unnest('{"worked-2"}'::text[]) as each_row (task_id)) old
where not exists (select 1 from flotilla.step_tracker task where task.task_id = old.task_id));

update flotilla.pod_health set passes = passes + 1 where pod_id = 'pod-of-this-version';

update flotilla.pod_health set status = 'down'
where pod_id in (
  select pod_id from flotilla.pod_health pod
  where status = 'up' and exists (
    select 1 from (select pod_id collate "C" as pod_id, beat from unnest('{"pod-of-this-version"}'::text[], '{1}'::bigint[]) as each_row (pod_id, beat)) silent where silent.pod_id = pod.pod_id and silent.beat = pod.beat)
  for update skip locked);

update flotilla.pod_health set status = 'down', last_heartbeat = (select floor(extract(epoch from statement_timestamp()) * 1000)::bigint) where pod_id = 'pod-of-this-version';
