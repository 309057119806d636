-- src/pods/sql.ts: beat
insert into flotilla.pod
  (pod_id, beat, claim_floor, metadata, pauses, host, connection, begun_call, pulse, drain)
values ($1, $2, $3, $4, now_ms(), $5, null::integer,
  $6, $7, $8)
on conflict (pod_id) do update
set beat = flotilla.pod.beat + 1, last_heartbeat = now_ms(), status = 'up',
  host = excluded.host, connection = excluded.connection, pulse = excluded.pulse
-- values: ["pod-1",2,7,"{}","host-1",0,"{}",0]

-- src/pods/sql.ts: readPods
with recursive holder (pod_id) as (
  select (select max(claimed_by) from flotilla.task where status = 'claimed')
  union all
  select (select max(task.claimed_by) from flotilla.task task
    where task.status = 'claimed' and task.claimed_by < holder.pod_id)
  from holder where holder.pod_id is not null)
select pod_id, started_at, status, beat, passes, host, connection, drain,
  case when connection in (select null::integer where false) then 1 else 0 end as connected,
  '' as filled, now_ms() as at
from flotilla.pod
where status = 'up' or pod_id in (select pod_id from holder where pod_id is not null)
union all
select pod_id, 0, 'down', cast($1 as bigint), 0, null, null, 0, 0, '', now_ms()
from holder
where pod_id is not null and pod_id not in (select pod_id from flotilla.pod)
-- values: [-1]

with recursive holder (pod_id) as (
  select (select max(claimed_by) from flotilla.task where status = 'claimed')
  union all
  select (select max(task.claimed_by) from flotilla.task task
    where task.status = 'claimed' and task.claimed_by < holder.pod_id)
  from holder where holder.pod_id is not null)
select pod_id, started_at, status, beat, passes, host, connection, drain,
  case when connection in (select null::integer where false) then 1 else 0 end as connected,
  '' || case when exists (select 1 from flotilla.throttle_report) then $1 else '' end || case when exists (select 1 from flotilla.session_log) then $2 else '' end as filled, now_ms() as at
from flotilla.pod
where status = 'up' or pod_id in (select pod_id from holder where pod_id is not null)
union all
select pod_id, 0, 'down', cast($3 as bigint), 0, null, null, 0, 0, '', now_ms()
from holder
where pod_id is not null and pod_id not in (select pod_id from flotilla.pod)
-- values: ["throttle_report ","session_log ",-1]

-- src/pods/sql.ts: markDown
update flotilla.pod set status = 'down'
where pod_id in (
  select pod_id from flotilla.pod pod
  where status = 'up' and exists (
    select 1 from (select pod_id collate "C" as pod_id, beat from unnest($1::text[], $2::bigint[]) as each_row (pod_id, beat)) silent where silent.pod_id = pod.pod_id and silent.beat = pod.beat)
  for update skip locked)
-- values: ["{\"pod-2\"}","{4}"]

-- src/pods/sql.ts: updateIdle
update flotilla.pod set waiting = $1 where pod_id = $2
-- values: [1,"pod-1"]

-- src/pods/sql.ts: updatePodState
update flotilla.pod set state = $1 where pod_id = $2
-- values: ["{}","pod-1"]

-- src/pods/sql.ts: markLeft
update flotilla.pod set status = 'down', last_heartbeat = now_ms() where pod_id = $1
-- values: ["pod-1"]

-- src/pods/sql.ts: finishPass
update flotilla.pod set passes = passes + 1 where pod_id = $1
-- values: ["pod-1"]

-- src/pods/sql.ts: prunePods
delete from flotilla.pod where pod_id in (
  select pod_id from flotilla.pod
  where status = 'down' and last_heartbeat < now_ms() - $1 for update skip locked)
-- values: [60000]

-- src/pods/sql.ts: pulsesOf
select pod_id, pulse from flotilla.pod
where pulse is not null and pod_id in (select pod_id from (select pod_id collate "C" as pod_id from unnest($1::text[]) as each_row (pod_id)) wanted)
-- values: ["{\"pod-1\",\"pod-2\"}"]

-- src/pods/sql.ts: knownPods
select pod_id, metadata from flotilla.pod

-- src/pods/sql.ts: livePods
select pod_id, metadata, drain from flotilla.pod where status = 'up'

-- src/pods/sql.ts: changeDrain
select pod_id from flotilla.pod where pod_id = $1 for update
-- values: ["pod-1"]

  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, $8, $9, $10,
    cast($11 as bigint), $12, $13,
    case when exists (
select 1 from flotilla.audit past where past.action = $14 and past.outcome = 'full') then null else $15 end, $16, $17
  from flotilla.pod where pod_id = $18 and status = 'up' and drain = $19
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"{\"drain\":false}","{\"drain\":true}","audit.full","done",null,"click-1","pod-1",0]

update flotilla.pod set drain = $1 where pod_id = $2 and status = 'up' and drain = $3
-- values: [1,"pod-1",0]

select * from flotilla.pod where pod_id = $1
-- values: ["pod-1"]

select pod_id from flotilla.pod where pod_id = $1 for update
-- values: ["pod-1"]

  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, $8, $9, $10,
    cast($11 as bigint), $12, $13,
    case when exists (
select 1 from flotilla.audit past where past.action = $14 and past.outcome = 'full') then null else $15 end, $16, $17
  from flotilla.pod where pod_id = $18 and status = 'up' and drain = $19
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"{\"drain\":true}","{\"drain\":false}","audit.full","done",null,"click-1","pod-1",1]

update flotilla.pod set drain = $1 where pod_id = $2 and status = 'up' and drain = $3
-- values: [0,"pod-1",1]

select * from flotilla.pod where pod_id = $1
-- values: ["pod-1"]

-- src/pods/sql.ts: podAges
select pod_id, now_ms() - last_heartbeat as age_ms, beat, host, metadata
from flotilla.pod where status = 'up'

-- src/pods/sql.ts: latestPods
select pod_id, status, last_heartbeat, state, metadata from flotilla.pod
order by case when status = 'up' then 0 else 1 end, last_heartbeat desc, pod_id limit cast($1 as integer)
-- values: [100]

-- src/pods/sql.ts: listBriefPods
select pod_id, status, started_at, last_heartbeat, beat, drain, state, pulse from flotilla.pod
order by started_at, pod_id

-- src/pods/sql.ts: metadataOf
select pod_id, metadata from flotilla.pod
where pod_id in (select pod_id from (select pod_id collate "C" as pod_id from unnest($1::text[]) as each_row (pod_id)) wanted)
-- values: ["{\"pod-1\",\"pod-2\"}"]

-- src/pods/sql.ts: readPulsesOfAll
select status, pulse from flotilla.pod

-- src/pods/sql.ts: listPods
select * from flotilla.pod order by started_at, pod_id
