-- src/pods/sql.ts: beat
insert into flotilla_pod
  (pod_id, beat, claim_floor, metadata, pauses, host, connection, begun_call, pulse, drain)
values (?, ?, ?, ?, now_ms(), ?, null,
  ?, ?, ?)
on conflict (pod_id) do update
set beat = flotilla_pod.beat + 1, last_heartbeat = now_ms(), status = 'up',
  host = excluded.host, connection = excluded.connection, pulse = excluded.pulse
-- values: ["pod-1",2,7,"{}","host-1",0,"{}",0]

-- src/pods/sql.ts: readPods
with recursive holder (pod_id) as (
  select (select max(claimed_by) from flotilla_task where status = 'claimed')
  union all
  select (select max(task.claimed_by) from flotilla_task task
    where task.status = 'claimed' and task.claimed_by < holder.pod_id)
  from holder where holder.pod_id is not null)
select pod_id, started_at, status, beat, passes, host, connection, drain,
  case when connection in (select null where false) then 1 else 0 end as connected,
  '' as filled, now_ms() as at
from flotilla_pod
where status = 'up' or pod_id in (select pod_id from holder where pod_id is not null)
union all
select pod_id, 0, 'down', cast(? as bigint), 0, null, null, 0, 0, '', now_ms()
from holder
where pod_id is not null and pod_id not in (select pod_id from flotilla_pod)
-- values: [-1]

with recursive holder (pod_id) as (
  select (select max(claimed_by) from flotilla_task where status = 'claimed')
  union all
  select (select max(task.claimed_by) from flotilla_task task
    where task.status = 'claimed' and task.claimed_by < holder.pod_id)
  from holder where holder.pod_id is not null)
select pod_id, started_at, status, beat, passes, host, connection, drain,
  case when connection in (select null where false) then 1 else 0 end as connected,
  '' || case when exists (select 1 from flotilla_throttle_report) then ? else '' end || case when exists (select 1 from flotilla_session_log) then ? else '' end as filled, now_ms() as at
from flotilla_pod
where status = 'up' or pod_id in (select pod_id from holder where pod_id is not null)
union all
select pod_id, 0, 'down', cast(? as bigint), 0, null, null, 0, 0, '', now_ms()
from holder
where pod_id is not null and pod_id not in (select pod_id from flotilla_pod)
-- values: ["throttle_report ","session_log ",-1]

-- src/pods/sql.ts: markDown
update flotilla_pod set status = 'down'
where pod_id in (
  select pod_id from flotilla_pod pod
  where status = 'up' and exists (
    select 1 from (select value ->> 0 as pod_id, value ->> 1 as beat from jsonb_each(?)) silent where silent.pod_id = pod.pod_id and silent.beat = pod.beat)
  )
-- values: ["[[\"pod-2\",4]]"]

-- src/pods/sql.ts: updateIdle
update flotilla_pod set waiting = ? where pod_id = ?
-- values: [1,"pod-1"]

-- src/pods/sql.ts: updatePodState
update flotilla_pod set state = ? where pod_id = ?
-- values: ["{}","pod-1"]

-- src/pods/sql.ts: markLeft
update flotilla_pod set status = 'down', last_heartbeat = now_ms() where pod_id = ?
-- values: ["pod-1"]

-- src/pods/sql.ts: finishPass
update flotilla_pod set passes = passes + 1 where pod_id = ?
-- values: ["pod-1"]

-- src/pods/sql.ts: prunePods
delete from flotilla_pod where pod_id in (
  select pod_id from flotilla_pod
  where status = 'down' and last_heartbeat < now_ms() - ? )
-- values: [60000]

-- src/pods/sql.ts: pulsesOf
select pod_id, pulse from flotilla_pod
where pulse is not null and pod_id in (select pod_id from (select value ->> 0 as pod_id from jsonb_each(?)) wanted)
-- values: ["[[\"pod-1\"],[\"pod-2\"]]"]

-- src/pods/sql.ts: knownPods
select pod_id, metadata from flotilla_pod

-- src/pods/sql.ts: livePods
select pod_id, metadata, drain from flotilla_pod where status = 'up'

-- src/pods/sql.ts: changeDrain
select pod_id from flotilla_pod where pod_id = ?
-- values: ["pod-1"]

  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, ?, ?, ?,
    cast(? as bigint), ?, ?,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?
  from flotilla_pod where pod_id = ? and status = 'up' and drain = ?
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"{\"drain\":false}","{\"drain\":true}","audit.full","done",null,"click-1","pod-1",0]

update flotilla_pod set drain = ? where pod_id = ? and status = 'up' and drain = ?
-- values: [1,"pod-1",0]

select * from flotilla_pod where pod_id = ?
-- values: ["pod-1"]

select pod_id from flotilla_pod where pod_id = ?
-- values: ["pod-1"]

  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, ?, ?, ?,
    cast(? as bigint), ?, ?,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?
  from flotilla_pod where pod_id = ? and status = 'up' and drain = ?
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"{\"drain\":true}","{\"drain\":false}","audit.full","done",null,"click-1","pod-1",1]

update flotilla_pod set drain = ? where pod_id = ? and status = 'up' and drain = ?
-- values: [0,"pod-1",1]

select * from flotilla_pod where pod_id = ?
-- values: ["pod-1"]

-- src/pods/sql.ts: podAges
select pod_id, now_ms() - last_heartbeat as age_ms, beat, host, metadata
from flotilla_pod where status = 'up'

-- src/pods/sql.ts: latestPods
select pod_id, status, last_heartbeat, state, metadata from flotilla_pod
order by case when status = 'up' then 0 else 1 end, last_heartbeat desc, pod_id limit cast(? as integer)
-- values: [100]

-- src/pods/sql.ts: listBriefPods
select pod_id, status, started_at, last_heartbeat, beat, drain, state, pulse from flotilla_pod
order by started_at, pod_id

-- src/pods/sql.ts: metadataOf
select pod_id, metadata from flotilla_pod
where pod_id in (select pod_id from (select value ->> 0 as pod_id from jsonb_each(?)) wanted)
-- values: ["[[\"pod-1\"],[\"pod-2\"]]"]

-- src/pods/sql.ts: readPulsesOfAll
select status, pulse from flotilla_pod

-- src/pods/sql.ts: listPods
select * from flotilla_pod order by started_at, pod_id
