insert into flotilla_pod_health (pod_id, beat, claim_floor, metadata)
values ('pod-of-this-version', 1, 0, '{}')
on conflict (pod_id) do update
set beat = flotilla_pod_health.beat + 1, last_heartbeat = cast(unixepoch('subsec') * 1000 as integer), status = 'up';

insert into flotilla_step_tracker (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
  parked, max_attempts, unique_key, trace)
select task_id, tenant, name, payload, priority, cast(unixepoch('subsec') * 1000 as integer) + delay_ms, cast(unixepoch('subsec') * 1000 as integer), cast(unixepoch('subsec') * 1000 as integer),
  case when delay_ms > 0 then 1 else 0 end, max_attempts, unique_key, trace
from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as name, value ->> 3 as payload, value ->> 4 as priority, value ->> 5 as delay_ms, value ->> 6 as max_attempts, value ->> 7 as unique_key, value ->> 8 as trace from json_each('[["worked-1","default","worked","1",0,0,null,null,null]]')) fresh where true
on conflict do nothing
returning task_id;

update flotilla_step_tracker set parked = 0, last_update = cast(unixepoch('subsec') * 1000 as integer)
where rowid in (
  select rowid from flotilla_step_tracker
  where status = 'pending' and parked = 1 and run_at <= cast(unixepoch('subsec') * 1000 as integer)
  order by run_at limit cast(500 as integer) );

select
(select run_at - cast(unixepoch('subsec') * 1000 as integer) from flotilla_step_tracker
  where status = 'pending' and parked = 1 order by run_at limit 1) as wait_ms,
exists (select 1 from flotilla_step_tracker
  where name in ('worked') and status = 'pending' and parked = 0 and deaths >= 2) as alone;

update flotilla_step_tracker
  set status = 'claimed', claimed_by = 'pod-of-this-version', claim_token = claim_token + 1,
    claim_call = 1, last_update = cast(unixepoch('subsec') * 1000 as integer)
  where rowid in (
  select address from (select * from (
    select rowid as address, task_id, priority, created_at from flotilla_step_tracker
    where name = 'worked' and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= cast(unixepoch('subsec') * 1000 as integer) or run_at <= last_update)
       
    order by priority desc, created_at, task_id limit cast(1 as integer) ) of_name) ready
  order by priority desc, created_at, task_id limit cast(1 as integer)) and status = 'pending'
    and exists (select 1 from flotilla_pod_health where pod_id = 'pod-of-this-version' and claim_floor < 1
      )
  returning task_id, name, payload, claim_token, wake, retry_count, max_attempts, deaths,
trace, priority, created_at;

update flotilla_step_tracker set progress = newest.value
from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as value from json_each('[["worked-1",1,"\"half\""]]')) newest
where flotilla_step_tracker.task_id = newest.task_id and flotilla_step_tracker.claim_token = newest.token
  and flotilla_step_tracker.status = 'claimed';

select task_id, status, claimed_by, claim_token, wake, cancel_requested from flotilla_step_tracker
where task_id in (select task_id from (select value ->> 0 as task_id from json_each('[["worked-1"]]')) wanted);

insert into flotilla_step_event (task_id, seq, type, attempt, pod_id, detail)
select noted.task_id, (select coalesce(max(seq), 0) + 1 from flotilla_step_event past where past.task_id = noted.task_id), noted.type, noted.attempt, 'pod-of-this-version', noted.detail
from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as wake, value ->> 3 as type, value ->> 4 as attempt, value ->> 5 as detail from json_each('[["worked-1",1,null,"noted",1,null]]')) noted join flotilla_step_tracker task on task.task_id = noted.task_id
where task.claim_token = noted.token
  and task.status in ('claimed', 'pending')
  and (noted.wake is null or task.wake = noted.wake);

update flotilla_step_tracker
set status = 'completed', result = done.result, claim_call = null, last_update = cast(unixepoch('subsec') * 1000 as integer)
from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as result from json_each('[["worked-1",1,"{\"doubled\":2}"]]')) done
where flotilla_step_tracker.task_id = done.task_id
  and flotilla_step_tracker.claim_token = done.token
  and flotilla_step_tracker.status in ('claimed', 'pending')
  
returning flotilla_step_tracker.task_id;

insert into flotilla_step_tracker (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
  parked, max_attempts, unique_key, trace)
select task_id, tenant, name, payload, priority, cast(unixepoch('subsec') * 1000 as integer) + delay_ms, cast(unixepoch('subsec') * 1000 as integer), cast(unixepoch('subsec') * 1000 as integer),
  case when delay_ms > 0 then 1 else 0 end, max_attempts, unique_key, trace
from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as name, value ->> 3 as payload, value ->> 4 as priority, value ->> 5 as delay_ms, value ->> 6 as max_attempts, value ->> 7 as unique_key, value ->> 8 as trace from json_each('[["worked-2","default","worked","1",0,0,null,null,null]]')) fresh where true
on conflict do nothing
returning task_id;

with recursive level (name, priority) as (
  select wanted.name, (select max(priority) from flotilla_step_tracker task
    where task.name = wanted.name and status = 'pending' and parked = 0 and deaths < 2)
  from (select value ->> 0 as name from json_each('[["worked"]]')) wanted
  union all
  select level.name, (select max(priority) from flotilla_step_tracker task
    where task.name = level.name and status = 'pending' and parked = 0 and deaths < 2 and task.priority < level.priority)
  from level where level.priority is not null)
select name, priority from level where priority is not null
order by priority, name limit cast(400 as integer);

update flotilla_step_tracker
  set status = 'claimed', claimed_by = 'pod-of-this-version', claim_token = claim_token + 1,
    claim_call = 2, last_update = cast(unixepoch('subsec') * 1000 as integer)
  where rowid in (
  select address from (select * from (
    select rowid as address, task_id, created_at from flotilla_step_tracker
    where name = 'worked' and status = 'pending' and parked = 0 and deaths < 2
      and priority = 0 and (run_at <= cast(unixepoch('subsec') * 1000 as integer) or run_at <= last_update) 
    order by created_at, task_id limit cast(1 as integer) ) of_level) ready
  order by created_at, task_id limit cast(1 as integer)) and status = 'pending'
    and exists (select 1 from flotilla_pod_health where pod_id = 'pod-of-this-version' and claim_floor < 2
      )
  returning task_id, name, payload, claim_token, wake, retry_count, max_attempts, deaths,
trace, priority, created_at;

select task_id, claim_token, claimed_by from (
  select task_id, claim_token, claimed_by from flotilla_step_tracker
  where status = 'claimed' and claimed_by in (select pod_id from (select value ->> 0 as pod_id from json_each('[["pod-of-this-version"]]')) silent)
  order by claimed_by, claim_call limit cast(10 as integer)) held
order by task_id;

insert into flotilla_step_event (task_id, seq, type, attempt, pod_id)
select orphan.task_id, (select coalesce(max(seq), 0) + 1 from flotilla_step_event past where past.task_id = orphan.task_id), 'pod_died', task.retry_count + 1, orphan.pod_id
from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as pod_id, value ->> 3 as beat from json_each('[["worked-2",1,"pod-of-this-version",1]]')) orphan join flotilla_step_tracker task on task.task_id = orphan.task_id and task.claim_token = orphan.token
and task.status = 'claimed' and task.claimed_by = orphan.pod_id
and not exists (select 1 from flotilla_pod_health pod
  where pod.pod_id = orphan.pod_id and pod.beat <> orphan.beat);

update flotilla_step_tracker
set status = case when cancel_requested = 1 then 'cancelled' when deaths + 1 >= 4 then 'failed'
else 'pending' end,
  error = case when cancel_requested = 1 then error when deaths + 1 >= 4 then '{"code":"pod_died","message":"4 pods died while they ran this task, 2 of them with nothing else to run"}' else error end,
  claim_token = claim_token + case when cancel_requested = 1 or deaths + 1 >= 4 then 1 else 0 end,
  deaths = deaths + 1, claimed_by = null, claim_call = null, last_update = cast(unixepoch('subsec') * 1000 as integer)
from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as pod_id, value ->> 3 as beat from json_each('[["worked-2",1,"pod-of-this-version",1]]')) orphan
where flotilla_step_tracker.task_id = orphan.task_id and flotilla_step_tracker.claim_token = orphan.token
and flotilla_step_tracker.status = 'claimed' and flotilla_step_tracker.claimed_by = orphan.pod_id
and not exists (select 1 from flotilla_pod_health pod
  where pod.pod_id = orphan.pod_id and pod.beat <> orphan.beat) and rowid in (
  select rowid from flotilla_step_tracker
  where task_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as pod_id, value ->> 3 as beat from json_each('[["worked-2",1,"pod-of-this-version",1]]')) wanted) )
returning flotilla_step_tracker.task_id, flotilla_step_tracker.name, flotilla_step_tracker.status, flotilla_step_tracker.claim_token;

insert into flotilla_step_event (task_id, seq, type)
select task_id, (select coalesce(max(seq), 0) + 1 from flotilla_step_event past where past.task_id = task.task_id), 'cancel_requested' from flotilla_step_tracker task
where task_id = 'worked-2' and status in ('pending', 'claimed') and cancel_requested = 0;

update flotilla_step_tracker
set cancel_requested = 1, wake = wake + 1, last_update = cast(unixepoch('subsec') * 1000 as integer),
  claim_token = claim_token + case when status = 'pending' then 1 else 0 end,
  status = case when status = 'pending' then 'cancelled' else status end
where task_id = 'worked-2' and status in ('pending', 'claimed') and cancel_requested = 0;

select status, cancel_requested from flotilla_step_tracker where task_id = 'worked-2';

insert into flotilla_step_event (task_id, seq, type)
select task_id, (select coalesce(max(seq), 0) + 1 from flotilla_step_event past where past.task_id = task.task_id), 'retried' from flotilla_step_tracker task
where task_id = 'worked-2' and status in ('failed', 'cancelled');

update flotilla_step_tracker
set status = 'pending', retry_count = 0, deaths = 0, parked = 0, cancel_requested = 0,
  claim_token = claim_token + 1, claimed_by = null, run_at = cast(unixepoch('subsec') * 1000 as integer), last_update = cast(unixepoch('subsec') * 1000 as integer),
  error = null, progress = null
where task_id = 'worked-2' and status in ('failed', 'cancelled')
returning task_id;

select status from flotilla_step_tracker where task_id = 'worked-2';

update flotilla_step_tracker
  set status = 'claimed', claimed_by = 'pod-of-this-version', claim_token = claim_token + 1,
    claim_call = 3, last_update = cast(unixepoch('subsec') * 1000 as integer)
  where rowid in (
  select address from (select * from (
    select rowid as address, task_id, priority, created_at from flotilla_step_tracker
    where name = 'worked' and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= cast(unixepoch('subsec') * 1000 as integer) or run_at <= last_update)
       
    order by priority desc, created_at, task_id limit cast(1 as integer) ) of_name) ready
  order by priority desc, created_at, task_id limit cast(1 as integer)) and status = 'pending'
    and exists (select 1 from flotilla_pod_health where pod_id = 'pod-of-this-version' and claim_floor < 3
      )
  returning task_id, name, payload, claim_token, wake, retry_count, max_attempts, deaths,
trace, priority, created_at;

select 1 from flotilla_pod_health where pod_id = 'pod-of-this-version';

insert into flotilla_pod_health (pod_id, claim_floor) values ('pod-of-this-version', 3)
on conflict (pod_id) do update set claim_floor = excluded.claim_floor
where flotilla_pod_health.claim_floor < excluded.claim_floor;

update flotilla_step_tracker
set status = case when cancel_requested = 1 then 'cancelled' else 'pending' end,
  claimed_by = null, claim_call = null, claim_token = claim_token + 1, last_update = cast(unixepoch('subsec') * 1000 as integer)
where claimed_by = 'pod-of-this-version' and claim_call = 3 and status = 'claimed';

update flotilla_step_tracker set claimed_by = 'pod-of-this-version'
where status = 'pending' and rowid in (
  select rowid from flotilla_step_tracker
  where name in ('worked') and status = 'pending' and parked = 0 and deaths >= 2
    and (run_at <= cast(unixepoch('subsec') * 1000 as integer) or run_at <= last_update)
    and (claimed_by is null or claimed_by = 'pod-of-this-version'
      or claimed_by not in (select pod_id from flotilla_pod_health where status = 'up')
      or (select task_id from flotilla_step_tracker where status = 'claimed' and claimed_by = 'pod-of-this-version'
order by claim_call limit 1) is null)
  order by created_at, task_id limit 1 )
returning task_id;

update flotilla_step_tracker
  set status = 'claimed', claimed_by = 'pod-of-this-version', claim_token = claim_token + 1,
    claim_call = 4, last_update = cast(unixepoch('subsec') * 1000 as integer)
  where task_id = 'worked-2' and parked = 0 and (run_at <= cast(unixepoch('subsec') * 1000 as integer) or run_at <= last_update) and status = 'pending'
    and exists (select 1 from flotilla_pod_health where pod_id = 'pod-of-this-version' and claim_floor < 4
      )
  returning task_id, name, payload, claim_token, wake, retry_count, max_attempts, deaths,
trace, priority, created_at;

update flotilla_step_tracker
set status = 'completed', result = done.result, claim_call = null, last_update = cast(unixepoch('subsec') * 1000 as integer)
from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as result from json_each('[["worked-2",6,"{\"doubled\":2}"]]')) done
where flotilla_step_tracker.task_id = done.task_id
  and flotilla_step_tracker.claim_token = done.token
  and flotilla_step_tracker.status in ('claimed', 'pending')
  
returning flotilla_step_tracker.task_id;

delete from flotilla_step_tracker where rowid in (
select rowid from flotilla_step_tracker
where task_id in (select task_id from (select value ->> 0 as task_id from json_each('[["worked-2"]]')) old)
  and status in ('completed', 'failed', 'cancelled') and last_update < cast(unixepoch('subsec') * 1000 as integer) - -1000 );

delete from flotilla_step_event where task_id in (
select task_id from (select value ->> 0 as task_id from json_each('[["worked-2"]]')) old
where not exists (select 1 from flotilla_step_tracker task where task.task_id = old.task_id));

update flotilla_pod_health set passes = passes + 1 where pod_id = 'pod-of-this-version';

update flotilla_pod_health set status = 'down'
where pod_id in (
  select pod_id from flotilla_pod_health pod
  where status = 'up' and exists (
    select 1 from (select value ->> 0 as pod_id, value ->> 1 as beat from json_each('[["pod-of-this-version",1]]')) silent where silent.pod_id = pod.pod_id and silent.beat = pod.beat)
  );

update flotilla_pod_health set status = 'down', last_heartbeat = cast(unixepoch('subsec') * 1000 as integer) where pod_id = 'pod-of-this-version';
