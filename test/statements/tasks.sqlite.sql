-- src/tasks/sql/task-state.ts: awaitsSignal
status = 'pending' and parked = 1 and awaits is not null

status = 'pending' and parked = 5 and awaits is not null

-- src/tasks/sql/task-state.ts: dependsAs
0

1

2

3

-- src/tasks/sql/task-state.ts: hasFreeSlots
not exists (select 1 from flotilla_task_limit given
    where given.scope = task.concurrency_key and given.max_running <= (select count(*) from flotilla_task held
    where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope))
  and not exists (select 1 from flotilla_task_limit given
    where given.scope = 'tenant/' || task.tenant
      and given.max_running <= (select count(*) from flotilla_task held
    where coalesce(held.status, '') = 'claimed' and held.limited = 1 and held.tenant <> 'default'
      and held.tenant between task.tenant and task.tenant))

-- src/tasks/sql/task-state.ts: isBlocked
status = 'pending' and parked = 3

-- src/tasks/sql/task-state.ts: isDelayed
status = 'pending' and parked = 1

-- src/tasks/sql/task-state.ts: isLimited
status = 'pending' and parked = 4 and deaths < 2

-- src/tasks/sql/task-state.ts: isLimitedAlone
status = 'pending' and parked = 4 and deaths >= 2

-- src/tasks/sql/task-state.ts: isReady
status = 'pending' and parked = 0 and deaths < 2

-- src/tasks/sql/task-state.ts: isReadyAlone
status = 'pending' and parked = 0 and deaths >= 2

-- src/tasks/sql/task-state.ts: isSetAside
status = 'pending' and parked = 6

-- src/tasks/sql/task-state.ts: noDeaths
0

-- src/tasks/sql/task-state.ts: ofTask
task.status = 'pending' and task.parked = 0 and task.deaths < 2

task.status = 'pending' and task.parked = 0 and task.deaths >= 2

task.status = 'pending' and task.parked = 1

task.status = 'pending' and task.parked = 2

task.status = 'pending' and task.parked = 3

task.status = 'pending' and task.parked = 4 and task.deaths < 2

task.status = 'pending' and task.parked = 4 and task.deaths >= 2

task.status = 'pending' and task.parked = 5

task.status = 'pending' and task.parked = 6

task.deaths < 2

task.deaths >= 2

-- src/tasks/sql/task-state.ts: parkedAs
0

1

2

3

4

5

6

-- src/tasks/sql/task-state.ts: readyOrLimited
case when limited = 1 then 4 else 0 end

-- src/tasks/sql/task-state.ts: runsAlone
deaths >= 2

-- src/tasks/sql/task-state.ts: runsBesideOthers
deaths < 2

-- src/tasks/sql/task-state.ts: waitsForSignal
status = 'pending' and parked = 5

-- src/tasks/sql/task-state.ts: waitsForTasks
status = 'pending' and parked = 2

-- src/tasks/sql/task-state.ts: selectStates
select task_id, name, tenant, status, claimed_by, retry_count, deaths, cancel_requested, run_at,
  last_update
from flotilla_task where task_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) wanted)
-- values: ["[[\"task-1\"],[\"task-2\"]]"]

-- src/tasks/sql/task-state.ts: isPending
coalesce(task.status, '') = 'pending'

-- src/tasks/sql/task-state.ts: isOfCall
task.claim_call in (?, ?)
-- values: [5,-5]

-- src/tasks/sql/task-state.ts: isRunning
coalesce(task.status, '') = 'claimed'

-- src/tasks/sql/task-state.ts: nextSeq
(select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id)

-- src/tasks/sql/task-state.ts: requestMark
? || cast(wake + 1 as text) || '}'
-- values: ["\"request\":\"request-1\",\"wake\":"]

not exists (
    select 1 from flotilla_task_event past
    where past.task_id = ?
      and case when past.type in ('cancel_requested', 'given_up', 'resume')
        then past.detail like ? and past.detail not like ? || cast(wake + 1 as text) || '}' else false end)
-- values: ["task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

exists (
    select 1 from flotilla_task_event past
    where past.task_id = ?
      and case when past.type in ('cancel_requested', 'given_up', 'resume')
        then past.detail like ? and true else false end)
-- values: ["task-1","%\"request\":\"request-1\",\"wake\":%"]

-- src/tasks/sql/task-state.ts: writesBefore
((select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id) - 1) / cast(? as integer)
-- values: [100]

-- src/tasks/sql/task-state.ts: getEvents
select * from flotilla_task_event where task_id = ? and seq > ?  order by seq
-- values: ["task-1",0]

  with listed as (
    select seq as place, 200 + coalesce(octet_length(detail), 0) as bytes from flotilla_task_event where task_id = ? and seq > ?
    order by seq asc limit cast(? as integer)),
  measured as (
    select place, row_number() over (order by place asc) as nth,
      sum(bytes) over (order by place asc) as up_to
    from listed)
select *, (select count(*) from listed) as found from flotilla_task_event where task_id = ? and seq in (select place from measured
  where nth = 1 or (nth <= ? and up_to <= ?))
order by seq
-- values: ["task-1",2,11,"task-1",10,1048576]

  with listed as (
    select seq as place, 200 + coalesce(octet_length(detail), 0) as bytes from flotilla_task_event where task_id = ? and seq > ? and seq < ?
    order by seq desc limit cast(? as integer)),
  measured as (
    select place, row_number() over (order by place desc) as nth,
      sum(bytes) over (order by place desc) as up_to
    from listed)
select *, (select count(*) from listed) as found from flotilla_task_event where task_id = ? and seq in (select place from measured
  where nth = 1 or (nth <= ? and up_to <= ?))
order by seq
-- values: ["task-1",0,900,11,"task-1",10,1048576]

-- src/tasks/sql/task-state.ts: runningOfKey
(select count(*) from flotilla_task held
    where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope)

-- src/tasks/sql/task-state.ts: runningOfTenant
(select count(*) from flotilla_task held
    where coalesce(held.status, '') = 'claimed' and held.limited = 1 and held.tenant <> 'default'
      and held.tenant between task.tenant and task.tenant)

-- src/tasks/sql/task-state.ts: freeSlotsOfKey
(select given.max_running - (select count(*) from flotilla_task held
    where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope) from flotilla_task_limit given
    where given.scope = task.concurrency_key)

-- src/tasks/sql/task-state.ts: freeSlotsOfTenant
(select given.max_running - (select count(*) from flotilla_task held
    where coalesce(held.status, '') = 'claimed' and held.limited = 1 and held.tenant <> 'default'
      and held.tenant between task.tenant and task.tenant) from flotilla_task_limit given
    where given.scope = 'tenant/' || task.tenant)

-- src/tasks/sql/inherit-files.ts: inheritFiles
  insert into flotilla_file_reference as referring
    (owner_kind, owner_id, hash, file_id, size, metadata, kept)
  select distinct 'task', wanted.task_id, source.hash, source.file_id, source.size, source.metadata, 1
  from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as hash, value ->> 3 as from_kind, value ->> 4 as from_id from jsonb_each(?)) wanted join flotilla_file_reference source on source.owner_kind = wanted.from_kind and source.owner_id = wanted.from_id
and source.hash = wanted.hash and exists (select 1 from flotilla_file file
  where file.file_id = source.file_id and file.tenant = wanted.tenant)
  where wanted.task_id = (select task_id from flotilla_task where task_id = wanted.task_id)
  on conflict (owner_kind, owner_id, hash) do update set kept = 1, token = null
-- values: ["[[\"task-1\",\"default\",\"abababababababababababababababababababababababababababababababab\",\"task\",\"task-0\"]]"]

-- src/tasks/sql/enqueue.ts: insertTasks
insert into flotilla_task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
  max_attempts, unique_key, trace, parked)
select task_id, tenant, name, payload, priority, now_ms() + delay_ms, now_ms(), now_ms(),
  max_attempts, unique_key, trace, case when delay_ms > 0 then 1 else 0 end
from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as name, value ->> 3 as payload, value ->> 4 as priority, value ->> 5 as delay_ms, value ->> 6 as max_attempts, value ->> 7 as unique_key, value ->> 8 as trace from jsonb_each(?)) fresh where true
on conflict do nothing
returning task_id
-- instead of returning:
select task_id from flotilla_task where task_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as name, value ->> 3 as payload, value ->> 4 as priority, value ->> 5 as delay_ms, value ->> 6 as max_attempts, value ->> 7 as unique_key, value ->> 8 as trace from jsonb_each(?)) fresh)
-- values: ["[[\"task-1\",\"default\",\"mail\",\"{}\",0,0,null,null,null]]"]

  insert into flotilla_task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
    max_attempts, unique_key, trace, concurrency_key, limited, depends, scheduled_at, flow_version, parent_id, parked)
  select task_id, tenant, name, payload, priority, case when fresh.start_at is null then now_ms() + fresh.delay_ms
  when fresh.start_at > now_ms() then fresh.start_at else now_ms() end, now_ms(), now_ms(),
    max_attempts, unique_key, trace, concurrency_key, limited, depends, scheduled_at, flow_version, parent_id,
case when depends > 0 then 2 when delay_ms > 0 or start_at > now_ms() then 1
  when limited = 1 then 4 else 0 end
  from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as name, value ->> 3 as payload, value ->> 4 as priority, value ->> 5 as delay_ms, value ->> 6 as max_attempts, value ->> 7 as unique_key, value ->> 8 as trace, value ->> 9 as start_at, value ->> 10 as concurrency_key, value ->> 11 as limited, value ->> 12 as depends, value ->> 13 as scheduled_at, value ->> 14 as flow_version, value ->> 15 as parent_id from jsonb_each(?)) fresh where fresh.task_id <> ''
  on conflict do nothing
  returning task_id
-- instead of returning:
select task_id from flotilla_task where task_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as name, value ->> 3 as payload, value ->> 4 as priority, value ->> 5 as delay_ms, value ->> 6 as max_attempts, value ->> 7 as unique_key, value ->> 8 as trace from jsonb_each(?)) fresh)
-- values: ["[[\"task-1\",\"default\",\"mail\",\"{}\",0,0,null,\"key-1\",null,null,\"key/mail/acme\",1,1,null,null,null]]"]

  insert into flotilla_task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
    max_attempts, unique_key, trace, parked)
  select task_id, tenant, name, payload, priority, now_ms() + delay_ms, now_ms(), now_ms(),
    max_attempts, unique_key, trace, case when delay_ms > 0 then 1 else 0 end
  from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as name, value ->> 3 as payload, value ->> 4 as priority, value ->> 5 as delay_ms, value ->> 6 as max_attempts, value ->> 7 as unique_key, value ->> 8 as trace from jsonb_each(?)) fresh where true and not exists (select 1 from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as hash, value ->> 3 as from_kind, value ->> 4 as from_id from jsonb_each(?)) wanted
  where not exists (select 1 from flotilla_file_reference source where source.owner_kind = wanted.from_kind and source.owner_id = wanted.from_id
and source.hash = wanted.hash and exists (select 1 from flotilla_file file
  where file.file_id = source.file_id and file.tenant = wanted.tenant)))
  on conflict do nothing
  returning task_id
-- instead of returning:
select task_id from flotilla_task where task_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as name, value ->> 3 as payload, value ->> 4 as priority, value ->> 5 as delay_ms, value ->> 6 as max_attempts, value ->> 7 as unique_key, value ->> 8 as trace from jsonb_each(?)) fresh)
-- values: ["[[\"task-1\",\"default\",\"mail\",\"{\\\"doc\\\":{\\\"type\\\":\\\"file\\\",\\\"url\\\":\\\"flotilla-file:abababababababababababababababababababababababababababababababab\\\"}}\",0,0,null,null,null]]","[[\"task-1\",\"default\",\"abababababababababababababababababababababababababababababababab\",\"upload\",\"upload-1\"]]"]

-- src/tasks/sql/enqueue.ts: replaceTaskFiles
    update flotilla_file set unused_at = now_ms()
    where file_id in (select file_id from flotilla_file_reference where owner_kind = 'task'
    and owner_id in (select task_id from (
  select task.task_id, wanted.task_id as new_id
  from (select value ->> 0 as tenant, value ->> 1 as name, value ->> 2 as unique_key, value ->> 3 as task_id, value ->> 4 as mark from jsonb_each(?)) wanted join flotilla_task task on task.tenant = wanted.tenant and task.name = wanted.name
and task.unique_key = wanted.unique_key
  where exists (select 1 from flotilla_task_event past
    where past.task_id = task.task_id and past.type = 'replaced'
      and past.detail = wanted.mark || cast(task.claim_token as text) || '}')) holder))
-- values: ["[[\"default\",\"mail\",\"key-1\",\"task-1\",\"{\\\"request\\\":\\\"task-1\\\",\\\"token\\\":\"]]"]

delete from flotilla_file_reference where owner_kind = 'task'
      and owner_id in (select task_id from (
    select task.task_id, wanted.task_id as new_id
    from (select value ->> 0 as tenant, value ->> 1 as name, value ->> 2 as unique_key, value ->> 3 as task_id, value ->> 4 as mark from jsonb_each(?)) wanted join flotilla_task task on task.tenant = wanted.tenant and task.name = wanted.name
  and task.unique_key = wanted.unique_key
    where exists (select 1 from flotilla_task_event past
      where past.task_id = task.task_id and past.type = 'replaced'
        and past.detail = wanted.mark || cast(task.claim_token as text) || '}')) holder)
-- values: ["[[\"default\",\"mail\",\"key-1\",\"task-1\",\"{\\\"request\\\":\\\"task-1\\\",\\\"token\\\":\"]]"]

    insert into flotilla_file_reference as referring
      (owner_kind, owner_id, hash, file_id, size, metadata, kept)
    select distinct 'task', holder.task_id, source.hash, source.file_id, source.size,
      source.metadata, 1
    from (
  select task.task_id, wanted.task_id as new_id
  from (select value ->> 0 as tenant, value ->> 1 as name, value ->> 2 as unique_key, value ->> 3 as task_id, value ->> 4 as mark from jsonb_each(?)) wanted join flotilla_task task on task.tenant = wanted.tenant and task.name = wanted.name
and task.unique_key = wanted.unique_key
  where exists (select 1 from flotilla_task_event past
    where past.task_id = task.task_id and past.type = 'replaced'
      and past.detail = wanted.mark || cast(task.claim_token as text) || '}')) holder
    join (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as hash, value ->> 3 as from_kind, value ->> 4 as from_id from jsonb_each(?)) wanted on wanted.task_id = holder.new_id
    join flotilla_file_reference source on source.owner_kind = wanted.from_kind and source.owner_id = wanted.from_id
and source.hash = wanted.hash and exists (select 1 from flotilla_file file
  where file.file_id = source.file_id and file.tenant = wanted.tenant)
    where 1 = 1
    on conflict (owner_kind, owner_id, hash) do update set kept = 1, token = null
-- values: ["[[\"default\",\"mail\",\"key-1\",\"task-1\",\"{\\\"request\\\":\\\"task-1\\\",\\\"token\\\":\"]]","[[\"task-1\",\"default\",\"abababababababababababababababababababababababababababababababab\",\"upload\",\"upload-1\"]]"]

-- src/tasks/sql/enqueue.ts: linkTasks
insert into flotilla_link (from_id, to_id, what, at)
select from_id, to_id, what, now_ms() from (select value ->> 0 as from_id, value ->> 1 as to_id, value ->> 2 as what from jsonb_each(?)) wanted
where to_id = (select task_id from flotilla_task where task_id = wanted.to_id)
on conflict do nothing
-- values: ["[[\"task-0\",\"task-1\",\"task\"]]"]

-- src/tasks/sql/enqueue.ts: findKeys
  select task.task_id, task.tenant, task.name, task.unique_key
  from (select value ->> 0 as tenant, value ->> 1 as name, value ->> 2 as unique_key, value ->> 3 as task_id from jsonb_each(?)) wanted join flotilla_task task on task.tenant = wanted.tenant and task.name = wanted.name
and task.unique_key = wanted.unique_key
-- values: ["[[\"default\",\"mail\",\"key-1\",\"task-1\"]]"]

-- src/tasks/sql/enqueue.ts: findOwn
select task_id from flotilla_task where task_id in (select task_id from (select value ->> 0 as tenant, value ->> 1 as name, value ->> 2 as unique_key, value ->> 3 as task_id from jsonb_each(?)) wanted)
-- values: ["[[\"default\",\"mail\",\"key-1\",\"task-1\"]]"]

-- src/tasks/sql/enqueue.ts: lockHolders
  select task.task_id from (select value ->> 0 as tenant, value ->> 1 as name, value ->> 2 as unique_key, value ->> 3 as task_id from jsonb_each(?)) wanted join flotilla_task task on task.tenant = wanted.tenant and task.name = wanted.name
and task.unique_key = wanted.unique_key
  order by task.task_id
-- values: ["[[\"default\",\"mail\",\"key-1\",\"task-1\"]]"]

-- src/tasks/sql/enqueue.ts: insertAliases
insert into flotilla_task_alias (alias_id, task_id)
select fresh.task_id, holder.task_id
from (select value ->> 0 as tenant, value ->> 1 as name, value ->> 2 as unique_key, value ->> 3 as task_id from jsonb_each(?)) fresh join flotilla_task holder on holder.tenant = fresh.tenant
  and holder.name = fresh.name and holder.unique_key = fresh.unique_key
where holder.task_id <> fresh.task_id and fresh.task_id <> ''
  and not exists (select 1 from flotilla_task own where own.task_id = fresh.task_id)
on conflict do nothing
-- values: ["[[\"default\",\"mail\",\"key-1\",\"task-1\"]]"]

-- src/tasks/sql/enqueue.ts: findAliases
select alias.alias_id, alias.task_id from (select value ->> 0 as alias_id from jsonb_each(?)) wanted
join flotilla_task_alias alias on alias.alias_id = wanted.alias_id
-- values: ["[[\"task-1\"]]"]

-- src/tasks/sql/enqueue.ts: deleteAliasesOf
delete from flotilla_task_alias as alias where task_id in (select 'task-1')

-- src/tasks/sql/enqueue.ts: probeTask
select task_id, tenant, name, unique_key, trace, concurrency_key, from_id,
  length(payload) as chars
from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as name, value ->> 3 as payload, value ->> 4 as unique_key, value ->> 5 as trace, value ->> 6 as concurrency_key, value ->> 7 as from_id from jsonb_each(?)) probe
-- values: ["[[\"task-1\",\"default\",\"mail\",\"{}\",\"key-1\",null,\"key/mail/acme\",null]]"]

-- src/tasks/sql/enqueue.ts: releaseKeys
  update flotilla_task set unique_key = null
  from (select value ->> 0 as tenant, value ->> 1 as name, value ->> 2 as unique_key, value ->> 3 as task_id, value ->> 4 as while_unfinished, value ->> 5 as for_ms from jsonb_each(?)) wanted
  where flotilla_task.tenant = wanted.tenant and flotilla_task.name = wanted.name
and flotilla_task.unique_key = wanted.unique_key and flotilla_task.task_id <> wanted.task_id
    and parent_id is null
    and ((wanted.while_unfinished = 1 and status in ('completed', 'failed', 'cancelled'))
      or created_at <= now_ms() - wanted.for_ms)
-- values: ["[[\"default\",\"mail\",\"key-1\",\"task-1\",1,60000]]"]

-- src/tasks/sql/enqueue.ts: noteReplaced
  insert into flotilla_task_event (task_id, seq, type, detail)
  select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), 'replaced',
    wanted.mark || cast(task.claim_token + 1 as text) || '}'
  from (select value ->> 0 as tenant, value ->> 1 as name, value ->> 2 as unique_key, value ->> 3 as task_id, value ->> 4 as mark from jsonb_each(?)) wanted join flotilla_task task on task.tenant = wanted.tenant and task.name = wanted.name
and task.unique_key = wanted.unique_key
  where task.status = 'pending' and task.flow_version is null and task.parent_id is null
    and not exists (
select 1 from flotilla_task_event past
where past.task_id = task.task_id and past.type = 'replaced'
  and past.detail like wanted.mark || '%')
    and task.task_id <> wanted.task_id
    and true
-- values: ["[[\"default\",\"mail\",\"key-1\",\"task-1\",\"{\\\"request\\\":\\\"task-1\\\",\\\"token\\\":\"]]"]

  insert into flotilla_task_event (task_id, seq, type, detail)
  select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), 'replaced',
    wanted.mark || cast(task.claim_token + 1 as text) || '}'
  from (select value ->> 0 as tenant, value ->> 1 as name, value ->> 2 as unique_key, value ->> 3 as task_id, value ->> 4 as mark from jsonb_each(?)) wanted join flotilla_task task on task.tenant = wanted.tenant and task.name = wanted.name
and task.unique_key = wanted.unique_key
  where task.status = 'pending' and task.flow_version is null and task.parent_id is null
    and not exists (
select 1 from flotilla_task_event past
where past.task_id = task.task_id and past.type = 'replaced'
  and past.detail like wanted.mark || '%')
    and task.task_id < wanted.task_id
    and (select count(*) from flotilla_task stored
  where stored.task_id in (select task_id from (select value ->> 0 as tenant, value ->> 1 as name, value ->> 2 as unique_key, value ->> 3 as task_id from jsonb_each(?)) wanted)) = ?
-- values: ["[[\"default\",\"mail\",\"key-1\",\"task-1\",\"{\\\"request\\\":\\\"task-1\\\",\\\"token\\\":\"]]","[[\"default\",\"mail\",null,\"task-1\"]]",1]

-- src/tasks/sql/enqueue.ts: replaceHolders
  update flotilla_task
  set payload = wanted.payload, priority = wanted.priority, max_attempts = wanted.max_attempts,
    trace = wanted.trace, concurrency_key = wanted.concurrency_key, limited = wanted.limited, blocked_by = null,
    scheduled_at = null,
    run_at = case when wanted.start_at is null then now_ms() + wanted.delay_ms
  when wanted.start_at > now_ms() then wanted.start_at else now_ms() end, last_update = now_ms(), claim_token = claim_token + 1, claimed_by = null,
    retry_count = 0, snoozes = 0, deaths = 0, state = null, progress = null, error = null,
    progress_token = claim_token + 1,
    parked = case when parked = 2 then 2 when case when wanted.start_at is null then now_ms() + wanted.delay_ms
  when wanted.start_at > now_ms() then wanted.start_at else now_ms() end > now_ms() then 1
      when wanted.limited = 1 then 4 else 0 end
  from (select value ->> 0 as tenant, value ->> 1 as name, value ->> 2 as unique_key, value ->> 3 as task_id, value ->> 4 as mark, value ->> 5 as payload, value ->> 6 as priority, value ->> 7 as delay_ms, value ->> 8 as start_at, value ->> 9 as max_attempts, value ->> 10 as trace, value ->> 11 as concurrency_key, value ->> 12 as limited from jsonb_each(?)) wanted
  where flotilla_task.tenant = wanted.tenant and flotilla_task.name = wanted.name
and flotilla_task.unique_key = wanted.unique_key and status = 'pending' and exists (
    select 1 from flotilla_task_event past
    where past.task_id = flotilla_task.task_id and past.type = 'replaced'
      and past.detail = wanted.mark || cast(flotilla_task.claim_token + 1 as text) || '}')
-- values: ["[[\"default\",\"mail\",\"key-1\",\"task-1\",\"{\\\"request\\\":\\\"task-1\\\",\\\"token\\\":\",\"{}\",0,0,null,null,null,\"key/mail/acme\",1]]"]

-- src/tasks/sql/enqueue.ts: trimReplaced
  delete from flotilla_task_event
  where type = 'replaced'
    and task_id in (
      select task.task_id from (select value ->> 0 as tenant, value ->> 1 as name, value ->> 2 as unique_key, value ->> 3 as task_id from jsonb_each(?)) wanted join flotilla_task task on task.tenant = wanted.tenant and task.name = wanted.name
and task.unique_key = wanted.unique_key)
    and seq < (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = flotilla_task_event.task_id) - ?
-- values: ["[[\"default\",\"mail\",\"key-1\",\"task-1\"]]",100]

-- src/tasks/sql/enqueue.ts: findReplaced
  select wanted.task_id from (select value ->> 0 as tenant, value ->> 1 as name, value ->> 2 as unique_key, value ->> 3 as task_id, value ->> 4 as mark from jsonb_each(?)) wanted join flotilla_task task on task.tenant = wanted.tenant and task.name = wanted.name
and task.unique_key = wanted.unique_key
  where exists (
select 1 from flotilla_task_event past
where past.task_id = task.task_id and past.type = 'replaced'
  and past.detail like wanted.mark || '%')
-- values: ["[[\"default\",\"mail\",\"key-1\",\"task-1\",\"{\\\"request\\\":\\\"task-1\\\",\\\"token\\\":\"]]"]

-- src/tasks/sql/enqueue.ts: undoUnlessStored
delete from flotilla_task
where task_id in (select task_id from (select value ->> 0 as tenant, value ->> 1 as name, value ->> 2 as unique_key, value ->> 3 as task_id from jsonb_each(?)) wanted) and not (select count(*) from flotilla_task stored
where stored.task_id in (select task_id from (select value ->> 0 as tenant, value ->> 1 as name, value ->> 2 as unique_key, value ->> 3 as task_id from jsonb_each(?)) wanted)) = ?
-- values: ["[[\"default\",\"mail\",\"key-1\",\"task-1\"]]","[[\"default\",\"mail\",null,\"task-1\"]]",1]

-- src/tasks/sql/logged.ts: runOutdated
select task.task_id from (select value ->> 0 as task_id, value ->> 1 as log_id from jsonb_each(?)) outdated
join flotilla_task task on task.task_id = outdated.task_id
where task.status = 'pending' and task.run_at > now_ms() order by task.task_id
-- values: ["[[\"task-0\",1]]"]

  update flotilla_task set run_at = now_ms(), last_update = now_ms()
  where task_id in (
select task.task_id from (select value ->> 0 as task_id, value ->> 1 as log_id from jsonb_each(?)) outdated
join flotilla_task task on task.task_id = outdated.task_id
where task.status = 'pending' and task.run_at > now_ms() and outdated.log_id = 1) and status = 'pending'
-- values: ["[[\"task-0\",1]]"]

-- src/tasks/sql/claim.ts: isDue
(run_at <= now_ms() or run_at <= last_update)

-- src/tasks/sql/claim.ts: unparkDue
update flotilla_task set parked = case when limited = 1 then 4 else 0 end, last_update = now_ms()
where rowid in (
  select rowid from flotilla_task
  where status = 'pending' and parked = 1 and run_at <= now_ms()
  order by run_at limit cast(? as integer) )
-- values: [500]

-- src/tasks/sql/claim.ts: readAhead
select
  (select run_at - now_ms() from flotilla_task
    where status = 'pending' and parked = 1 order by run_at limit 1) as wait_ms,
  exists (
    select 1 from (select value ->> 0 as name from jsonb_each(?)) wanted where (select task_id from flotilla_task task
      where task.name = wanted.name and task.status = 'pending' and parked = 4 and deaths < 2
      order by tenant, priority desc, created_at, task_id limit 1) is not null) as limited,
  exists (
    select 1 from (select value ->> 0 as name from jsonb_each(?)) wanted where (select task_id from flotilla_task task
      where task.name = wanted.name and task.status = 'pending' and parked = 0 and deaths >= 2
      order by created_at, task_id limit 1) is not null)
  or exists (
    select 1 from (select value ->> 0 as name from jsonb_each(?)) wanted where (select task_id from flotilla_task task
      where task.name = wanted.name and task.status = 'pending' and parked = 4 and deaths >= 2
      order by created_at, task_id limit 1) is not null) as alone,
  (select pauses from flotilla_pod where pod_id = ?) as pauses, now_ms() as now
-- values: ["[[\"mail\"]]","[[\"mail\"]]","[[\"mail\"]]","pod-1"]

-- src/tasks/sql/claim.ts: claimTasks
  update flotilla_task
  set status = 'claimed', claimed_by = ?, claim_token = claim_token + 1,
    claim_call = ?, last_update = now_ms()
  where rowid in (
  select address from (select * from (
    select rowid as address, task_id, priority, created_at from flotilla_task
    where name = ? and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= now_ms() or run_at <= last_update)
       and flow_version is null and task_version is null
    order by priority desc, created_at, task_id limit cast(? as integer) ) of_name union all select * from (
    select rowid as address, task_id, priority, created_at from flotilla_task
    where name = ? and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= now_ms() or run_at <= last_update)
       and flow_version is null and task_version is null
    order by priority desc, created_at, task_id limit cast(? as integer) ) of_name) ready
  order by priority desc, created_at, task_id limit cast(? as integer)) and status = 'pending'
    and exists (select 1 from flotilla_pod where pod_id = ? and claim_floor < ?
       )

  returning task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
nullif(priority, 0) as priority, nullif(wake, 0) as wake,
nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
nullif(limited, 0) as limited
-- instead of returning:
select task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
  trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
  nullif(priority, 0) as priority, nullif(wake, 0) as wake,
  nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
  nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
  nullif(limited, 0) as limited from flotilla_task
        where claimed_by = ? and claim_call = ? and status = 'claimed'
-- values: ["pod-1",5,"mail",10,"order",10,10,"pod-1",5]

  update flotilla_task
  set status = 'claimed', claimed_by = ?, claim_token = claim_token + 1,
    claim_call = ?, last_update = now_ms() , flow_version = case when flow_version is null and name in (?) then 0 else flow_version end,
      run_seq = case when flow_version is null and name in (?) then ((select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = flotilla_task.task_id) - 1) / cast(? as integer) else run_seq end
  where rowid in (
  select address from (select * from (
    select rowid as address, task_id, priority, created_at from flotilla_task
    where name = ? and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= now_ms() or run_at <= last_update)
       and flow_version is null and task_version is null and (deaths = 0 or task_id not in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) held))
    order by priority desc, created_at, task_id limit cast(? as integer) - (select count(*) from flotilla_task
  where claimed_by = ? and claim_call = ? and status = 'claimed'
    and name in (?)) ) of_name union all select * from (select * from (select * from (
    select rowid as address, task_id, priority, created_at from flotilla_task
    where name = ? and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= now_ms() or run_at <= last_update)
      and priority > ? and (name <> ? or coalesce(flow_version, 0) <= ?) and task_version is null and (deaths = 0 or task_id not in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) held))
    order by priority desc, created_at, task_id limit cast(? as integer) ) of_name union all select * from (
    select rowid as address, task_id, priority, created_at from flotilla_task
    where name = ? and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= now_ms() or run_at <= last_update)
      and priority = ? and created_at >= ? and (name <> ? or coalesce(flow_version, 0) <= ?) and task_version is null and (deaths = 0 or task_id not in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) held))
    order by priority desc, created_at, task_id limit cast(? as integer) ) of_name) of_names order by priority desc, created_at, task_id limit cast(? as integer) - (select count(*) from flotilla_task
  where claimed_by = ? and claim_call = ? and status = 'claimed'
    and name in (?))) of_set) ready
  order by priority desc, created_at, task_id limit cast(? as integer) - (select count(*) from flotilla_task
  where claimed_by = ? and claim_call = ? and status = 'claimed')) and status = 'pending'
    and exists (select 1 from flotilla_pod where pod_id = ? and claim_floor < ?
      and pauses = ? )

  returning task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
nullif(priority, 0) as priority, nullif(wake, 0) as wake,
nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
nullif(limited, 0) as limited, tenant, flow_version, cursor, state, intent, waiting, stopped_at,
run_seq, cancel_requested, last_update
-- instead of returning:
select task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
  trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
  nullif(priority, 0) as priority, nullif(wake, 0) as wake,
  nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
  nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
  nullif(limited, 0) as limited, tenant, flow_version, cursor, state, intent, waiting, stopped_at,
  run_seq, cancel_requested, last_update from flotilla_task
        where claimed_by = ? and claim_call = ? and status = 'claimed'
-- values: ["pod-1",5,"order","order",100,"mail","[[\"task-9\"]]",3,"pod-1",5,"mail","order",1,"order",2,"[[\"task-9\"]]",10,"order",1,100,"order",2,"[[\"task-9\"]]",10,2,"pod-1",5,"order",10,"pod-1",5,"pod-1",5,4]

  update flotilla_task
  set status = 'claimed', claimed_by = ?, claim_token = claim_token + 1,
    claim_call = ?, last_update = now_ms()
  where rowid in (
  select address from (select * from (
    select rowid as address, task_id, priority, created_at from flotilla_task
    where name = ? and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= now_ms() or run_at <= last_update)
       and flow_version is null and task_version is null
    order by priority desc, created_at, task_id limit cast(? as integer) ) of_name union all select * from (
    select rowid as address, task_id, priority, created_at from flotilla_task
    where name = ? and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= now_ms() or run_at <= last_update)
       and flow_version is null and task_version is null
    order by priority desc, created_at, task_id limit cast(? as integer) ) of_name) ready
  order by priority desc, created_at, task_id limit cast(? as integer)) and status = 'pending'
    and exists (select 1 from flotilla_pod where pod_id = ? and claim_floor < ?
       )
    and not exists (select 1 from flotilla_pod other
  where other.waiting = 1 and other.status = 'up' and other.pod_id <> ?
    and (replace(other.metadata, ?, '') <> other.metadata or replace(other.metadata, ?, '') <> other.metadata))
  returning task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
nullif(priority, 0) as priority, nullif(wake, 0) as wake,
nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
nullif(limited, 0) as limited
-- instead of returning:
select task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
  trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
  nullif(priority, 0) as priority, nullif(wake, 0) as wake,
  nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
  nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
  nullif(limited, 0) as limited from flotilla_task
        where claimed_by = ? and claim_call = ? and status = 'claimed'
-- values: ["pod-1",-5,"mail",10,"order",10,10,"pod-1",5,"pod-1","\"mail\"","\"order\""]

  update flotilla_task
  set status = 'claimed', claimed_by = ?, claim_token = claim_token + 1,
    claim_call = ?, last_update = now_ms()
  where rowid in (
  select address from (select * from (
    select rowid as address, task_id, priority, created_at from flotilla_task
    where name = ? and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= now_ms() or run_at <= last_update)
       and flow_version is null and (name <> ? or coalesce(task_version, 0) <= ?)
    order by priority desc, created_at, task_id limit cast(? as integer) ) of_name union all select * from (
    select rowid as address, task_id, priority, created_at from flotilla_task
    where name = ? and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= now_ms() or run_at <= last_update)
       and flow_version is null and task_version is null
    order by priority desc, created_at, task_id limit cast(? as integer) ) of_name) ready
  order by priority desc, created_at, task_id limit cast(? as integer)) and status = 'pending'
    and exists (select 1 from flotilla_pod where pod_id = ? and claim_floor < ?
       )

  returning task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
nullif(priority, 0) as priority, nullif(wake, 0) as wake,
nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
nullif(limited, 0) as limited, task_version, begun_version, case when exists (select 1 from flotilla_step_journal stored
  where stored.owner_id = flotilla_task.task_id and stored.part = '') then 1 else 0 end as has_steps
-- instead of returning:
select task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
  trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
  nullif(priority, 0) as priority, nullif(wake, 0) as wake,
  nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
  nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
  nullif(limited, 0) as limited, task_version, begun_version, case when exists (select 1 from flotilla_step_journal stored
    where stored.owner_id = flotilla_task.task_id and stored.part = '') then 1 else 0 end as has_steps from flotilla_task
        where claimed_by = ? and claim_call = ? and status = 'claimed'
-- values: ["pod-1",5,"mail","mail",3,10,"order",10,10,"pod-1",5]

-- src/tasks/sql/claim.ts: markBegun
update flotilla_pod set begun_task = case when begun_call > ? or begun_call = ? and begun_task > ? then begun_task else ? end,
  begun_call = case when begun_call > ? then begun_call else ? end
where pod_id = ? and status = 'up' and pauses = ?
returning pod_id
-- instead of returning:
select pod_id from flotilla_pod where pod_id = ? and status = 'up' and pauses = ?
-- values: [5,5,"task-1","task-1",5,5,"pod-1",1]

-- src/tasks/sql/claim.ts: isHeldBack
exists (select 1 from flotilla_pod holder
    where holder.pod_id = task.claimed_by and task.claim_call < 0 and holder.begun_call >= 0
      and (-task.claim_call > holder.begun_call
        or -task.claim_call = holder.begun_call and task.task_id > holder.begun_task))

-- src/tasks/sql/claim.ts: levelsInUse
with recursive level (name, priority) as (
  select wanted.name, (select max(priority) from flotilla_task task
    where task.name = wanted.name and status = 'pending' and parked = 0 and deaths < 2)
  from (select value ->> 0 as name from jsonb_each(?)) wanted
  union all
  select level.name, (select max(priority) from flotilla_task task
    where task.name = level.name and status = 'pending' and parked = 0 and deaths < 2 and task.priority < level.priority)
  from level where level.priority is not null)
select name, priority from level where priority is not null
order by priority, name limit cast(? as integer)
-- values: ["[[\"mail\"]]",400]

-- src/tasks/sql/claim.ts: claimOldest
  update flotilla_task
  set status = 'claimed', claimed_by = ?, claim_token = claim_token + 1,
    claim_call = ?, last_update = now_ms()
  where rowid in (
  select address from (select * from (
    select rowid as address, task_id, created_at from flotilla_task
    where name = ? and status = 'pending' and parked = 0 and deaths < 2
      and priority = ? and (run_at <= now_ms() or run_at <= last_update) and flow_version is null and task_version is null
    order by created_at, task_id limit cast(? as integer) ) of_level union all select * from (
    select rowid as address, task_id, created_at from flotilla_task
    where name = ? and status = 'pending' and parked = 0 and deaths < 2
      and priority = ? and (run_at <= now_ms() or run_at <= last_update) and flow_version is null and task_version is null
    order by created_at, task_id limit cast(? as integer) ) of_level) ready
  order by created_at, task_id limit cast(? as integer)) and status = 'pending'
    and exists (select 1 from flotilla_pod where pod_id = ? and claim_floor < ?
       )

  returning task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
nullif(priority, 0) as priority, nullif(wake, 0) as wake,
nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
nullif(limited, 0) as limited
-- instead of returning:
select task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
  trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
  nullif(priority, 0) as priority, nullif(wake, 0) as wake,
  nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
  nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
  nullif(limited, 0) as limited from flotilla_task
        where claimed_by = ? and claim_call = ? and status = 'claimed'
-- values: ["pod-1",5,"mail",0,10,"order",1,10,10,"pod-1",5]

  update flotilla_task
  set status = 'claimed', claimed_by = ?, claim_token = claim_token + 1,
    claim_call = ?, last_update = now_ms() , flow_version = case when flow_version is null and name in (?) then 0 else flow_version end,
      run_seq = case when flow_version is null and name in (?) then ((select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = flotilla_task.task_id) - 1) / cast(? as integer) else run_seq end
  where rowid in (
  select address from (select * from (
    select * from (select * from (
    select rowid as address, task_id, created_at from flotilla_task
    where name = ? and status = 'pending' and parked = 0 and deaths < 2
      and priority = ? and (run_at <= now_ms() or run_at <= last_update) and flow_version is null and task_version is null and (deaths = 0 or task_id not in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) held))
    order by created_at, task_id limit cast(? as integer) ) of_level) of_levels
    order by created_at, task_id limit cast(? as integer) - (select count(*) from flotilla_task
  where claimed_by = ? and claim_call = ? and status = 'claimed'
    and name in (?))) of_name union all select * from (select * from (select * from (
    select rowid as address, task_id, created_at from flotilla_task
    where name = ? and status = 'pending' and parked = 0 and deaths < 2
      and priority = ? and (run_at <= now_ms() or run_at <= last_update) and (name <> ? or coalesce(flow_version, 0) <= ?) and task_version is null and (deaths = 0 or task_id not in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) held))
    order by created_at, task_id limit cast(? as integer) ) of_level) of_names order by created_at, task_id limit cast(? as integer) - (select count(*) from flotilla_task
  where claimed_by = ? and claim_call = ? and status = 'claimed'
    and name in (?))) of_set) ready
  order by created_at, task_id limit cast(? as integer) - (select count(*) from flotilla_task
  where claimed_by = ? and claim_call = ? and status = 'claimed')) and status = 'pending'
    and exists (select 1 from flotilla_pod where pod_id = ? and claim_floor < ?
      and pauses = ? )

  returning task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
nullif(priority, 0) as priority, nullif(wake, 0) as wake,
nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
nullif(limited, 0) as limited, tenant, flow_version, cursor, state, intent, waiting, stopped_at,
run_seq, cancel_requested, last_update
-- instead of returning:
select task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
  trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
  nullif(priority, 0) as priority, nullif(wake, 0) as wake,
  nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
  nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
  nullif(limited, 0) as limited, tenant, flow_version, cursor, state, intent, waiting, stopped_at,
  run_seq, cancel_requested, last_update from flotilla_task
        where claimed_by = ? and claim_call = ? and status = 'claimed'
-- values: ["pod-1",5,"order","order",100,"mail",0,"[[\"task-9\"]]",10,3,"pod-1",5,"mail","order",1,"order",2,"[[\"task-9\"]]",10,2,"pod-1",5,"order",10,"pod-1",5,"pod-1",5,4]

-- src/tasks/sql/claim.ts: notNewer
and flow_version is null and task_version is null

and (name <> ? or coalesce(flow_version, 0) <= ?) and (flow_version is null or name in (?)) and task_version is null
-- values: ["order",2,"order"]

and flow_version is null and (name <> ? or coalesce(task_version, 0) <= ?) and (task_version is null or name in (?))
-- values: ["mail",3,"mail"]

-- src/tasks/sql/claim.ts: claimReserved
  update flotilla_task
  set status = 'claimed', claimed_by = ?, claim_token = claim_token + 1,
    claim_call = ?, last_update = now_ms()
  where task_id = ? and parked = 0 and name in (?, ?) and (run_at <= now_ms() or run_at <= last_update)
    and flow_version is null and task_version is null and status = 'pending'
    and exists (select 1 from flotilla_pod where pod_id = ? and claim_floor < ?
       )

  returning task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
nullif(priority, 0) as priority, nullif(wake, 0) as wake,
nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
nullif(limited, 0) as limited
-- instead of returning:
select task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
  trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
  nullif(priority, 0) as priority, nullif(wake, 0) as wake,
  nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
  nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
  nullif(limited, 0) as limited from flotilla_task
        where claimed_by = ? and claim_call = ? and status = 'claimed'
-- values: ["pod-1",5,"task-1","mail","order","pod-1",5]

-- src/tasks/sql/claim.ts: claimWhere
  update flotilla_task
  set status = 'claimed', claimed_by = ?, claim_token = claim_token + 1,
    claim_call = ?, last_update = now_ms()
  where task_id = 'task-1' and status = 'pending'
    and exists (select 1 from flotilla_pod where pod_id = ? and claim_floor < ?
       )

  returning task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
nullif(priority, 0) as priority, nullif(wake, 0) as wake,
nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
nullif(limited, 0) as limited
-- instead of returning:
select task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
  trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
  nullif(priority, 0) as priority, nullif(wake, 0) as wake,
  nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
  nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
  nullif(limited, 0) as limited from flotilla_task
        where claimed_by = ? and claim_call = ? and status = 'claimed'
-- values: ["pod-1",5,"pod-1",5]

-- src/tasks/sql/claim.ts: reserveAlone
  update flotilla_task set claimed_by = ?
  where status = 'pending' and rowid in (
    select address from (select * from (
  select rowid as address, task_id, name, tenant, concurrency_key, limited, created_at
  from flotilla_task task
  where name in (?) and status = 'pending' and parked = 0 and deaths >= 2
    and (run_at <= now_ms() or run_at <= last_update) and (claimed_by is null or claimed_by = ?
  or claimed_by not in (select pod_id from flotilla_pod where status = 'up' and drain = 0)
  or (select task_id from flotilla_task where status = 'claimed' and claimed_by = ?
  order by claim_call limit 1) is null) and flow_version is null and task_version is null
  order by created_at, task_id limit 1 ) of_kind union all
  select * from (
  select rowid as address, task_id, name, tenant, concurrency_key, limited, created_at
  from flotilla_task task
  where name in (?) and status = 'pending' and parked = 4 and not exists (select 1 from flotilla_task_limit given
  where given.scope = task.concurrency_key and given.max_running <= (select count(*) from flotilla_task held
  where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope))
and not exists (select 1 from flotilla_task_limit given
  where given.scope = 'tenant/' || task.tenant
    and given.max_running <= (select count(*) from flotilla_task held
  where coalesce(held.status, '') = 'claimed' and held.limited = 1 and held.tenant <> 'default'
    and held.tenant between task.tenant and task.tenant)) and deaths >= 2
    and (run_at <= now_ms() or run_at <= last_update) and (claimed_by is null or claimed_by = ?
  or claimed_by not in (select pod_id from flotilla_pod where status = 'up' and drain = 0)
  or (select task_id from flotilla_task where status = 'claimed' and claimed_by = ?
  order by claim_call limit 1) is null) and flow_version is null and task_version is null
  order by created_at, task_id limit 1 ) of_kind) alone
    order by created_at, task_id limit 1)
  returning task_id, name, tenant, concurrency_key, limited
-- instead of returning:
select task_id, name, tenant, concurrency_key, limited
        from (select * from (
    select rowid as address, task_id, name, tenant, concurrency_key, limited, created_at
    from flotilla_task task
    where name in (?) and status = 'pending' and parked = 0 and deaths >= 2
      and (run_at <= now_ms() or run_at <= last_update) and claimed_by = ?
    order by created_at, task_id limit 1 ) of_kind union all
    select * from (
    select rowid as address, task_id, name, tenant, concurrency_key, limited, created_at
    from flotilla_task task
    where name in (?) and status = 'pending' and parked = 4 and not exists (select 1 from flotilla_task_limit given
    where given.scope = task.concurrency_key and given.max_running <= (select count(*) from flotilla_task held
    where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope))
  and not exists (select 1 from flotilla_task_limit given
    where given.scope = 'tenant/' || task.tenant
      and given.max_running <= (select count(*) from flotilla_task held
    where coalesce(held.status, '') = 'claimed' and held.limited = 1 and held.tenant <> 'default'
      and held.tenant between task.tenant and task.tenant)) and deaths >= 2
      and (run_at <= now_ms() or run_at <= last_update) and claimed_by = ?
    order by created_at, task_id limit 1 ) of_kind) alone
        order by created_at, task_id limit 1
-- values: ["pod-1","mail","pod-1","pod-1","mail","pod-1","pod-1"]

-- src/tasks/sql/claim.ts: releaseCall
select 1 from flotilla_pod where pod_id = ?
-- values: ["pod-1"]

insert into flotilla_pod (pod_id, claim_floor, pauses, begun_call)
values (?, ?, now_ms(), ?)
on conflict (pod_id) do update set claim_floor = excluded.claim_floor
where flotilla_pod.claim_floor < excluded.claim_floor
-- values: ["pod-1",5,-1]

select task_id from flotilla_task task
      where claimed_by = ? and claim_call in (?, ?) and status = 'claimed'
      order by task_id
-- values: ["pod-1",5,-5]

select task_id from flotilla_task task where rowid in (
    select (select rowid from flotilla_task task where task.task_id = named.id)
    from (select distinct dependent_id as id from flotilla_task_dependency where dependency_id in (
      select task.task_id from flotilla_task task where task.claimed_by = ?
    and task.claim_call in (?, ?) and task.status = 'claimed' and task.cancel_requested = 1
    and task.flow_version is null)) named) order by task_id
-- values: ["pod-1",5,-5]

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
    then case when dependency.claimed_by = ?
and dependency.claim_call in (?, ?) and dependency.status = 'claimed' and dependency.cancel_requested = 1
and dependency.flow_version is null then 'cancelled' else dependency.status end end
when flotilla_task.awaits is null then case when dependency.claimed_by = ?
and dependency.claim_call in (?, ?) and dependency.status = 'claimed' and dependency.cancel_requested = 1
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
  select task.task_id from flotilla_task task where task.claimed_by = ?
and task.claim_call in (?, ?) and task.status = 'claimed' and task.cancel_requested = 1
and task.flow_version is null)) named) and coalesce(flotilla_task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["pod-1",5,-5,"pod-1",5,-5,"pod-1",5,-5]

update flotilla_task
set status = case when cancel_requested = 1 and flow_version is null then 'cancelled'
    else 'pending' end,
  claimed_by = null, claim_call = null, claim_token = claim_token + 1, last_update = now_ms()
where claimed_by = ? and claim_call in (?, ?) and status = 'claimed'
-- values: ["pod-1",5,-5]

-- src/tasks/sql/concurrency.ts: limitedPairs
with recursive step (name, tenant, nth) as (
  select wanted.name, (select min(task.tenant) from flotilla_task task
    where task.name = wanted.name and task.status = 'pending' and task.parked = 4 and task.deaths < 2 and task.tenant > ?), 1
  from (select value ->> 0 as name from jsonb_each(?)) wanted
  union all
  select step.name, (select min(task.tenant) from flotilla_task task
    where task.name = step.name and task.status = 'pending' and task.parked = 4 and task.deaths < 2 and task.tenant > step.tenant), step.nth + 1
  from step where step.tenant is not null and step.nth < ?)
select name, tenant, exists (select 1 from flotilla_task_limit given
  where given.scope = 'tenant/' || step.tenant
    and given.max_running <= (select count(*) from flotilla_task held
where coalesce(held.status, '') = 'claimed' and held.limited = 1 and held.tenant <> 'default'
  and held.tenant between step.tenant and step.tenant)) as is_full
from step where tenant is not null
-- values: ["","[[\"mail\"]]",10]

-- src/tasks/sql/concurrency.ts: selectCandidates
select ready.*, (select case when by_hand = 1 then 0 else max_running end from flotilla_task_limit given
  where given.scope = ready.concurrency_key) as stored_limit
from (select * from (
  select task_id, name, tenant, concurrency_key, priority, created_at from flotilla_task task
  where name = ? and tenant = ? and task.status = 'pending' and task.parked = 4 and task.deaths < 2 and priority <= ?
    and (run_at <= now_ms() or run_at <= last_update) and flow_version is null and task_version is null
    and task_id not in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) without)
  order by priority desc, created_at, task_id limit cast(? as integer)) of_pair) ready
-- values: ["mail","acme",5,"[[\"x\"]]",10]

-- src/tasks/sql/concurrency.ts: lockScopes
insert into flotilla_task_limit (scope, max_running)
select scope, max_running from (select value ->> 0 as scope, value ->> 1 as max_running from jsonb_each(?)) fresh where true order by scope
on conflict (scope) do update set max_running = excluded.max_running
where flotilla_task_limit.by_hand = 0 and flotilla_task_limit.max_running <> excluded.max_running
-- values: ["[[\"key/mail/acme\",2]]"]

select count(*) from (
  select scope from flotilla_task_limit where scope in (select scope from (select value ->> 0 as scope from jsonb_each(?)) wanted)
  order by scope ) locked
-- values: ["[[\"tenant/acme\"]]"]

select count(*) from (
  select scope from flotilla_task_limit where scope in (select scope from (select value ->> 0 as scope from jsonb_each(?)) wanted)
  order by scope ) locked
-- values: ["[[\"key/mail/acme\"],[\"tenant/acme\"]]"]

-- src/tasks/sql/concurrency.ts: lockLimits
select count(*) from (
  select scope from flotilla_task_limit where scope in (select scope from (select value ->> 0 as scope from jsonb_each(?)) wanted)
  order by scope ) locked
-- values: ["[[\"tenant/acme\"]]"]

-- src/tasks/sql/concurrency.ts: claimCandidates
  update flotilla_task
  set status = 'claimed', claimed_by = ?, claim_token = claim_token + 1,
    claim_call = ?, last_update = now_ms()
  where rowid in (
  select address from (
  select address, place, tenant, concurrency_key from (
    select address, place, tenant, concurrency_key, nth,
      max(first_slots) over (partition by tenant) as slots
    from (
      select address, place, tenant, concurrency_key, row_number() over (partition by tenant order by place) as nth,
        case when row_number() over (partition by tenant order by place) = 1 then (select given.max_running - (select count(*) from flotilla_task held
  where coalesce(held.status, '') = 'claimed' and held.limited = 1 and held.tenant <> 'default'
    and held.tenant between tried.tenant and tried.tenant) from flotilla_task_limit given
  where given.scope = 'tenant/' || tried.tenant) end as first_slots
      from (select * from (
  select task.rowid as address, wanted.place, task.tenant, task.concurrency_key
  from (select value ->> 0 as task_id, value ->> 1 as place, value ->> 2 as concurrency_key from jsonb_each(?)) wanted
  join flotilla_task task on task.task_id = wanted.task_id
  where coalesce(task.status, '') = 'pending' and task.parked = 4
    and coalesce(task.concurrency_key, '') = coalesce(wanted.concurrency_key, '')
    and task.deaths < 2 and (run_at <= now_ms() or run_at <= last_update)
    and flow_version is null and task_version is null
  ) tried
      where concurrency_key is null or (select given.max_running - (select count(*) from flotilla_task held
  where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope) from flotilla_task_limit given
  where given.scope = tried.concurrency_key) >= 1) tried) counted) ranked
  where slots is null or nth <= slots) free order by place limit cast(? as integer)) and status = 'pending'
    and exists (select 1 from flotilla_pod where pod_id = ? and claim_floor < ?
       )

  returning task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
nullif(priority, 0) as priority, nullif(wake, 0) as wake,
nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
nullif(limited, 0) as limited
-- instead of returning:
select task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
  trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
  nullif(priority, 0) as priority, nullif(wake, 0) as wake,
  nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
  nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
  nullif(limited, 0) as limited from flotilla_task
        where claimed_by = ? and claim_call = ? and status = 'claimed'
-- values: ["pod-1",5,"[[\"task-1\",0,\"key/mail/acme\"]]",10,"pod-1",5]

  update flotilla_task
  set status = 'claimed', claimed_by = ?, claim_token = claim_token + 1,
    claim_call = ?, last_update = now_ms()
  where rowid in (
  select address from (
  select address, place, tenant, concurrency_key from (
    select address, place, tenant, concurrency_key, nth,
      max(first_slots) over (partition by tenant) as slots
    from (
      select address, place, tenant, concurrency_key, row_number() over (partition by tenant order by place) as nth,
        case when row_number() over (partition by tenant order by place) = 1 then (select given.max_running - (select count(*) from flotilla_task held
  where coalesce(held.status, '') = 'claimed' and held.limited = 1 and held.tenant <> 'default'
    and held.tenant between tried.tenant and tried.tenant) from flotilla_task_limit given
  where given.scope = 'tenant/' || tried.tenant) end as first_slots
      from (select * from (
  select task.rowid as address, wanted.place, task.tenant, task.concurrency_key
  from (select value ->> 0 as task_id, value ->> 1 as place, value ->> 2 as concurrency_key from jsonb_each(?)) wanted
  join flotilla_task task on task.task_id = wanted.task_id
  where coalesce(task.status, '') = 'pending' and task.parked = 4
    and coalesce(task.concurrency_key, '') = coalesce(wanted.concurrency_key, '')
    and task.deaths >= 2 and (run_at <= now_ms() or run_at <= last_update)
    and flow_version is null and task_version is null
  ) tried
      where concurrency_key is null or (select given.max_running - (select count(*) from flotilla_task held
  where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope) from flotilla_task_limit given
  where given.scope = tried.concurrency_key) >= 1) tried) counted) ranked
  where slots is null or nth <= slots) free order by place limit cast(? as integer)) and status = 'pending'
    and exists (select 1 from flotilla_pod where pod_id = ? and claim_floor < ?
       )

  returning task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
nullif(priority, 0) as priority, nullif(wake, 0) as wake,
nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
nullif(limited, 0) as limited
-- instead of returning:
select task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
  trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
  nullif(priority, 0) as priority, nullif(wake, 0) as wake,
  nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
  nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
  nullif(limited, 0) as limited from flotilla_task
        where claimed_by = ? and claim_call = ? and status = 'claimed'
-- values: ["pod-1",5,"[[\"task-1\",0,\"key/mail/acme\"]]",10,"pod-1",5]

-- src/tasks/sql/concurrency.ts: blockCandidates
update flotilla_task set parked = 3, blocked_by = concurrency_key
where rowid in (
with tried as (
  select task.rowid as address, task.task_id, task.concurrency_key as scope
  from (select value ->> 0 as task_id, value ->> 1 as place, value ->> 2 as concurrency_key from jsonb_each(?)) wanted join flotilla_task task on task.task_id = wanted.task_id
  where coalesce(task.status, '') = 'pending' and task.parked = 4
    and task.concurrency_key = wanted.concurrency_key
    and (select count(*) from flotilla_task
where claimed_by = ? and claim_call = ? and status = 'claimed') < ? )
select address from tried where tried.scope in (
  select given.scope from flotilla_task_limit given
  where given.scope in (select scope from tried)
    and given.max_running <= (select count(*) from flotilla_task held
where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope)))
returning task_id
-- instead of returning:
with tried as (
  select task.rowid as address, task.task_id, task.concurrency_key as scope
  from (select value ->> 0 as task_id, value ->> 1 as place, value ->> 2 as concurrency_key from jsonb_each(?)) wanted join flotilla_task task on task.task_id = wanted.task_id
  where coalesce(task.status, '') = 'pending' and task.parked = 4
    and task.concurrency_key = wanted.concurrency_key
    and (select count(*) from flotilla_task
where claimed_by = ? and claim_call = ? and status = 'claimed') < ? )
select task_id from tried where tried.scope in (
  select given.scope from flotilla_task_limit given
  where given.scope in (select scope from tried)
    and given.max_running <= (select count(*) from flotilla_task held
where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope))
-- values: ["[[\"task-1\",0,\"key/mail/acme\"]]","pod-1",5,2]

-- src/tasks/sql/concurrency.ts: claimLimited
insert into flotilla_task_limit (scope, max_running)
select scope, max_running from (select value ->> 0 as scope, value ->> 1 as max_running from jsonb_each(?)) fresh where true order by scope
on conflict (scope) do update set max_running = excluded.max_running
where flotilla_task_limit.by_hand = 0 and flotilla_task_limit.max_running <> excluded.max_running
-- values: ["[[\"key/mail/acme\",2]]"]

select count(*) from (
  select scope from flotilla_task_limit where scope in (select scope from (select value ->> 0 as scope from jsonb_each(?)) wanted)
  order by scope ) locked
-- values: ["[[\"tenant/acme\"]]"]

  update flotilla_task
  set status = 'claimed', claimed_by = ?, claim_token = claim_token + 1,
    claim_call = ?, last_update = now_ms()
  where rowid in (
  select address from (
  select address, place, tenant, concurrency_key from (
    select address, place, tenant, concurrency_key, nth,
      max(first_slots) over (partition by tenant) as slots
    from (
      select address, place, tenant, concurrency_key, row_number() over (partition by tenant order by place) as nth,
        case when row_number() over (partition by tenant order by place) = 1 then (select given.max_running - (select count(*) from flotilla_task held
  where coalesce(held.status, '') = 'claimed' and held.limited = 1 and held.tenant <> 'default'
    and held.tenant between tried.tenant and tried.tenant) from flotilla_task_limit given
  where given.scope = 'tenant/' || tried.tenant) end as first_slots
      from (select * from (
  select task.rowid as address, wanted.place, task.tenant, task.concurrency_key
  from (select value ->> 0 as task_id, value ->> 1 as place, value ->> 2 as concurrency_key from jsonb_each(?)) wanted
  join flotilla_task task on task.task_id = wanted.task_id
  where coalesce(task.status, '') = 'pending' and task.parked = 4
    and coalesce(task.concurrency_key, '') = coalesce(wanted.concurrency_key, '')
    and task.deaths < 2 and (run_at <= now_ms() or run_at <= last_update)
    and flow_version is null and task_version is null
  ) tried
      where concurrency_key is null or (select given.max_running - (select count(*) from flotilla_task held
  where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope) from flotilla_task_limit given
  where given.scope = tried.concurrency_key) >= 1) tried) counted) ranked
  where slots is null or nth <= slots) free order by place limit cast(? as integer)) and status = 'pending'
    and exists (select 1 from flotilla_pod where pod_id = ? and claim_floor < ?
       )

  returning task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
nullif(priority, 0) as priority, nullif(wake, 0) as wake,
nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
nullif(limited, 0) as limited
-- instead of returning:
select task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
  trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
  nullif(priority, 0) as priority, nullif(wake, 0) as wake,
  nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
  nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
  nullif(limited, 0) as limited from flotilla_task
        where claimed_by = ? and claim_call = ? and status = 'claimed'
-- values: ["pod-1",5,"[[\"task-1\",0,\"key/mail/acme\"]]",10,"pod-1",5]

update flotilla_task set parked = 3, blocked_by = concurrency_key
where rowid in (
with tried as (
  select task.rowid as address, task.task_id, task.concurrency_key as scope
  from (select value ->> 0 as task_id, value ->> 1 as place, value ->> 2 as concurrency_key from jsonb_each(?)) wanted join flotilla_task task on task.task_id = wanted.task_id
  where coalesce(task.status, '') = 'pending' and task.parked = 4
    and task.concurrency_key = wanted.concurrency_key
    and (select count(*) from flotilla_task
where claimed_by = ? and claim_call = ? and status = 'claimed') < ? )
select address from tried where tried.scope in (
  select given.scope from flotilla_task_limit given
  where given.scope in (select scope from tried)
    and given.max_running <= (select count(*) from flotilla_task held
where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope)))
returning task_id
-- instead of returning:
with tried as (
  select task.rowid as address, task.task_id, task.concurrency_key as scope
  from (select value ->> 0 as task_id, value ->> 1 as place, value ->> 2 as concurrency_key from jsonb_each(?)) wanted join flotilla_task task on task.task_id = wanted.task_id
  where coalesce(task.status, '') = 'pending' and task.parked = 4
    and task.concurrency_key = wanted.concurrency_key
    and (select count(*) from flotilla_task
where claimed_by = ? and claim_call = ? and status = 'claimed') < ? )
select task_id from tried where tried.scope in (
  select given.scope from flotilla_task_limit given
  where given.scope in (select scope from tried)
    and given.max_running <= (select count(*) from flotilla_task held
where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope))
-- values: ["[[\"task-1\",0,\"key/mail/acme\"]]","pod-1",5,1]

-- src/tasks/sql/concurrency.ts: unblock
update flotilla_task set parked = 4, blocked_by = null
where rowid in (
  select address from (
    select address, nth, max(slots) over (partition by blocked_by) as slots
    from (
      select address, blocked_by, row_number() over (partition by blocked_by order by priority desc, created_at, task_id) as nth,
        case when row_number() over (partition by blocked_by order by priority desc, created_at, task_id) = 1 then (select given.max_running - (select count(*) from flotilla_task held
where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope) from flotilla_task_limit given
where given.scope = blocked.blocked_by) end as slots
      from (select * from (
  select rowid as address, blocked_by, priority, created_at, task_id from flotilla_task
  where blocked_by = ? and status = 'pending' and parked = 3
  order by priority desc, created_at, task_id limit cast(? as integer) ) of_scope) blocked) with_slots) ranked
  where slots is null or ranked.nth <= slots)
-- values: ["key/mail/acme",3]

-- src/tasks/sql/concurrency.ts: unblockUnchecked
update flotilla_task set parked = 4, blocked_by = null
where rowid in (select address from (select * from (
  select rowid as address, blocked_by, priority, created_at, task_id from flotilla_task
  where blocked_by = ? and status = 'pending' and parked = 3
  order by priority desc, created_at, task_id limit cast(? as integer) ) of_scope) blocked)
-- values: ["key/mail/acme",3]

-- src/tasks/sql/concurrency.ts: unblockAfter
select count(*) from (
  select scope from flotilla_task_limit where scope in (select scope from (select value ->> 0 as scope from jsonb_each(?)) wanted)
  order by scope ) locked
-- values: ["[[\"key/mail/acme\"]]"]

update flotilla_task set parked = 4, blocked_by = null
where status = 'pending' and rowid in (
  with next as materialized (
    select wanted.scope, (select rowid from flotilla_task task
      where task.blocked_by = wanted.scope and task.status = 'pending' and task.parked = 3
      order by task.priority desc, task.created_at, task.task_id limit 1 ) as address
    from (select value ->> 0 as scope from jsonb_each(?)) wanted)
  select address from next
  where address is not null and coalesce((select given.max_running - (select count(*) from flotilla_task held
where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope) from flotilla_task_limit given
where given.scope = next.scope), 1) > 0)
-- values: ["[[\"key/mail/acme\"]]"]

select count(*) from (
  select scope from flotilla_task_limit where scope in (select scope from (select value ->> 0 as scope from jsonb_each(?)) wanted)
  order by scope ) locked
-- values: ["[[\"key/mail/acme\"]]"]

update flotilla_task set parked = 4, blocked_by = null
where rowid in (
  select address from (
    select address, nth, max(slots) over (partition by blocked_by) as slots
    from (
      select address, blocked_by, row_number() over (partition by blocked_by order by priority desc, created_at, task_id) as nth,
        case when row_number() over (partition by blocked_by order by priority desc, created_at, task_id) = 1 then (select given.max_running - (select count(*) from flotilla_task held
where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope) from flotilla_task_limit given
where given.scope = blocked.blocked_by) end as slots
      from (select * from (
  select rowid as address, blocked_by, priority, created_at, task_id from flotilla_task
  where blocked_by = ? and status = 'pending' and parked = 3
  order by priority desc, created_at, task_id limit cast(? as integer) ) of_scope) blocked) with_slots) ranked
  where slots is null or ranked.nth <= slots)
-- values: ["key/mail/acme",2]

-- src/tasks/sql/dependencies.ts: hasNoOpenDependents
(dependents = 0 or not exists (
  select 1 from flotilla_task_dependency wait where wait.dependency_id = flotilla_task.task_id
    and (select waiter.status from flotilla_task waiter where waiter.task_id = wait.dependent_id)
      in ('pending', 'claimed')))

-- src/tasks/sql/dependencies.ts: wakeDependents
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

-- src/tasks/sql/dependencies.ts: wakeDependentsOfCall
select task_id from flotilla_task task where rowid in (
    select (select rowid from flotilla_task task where task.task_id = named.id)
    from (select distinct dependent_id as id from flotilla_task_dependency where dependency_id in (
      select task.task_id from flotilla_task task where task.claimed_by = ?
    and task.claim_call in (?, ?) and task.status = 'claimed' and task.cancel_requested = 1
    and task.flow_version is null)) named) order by task_id
-- values: ["pod-1",5,-5]

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
    then case when dependency.claimed_by = ?
and dependency.claim_call in (?, ?) and dependency.status = 'claimed' and dependency.cancel_requested = 1
and dependency.flow_version is null then 'cancelled' else dependency.status end end
when flotilla_task.awaits is null then case when dependency.claimed_by = ?
and dependency.claim_call in (?, ?) and dependency.status = 'claimed' and dependency.cancel_requested = 1
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
  select task.task_id from flotilla_task task where task.claimed_by = ?
and task.claim_call in (?, ?) and task.status = 'claimed' and task.cancel_requested = 1
and task.flow_version is null)) named) and coalesce(flotilla_task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["pod-1",5,-5,"pod-1",5,-5,"pod-1",5,-5]

-- src/tasks/sql/dependencies.ts: wakeDependentsOfChildren
select task_id from flotilla_task task where rowid in (
    select (select rowid from flotilla_task task where task.task_id = named.id)
    from (
    select distinct wait.dependent_id as id
    from flotilla_task_dependency own join flotilla_task_dependency wait on wait.dependency_id = own.dependency_id
    where own.dependent_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent)
      and (select task.status from flotilla_task task
        where task.task_id = own.dependency_id and task.parent_id = own.dependent_id) = 'cancelled') named) order by task_id
-- values: ["[[\"run-1\"]]"]

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
-- values: ["[[\"run-1\"]]"]

-- src/tasks/sql/dependencies.ts: wakeIfDependenciesEnded
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

-- src/tasks/sql/dependencies.ts: wakeChildren
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
select dependency_id as id from flotilla_task_dependency
where dependent_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent)) named) and coalesce(flotilla_task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["[[\"run-1\"]]"]

-- src/tasks/sql/dependencies.ts: notifyingParents
select task_id from flotilla_task task where rowid in (
    select (select rowid from flotilla_task task where task.task_id = named.id)
    from (
    select distinct child.parent_id as id from flotilla_task child
    where child.task_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) started)
      and child.parent_id is not null ) named)
      order by task_id
-- values: ["[[\"task-1\"]]"]

select 'starting'

update flotilla_task set wake = wake + 1
      where rowid in (
    select (select rowid from flotilla_task task where task.task_id = named.id)
    from (
    select distinct child.parent_id as id from flotilla_task child
    where child.task_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) started)
      and child.parent_id is not null and child.status in ('pending', 'claimed')) named)
        and status in ('pending', 'claimed')
-- values: ["[[\"task-1\"]]"]

-- src/tasks/sql/dependencies.ts: dependenciesExist
not exists (
    select task_id from (select value ->> 0 as task_id from jsonb_each(?)) wanted
    where not exists (select 1 from flotilla_task task where task.task_id = wanted.task_id))
-- values: ["[[\"task-1\"]]"]

-- src/tasks/sql/dependencies.ts: missingDependencies
select task_id from (select value ->> 0 as task_id from jsonb_each(?)) wanted
where not exists (select 1 from flotilla_task task where task.task_id = wanted.task_id)
-- values: ["[[\"task-1\"]]"]

-- src/tasks/sql/dependencies.ts: insertDependencies
insert into flotilla_task_dependency (dependency_id, dependent_id, place)
select coalesce(holder.task_id, wanted.dependency_id), wanted.dependent_id, wanted.place
from (select value ->> 0 as dependency_id, value ->> 1 as dependent_id, value ->> 2 as place, value ->> 3 as tenant, value ->> 4 as name, value ->> 5 as unique_key from jsonb_each(?)) wanted left join flotilla_task holder
  on holder.tenant = wanted.tenant and holder.name = wanted.name
  and holder.unique_key = wanted.unique_key
where exists (select 1 from flotilla_task task where task.task_id = wanted.dependent_id)
  and not exists (select 1 from flotilla_task_dependency wait where wait.dependent_id = wanted.dependent_id)
on conflict do nothing
-- values: ["[[\"task-1\",\"task-2\",0,null,null,null]]"]

select task_id from flotilla_task task where rowid in (
    select (select rowid from flotilla_task task where task.task_id = named.id)
    from (select distinct dependency_id as id from flotilla_task_dependency
    where dependent_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) fresh)) named) order by task_id
-- values: ["[[\"task-2\"]]"]

update flotilla_task set dependents = dependents + 1 where rowid in (
    select (select rowid from flotilla_task task where task.task_id = named.id)
    from (select distinct dependency_id as id from flotilla_task_dependency
    where dependent_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) fresh)) named)
-- values: ["[[\"task-2\"]]"]

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
-- values: ["[[\"task-2\"]]"]

-- src/tasks/sql/dependencies.ts: dependenciesOf
select dependent_id, dependency_id from flotilla_task_dependency
where dependent_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) wanted) order by dependent_id, place
-- values: ["[[\"task-2\"]]"]

-- src/tasks/sql/dependencies.ts: getParents
select task.* from flotilla_task_dependency wait join flotilla_task task on task.task_id = wait.dependency_id
where wait.dependent_id = ? order by wait.place
-- values: ["task-2"]

-- src/tasks/sql/dependencies.ts: deleteDependencies
delete from flotilla_task_dependency where dependent_id in (select 'task-1')

-- src/tasks/sql/finish.ts: finishTasks
update flotilla_task
set status = 'completed', result = done.result, started_at = done.started_at, claim_call = null, last_update = now_ms()
from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as result, value ->> 3 as started_at from jsonb_each(?)) done
where flotilla_task.task_id = done.task_id
  and flotilla_task.claim_token = done.token
  and flotilla_task.status in ('claimed', 'pending')
   and dependents = 0
returning flotilla_task.task_id
-- instead of returning:
select task.task_id from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as result, value ->> 3 as started_at from jsonb_each(?)) done join flotilla_task task on task.task_id = done.task_id
where task.claim_token = done.token
  and task.status in ('claimed', 'pending')
   and dependents = 0
-- values: ["[[\"task-1\",3,\"{}\",null]]"]

update flotilla_task
set
status = done.status, result = done.result, error = coalesce(done.error, flotilla_task.error),
started_at = coalesce(done.started_at, flotilla_task.started_at),
retry_count = case when done.stepped = 1 then 0 else retry_count end + done.counted,
deaths = case when done.stepped = 1 then 0 else deaths end, snoozes = snoozes + done.snoozed,
claim_token = claim_token + case when done.status = 'pending' then 1 else 0 end,
claimed_by = case when done.status = 'pending' then null else claimed_by end,
run_at = case when done.delay_ms is null then run_at else now_ms() + done.delay_ms end,
awaits = done.awaits,
depends = case when done.children > 0 then 2 else depends end,
set_aside = done.set_aside,
parked = case when done.set_aside is not null then 6
  when done.delay_ms > 0 then 1
  when done.children = 2 then 2
  when done.awaits is not null then 5 else case when limited = 1 then 4 else 0 end end, claim_call = null, last_update = now_ms()
from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as status, value ->> 3 as result, value ->> 4 as error, value ->> 5 as counted, value ->> 6 as snoozed, value ->> 7 as stepped, value ->> 8 as delay_ms, value ->> 9 as awaits, value ->> 10 as children, value ->> 11 as set_aside, value ->> 12 as wake, value ->> 13 as started_at from jsonb_each(?)) done
where flotilla_task.task_id = done.task_id
  and flotilla_task.claim_token = done.token
  and flotilla_task.status in ('claimed', 'pending')
  and (done.wake is null or flotilla_task.wake = done.wake)
returning flotilla_task.task_id
-- instead of returning:
select task.task_id from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as status, value ->> 3 as result, value ->> 4 as error, value ->> 5 as counted, value ->> 6 as snoozed, value ->> 7 as stepped, value ->> 8 as delay_ms, value ->> 9 as awaits, value ->> 10 as children, value ->> 11 as set_aside, value ->> 12 as wake, value ->> 13 as started_at from jsonb_each(?)) done join flotilla_task task on task.task_id = done.task_id
where task.claim_token = done.token
  and task.status in ('claimed', 'pending')
  and (done.wake is null or task.wake = done.wake)
-- values: ["[[\"task-1\",3,\"failed\",\"{}\",\"{}\",1,0,0,null,null,0,null,2,null]]"]

-- src/tasks/sql/finish.ts: noteFinishes
insert into flotilla_task_event (task_id, seq, type, attempt, pod_id, detail)
select noted.task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = noted.task_id), noted.type, noted.attempt, ?, noted.detail
from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as wake, value ->> 3 as type, value ->> 4 as attempt, value ->> 5 as detail from jsonb_each(?)) noted join flotilla_task task on task.task_id = noted.task_id
where task.claim_token = noted.token
  and task.status in ('claimed', 'pending')
  and (noted.wake is null or task.wake = noted.wake)
-- values: ["pod-1","[[\"task-1\",3,2,\"failed\",1,\"{}\"]]"]

-- src/tasks/sql/finish.ts: insertFinishFollowUps
insert into flotilla_task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
  unique_key, parent_id, trace, limited, parked)
select failed.id, task.tenant, failed.name, failed.payload, task.priority, now_ms(), now_ms(), now_ms(),
  failed.key, task.task_id, task.trace, case when task.tenant <> 'default' then cast(? as integer) else 0 end, case when task.tenant <> 'default' then cast(? as integer) else 0 end
from (select value ->> 0 as id, value ->> 1 as failed_id, value ->> 2 as token, value ->> 3 as name, value ->> 4 as payload, value ->> 5 as key from jsonb_each(?)) failed join flotilla_task task
  on task.task_id = failed.failed_id and task.claim_token = failed.token
where task.status in ('claimed', 'pending')
on conflict do nothing
-- values: [1,4,"[[\"task-2\",\"task-1\",3,\"alarm\",\"{}\",\"task-1/3\"]]"]

insert into flotilla_link (from_id, to_id, what, at)
select from_id, to_id, what, now_ms() from (select value ->> 0 as from_id, value ->> 1 as to_id, value ->> 2 as what from jsonb_each(?)) wanted
where to_id = (select task_id from flotilla_task where task_id = wanted.to_id)
on conflict do nothing
-- values: ["[[\"task-1\",\"task-2\",\"follow_up\"]]"]

-- src/tasks/sql/finish.ts: wakeDependentsAfter
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

-- src/tasks/sql/finish.ts: readTaskStates
select task_id, status, claimed_by, claim_token, wake, dependents, cancel_requested, run_seq
from flotilla_task
where task_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) wanted)
-- values: ["[[\"task-1\"]]"]

-- src/tasks/sql/finish.ts: saveProgress
update flotilla_task set progress = newest.value, progress_token = newest.token
from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as value from jsonb_each(?)) newest
where flotilla_task.task_id = newest.task_id and flotilla_task.claim_token = newest.token
  and flotilla_task.run_seq = newest.run_seq and flotilla_task.status = 'claimed'
-- values: ["[[\"task-1\",3,0,\"{}\"]]"]

-- src/tasks/sql/finish.ts: forgetEarlierSnoozes
delete from flotilla_task_event
where task_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) snoozed) and type = 'snoozed'
  and exists (select 1 from flotilla_task_event later where later.task_id = flotilla_task_event.task_id
    and later.seq = flotilla_task_event.seq + 1 and later.type = 'snoozed')
-- values: ["[[\"task-1\"]]"]

-- src/tasks/sql/finish.ts: insertFollowUps
insert into flotilla_task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
  unique_key, parent_id, trace, limited, parked)
select failed.id, task.tenant, failed.name, failed.payload, task.priority, now_ms(), now_ms(), now_ms(),
  failed.key, task.task_id, task.trace, case when task.tenant <> 'default' then cast(? as integer) else 0 end, case when task.tenant <> 'default' then cast(? as integer) else 0 end
from (select value ->> 0 as id, value ->> 1 as failed_id, value ->> 2 as token, value ->> 3 as name, value ->> 4 as payload, value ->> 5 as key from jsonb_each(?)) failed join flotilla_task task
  on task.task_id = failed.failed_id and task.claim_token = failed.token
where task.status = 'claimed'
on conflict do nothing
-- values: [1,4,"[[\"task-2\",\"task-1\",3,\"alarm\",\"{}\",\"task-1/3\"]]"]

-- src/tasks/sql/finish.ts: linkFollowUps
insert into flotilla_link (from_id, to_id, what, at)
select from_id, to_id, what, now_ms() from (select value ->> 0 as from_id, value ->> 1 as to_id, value ->> 2 as what from jsonb_each(?)) wanted
where to_id = (select task_id from flotilla_task where task_id = wanted.to_id)
on conflict do nothing
-- values: ["[[\"task-1\",\"task-2\",\"follow_up\"]]"]

-- src/tasks/sql/finish.ts: readProgress
select progress, progress_token from flotilla_task where task_id = ?
-- values: ["task-1"]

-- src/tasks/sql/recover.ts: isSettled
created_at < now_ms() - ? and last_update < now_ms() - ?
-- values: [60000,60000]

-- src/tasks/sql/recover.ts: claimsOf
select task_id, claim_token, claimed_by, deaths, last_update from (
  select task_id, claim_token, claimed_by, deaths, last_update from flotilla_task
  where status = 'claimed' and claimed_by in (select pod_id from (select value ->> 0 as pod_id from jsonb_each(?)) silent)
  order by claimed_by, claim_call limit cast(? as integer)) held
order by task_id
-- values: ["[[\"pod-2\"]]",10]

-- src/tasks/sql/recover.ts: recoverTasks
update flotilla_task
set status = case when cancel_requested = 1 and flow_version is null then 'cancelled' when case when exists (
select 1 from flotilla_step_journal stored
where stored.owner_id = flotilla_task.task_id and stored.part = ''
  and stored.token = flotilla_task.claim_token) then 0 else flotilla_task.deaths end + case when exists (select 1 from flotilla_pod holder
where holder.pod_id = flotilla_task.claimed_by and flotilla_task.claim_call < 0 and holder.begun_call >= 0
  and (-flotilla_task.claim_call > holder.begun_call
    or -flotilla_task.claim_call = holder.begun_call and flotilla_task.task_id > holder.begun_task)) then 0 else 1 end >= ? and flow_version is null then 'failed'
else 'pending' end,
  error = case when cancel_requested = 1 and flow_version is null then error when case when exists (
select 1 from flotilla_step_journal stored
where stored.owner_id = flotilla_task.task_id and stored.part = ''
  and stored.token = flotilla_task.claim_token) then 0 else flotilla_task.deaths end + case when exists (select 1 from flotilla_pod holder
where holder.pod_id = flotilla_task.claimed_by and flotilla_task.claim_call < 0 and holder.begun_call >= 0
  and (-flotilla_task.claim_call > holder.begun_call
    or -flotilla_task.claim_call = holder.begun_call and flotilla_task.task_id > holder.begun_task)) then 0 else 1 end >= ? and flow_version is null then ? else error end,
  claim_token = claim_token + case when cancel_requested = 1 and flow_version is null or case when exists (
select 1 from flotilla_step_journal stored
where stored.owner_id = flotilla_task.task_id and stored.part = ''
  and stored.token = flotilla_task.claim_token) then 0 else flotilla_task.deaths end + case when exists (select 1 from flotilla_pod holder
where holder.pod_id = flotilla_task.claimed_by and flotilla_task.claim_call < 0 and holder.begun_call >= 0
  and (-flotilla_task.claim_call > holder.begun_call
    or -flotilla_task.claim_call = holder.begun_call and flotilla_task.task_id > holder.begun_task)) then 0 else 1 end >= ? and flow_version is null then 1 else 0 end,
  deaths = case when exists (
select 1 from flotilla_step_journal stored
where stored.owner_id = flotilla_task.task_id and stored.part = ''
  and stored.token = flotilla_task.claim_token) then 0 else flotilla_task.deaths end + case when exists (select 1 from flotilla_pod holder
where holder.pod_id = flotilla_task.claimed_by and flotilla_task.claim_call < 0 and holder.begun_call >= 0
  and (-flotilla_task.claim_call > holder.begun_call
    or -flotilla_task.claim_call = holder.begun_call and flotilla_task.task_id > holder.begun_task)) then 0 else 1 end, retry_count = case when exists (
select 1 from flotilla_step_journal stored
where stored.owner_id = flotilla_task.task_id and stored.part = ''
  and stored.token = flotilla_task.claim_token) then 0 else retry_count end, claimed_by = null, claim_call = null, last_update = now_ms()
from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as pod_id, value ->> 3 as beat from jsonb_each(?)) orphan
where flotilla_task.task_id = orphan.task_id and flotilla_task.claim_token = orphan.token
and flotilla_task.status = 'claimed' and flotilla_task.claimed_by = orphan.pod_id
and coalesce((select pod.beat from flotilla_pod pod where pod.pod_id = orphan.pod_id), -1) = orphan.beat and true
returning flotilla_task.task_id, flotilla_task.name, flotilla_task.status, flotilla_task.claim_token
-- instead of returning:
    select task.task_id, task.name, case when cancel_requested = 1 and flow_version is null then 'cancelled' when case when exists (
select 1 from flotilla_step_journal stored
where stored.owner_id = task.task_id and stored.part = ''
  and stored.token = task.claim_token) then 0 else task.deaths end + case when exists (select 1 from flotilla_pod holder
where holder.pod_id = task.claimed_by and task.claim_call < 0 and holder.begun_call >= 0
  and (-task.claim_call > holder.begun_call
    or -task.claim_call = holder.begun_call and task.task_id > holder.begun_task)) then 0 else 1 end >= ? and flow_version is null then 'failed'
else 'pending' end as status,
      claim_token + case when cancel_requested = 1 and flow_version is null or case when exists (
select 1 from flotilla_step_journal stored
where stored.owner_id = task.task_id and stored.part = ''
  and stored.token = task.claim_token) then 0 else task.deaths end + case when exists (select 1 from flotilla_pod holder
where holder.pod_id = task.claimed_by and task.claim_call < 0 and holder.begun_call >= 0
  and (-task.claim_call > holder.begun_call
    or -task.claim_call = holder.begun_call and task.task_id > holder.begun_task)) then 0 else 1 end >= ? and flow_version is null then 1 else 0 end as claim_token
    from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as pod_id, value ->> 3 as beat from jsonb_each(?)) orphan join flotilla_task task on task.task_id = orphan.task_id and task.claim_token = orphan.token
and task.status = 'claimed' and task.claimed_by = orphan.pod_id
and coalesce((select pod.beat from flotilla_pod pod where pod.pod_id = orphan.pod_id), -1) = orphan.beat
-- values: [4,4,"{\"code\":\"pod_died\",\"message\":\"4 pods died while they ran this task, 2 of them with nothing else to run\"}",4,"[[\"task-1\",3,\"pod-2\",4]]"]

-- src/tasks/sql/recover.ts: noteRecovery
insert into flotilla_task_event (task_id, seq, type, attempt, pod_id, detail)
select orphan.task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = orphan.task_id), 'pod_died', task.retry_count + 1,
  orphan.pod_id, orphan.detail
from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as pod_id, value ->> 3 as beat, value ->> 4 as detail from jsonb_each(?)) orphan join flotilla_task task on task.task_id = orphan.task_id and task.claim_token = orphan.token
and task.status = 'claimed' and task.claimed_by = orphan.pod_id
and coalesce((select pod.beat from flotilla_pod pod where pod.pod_id = orphan.pod_id), -1) = orphan.beat
where not exists (select 1 from flotilla_pod holder
where holder.pod_id = task.claimed_by and task.claim_call < 0 and holder.begun_call >= 0
  and (-task.claim_call > holder.begun_call
    or -task.claim_call = holder.begun_call and task.task_id > holder.begun_task))
-- values: ["[[\"task-1\",3,\"pod-2\",4,null]]"]

-- src/tasks/sql/recover.ts: insertRecoveryFollowUps
insert into flotilla_task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
  unique_key, parent_id, trace, limited, parked)
select failed.id, task.tenant, failed.name, failed.payload, task.priority, now_ms(), now_ms(), now_ms(),
  failed.key, task.task_id, task.trace, case when task.tenant <> 'default' then cast(? as integer) else 0 end, case when task.tenant <> 'default' then cast(? as integer) else 0 end
from (select value ->> 0 as id, value ->> 1 as failed_id, value ->> 2 as token, value ->> 3 as name, value ->> 4 as payload, value ->> 5 as key from jsonb_each(?)) failed join flotilla_task task
  on task.task_id = failed.failed_id and task.claim_token = failed.token
where case when exists (
select 1 from flotilla_step_journal stored
where stored.owner_id = task.task_id and stored.part = ''
  and stored.token = task.claim_token) then 0 else task.deaths end + case when exists (select 1 from flotilla_pod holder
where holder.pod_id = task.claimed_by and task.claim_call < 0 and holder.begun_call >= 0
  and (-task.claim_call > holder.begun_call
    or -task.claim_call = holder.begun_call and task.task_id > holder.begun_task)) then 0 else 1 end >= ? and task.cancel_requested = 0 and task.flow_version is null
  and exists (select 1 from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as pod_id, value ->> 3 as beat from jsonb_each(?)) orphan where task.task_id = orphan.task_id and task.claim_token = orphan.token
and task.status = 'claimed' and task.claimed_by = orphan.pod_id
and coalesce((select pod.beat from flotilla_pod pod where pod.pod_id = orphan.pod_id), -1) = orphan.beat)

on conflict do nothing
-- values: [1,4,"[[\"task-2\",\"task-1\",3,\"alarm\",\"{}\",\"task-1/3\"]]",4,"[[\"task-1\",3,\"pod-2\",4]]"]

-- src/tasks/sql/recover.ts: sweep
with page as (
  select task_id, status, created_at, last_update from flotilla_task
  where task_id > ? order by task_id limit cast(? as integer))
select task_id, 1 as old from page where created_at < now_ms() - ?
and (status = 'completed' and last_update < now_ms() - ?
  or status = 'failed' and last_update < now_ms() - ?
  or status = 'cancelled' and last_update < now_ms() - ?)
union all
select max(task_id), 0 from page having count(*) = ?
-- values: ["",10,60000,1000,2000,3000,10]

with page as (
  select task_id, status, created_at, last_update from flotilla_task
  where task_id > ? order by task_id limit cast(? as integer))
select task_id, 1 as old from page where created_at < now_ms() - ?
and (status = 'completed' and last_update < now_ms() - ?
  or status = 'failed' and last_update < now_ms() - ?
  or status = 'cancelled' and last_update < now_ms() - ?)
union all
select max(task_id), 0 from page having count(*) = ? and min(created_at) < now_ms() - ?
-- values: ["",10,60000,1000,2000,3000,10,1000]

-- src/tasks/sql/recover.ts: deleteFinished
delete from flotilla_task where rowid in (
      select rowid from flotilla_task
      where task_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) old)
        and created_at < now_ms() - ?
    and (status = 'completed' and last_update < now_ms() - ?
      or status = 'failed' and last_update < now_ms() - ?
      or status = 'cancelled' and last_update < now_ms() - ?) and (dependents = 0 or not exists (
  select 1 from flotilla_task_dependency wait where wait.dependency_id = flotilla_task.task_id
    and (select waiter.status from flotilla_task waiter where waiter.task_id = wait.dependent_id)
      in ('pending', 'claimed'))) )
-- values: ["[[\"task-1\"]]",60000,1000,2000,3000]

  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, ?, ?, ?,
    cast((select count(*) from (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) old
  where not exists (select 1 from flotilla_task task where task.task_id = old.task_id)) deleted) as bigint), ?, ?,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?
  where exists (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) old
  where not exists (select 1 from flotilla_task task where task.task_id = old.task_id))
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,"[[\"task-1\"]]",null,null,"audit.full","begun",null,"click-1","[[\"task-1\"]]"]

delete from flotilla_task_event where task_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) old
    where not exists (select 1 from flotilla_task task where task.task_id = old.task_id))
-- values: ["[[\"task-1\"]]"]

delete from flotilla_task_dependency where dependent_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) old
    where not exists (select 1 from flotilla_task task where task.task_id = old.task_id))
-- values: ["[[\"task-1\"]]"]

delete from flotilla_task_signal where task_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) old
    where not exists (select 1 from flotilla_task task where task.task_id = old.task_id))
-- values: ["[[\"task-1\"]]"]

delete from flotilla_step_journal where owner_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) old
    where not exists (select 1 from flotilla_task task where task.task_id = old.task_id)) and (part = '' or part >= 'A')
-- values: ["[[\"task-1\"]]"]

delete from flotilla_link as link where to_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) old
    where not exists (select 1 from flotilla_task task where task.task_id = old.task_id))
-- values: ["[[\"task-1\"]]"]

delete from flotilla_task_alias as alias where task_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) old
    where not exists (select 1 from flotilla_task task where task.task_id = old.task_id))
-- values: ["[[\"task-1\"]]"]

  update flotilla_file set unused_at = now_ms()
  where file_id in (select file_id from flotilla_file_reference where owner_kind = ? and owner_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) old
where not exists (select 1 from flotilla_task task where task.task_id = old.task_id)))
-- values: ["task","[[\"task-1\"]]"]

delete from flotilla_file_reference where owner_kind = ? and owner_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) old
    where not exists (select 1 from flotilla_task task where task.task_id = old.task_id))
-- values: ["task","[[\"task-1\"]]"]

-- src/tasks/sql/recover.ts: deleteBelongings
delete from flotilla_task_event where task_id in (select 'task-1')

delete from flotilla_task_dependency where dependent_id in (select 'task-1')

delete from flotilla_task_signal where task_id in (select 'task-1')

delete from flotilla_step_journal where owner_id in (select 'task-1') and (part = '' or part >= 'A')

delete from flotilla_link as link where to_id in (select 'task-1')

delete from flotilla_task_alias as alias where task_id in (select 'task-1')

update flotilla_file set unused_at = now_ms()
where file_id in (select file_id from flotilla_file_reference where owner_kind = ? and owner_id in (select 'task-1'))
-- values: ["task"]

delete from flotilla_file_reference where owner_kind = ? and owner_id in (select 'task-1')
-- values: ["task"]

-- src/tasks/sql/runs.ts: storeRuns
update flotilla_task set
flow_version = next.version, cursor = next.cursor, state = coalesce(next.state, flotilla_task.state),
intent = null, waiting = null, stopped_at = null, retry_count = 0, deaths = 0, progress = null,
error = null, run_seq = flotilla_task.run_seq + 1, advanced_at = now_ms()
from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as version, value ->> 4 as cursor, value ->> 5 as state from jsonb_each(?)) next
where flotilla_task.task_id = next.task_id and flotilla_task.claim_token = next.token
and flotilla_task.run_seq = next.run_seq and flotilla_task.status in ('claimed', 'pending')

returning flotilla_task.task_id, flotilla_task.status, flotilla_task.wake, flotilla_task.cancel_requested
-- instead of returning:
    select task.task_id, task.status, task.wake, task.cancel_requested from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as version, value ->> 4 as cursor, value ->> 5 as state from jsonb_each(?)) next join flotilla_task task on task.task_id = next.task_id
    where task.claim_token = next.token
and task.run_seq = next.run_seq and task.status in ('claimed', 'pending')
-- values: ["[[\"run-1\",3,1,2,\"charge\",\"{}\"]]"]

insert into flotilla_task_event (task_id, seq, type, attempt, pod_id, detail)
select noted.task_id, noted.seq, noted.type, noted.attempt, ?, noted.detail
from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as wake, value ->> 4 as ends, value ->> 5 as seq, value ->> 6 as type, value ->> 7 as attempt, value ->> 8 as detail from jsonb_each(?)) noted join flotilla_task task on task.task_id = noted.task_id
where task.claim_token = noted.token and task.run_seq = noted.run_seq + 1
on conflict do nothing
-- values: ["pod-1","[[\"run-1\",3,1,null,0,200,\"step\",1,\"{}\"]]"]

select task.task_id from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as wake, value ->> 4 as ends from jsonb_each(?)) given join flotilla_task task on task.task_id = given.task_id
    where task.claim_token = given.token and task.run_seq = given.run_seq
    and task.status in ('claimed', 'pending')
    and (given.wake is null or task.wake = given.wake)
     order by task.task_id
-- values: ["[[\"run-1\",3,1,2,0]]"]

  insert into flotilla_task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
    max_attempts, unique_key, trace, concurrency_key, limited, depends, scheduled_at, flow_version, parent_id, parked)
  select task_id, tenant, name, payload, priority, case when fresh.start_at is null then now_ms() + fresh.delay_ms
  when fresh.start_at > now_ms() then fresh.start_at else now_ms() end, now_ms(), now_ms(),
    max_attempts, unique_key, trace, concurrency_key, limited, depends, scheduled_at, flow_version, parent_id,
case when depends > 0 then 2 when delay_ms > 0 or start_at > now_ms() then 1
  when limited = 1 then 4 else 0 end
  from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as name, value ->> 3 as payload, value ->> 4 as priority, value ->> 5 as delay_ms, value ->> 6 as max_attempts, value ->> 7 as unique_key, value ->> 8 as trace, value ->> 9 as start_at, value ->> 10 as concurrency_key, value ->> 11 as limited, value ->> 12 as depends, value ->> 13 as scheduled_at, value ->> 14 as flow_version, value ->> 15 as parent_id from jsonb_each(?)) fresh where fresh.parent_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as wake, value ->> 4 as ends from jsonb_each(?)) given join flotilla_task task on task.task_id = given.task_id
  where task.claim_token = given.token and task.run_seq = given.run_seq
  and task.status in ('claimed', 'pending')
  and (given.wake is null or task.wake = given.wake)
  )
  on conflict do nothing
  returning task_id
-- instead of returning:
select task_id from flotilla_task where task_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as name, value ->> 3 as payload, value ->> 4 as priority, value ->> 5 as delay_ms, value ->> 6 as max_attempts, value ->> 7 as unique_key, value ->> 8 as trace from jsonb_each(?)) fresh)
-- values: ["[[\"child-1\",\"default\",\"mail\",\"{}\",0,0,null,\"run-1/charge/0\",null,null,null,0,0,null,null,\"run-1\"]]","[[\"run-1\",3,1,2,0]]"]

  insert into flotilla_task_event (task_id, seq, type)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), 'retried' from flotilla_task task
  where task_id in (
select child.task_id from (select value ->> 0 as parent_id, value ->> 1 as name, value ->> 2 as tenant, value ->> 3 as unique_key from jsonb_each(?)) wanted
join flotilla_task child on child.tenant = wanted.tenant and child.name = wanted.name
  and child.unique_key = wanted.unique_key
where child.parent_id = wanted.parent_id and child.status in ('failed', 'cancelled')
  and wanted.parent_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as wake, value ->> 4 as ends from jsonb_each(?)) given join flotilla_task task on task.task_id = given.task_id
where task.claim_token = given.token and task.run_seq = given.run_seq
and task.status in ('claimed', 'pending')
and (given.wake is null or task.wake = given.wake)
))
-- values: ["[[\"run-1\",\"mail\",\"default\",\"run-1/charge/0\"]]","[[\"run-1\",3,1,2,0]]"]

delete from flotilla_step_journal where owner_id in (
    select child.task_id from (select value ->> 0 as parent_id, value ->> 1 as name, value ->> 2 as tenant, value ->> 3 as unique_key from jsonb_each(?)) wanted
    join flotilla_task child on child.tenant = wanted.tenant and child.name = wanted.name
      and child.unique_key = wanted.unique_key
    where child.parent_id = wanted.parent_id and child.status in ('failed', 'cancelled')
      and wanted.parent_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as wake, value ->> 4 as ends from jsonb_each(?)) given join flotilla_task task on task.task_id = given.task_id
    where task.claim_token = given.token and task.run_seq = given.run_seq
    and task.status in ('claimed', 'pending')
    and (given.wake is null or task.wake = given.wake)
    )) and (part = '' or part >= 'A') and kind = 'failed'
-- values: ["[[\"run-1\",\"mail\",\"default\",\"run-1/charge/0\"]]","[[\"run-1\",3,1,2,0]]"]

update flotilla_task set
  status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
  parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
  depends = case when depends = 3 then 1 else depends end,
  claim_token = claim_token + 1, claimed_by = null, run_at = now_ms(), last_update = now_ms(),
  cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
  then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
  error = null, progress = null, progress_token = claim_token + 1 where task_id in (
    select child.task_id from (select value ->> 0 as parent_id, value ->> 1 as name, value ->> 2 as tenant, value ->> 3 as unique_key from jsonb_each(?)) wanted
    join flotilla_task child on child.tenant = wanted.tenant and child.name = wanted.name
      and child.unique_key = wanted.unique_key
    where child.parent_id = wanted.parent_id and child.status in ('failed', 'cancelled')
      and wanted.parent_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as wake, value ->> 4 as ends from jsonb_each(?)) given join flotilla_task task on task.task_id = given.task_id
    where task.claim_token = given.token and task.run_seq = given.run_seq
    and task.status in ('claimed', 'pending')
    and (given.wake is null or task.wake = given.wake)
    ))
-- values: ["[[\"run-1\",\"mail\",\"default\",\"run-1/charge/0\"]]","[[\"run-1\",3,1,2,0]]"]

delete from flotilla_task_dependency
where dependent_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as wake, value ->> 4 as ends from jsonb_each(?)) given join flotilla_task task on task.task_id = given.task_id
where task.claim_token = given.token and task.run_seq = given.run_seq
and task.status in ('claimed', 'pending')
and (given.wake is null or task.wake = given.wake)
)
  and exists (select 1 from flotilla_task child join (select value ->> 0 as parent_id, value ->> 1 as name, value ->> 2 as tenant, value ->> 3 as unique_key, value ->> 4 as prefix from jsonb_each(?)) wanted
      on substr(child.unique_key, 1, length(wanted.prefix)) = wanted.prefix
    where child.task_id = flotilla_task_dependency.dependency_id and child.parent_id = flotilla_task_dependency.dependent_id
      and wanted.parent_id = flotilla_task_dependency.dependent_id)
  and not exists (select 1 from flotilla_task child join (select value ->> 0 as parent_id, value ->> 1 as name, value ->> 2 as tenant, value ->> 3 as unique_key, value ->> 4 as prefix from jsonb_each(?)) wanted
      on child.tenant = wanted.tenant and child.name = wanted.name
        and child.unique_key = wanted.unique_key
    where child.task_id = flotilla_task_dependency.dependency_id and wanted.parent_id = flotilla_task_dependency.dependent_id)
-- values: ["[[\"run-1\",3,1,2,0]]","[[\"run-1\",\"mail\",\"default\",\"run-1/charge/0\",\"run-1/charge/\"]]","[[\"run-1\",\"mail\",\"default\",\"run-1/charge/0\",\"run-1/charge/\"]]"]

update flotilla_task_signal set taken = 1
from (select value ->> 0 as task_id, value ->> 1 as signal_id from jsonb_each(?)) used
where flotilla_task_signal.task_id = used.task_id and flotilla_task_signal.signal_id = used.signal_id
  and used.task_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as wake, value ->> 4 as ends from jsonb_each(?)) given join flotilla_task task on task.task_id = given.task_id
where task.claim_token = given.token and task.run_seq = given.run_seq
and task.status in ('claimed', 'pending')
and (given.wake is null or task.wake = given.wake)
)
-- values: ["[[\"run-1\",\"signal-1\"]]","[[\"run-1\",3,1,2,0]]"]

select task_id from flotilla_task task where task_id in (
    select child.task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent
    join flotilla_task_dependency wait on wait.dependent_id = parent.task_id
    join flotilla_task child on child.task_id = wait.dependency_id
    where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
      and child.cancel_requested = 0
      and parent.task_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as wake, value ->> 4 as ends from jsonb_each(?)) given join flotilla_task task on task.task_id = given.task_id
    where task.claim_token = given.token and task.run_seq = given.run_seq
    and task.status in ('claimed', 'pending')
    and (given.wake is null or task.wake = given.wake)
    )) order by task_id
-- values: ["[[\"run-1\"]]","[[\"run-1\",3,1,2,0]]"]

  insert into flotilla_task_event (task_id, seq, type)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), 'cancel_requested' from flotilla_task task
  where task_id in (
select child.task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent
join flotilla_task_dependency wait on wait.dependent_id = parent.task_id
join flotilla_task child on child.task_id = wait.dependency_id
where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
  and child.cancel_requested = 0
  and parent.task_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as wake, value ->> 4 as ends from jsonb_each(?)) given join flotilla_task task on task.task_id = given.task_id
where task.claim_token = given.token and task.run_seq = given.run_seq
and task.status in ('claimed', 'pending')
and (given.wake is null or task.wake = given.wake)
))
-- values: ["[[\"run-1\"]]","[[\"run-1\",3,1,2,0]]"]

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
    and parent.task_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as wake, value ->> 4 as ends from jsonb_each(?)) given join flotilla_task task on task.task_id = given.task_id
  where task.claim_token = given.token and task.run_seq = given.run_seq
  and task.status in ('claimed', 'pending')
  and (given.wake is null or task.wake = given.wake)
  ))
-- values: ["[[\"run-1\"]]","[[\"run-1\",3,1,2,0]]"]

insert into flotilla_task_event (task_id, seq, type, attempt, pod_id, detail)
select noted.task_id, noted.seq, noted.type, noted.attempt, ?, noted.detail
from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as wake, value ->> 4 as ends, value ->> 5 as seq, value ->> 6 as type, value ->> 7 as attempt, value ->> 8 as detail from jsonb_each(?)) noted join flotilla_task task on task.task_id = noted.task_id
where task.claim_token = noted.token and task.run_seq = noted.run_seq
and task.status in ('claimed', 'pending')
and (noted.wake is null or task.wake = noted.wake)
-- values: ["pod-1","[[\"run-1\",3,1,2,0,200,\"step\",1,\"{}\"]]"]

  update flotilla_task set
flow_version = coalesce(next.version, flow_version), cursor = next.cursor,
state = coalesce(next.state, flotilla_task.state), intent = next.intent, waiting = next.waiting,
stopped_at = next.stopped_at, retry_count = next.failures, run_seq = flotilla_task.run_seq + 1,
deaths = case when next.moved = 1 or next.stepped = 1 then 0 else deaths end,
progress = case when next.moved = 1 then null else progress end,
error = case when next.moved = 1 then next.error else coalesce(next.error, flotilla_task.error) end,
trace = coalesce(next.trace, flotilla_task.trace), advanced_at = now_ms(), status = next.status, result = next.result,
    claim_token = claim_token + case when next.status = 'pending' then 1 else 0 end,
    claimed_by = case when next.status = 'pending' then null else claimed_by end,
    claim_call = null, last_update = now_ms(),
    run_at = case when next.status = 'pending' then coalesce(next.until_at, now_ms()) else run_at end,
    parked = case when next.parked <> 0 then next.parked when next.until_at > now_ms() then 1
      else case when limited = 1 then 4 else 0 end end,
    depends = case when next.parked = 2 then 2 else depends end,
    awaits = next.awaits, set_aside = next.set_aside, set_aside_version = next.set_aside_version,
    concurrency_key = coalesce(next.scope, flotilla_task.concurrency_key),
    limited = case when next.scope is null then limited else 1 end
  from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as wake, value ->> 4 as ends, value ->> 5 as version, value ->> 6 as cursor, value ->> 7 as state, value ->> 8 as intent, value ->> 9 as waiting, value ->> 10 as stopped_at, value ->> 11 as failures, value ->> 12 as moved, value ->> 13 as stepped, value ->> 14 as error, value ->> 15 as trace, value ->> 16 as status, value ->> 17 as result, value ->> 18 as parked, value ->> 19 as until_at, value ->> 20 as awaits, value ->> 21 as set_aside, value ->> 22 as set_aside_version, value ->> 23 as scope from jsonb_each(?)) next
  where flotilla_task.task_id = next.task_id and flotilla_task.claim_token = next.token and flotilla_task.run_seq = next.run_seq
  and flotilla_task.status in ('claimed', 'pending')
  and (next.wake is null or flotilla_task.wake = next.wake)

  returning flotilla_task.task_id, flotilla_task.status, flotilla_task.wake, flotilla_task.cancel_requested
-- instead of returning:
    select task.task_id, task.status, task.wake, task.cancel_requested from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as wake, value ->> 4 as ends, value ->> 5 as version, value ->> 6 as cursor, value ->> 7 as state, value ->> 8 as intent, value ->> 9 as waiting, value ->> 10 as stopped_at, value ->> 11 as failures, value ->> 12 as moved, value ->> 13 as stepped, value ->> 14 as error, value ->> 15 as trace, value ->> 16 as status, value ->> 17 as result, value ->> 18 as parked, value ->> 19 as until_at, value ->> 20 as awaits, value ->> 21 as set_aside, value ->> 22 as set_aside_version, value ->> 23 as scope from jsonb_each(?)) next join flotilla_task task on task.task_id = next.task_id
    where task.claim_token = next.token and task.run_seq = next.run_seq
and task.status in ('claimed', 'pending')
and (next.wake is null or task.wake = next.wake)
-- values: ["[[\"run-1\",3,1,2,0,2,\"charge\",\"{}\",null,null,\"charge\",0,1,0,null,null,\"pending\",\"{}\",2,null,\"run-1/charge/\",null,null,null]]"]

delete from flotilla_task_dependency
where dependent_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent)
  and not exists (select 1 from flotilla_task child where child.task_id = flotilla_task_dependency.dependency_id)
-- values: ["[[\"run-1\"]]"]

insert into flotilla_task_dependency (dependency_id, dependent_id, place)
select fresh.dependency_id, fresh.dependent_id, fresh.place from (select value ->> 0 as dependency_id, value ->> 1 as dependent_id, value ->> 2 as place from jsonb_each(?)) fresh
where exists (select 1 from flotilla_task child where child.task_id = fresh.dependency_id)
on conflict do nothing
-- values: ["[[\"child-1\",\"run-1\",0]]"]

update flotilla_task set dependents = dependents + 1 where task_id in (select child.task_id from (select value ->> 0 as dependency_id, value ->> 1 as dependent_id, value ->> 2 as place from jsonb_each(?)) fresh
    join flotilla_task child on child.task_id = fresh.dependency_id)
-- values: ["[[\"child-1\",\"run-1\",0]]"]

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
select dependency_id as id from flotilla_task_dependency
where dependent_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent)) named) and coalesce(flotilla_task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["[[\"run-1\"]]"]

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
-- values: ["[[\"run-1\"]]"]

select task_id from flotilla_task task where rowid in (
    select (select rowid from flotilla_task task where task.task_id = named.id)
    from (
    select distinct wait.dependent_id as id
    from flotilla_task_dependency own join flotilla_task_dependency wait on wait.dependency_id = own.dependency_id
    where own.dependent_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent)
      and (select task.status from flotilla_task task
        where task.task_id = own.dependency_id and task.parent_id = own.dependent_id) = 'cancelled') named) order by task_id
-- values: ["[[\"run-1\"]]"]

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
-- values: ["[[\"run-1\"]]"]

select task.task_id from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as wake, value ->> 4 as ends from jsonb_each(?)) given join flotilla_task task on task.task_id = given.task_id
    where task.claim_token = given.token and task.run_seq = given.run_seq
    and task.status in ('claimed', 'pending')
    and (given.wake is null or task.wake = given.wake)
    and (given.ends = 0 or task.dependents = 0) order by task.task_id
-- values: ["[[\"run-1\",3,1,null,0]]"]

delete from flotilla_step_journal where rowid in (
  select stored.rowid from (select value ->> 0 as task_id, value ->> 1 as part from jsonb_each(?)) over_part
  join flotilla_step_journal stored on stored.owner_id = over_part.task_id and stored.part = over_part.part
  where over_part.task_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as wake, value ->> 4 as ends from jsonb_each(?)) given join flotilla_task task on task.task_id = given.task_id
where task.claim_token = given.token and task.run_seq = given.run_seq
and task.status in ('claimed', 'pending')
and (given.wake is null or task.wake = given.wake)
and (given.ends = 0 or task.dependents = 0)))
-- values: ["[[\"run-1\",\"reserve\"]]","[[\"run-1\",3,1,null,0]]"]

  update flotilla_task set
flow_version = coalesce(next.version, flow_version), cursor = next.cursor,
state = coalesce(next.state, flotilla_task.state), intent = next.intent, waiting = next.waiting,
stopped_at = next.stopped_at, retry_count = next.failures, run_seq = flotilla_task.run_seq + 1,
deaths = case when next.moved = 1 or next.stepped = 1 then 0 else deaths end,
progress = case when next.moved = 1 then null else progress end,
error = case when next.moved = 1 then next.error else coalesce(next.error, flotilla_task.error) end,
trace = coalesce(next.trace, flotilla_task.trace), advanced_at = now_ms()
  from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as wake, value ->> 4 as ends, value ->> 5 as version, value ->> 6 as cursor, value ->> 7 as state, value ->> 8 as intent, value ->> 9 as waiting, value ->> 10 as stopped_at, value ->> 11 as failures, value ->> 12 as moved, value ->> 13 as stepped, value ->> 14 as error, value ->> 15 as trace from jsonb_each(?)) next
  where flotilla_task.task_id = next.task_id and flotilla_task.claim_token = next.token
  and flotilla_task.run_seq = next.run_seq and flotilla_task.status in ('claimed', 'pending')
  and (next.wake is null or flotilla_task.wake = next.wake)
  returning flotilla_task.task_id, flotilla_task.status, flotilla_task.wake, flotilla_task.cancel_requested
-- instead of returning:
    select task.task_id, task.status, task.wake, task.cancel_requested from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as wake, value ->> 4 as ends, value ->> 5 as version, value ->> 6 as cursor, value ->> 7 as state, value ->> 8 as intent, value ->> 9 as waiting, value ->> 10 as stopped_at, value ->> 11 as failures, value ->> 12 as moved, value ->> 13 as stepped, value ->> 14 as error, value ->> 15 as trace from jsonb_each(?)) next join flotilla_task task on task.task_id = next.task_id
    where task.claim_token = next.token
and task.run_seq = next.run_seq and task.status in ('claimed', 'pending')
and (next.wake is null or task.wake = next.wake)
-- values: ["[[\"run-1\",3,1,null,0,2,\"charge\",\"{}\",null,null,null,0,0,1,null,null]]"]

insert into flotilla_task_event (task_id, seq, type, attempt, pod_id, detail)
select noted.task_id, noted.seq, noted.type, noted.attempt, ?, noted.detail
from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as wake, value ->> 4 as ends, value ->> 5 as seq, value ->> 6 as type, value ->> 7 as attempt, value ->> 8 as detail from jsonb_each(?)) noted join flotilla_task task on task.task_id = noted.task_id
where task.claim_token = noted.token and task.run_seq = noted.run_seq + 1
on conflict do nothing
-- values: ["pod-1","[[\"run-1\",3,1,null,0,200,\"step\",1,\"{}\"]]"]

insert into flotilla_step_journal as stored (owner_id, part, key, seq, token, kind, input_hash, value, started_at, at)
select given.task_id, given.part, given.key, given.seq, given.token, given.kind,
  given.input_hash, given.value, now_ms() - given.took_ms, now_ms()
from (select value ->> 0 as task_id, value ->> 1 as part, value ->> 2 as token, value ->> 3 as run_seq, value ->> 4 as key, value ->> 5 as seq, value ->> 6 as kind, value ->> 7 as input_hash, value ->> 8 as value, value ->> 9 as took_ms from jsonb_each(?)) given join flotilla_task task on task.task_id = given.task_id
where task.claim_token = given.token and task.run_seq = given.run_seq
  and task.status in ('claimed', 'pending')

on conflict (owner_id, part, key) do update set seq = excluded.seq, token = excluded.token,
  kind = excluded.kind, input_hash = excluded.input_hash, value = excluded.value,
  started_at = excluded.started_at, at = excluded.at
where stored.seq < excluded.seq
returning owner_id, part, key
-- instead of returning:
select stored.owner_id, stored.part, stored.key from (select value ->> 0 as task_id, value ->> 1 as part, value ->> 2 as token, value ->> 3 as key, value ->> 4 as seq from jsonb_each(?)) given join flotilla_step_journal stored
  on stored.owner_id = given.task_id and stored.part = given.part and stored.key = given.key
where stored.token = given.token and stored.seq = given.seq
-- values: ["[[\"run-1\",\"charge\",3,2,\"read\",3,\"done\",null,\"1\",5]]"]

-- src/tasks/sql/runs.ts: keepRuns
update flotilla_task set
flow_version = next.version, cursor = next.cursor, state = coalesce(next.state, flotilla_task.state),
intent = null, waiting = null, stopped_at = null, retry_count = 0, deaths = 0, progress = null,
error = null, run_seq = flotilla_task.run_seq + 1, advanced_at = now_ms()
from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as version, value ->> 4 as cursor, value ->> 5 as state from jsonb_each(?)) next
where flotilla_task.task_id = next.task_id and flotilla_task.claim_token = next.token
and flotilla_task.run_seq = next.run_seq and flotilla_task.status in ('claimed', 'pending')

returning flotilla_task.task_id, flotilla_task.status, flotilla_task.wake, flotilla_task.cancel_requested
-- instead of returning:
    select task.task_id, task.status, task.wake, task.cancel_requested from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as version, value ->> 4 as cursor, value ->> 5 as state from jsonb_each(?)) next join flotilla_task task on task.task_id = next.task_id
    where task.claim_token = next.token
and task.run_seq = next.run_seq and task.status in ('claimed', 'pending')
-- values: ["[[\"run-1\",3,1,2,\"charge\",\"{}\"]]"]

  update flotilla_task set
flow_version = coalesce(next.version, flow_version), cursor = next.cursor,
state = coalesce(next.state, flotilla_task.state), intent = next.intent, waiting = next.waiting,
stopped_at = next.stopped_at, retry_count = next.failures, run_seq = flotilla_task.run_seq + 1,
deaths = case when next.moved = 1 or next.stepped = 1 then 0 else deaths end,
progress = case when next.moved = 1 then null else progress end,
error = case when next.moved = 1 then next.error else coalesce(next.error, flotilla_task.error) end,
trace = coalesce(next.trace, flotilla_task.trace), advanced_at = now_ms()
  from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as wake, value ->> 4 as ends, value ->> 5 as version, value ->> 6 as cursor, value ->> 7 as state, value ->> 8 as intent, value ->> 9 as waiting, value ->> 10 as stopped_at, value ->> 11 as failures, value ->> 12 as moved, value ->> 13 as stepped, value ->> 14 as error, value ->> 15 as trace from jsonb_each(?)) next
  where flotilla_task.task_id = next.task_id and flotilla_task.claim_token = next.token
  and flotilla_task.run_seq = next.run_seq and flotilla_task.status in ('claimed', 'pending')
  and (next.wake is null or flotilla_task.wake = next.wake)
  returning flotilla_task.task_id, flotilla_task.status, flotilla_task.wake, flotilla_task.cancel_requested
-- instead of returning:
    select task.task_id, task.status, task.wake, task.cancel_requested from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as wake, value ->> 4 as ends, value ->> 5 as version, value ->> 6 as cursor, value ->> 7 as state, value ->> 8 as intent, value ->> 9 as waiting, value ->> 10 as stopped_at, value ->> 11 as failures, value ->> 12 as moved, value ->> 13 as stepped, value ->> 14 as error, value ->> 15 as trace from jsonb_each(?)) next join flotilla_task task on task.task_id = next.task_id
    where task.claim_token = next.token
and task.run_seq = next.run_seq and task.status in ('claimed', 'pending')
and (next.wake is null or task.wake = next.wake)
-- values: ["[[\"run-1\",3,1,2,0,2,\"charge\",\"{}\",null,null,null,0,1,0,null,null]]"]

-- src/tasks/sql/runs.ts: leaveRuns
  update flotilla_task set
flow_version = coalesce(next.version, flow_version), cursor = next.cursor,
state = coalesce(next.state, flotilla_task.state), intent = next.intent, waiting = next.waiting,
stopped_at = next.stopped_at, retry_count = next.failures, run_seq = flotilla_task.run_seq + 1,
deaths = case when next.moved = 1 or next.stepped = 1 then 0 else deaths end,
progress = case when next.moved = 1 then null else progress end,
error = case when next.moved = 1 then next.error else coalesce(next.error, flotilla_task.error) end,
trace = coalesce(next.trace, flotilla_task.trace), advanced_at = now_ms(), status = next.status, result = next.result,
    claim_token = claim_token + case when next.status = 'pending' then 1 else 0 end,
    claimed_by = case when next.status = 'pending' then null else claimed_by end,
    claim_call = null, last_update = now_ms(),
    run_at = case when next.status = 'pending' then coalesce(next.until_at, now_ms()) else run_at end,
    parked = case when next.parked <> 0 then next.parked when next.until_at > now_ms() then 1
      else case when limited = 1 then 4 else 0 end end,
    depends = case when next.parked = 2 then 2 else depends end,
    awaits = next.awaits, set_aside = next.set_aside, set_aside_version = next.set_aside_version,
    concurrency_key = coalesce(next.scope, flotilla_task.concurrency_key),
    limited = case when next.scope is null then limited else 1 end
  from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as wake, value ->> 4 as ends, value ->> 5 as version, value ->> 6 as cursor, value ->> 7 as state, value ->> 8 as intent, value ->> 9 as waiting, value ->> 10 as stopped_at, value ->> 11 as failures, value ->> 12 as moved, value ->> 13 as stepped, value ->> 14 as error, value ->> 15 as trace, value ->> 16 as status, value ->> 17 as result, value ->> 18 as parked, value ->> 19 as until_at, value ->> 20 as awaits, value ->> 21 as set_aside, value ->> 22 as set_aside_version, value ->> 23 as scope from jsonb_each(?)) next
  where flotilla_task.task_id = next.task_id and flotilla_task.claim_token = next.token and flotilla_task.run_seq = next.run_seq
  and flotilla_task.status in ('claimed', 'pending')
  and (next.wake is null or flotilla_task.wake = next.wake)
  and (next.ends = 0 or flotilla_task.dependents = 0)
  returning flotilla_task.task_id, flotilla_task.status, flotilla_task.wake, flotilla_task.cancel_requested
-- instead of returning:
    select task.task_id, task.status, task.wake, task.cancel_requested from (select value ->> 0 as task_id, value ->> 1 as token, value ->> 2 as run_seq, value ->> 3 as wake, value ->> 4 as ends, value ->> 5 as version, value ->> 6 as cursor, value ->> 7 as state, value ->> 8 as intent, value ->> 9 as waiting, value ->> 10 as stopped_at, value ->> 11 as failures, value ->> 12 as moved, value ->> 13 as stepped, value ->> 14 as error, value ->> 15 as trace, value ->> 16 as status, value ->> 17 as result, value ->> 18 as parked, value ->> 19 as until_at, value ->> 20 as awaits, value ->> 21 as set_aside, value ->> 22 as set_aside_version, value ->> 23 as scope from jsonb_each(?)) next join flotilla_task task on task.task_id = next.task_id
    where task.claim_token = next.token and task.run_seq = next.run_seq
and task.status in ('claimed', 'pending')
and (next.wake is null or task.wake = next.wake)
and (next.ends = 0 or task.dependents = 0)
-- values: ["[[\"run-1\",3,1,null,0,2,\"charge\",\"{}\",null,null,null,0,1,0,null,null,\"pending\",\"{}\",0,100,null,null,null,null],[\"run-1\",3,1,null,0,2,\"charge\",\"{}\",null,null,null,0,1,0,null,null,\"pending\",\"{}\",5,null,\"paid\",null,null,null],[\"run-1\",3,1,null,0,2,\"charge\",\"{}\",null,null,null,0,1,0,null,null,\"pending\",\"{}\",0,100,\"paid\",null,null,null],[\"run-1\",3,1,null,0,2,\"charge\",\"{}\",null,null,null,0,1,0,null,null,\"pending\",\"{}\",2,null,\"run-1/charge/\",null,null,null],[\"run-1\",3,1,null,0,2,\"charge\",\"{}\",null,null,null,0,1,0,null,null,\"pending\",\"{}\",4,null,null,null,null,\"queue/orders\"],[\"run-1\",3,1,null,0,2,\"charge\",\"{}\",null,null,null,0,1,0,null,null,\"pending\",\"{}\",6,null,null,\"{}\",2,null]]"]

-- src/tasks/sql/runs.ts: findNotedWrites
select noted.task_id, noted.detail from (select value ->> 0 as task_id, value ->> 1 as seq, value ->> 2 as type from jsonb_each(?)) wanted join flotilla_task_event noted
  on noted.task_id = wanted.task_id and noted.seq = wanted.seq
where noted.pod_id = ? and noted.type = wanted.type
-- values: ["[[\"run-1\",200,\"step\"]]","pod-1"]

-- src/tasks/sql/signals.ts: sendSignal
select task_id from flotilla_task task where task_id = ?
-- values: ["run-1"]

  update flotilla_task
  set wake = wake + 1,
    last_update = case when status = 'pending' then now_ms() else last_update end,
    run_at = case when status = 'pending' and parked in (1, 5) and awaits is not null then now_ms() else run_at end,
    parked = case when status = 'pending' and parked in (1, 5) and awaits is not null then case when limited = 1 then 4 else 0 end else parked end
  where task_id = ? and status in ('pending', 'claimed')
and flow_version is not null and not exists (select 1 from flotilla_task_signal past
where past.task_id = ? and past.signal_id = ?) and (select count(*) from flotilla_task_signal past
where past.task_id = ? and past.taken = 0) < ?
-- values: ["run-1","run-1","signal-1","run-1",1000]

  insert into flotilla_task_signal (task_id, signal_id, seq, name, payload)
  select task_id, ?, (select coalesce(max(seq), 0) + 1 from flotilla_task_signal past
    where past.task_id = ?), ?, ?
  from flotilla_task where task_id = ? and status in ('pending', 'claimed')
and flow_version is not null and not exists (select 1 from flotilla_task_signal past
where past.task_id = ? and past.signal_id = ?) and (select count(*) from flotilla_task_signal past
where past.task_id = ? and past.taken = 0) < ?
-- values: ["signal-1","run-1","paid","{}","run-1","run-1","signal-1","run-1",1000]

select status, flow_version, case when exists (select 1 from flotilla_task_signal past
    where past.task_id = ? and past.signal_id = ?) then 1 else 0 end as sent
      from flotilla_task where task_id = ?
-- values: ["run-1","signal-1","run-1"]

select task_id from flotilla_task task where task_id = ?
-- values: ["task-1"]

  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, ?, ?, ?,
    cast(? as bigint), ?, ?,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?
  from flotilla_task where task_id = ? and status in ('pending', 'claimed')
  and flow_version is null and not exists (select 1 from flotilla_task_signal past
  where past.task_id = ? and past.signal_id = ?) and (select count(*) from flotilla_task_signal past
  where past.task_id = ? and past.taken = 0) < ?
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,null,"{\"signal\":\"paid\"}","audit.full","done",null,"click-1","task-1","task-1","signal-1","task-1",1000]

  update flotilla_task
  set wake = wake + 1,
    last_update = case when status = 'pending' then now_ms() else last_update end,
    run_at = case when status = 'pending' and parked in (1, 5) and awaits is not null then now_ms() else run_at end,
    parked = case when status = 'pending' and parked in (1, 5) and awaits is not null then case when limited = 1 then 4 else 0 end else parked end
  where task_id = ? and status in ('pending', 'claimed')
and flow_version is null and not exists (select 1 from flotilla_task_signal past
where past.task_id = ? and past.signal_id = ?) and (select count(*) from flotilla_task_signal past
where past.task_id = ? and past.taken = 0) < ?
-- values: ["task-1","task-1","signal-1","task-1",1000]

  insert into flotilla_task_signal (task_id, signal_id, seq, name, payload)
  select task_id, ?, (select coalesce(max(seq), 0) + 1 from flotilla_task_signal past
    where past.task_id = ?), ?, ?
  from flotilla_task where task_id = ? and status in ('pending', 'claimed')
and flow_version is null and not exists (select 1 from flotilla_task_signal past
where past.task_id = ? and past.signal_id = ?) and (select count(*) from flotilla_task_signal past
where past.task_id = ? and past.taken = 0) < ?
-- values: ["signal-1","task-1","paid","{}","task-1","task-1","signal-1","task-1",1000]

select status, flow_version, case when exists (select 1 from flotilla_task_signal past
    where past.task_id = ? and past.signal_id = ?) then 1 else 0 end as sent
      from flotilla_task where task_id = ?
-- values: ["task-1","signal-1","task-1"]

-- src/tasks/sql/signals.ts: listAwaiting
select task_id, tenant, name, flow_version, awaits, since_at, until_at from (
  select task_id, tenant, name, flow_version, awaits, coalesce(advanced_at, last_update) as since_at,
    case when status = 'pending' and parked = 1 then run_at end as until_at
  from flotilla_task where status = 'pending' and parked = 1 and awaits is not null
and run_at >= ? and (run_at > ? or task_id > ?)
order by run_at, task_id limit cast(? as integer)) waiting
where awaits not like '%/'
order by until_at, task_id limit cast(? as integer)
-- values: [5,5,"run-1",20000,51]

select task_id, tenant, name, flow_version, awaits, since_at, until_at from (
  select task_id, tenant, name, flow_version, awaits, coalesce(advanced_at, last_update) as since_at,
    case when status = 'pending' and parked = 1 then run_at end as until_at
  from flotilla_task where status = 'pending' and parked = 5 and awaits is not null
and coalesce(advanced_at, last_update) >= ? and (coalesce(advanced_at, last_update) > ? or task_id > ?)
order by coalesce(advanced_at, last_update), task_id limit cast(? as integer)) waiting
where awaits not like '%/' and tenant = ?
order by since_at, task_id limit cast(? as integer)
-- values: [5,5,"run-1",20000,"acme",51]

-- src/tasks/sql/signals.ts: hasMoreAwaiting
select case when exists (
  select 1 from flotilla_task where status = 'pending' and parked = 5 and awaits is not null
and coalesce(advanced_at, last_update) >= ? and (coalesce(advanced_at, last_update) > ? or task_id > ?)
order by coalesce(advanced_at, last_update), task_id limit 1 offset 20000)
  then 1 else 0 end as more
-- values: [5,5,"run-1"]

-- src/tasks/sql/signals.ts: firstSignal
select signal_id, payload from flotilla_task_signal
where task_id = ? and name in (?, ?) and taken = 0 order by seq limit 1
-- values: ["run-1","paid","refused"]

-- src/tasks/sql/signals.ts: addSignals
insert into flotilla_task_signal (task_id, signal_id, seq, name, payload)
select task.task_id, ?, (select coalesce(max(seq), 0) + 1 from flotilla_task_signal past where past.task_id = task.task_id), ?,
  ?
from flotilla_task task where true and not exists (select 1 from flotilla_task_signal past where past.task_id = task.task_id and past.signal_id = ?)
  and (select count(*) from flotilla_task_signal past where past.task_id = task.task_id and past.taken = 0) < ?
-- values: ["signal-1","paid","{}","signal-1",1000]

-- src/tasks/sql/signals.ts: wakeSignalled
update flotilla_task
set wake = wake + 1,
  last_update = case when status = 'pending' then now_ms() else last_update end,
  run_at = case when status = 'pending' and parked in (1, 5) and awaits is not null then now_ms() else run_at end,
  parked = case when status = 'pending' and parked in (1, 5) and awaits is not null then case when limited = 1 then 4 else 0 end else parked end
where task_id = 'run-1'

-- src/tasks/sql/why.ts: readStanding
select task_id, tenant, name, status, priority, parked, depends, limited, run_at, created_at,
  last_update, advanced_at, scheduled_at, retry_count, max_attempts, snoozes, deaths,
  claimed_by, cancel_requested, concurrency_key, blocked_by, awaits, waiting, set_aside,
  set_aside_version, flow_version, task_version, claim_token, now_ms() as now_at,
  case when exists (select 1 from flotilla_step_journal step
    where step.owner_id = flotilla_task.task_id and step.kind = 'wait') then 1 else 0 end as has_wait,
  case when status = 'claimed' and exists (select 1 from flotilla_pod holder
where holder.pod_id = flotilla_task.claimed_by and flotilla_task.claim_call < 0 and holder.begun_call >= 0
  and (-flotilla_task.claim_call > holder.begun_call
    or -flotilla_task.claim_call = holder.begun_call and flotilla_task.task_id > holder.begun_task)) then 1 else 0 end as held_back
from flotilla_task where task_id = ?
-- values: ["task-1"]

-- src/tasks/sql/why.ts: readLateness
select type, at, attempt, pod_id,
  case when type in ('retry', 'snoozed', 'error', 'park') and coalesce(octet_length(detail), 0) <= ?
    then detail end as detail
from flotilla_task_event where task_id = ? order by seq desc limit cast(? as integer)
-- values: [20000,"task-1",5]

-- src/tasks/sql/why.ts: readDependencyStates
select task_id, name, status, tenant, is_child, claimed_by, count(*) over () as all_tasks,
  sum(case when case when status in ('failed', 'cancelled') then 0
when status in ('pending', 'claimed') then 1 when status is null then 2 else 3 end = 0 then 1 else 0 end) over () as failed_tasks,
  sum(case when case when status in ('failed', 'cancelled') then 0
when status in ('pending', 'claimed') then 1 when status is null then 2 else 3 end = 1 then 1 else 0 end) over () as open_tasks
from (
  select wait.dependency_id as task_id, wait.place, dependency.name, dependency.status,
    dependency.tenant, dependency.claimed_by,
    case when dependency.parent_id = ? then 1 else 0 end as is_child
  from flotilla_task_dependency wait
  left join flotilla_task dependency on dependency.task_id = wait.dependency_id
  where wait.dependent_id = ?) known
order by case when status in ('failed', 'cancelled') then 0
when status in ('pending', 'claimed') then 1 when status is null then 2 else 3 end, place, task_id limit cast(? as integer)
-- values: ["task-1","task-1",100]

-- src/tasks/sql/why.ts: readSlotHolders
select task_id, name, tenant, claimed_by, since_at from (
  select task_id, name, tenant, claimed_by, last_update as since_at
  from flotilla_task where coalesce(status, '') = 'claimed' and concurrency_key between ? and ? limit cast(? as integer)) held
order by since_at, task_id limit cast(? as integer)
-- values: ["key/mail/acme","key/mail/acme",1000,20]

select task_id, name, tenant, claimed_by, since_at from (
  select task_id, name, tenant, claimed_by, last_update as since_at
  from flotilla_task where coalesce(status, '') = 'claimed' and limited = 1 and tenant <> 'default'
      and tenant between ? and ? limit cast(? as integer)) held
order by since_at, task_id limit cast(? as integer)
-- values: ["acme","acme",1000,20]

-- src/tasks/sql/why.ts: countHeldBy
select pod.pod_id, (select count(*) from (
  select 1 from flotilla_task task
  where task.status = 'claimed' and task.claimed_by = pod.pod_id
  order by task.claim_call limit cast(? as integer)) held) as held
from (select value ->> 0 as pod_id from jsonb_each(?)) pod
-- values: [10000,"[[\"pod-1\"]]"]

-- src/tasks/sql/why.ts: countAhead
select (select count(*) from (
select 1 from flotilla_task where name = ? and status = 'pending' and parked = 0 and deaths < 2 and priority > ?
order by priority desc, created_at, task_id limit cast(? as integer)) higher) + (select count(*) from (
  select 1 from flotilla_task where name = ? and status = 'pending' and parked = 0 and deaths < 2 and (created_at, task_id) < (?, ?) and priority = ?
  order by priority desc, created_at, task_id limit cast(? as integer)) earlier) as ahead
-- values: ["mail",1,10000,"mail",100,"task-1",1,10000]

select  (select count(*) from (
  select 1 from flotilla_task where name = ? and status = 'pending' and parked = 0 and deaths >= 2 and (created_at, task_id) < (?, ?)
  order by created_at, task_id limit cast(? as integer)) earlier) as ahead
-- values: ["mail",100,"task-1",10000]

select (select count(*) from (
select 1 from flotilla_task where name = ? and tenant = ? and status = 'pending' and parked = 4 and deaths < 2 and priority > ?
order by priority desc, created_at, task_id limit cast(? as integer)) higher) + (select count(*) from (
  select 1 from flotilla_task where name = ? and tenant = ? and status = 'pending' and parked = 4 and deaths < 2 and (created_at, task_id) < (?, ?) and priority = ?
  order by priority desc, created_at, task_id limit cast(? as integer)) earlier) as ahead
-- values: ["mail","acme",1,10000,"mail","acme",100,"task-1",1,10000]

select  (select count(*) from (
  select 1 from flotilla_task where name = ? and status = 'pending' and parked = 4 and deaths >= 2 and (created_at, task_id) < (?, ?)
  order by created_at, task_id limit cast(? as integer)) earlier) as ahead
-- values: ["mail",100,"task-1",10000]

select (select count(*) from (
select 1 from flotilla_task where blocked_by = ? and status = 'pending' and parked = 3 and priority > ?
order by priority desc, created_at, task_id limit cast(? as integer)) higher) + (select count(*) from (
  select 1 from flotilla_task where blocked_by = ? and status = 'pending' and parked = 3 and (created_at, task_id) < (?, ?) and priority = ?
  order by priority desc, created_at, task_id limit cast(? as integer)) earlier) as ahead
-- values: ["key/mail/acme",1,10000,"key/mail/acme",100,"task-1",1,10000]

-- src/tasks/sql/steps.ts: storeSteps
insert into flotilla_step_journal as stored (owner_id, part, key, seq, token, kind, input_hash, value, started_at, at)
select given.task_id, given.part, given.key, given.seq, given.token, given.kind,
  given.input_hash, given.value, now_ms() - given.took_ms, now_ms()
from (select value ->> 0 as task_id, value ->> 1 as part, value ->> 2 as token, value ->> 3 as run_seq, value ->> 4 as key, value ->> 5 as seq, value ->> 6 as kind, value ->> 7 as input_hash, value ->> 8 as value, value ->> 9 as took_ms from jsonb_each(?)) given join flotilla_task task on task.task_id = given.task_id
where task.claim_token = given.token and task.run_seq = given.run_seq
  and task.status in ('claimed', 'pending')

on conflict (owner_id, part, key) do update set seq = excluded.seq, token = excluded.token,
  kind = excluded.kind, input_hash = excluded.input_hash, value = excluded.value,
  started_at = excluded.started_at, at = excluded.at
where stored.seq < excluded.seq
returning owner_id, part, key
-- instead of returning:
select stored.owner_id, stored.part, stored.key from (select value ->> 0 as task_id, value ->> 1 as part, value ->> 2 as token, value ->> 3 as key, value ->> 4 as seq from jsonb_each(?)) given join flotilla_step_journal stored
  on stored.owner_id = given.task_id and stored.part = given.part and stored.key = given.key
where stored.token = given.token and stored.seq = given.seq
-- values: ["[[\"task-1\",\"\",2,0,\"read\",3,\"done\",null,\"1\",5]]"]

insert into flotilla_step_journal as stored (owner_id, part, key, seq, token, kind, input_hash, value, started_at, at)
select given.task_id, given.part, given.key, given.seq, given.token, given.kind,
  given.input_hash, given.value, now_ms() - given.took_ms, now_ms()
from (select value ->> 0 as task_id, value ->> 1 as part, value ->> 2 as token, value ->> 3 as run_seq, value ->> 4 as key, value ->> 5 as seq, value ->> 6 as kind, value ->> 7 as input_hash, value ->> 8 as value, value ->> 9 as took_ms from jsonb_each(?)) given join flotilla_task task on task.task_id = given.task_id
where task.claim_token = given.token and task.run_seq = given.run_seq
  and task.status in ('claimed', 'pending')

on conflict (owner_id, part, key) do update set seq = excluded.seq, token = excluded.token,
  kind = excluded.kind, input_hash = excluded.input_hash, value = excluded.value,
  started_at = excluded.started_at, at = excluded.at
where stored.seq < excluded.seq
returning owner_id, part, key
-- instead of returning:
select stored.owner_id, stored.part, stored.key from (select value ->> 0 as task_id, value ->> 1 as part, value ->> 2 as token, value ->> 3 as key, value ->> 4 as seq from jsonb_each(?)) given join flotilla_step_journal stored
  on stored.owner_id = given.task_id and stored.part = given.part and stored.key = given.key
where stored.token = given.token and stored.seq = given.seq
-- values: ["[[\"task-1\",\"\",2,0,\"read\",3,\"done\",null,\"1\",5]]"]

delete from flotilla_step_journal where rowid in (
  select inner_step.rowid from (select value ->> 0 as task_id, value ->> 1 as part, value ->> 2 as token, value ->> 3 as key, value ->> 4 as seq, value ->> 5 as low, value ->> 6 as high from jsonb_each(?)) given
  join flotilla_step_journal stored on stored.owner_id = given.task_id and stored.part = given.part
    and stored.key = given.key and stored.token = given.token and stored.seq = given.seq
  join flotilla_step_journal inner_step on inner_step.owner_id = given.task_id
    and inner_step.part = given.part
    and inner_step.key >= given.low and inner_step.key < given.high)
-- values: ["[[\"task-1\",\"\",2,\"read\",3,\"read/\",\"read0\"],[\"task-1\",\"\",2,\"read\",3,\"read@\",\"readA\"]]"]

insert into flotilla_step_journal as stored (owner_id, part, key, seq, token, kind, input_hash, value, started_at, at)
select given.task_id, given.part, given.key, given.seq, given.token, given.kind,
  given.input_hash, given.value, now_ms() - given.took_ms, now_ms()
from (select value ->> 0 as task_id, value ->> 1 as part, value ->> 2 as token, value ->> 3 as run_seq, value ->> 4 as key, value ->> 5 as seq, value ->> 6 as kind, value ->> 7 as input_hash, value ->> 8 as value, value ->> 9 as took_ms from jsonb_each(?)) given join flotilla_task task on task.task_id = given.task_id
where task.claim_token = given.token and task.run_seq = given.run_seq
  and task.status in ('claimed', 'pending')

on conflict (owner_id, part, key) do update set seq = excluded.seq, token = excluded.token,
  kind = excluded.kind, input_hash = excluded.input_hash, value = excluded.value,
  started_at = excluded.started_at, at = excluded.at
where stored.seq < excluded.seq
returning owner_id, part, key
-- instead of returning:
select stored.owner_id, stored.part, stored.key from (select value ->> 0 as task_id, value ->> 1 as part, value ->> 2 as token, value ->> 3 as key, value ->> 4 as seq from jsonb_each(?)) given join flotilla_step_journal stored
  on stored.owner_id = given.task_id and stored.part = given.part and stored.key = given.key
where stored.token = given.token and stored.seq = given.seq
-- values: ["[[\"task-1\",\"\",2,0,\"read\",3,\"done\",null,\"1\",5]]"]

update flotilla_task_signal set taken = 1 from (select value ->> 0 as task_id, value ->> 1 as part, value ->> 2 as token, value ->> 3 as key, value ->> 4 as seq, value ->> 5 as signal_id from jsonb_each(?)) used
where flotilla_task_signal.task_id = used.task_id and flotilla_task_signal.signal_id = used.signal_id
  and exists (select 1 from flotilla_step_journal stored
    where stored.owner_id = used.task_id and stored.part = used.part
      and stored.key = used.key
      and stored.token = used.token and stored.seq = used.seq)
-- values: ["[[\"task-1\",\"\",2,\"read\",3,\"signal-1\"]]"]

insert into flotilla_step_journal as stored (owner_id, part, key, seq, token, kind, input_hash, value, started_at, at)
select given.task_id, given.part, given.key, given.seq, given.token, given.kind,
  given.input_hash, given.value, now_ms() - given.took_ms, now_ms()
from (select value ->> 0 as task_id, value ->> 1 as part, value ->> 2 as token, value ->> 3 as run_seq, value ->> 4 as key, value ->> 5 as seq, value ->> 6 as kind, value ->> 7 as input_hash, value ->> 8 as value, value ->> 9 as took_ms from jsonb_each(?)) given join flotilla_task task on task.task_id = given.task_id
where task.claim_token = given.token and task.run_seq = given.run_seq
  and task.status in ('claimed', 'pending')

on conflict (owner_id, part, key) do update set seq = excluded.seq, token = excluded.token,
  kind = excluded.kind, input_hash = excluded.input_hash, value = excluded.value,
  started_at = excluded.started_at, at = excluded.at
where stored.seq < excluded.seq
returning owner_id, part, key
-- instead of returning:
select stored.owner_id, stored.part, stored.key from (select value ->> 0 as task_id, value ->> 1 as part, value ->> 2 as token, value ->> 3 as key, value ->> 4 as seq from jsonb_each(?)) given join flotilla_step_journal stored
  on stored.owner_id = given.task_id and stored.part = given.part and stored.key = given.key
where stored.token = given.token and stored.seq = given.seq
-- values: ["[[\"task-1\",\"\",2,0,\"read\",3,\"done\",null,\"1\",5]]"]

update flotilla_task set task_version = raised.version,
  begun_version = coalesce(flotilla_task.begun_version, raised.begun_by)
from (select value ->> 0 as task_id, value ->> 1 as part, value ->> 2 as token, value ->> 3 as key, value ->> 4 as seq, value ->> 5 as version, value ->> 6 as begun_by from jsonb_each(?)) raised
where flotilla_task.task_id = raised.task_id and flotilla_task.claim_token = raised.token
  and coalesce(flotilla_task.task_version, 0) < raised.version and exists (select 1 from flotilla_step_journal stored
    where stored.owner_id = raised.task_id and stored.part = raised.part
      and stored.key = raised.key
      and stored.token = raised.token and stored.seq = raised.seq)
-- values: ["[[\"task-1\",\"\",2,\"read\",3,2,1]]"]

-- src/tasks/sql/steps.ts: selectStored
select stored.owner_id, stored.part, stored.key from (select value ->> 0 as task_id, value ->> 1 as part, value ->> 2 as token, value ->> 3 as key, value ->> 4 as seq from jsonb_each(?)) given join flotilla_step_journal stored
  on stored.owner_id = given.task_id and stored.part = given.part and stored.key = given.key
where stored.token = given.token and stored.seq = given.seq
-- values: ["[[\"task-1\",\"\",2,\"read\",3]]"]

-- src/tasks/sql/steps.ts: listSteps
select part, key, seq, token, kind, started_at, at, coalesce(octet_length(value), 0) as bytes
from flotilla_step_journal where owner_id = ? and (part = '' or part >= 'A') and seq > ?
order by seq, part
-- values: ["task-1",0]

select part, key, seq, token, kind, started_at, at, coalesce(octet_length(value), 0) as bytes
from flotilla_step_journal where owner_id = ? and (part = '' or part >= 'A') and seq > ?
order by seq, part limit cast(? as integer)
-- values: ["task-1",3,10]

-- src/tasks/sql/steps.ts: readUnasked
select noted.detail, task.claim_token from flotilla_task_event noted
join flotilla_task task on task.task_id = noted.task_id
where noted.task_id = ? and noted.type = ?
order by noted.seq desc limit 1
-- values: ["task-1","steps_unasked"]

-- src/tasks/sql/steps.ts: countSteps
select count(*) as steps from flotilla_step_journal where owner_id = ? and (part = '' or part >= 'A')
-- values: ["task-1"]

-- src/tasks/sql/steps.ts: countStepsOf
select count(*) from flotilla_step_journal where owner_id in (select 'task-1') and (part = '' or part >= 'A')

-- src/tasks/sql/steps.ts: forgetParts
delete from flotilla_step_journal where rowid in (
  select stored.rowid from (select value ->> 0 as task_id, value ->> 1 as part from jsonb_each(?)) over_part
  join flotilla_step_journal stored on stored.owner_id = over_part.task_id and stored.part = over_part.part
  where over_part.task_id in (select task.task_id from flotilla_task task where true))
-- values: ["[[\"run-1\",\"charge\"]]"]

-- src/tasks/sql/steps.ts: forgetSteps
delete from flotilla_step_journal where owner_id in (select 'task-1') and (part = '' or part >= 'A') and kind = 'failed'

delete from flotilla_step_journal where owner_id in (select 'task-1') and (part = '' or part >= 'A')

-- src/tasks/sql/steps.ts: hasSteps
select case when exists (select 1 from flotilla_step_journal stored
    where stored.owner_id = task.task_id and stored.part = '') then 1 else 0 end from flotilla_task task

-- src/tasks/sql/steps.ts: hasStepped
select 1 from flotilla_task task where exists (
    select 1 from flotilla_step_journal stored
    where stored.owner_id = task.task_id and stored.part = ''
      and stored.token = task.claim_token)

-- src/tasks/sql/steps.ts: forgetStepsByKey
delete from flotilla_step_journal where owner_id in (select 'task-1') and (part = '' or part >= 'A')
  and exists (select 1 from (select value ->> 0 as low, value ->> 1 as high from jsonb_each(?)) wanted
    where flotilla_step_journal.key >= wanted.low and flotilla_step_journal.key < wanted.high)
-- values: ["[[\"read[a]\",\"read[a]\\u0001\"],[\"read[a]/\",\"read[a]0\"],[\"read[a]@\",\"read[a]A\"]]"]

-- src/tasks/sql/steps.ts: isStoredBy
select 1 from (select 'task-1' as task_id, '' as part, 'a' as key, 1 as token, 1 as seq) given
        where exists (select 1 from flotilla_step_journal stored
        where stored.owner_id = given.task_id and stored.part = given.part
          and stored.key = given.key
          and stored.token = given.token and stored.seq = given.seq)

-- src/tasks/sql/step-children.ts: startStepChildren
  insert into flotilla_task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
    max_attempts, unique_key, trace, concurrency_key, limited, depends, scheduled_at, flow_version, parent_id, parked)
  select task_id, tenant, name, payload, priority, case when fresh.start_at is null then now_ms() + fresh.delay_ms
  when fresh.start_at > now_ms() then fresh.start_at else now_ms() end, now_ms(), now_ms(),
    max_attempts, unique_key, trace, concurrency_key, limited, depends, scheduled_at, flow_version, parent_id,
case when depends > 0 then 2 when delay_ms > 0 or start_at > now_ms() then 1
  when limited = 1 then 4 else 0 end
  from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as name, value ->> 3 as payload, value ->> 4 as priority, value ->> 5 as delay_ms, value ->> 6 as max_attempts, value ->> 7 as unique_key, value ->> 8 as trace, value ->> 9 as start_at, value ->> 10 as concurrency_key, value ->> 11 as limited, value ->> 12 as depends, value ->> 13 as scheduled_at, value ->> 14 as flow_version, value ->> 15 as parent_id from jsonb_each(?)) fresh where fresh.parent_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as part, value ->> 2 as token, value ->> 3 as key, value ->> 4 as seq from jsonb_each(?)) given join flotilla_task task on task.task_id = given.task_id
  where exists (select 1 from flotilla_step_journal stored
      where stored.owner_id = given.task_id and stored.part = given.part
        and stored.key = given.key
        and stored.token = given.token and stored.seq = given.seq))
  on conflict do nothing
  returning task_id
-- instead of returning:
select task_id from flotilla_task where task_id in (select task_id from (select value ->> 0 as task_id, value ->> 1 as tenant, value ->> 2 as name, value ->> 3 as payload, value ->> 4 as priority, value ->> 5 as delay_ms, value ->> 6 as max_attempts, value ->> 7 as unique_key, value ->> 8 as trace from jsonb_each(?)) fresh)
-- values: ["[[\"child-1\",\"default\",\"mail\",\"{}\",0,0,null,\"run-1/charge/0\",null,null,null,0,0,null,null,\"task-1\"]]","[[\"task-1\",\"\",2,\"read\",3]]"]

  insert into flotilla_task_event (task_id, seq, type)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), 'retried' from flotilla_task task
  where task_id in (
select child.task_id from (select value ->> 0 as parent_id, value ->> 1 as task_id, value ->> 2 as token from jsonb_each(?)) wanted
join flotilla_task child on child.task_id = wanted.task_id
where child.parent_id = wanted.parent_id and child.claim_token = wanted.token
  and child.status in ('failed', 'cancelled')
  and wanted.parent_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as part, value ->> 2 as token, value ->> 3 as key, value ->> 4 as seq from jsonb_each(?)) given join flotilla_task task on task.task_id = given.task_id
where exists (select 1 from flotilla_step_journal stored
    where stored.owner_id = given.task_id and stored.part = given.part
      and stored.key = given.key
      and stored.token = given.token and stored.seq = given.seq)))
-- values: ["[[\"task-1\",\"child-0\",2]]","[[\"task-1\",\"\",2,\"read\",3]]"]

delete from flotilla_step_journal where owner_id in (
    select child.task_id from (select value ->> 0 as parent_id, value ->> 1 as task_id, value ->> 2 as token from jsonb_each(?)) wanted
    join flotilla_task child on child.task_id = wanted.task_id
    where child.parent_id = wanted.parent_id and child.claim_token = wanted.token
      and child.status in ('failed', 'cancelled')
      and wanted.parent_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as part, value ->> 2 as token, value ->> 3 as key, value ->> 4 as seq from jsonb_each(?)) given join flotilla_task task on task.task_id = given.task_id
    where exists (select 1 from flotilla_step_journal stored
        where stored.owner_id = given.task_id and stored.part = given.part
          and stored.key = given.key
          and stored.token = given.token and stored.seq = given.seq))) and (part = '' or part >= 'A') and kind = 'failed'
-- values: ["[[\"task-1\",\"child-0\",2]]","[[\"task-1\",\"\",2,\"read\",3]]"]

update flotilla_task set
  status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
  parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
  depends = case when depends = 3 then 1 else depends end,
  claim_token = claim_token + 1, claimed_by = null, run_at = now_ms(), last_update = now_ms(),
  cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
  then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
  error = null, progress = null, progress_token = claim_token + 1 where task_id in (
    select child.task_id from (select value ->> 0 as parent_id, value ->> 1 as task_id, value ->> 2 as token from jsonb_each(?)) wanted
    join flotilla_task child on child.task_id = wanted.task_id
    where child.parent_id = wanted.parent_id and child.claim_token = wanted.token
      and child.status in ('failed', 'cancelled')
      and wanted.parent_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as part, value ->> 2 as token, value ->> 3 as key, value ->> 4 as seq from jsonb_each(?)) given join flotilla_task task on task.task_id = given.task_id
    where exists (select 1 from flotilla_step_journal stored
        where stored.owner_id = given.task_id and stored.part = given.part
          and stored.key = given.key
          and stored.token = given.token and stored.seq = given.seq)))
-- values: ["[[\"task-1\",\"child-0\",2]]","[[\"task-1\",\"\",2,\"read\",3]]"]

delete from flotilla_task_dependency
where dependent_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as part, value ->> 2 as token, value ->> 3 as key, value ->> 4 as seq from jsonb_each(?)) given join flotilla_task task on task.task_id = given.task_id
where exists (select 1 from flotilla_step_journal stored
    where stored.owner_id = given.task_id and stored.part = given.part
      and stored.key = given.key
      and stored.token = given.token and stored.seq = given.seq))
  and exists (select 1 from flotilla_task child join (select value ->> 0 as parent_id, value ->> 1 as name, value ->> 2 as tenant, value ->> 3 as unique_key, value ->> 4 as prefix from jsonb_each(?)) wanted
      on substr(child.unique_key, 1, length(wanted.prefix)) = wanted.prefix
    where child.task_id = flotilla_task_dependency.dependency_id and child.parent_id = flotilla_task_dependency.dependent_id
      and wanted.parent_id = flotilla_task_dependency.dependent_id)
  and not exists (select 1 from flotilla_task child join (select value ->> 0 as parent_id, value ->> 1 as name, value ->> 2 as tenant, value ->> 3 as unique_key, value ->> 4 as prefix from jsonb_each(?)) wanted
      on child.tenant = wanted.tenant and child.name = wanted.name
        and child.unique_key = wanted.unique_key
    where child.task_id = flotilla_task_dependency.dependency_id and wanted.parent_id = flotilla_task_dependency.dependent_id)
-- values: ["[[\"task-1\",\"\",2,\"read\",3]]","[[\"task-1\",\"mail\",\"default\",\"run-1/charge/0\",\"run-1/charge/\"]]","[[\"task-1\",\"mail\",\"default\",\"run-1/charge/0\",\"run-1/charge/\"]]"]

delete from flotilla_task_dependency
where dependent_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent)
  and not exists (select 1 from flotilla_task child where child.task_id = flotilla_task_dependency.dependency_id)
-- values: ["[[\"task-1\"]]"]

insert into flotilla_task_dependency (dependency_id, dependent_id, place)
select fresh.dependency_id, fresh.dependent_id, fresh.place from (select value ->> 0 as dependency_id, value ->> 1 as dependent_id, value ->> 2 as place from jsonb_each(?)) fresh
where exists (select 1 from flotilla_task child where child.task_id = fresh.dependency_id)
on conflict do nothing
-- values: ["[[\"child-1\",\"task-1\",0]]"]

update flotilla_task set dependents = dependents + 1 where task_id in (select child.task_id from (select value ->> 0 as dependency_id, value ->> 1 as dependent_id, value ->> 2 as place from jsonb_each(?)) fresh
    join flotilla_task child on child.task_id = fresh.dependency_id)
-- values: ["[[\"child-1\",\"task-1\",0]]"]

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
select dependency_id as id from flotilla_task_dependency
where dependent_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent)) named) and coalesce(flotilla_task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["[[\"task-1\"]]"]

-- src/tasks/sql/step-children.ts: readStartedChildren
select task.tenant, child.task_id, child.status, child.claim_token
from flotilla_task task
left join flotilla_task_dependency wait on wait.dependent_id = task.task_id
left join flotilla_task child on child.task_id = wait.dependency_id and child.parent_id = task.task_id
  and substr(child.unique_key, 1, ?) = ?
where task.task_id = ?
-- values: [12,"task-1/read/","task-1"]

-- src/tasks/sql/step-children.ts: readStepChildren
select wait.place, child.task_id, child.name, child.status, child.result, child.error
from flotilla_task_dependency wait join flotilla_task child on child.task_id = wait.dependency_id
where wait.dependent_id = ? and child.parent_id = ?
  and substr(child.unique_key, 1, ?) = ?
order by wait.place
-- values: ["task-1","task-1",12,"task-1/read/"]

-- src/tasks/sql/run-relations.ts: takeSignals
update flotilla_task_signal set taken = 1
from (select value ->> 0 as task_id, value ->> 1 as signal_id from jsonb_each(?)) used
where flotilla_task_signal.task_id = used.task_id and flotilla_task_signal.signal_id = used.signal_id
  and used.task_id in (select task.task_id from flotilla_task task where true)
-- values: ["[[\"run-1\",\"signal-1\"]]"]

-- src/tasks/sql/run-relations.ts: startOver
  insert into flotilla_task_event (task_id, seq, type)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), 'retried' from flotilla_task task
  where task_id in (
select child.task_id from (select value ->> 0 as parent_id, value ->> 1 as name, value ->> 2 as tenant, value ->> 3 as unique_key from jsonb_each(?)) wanted
join flotilla_task child on child.tenant = wanted.tenant and child.name = wanted.name
  and child.unique_key = wanted.unique_key
where child.parent_id = wanted.parent_id and child.status in ('failed', 'cancelled')
  and wanted.parent_id in (select task.task_id from flotilla_task task where true))
-- values: ["[[\"run-1\",\"mail\",\"default\",\"run-1/charge/0\"]]"]

delete from flotilla_step_journal where owner_id in (
    select child.task_id from (select value ->> 0 as parent_id, value ->> 1 as name, value ->> 2 as tenant, value ->> 3 as unique_key from jsonb_each(?)) wanted
    join flotilla_task child on child.tenant = wanted.tenant and child.name = wanted.name
      and child.unique_key = wanted.unique_key
    where child.parent_id = wanted.parent_id and child.status in ('failed', 'cancelled')
      and wanted.parent_id in (select task.task_id from flotilla_task task where true)) and (part = '' or part >= 'A') and kind = 'failed'
-- values: ["[[\"run-1\",\"mail\",\"default\",\"run-1/charge/0\"]]"]

update flotilla_task set
  status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
  parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
  depends = case when depends = 3 then 1 else depends end,
  claim_token = claim_token + 1, claimed_by = null, run_at = now_ms(), last_update = now_ms(),
  cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
  then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
  error = null, progress = null, progress_token = claim_token + 1 where task_id in (
    select child.task_id from (select value ->> 0 as parent_id, value ->> 1 as name, value ->> 2 as tenant, value ->> 3 as unique_key from jsonb_each(?)) wanted
    join flotilla_task child on child.tenant = wanted.tenant and child.name = wanted.name
      and child.unique_key = wanted.unique_key
    where child.parent_id = wanted.parent_id and child.status in ('failed', 'cancelled')
      and wanted.parent_id in (select task.task_id from flotilla_task task where true))
-- values: ["[[\"run-1\",\"mail\",\"default\",\"run-1/charge/0\"]]"]

-- src/tasks/sql/run-relations.ts: deleteOtherChildren
delete from flotilla_task_dependency
where dependent_id in (select task.task_id from flotilla_task task where true)
  and exists (select 1 from flotilla_task child join (select value ->> 0 as parent_id, value ->> 1 as name, value ->> 2 as tenant, value ->> 3 as unique_key, value ->> 4 as prefix from jsonb_each(?)) wanted
      on substr(child.unique_key, 1, length(wanted.prefix)) = wanted.prefix
    where child.task_id = flotilla_task_dependency.dependency_id and child.parent_id = flotilla_task_dependency.dependent_id
      and wanted.parent_id = flotilla_task_dependency.dependent_id)
  and not exists (select 1 from flotilla_task child join (select value ->> 0 as parent_id, value ->> 1 as name, value ->> 2 as tenant, value ->> 3 as unique_key, value ->> 4 as prefix from jsonb_each(?)) wanted
      on child.tenant = wanted.tenant and child.name = wanted.name
        and child.unique_key = wanted.unique_key
    where child.task_id = flotilla_task_dependency.dependency_id and wanted.parent_id = flotilla_task_dependency.dependent_id)
-- values: ["[[\"run-1\",\"mail\",\"default\",\"run-1/charge/0\",\"run-1/charge/\"]]","[[\"run-1\",\"mail\",\"default\",\"run-1/charge/0\",\"run-1/charge/\"]]"]

-- src/tasks/sql/run-relations.ts: startTasksOver
insert into flotilla_task_event (task_id, seq, type)
select task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), 'retried' from flotilla_task task
where task_id in (select 'task-1')

delete from flotilla_step_journal where owner_id in (select 'task-1') and (part = '' or part >= 'A') and kind = 'failed'

update flotilla_task set
  status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
  parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
  depends = case when depends = 3 then 1 else depends end,
  claim_token = claim_token + 1, claimed_by = null, run_at = now_ms(), last_update = now_ms(),
  cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
  then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
  error = null, progress = null, progress_token = claim_token + 1 where task_id in (select 'task-1')

-- src/tasks/sql/run-relations.ts: insertChildDependencies
delete from flotilla_task_dependency
where dependent_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent)
  and not exists (select 1 from flotilla_task child where child.task_id = flotilla_task_dependency.dependency_id)
-- values: ["[[\"run-1\"]]"]

insert into flotilla_task_dependency (dependency_id, dependent_id, place)
select fresh.dependency_id, fresh.dependent_id, fresh.place from (select value ->> 0 as dependency_id, value ->> 1 as dependent_id, value ->> 2 as place from jsonb_each(?)) fresh
where exists (select 1 from flotilla_task child where child.task_id = fresh.dependency_id)
on conflict do nothing
-- values: ["[[\"child-1\",\"run-1\",0]]"]

update flotilla_task set dependents = dependents + 1 where task_id in (select child.task_id from (select value ->> 0 as dependency_id, value ->> 1 as dependent_id, value ->> 2 as place from jsonb_each(?)) fresh
    join flotilla_task child on child.task_id = fresh.dependency_id)
-- values: ["[[\"child-1\",\"run-1\",0]]"]

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
select dependency_id as id from flotilla_task_dependency
where dependent_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent)) named) and coalesce(flotilla_task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["[[\"run-1\"]]"]

-- src/tasks/sql/list.ts: isFailed
status = 'failed'

-- src/tasks/sql/list.ts: taskConditions
name = ?
-- values: ["mail"]

status = ?
-- values: ["failed"]

tenant = ?
-- values: ["acme"]

unique_key = ?
-- values: ["k"]

concurrency_key = ?
-- values: ["key/mail/k"]

claimed_by = ? and status = 'claimed'
-- values: ["pod-1"]

(status = 'pending' and parked = 0 and deaths < 2 or status = 'pending' and parked = 4 and deaths < 2)

case when json_valid(payload) then json_type(payload, ?) in ('integer', 'real') and json_extract(payload, ?) is json_extract(?, '$') else false end
-- values: ["$.\"order\".\"id\"","$.\"order\".\"id\"","7"]

case when json_valid(payload) then json_type(payload, ?) = ? and json_extract(payload, ?) is json_extract(?, '$') else false end
-- values: ["$.\"to\"","text","$.\"to\"","\"ada\""]

-- src/tasks/sql/list.ts: walkTasks
with walked as materialized (
  select task_id, created_at, case when true then 500 + coalesce(octet_length(payload), 0) + coalesce(octet_length(state), 0) + coalesce(octet_length(progress), 0)
+ coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0) + coalesce(octet_length(waiting), 0)
+ coalesce(octet_length(intent), 0) + coalesce(octet_length(set_aside), 0)
+ case when depends = 0 then 0 else
  (select count(*) from flotilla_task_dependency wait where wait.dependent_id = task_id) * ? end end as bytes
  from flotilla_task where  task_id < ? and task_id >= ?
  order by task_id desc limit cast(? as integer))
select task_id, created_at, bytes, null as walked from (
  select task_id, created_at, bytes from walked where bytes is not null
  order by task_id desc limit cast(? as integer)) found
union all
select task_id, created_at, null, (select count(*) from walked) from (
  select task_id, created_at from walked order by task_id limit cast(? as integer)) last
-- values: [40,"task-9","task-1",2000,11,1]

with walked as materialized (
  select task_id, created_at, case when name = ? and status = ? then 500 + coalesce(octet_length(payload), 0) + coalesce(octet_length(state), 0) + coalesce(octet_length(progress), 0)
+ coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0) + coalesce(octet_length(waiting), 0)
+ coalesce(octet_length(intent), 0) + coalesce(octet_length(set_aside), 0)
+ case when depends = 0 then 0 else
  (select count(*) from flotilla_task_dependency wait where wait.dependent_id = task_id) * ? end end as bytes
  from flotilla_task where status = 'failed' and task_id < ? and task_id >= ?
  order by task_id desc limit cast(? as integer))
select task_id, created_at, bytes, null as walked from (
  select task_id, created_at, bytes from walked where bytes is not null
  order by task_id desc limit cast(? as integer)) found
union all
select task_id, created_at, null, (select count(*) from walked) from (
  select task_id, created_at from walked order by task_id limit cast(? as integer)) last
-- values: ["mail","failed",40,"task-9","task-1",2000,11,1]

-- src/tasks/sql/list.ts: isRunNamed
flow_version is not null and name = ?
-- values: ["order"]

-- src/tasks/sql/list.ts: isAmongIds
task_id in (select given.task_id from (select value ->> 0 as task_id from jsonb_each(?)) given)
-- values: ["[[\"task-2\"],[\"task-1\"]]"]

-- src/tasks/sql/list.ts: tasksSetAside
select task_id from flotilla_task where  status = 'pending' and parked = 6 order by name limit cast(? as integer)
-- values: [10]

select task_id from flotilla_task where name = ? and status = 'pending' and parked = 6 order by name limit cast(? as integer)
-- values: ["order",10]

-- src/tasks/sql/list.ts: checkTasks
select task_id, created_at, bytes, null as walked from (
  select task_id, created_at, 500 + coalesce(octet_length(payload), 0) + coalesce(octet_length(state), 0) + coalesce(octet_length(progress), 0)
+ coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0) + coalesce(octet_length(waiting), 0)
+ coalesce(octet_length(intent), 0) + coalesce(octet_length(set_aside), 0)
+ case when depends = 0 then 0 else
  (select count(*) from flotilla_task_dependency wait where wait.dependent_id = task_id) * ? end as bytes from flotilla_task
  where task_id in (select given.task_id from (select value ->> 0 as task_id from jsonb_each(?)) given) and true
  order by task_id desc limit cast(? as integer)) found
union all
select task_id, created_at, null, cast(? as integer) from flotilla_task
where task_id = ?
-- values: [40,"[[\"task-2\"],[\"task-1\"]]",11,2,"task-1"]

-- src/tasks/sql/list.ts: readListed
select * from flotilla_task where task_id in (select given.task_id from (select value ->> 0 as task_id from jsonb_each(?)) given) and name = ? order by task_id desc
-- values: ["[[\"task-2\"]]","mail"]

-- src/tasks/sql/list.ts: runningTasks
select task_id from flotilla_task where status = 'claimed'
order by claimed_by, claim_call limit cast(? as integer)
-- values: [10]

select task_id from flotilla_task where status = 'claimed' and claimed_by = ?
order by claimed_by, claim_call limit cast(? as integer)
-- values: ["pod-1",10]

select task_id from flotilla_task
where coalesce(status, '') = 'claimed' and concurrency_key is not null
  and concurrency_key >= ? and concurrency_key <= ?
order by concurrency_key limit cast(? as integer)
-- values: ["key/mail/k","key/mail/k",10]

-- src/tasks/sql/list.ts: pendingTasks
select task_id from (select task_id from (
      select task_id from flotilla_task where  status = 'pending' and parked = 0 and deaths < 2
      order by name, priority desc, created_at, task_id limit cast(? as integer)) ready union all select task_id from (
      select task_id from flotilla_task where  status = 'pending' and parked = 0 and deaths >= 2
      order by name, created_at, task_id limit cast(? as integer)) alone union all select task_id from (
      select task_id from flotilla_task where  status = 'pending' and parked = 4 and deaths < 2
      order by name, tenant, priority desc, created_at, task_id limit cast(? as integer)) limited union all select task_id from (
      select task_id from flotilla_task where  status = 'pending' and parked = 4 and deaths >= 2
      order by name, created_at, task_id limit cast(? as integer)) limited_alone union all select task_id from (
      select task_id from flotilla_task where  status = 'pending' and parked = 5
      order by name, name limit cast(? as integer)) for_signal union all select task_id from (
      select task_id from flotilla_task where  status = 'pending' and parked = 6
      order by name, name limit cast(? as integer)) set_aside union all select task_id from (
      select task_id from flotilla_task where  status = 'pending' and parked = 1
      order by run_at limit cast(? as integer)) delayed union all select task_id from (
      select task_id from flotilla_task where  status = 'pending' and parked = 2
      order by task_id limit cast(? as integer)) for_tasks union all select task_id from (
      select task_id from flotilla_task where  status = 'pending' and parked = 3
      order by blocked_by, priority desc, created_at, task_id limit cast(? as integer)) blocked) pending limit cast(? as integer)
-- values: [10,10,10,10,10,10,10,10,10,10]

select task_id from (select task_id from (
      select task_id from flotilla_task where name = ? and status = 'pending' and parked = 0 and deaths < 2
      order by priority desc, created_at, task_id limit cast(? as integer)) ready union all select task_id from (
      select task_id from flotilla_task where name = ? and status = 'pending' and parked = 0 and deaths >= 2
      order by created_at, task_id limit cast(? as integer)) alone union all select task_id from (
      select task_id from flotilla_task where name = ? and status = 'pending' and parked = 4 and deaths < 2
      order by tenant, priority desc, created_at, task_id limit cast(? as integer)) limited union all select task_id from (
      select task_id from flotilla_task where name = ? and status = 'pending' and parked = 4 and deaths >= 2
      order by created_at, task_id limit cast(? as integer)) limited_alone union all select task_id from (
      select task_id from flotilla_task where name = ? and status = 'pending' and parked = 5
      order by name limit cast(? as integer)) for_signal union all select task_id from (
      select task_id from flotilla_task where name = ? and status = 'pending' and parked = 6
      order by name limit cast(? as integer)) set_aside union all select task_id from (
      select task_id from flotilla_task where  status = 'pending' and parked = 1
      order by run_at limit cast(? as integer)) delayed union all select task_id from (
      select task_id from flotilla_task where  status = 'pending' and parked = 2
      order by task_id limit cast(? as integer)) for_tasks union all select task_id from (
      select task_id from flotilla_task where  status = 'pending' and parked = 3
      order by blocked_by, priority desc, created_at, task_id limit cast(? as integer)) blocked) pending limit cast(? as integer)
-- values: ["mail",10,"mail",10,"mail",10,"mail",10,"mail",10,"mail",10,10,10,10,10]

select task_id from (select task_id from (
      select task_id from flotilla_task where  status = 'pending' and parked = 1
      order by run_at limit cast(? as integer)) delayed) pending limit cast(? as integer)
-- values: [10,10]

select task_id from (select task_id from (
      select task_id from flotilla_task where  status = 'pending' and parked = 0 and deaths < 2
      order by name, priority desc, created_at, task_id limit cast(? as integer)) ready union all select task_id from (
      select task_id from flotilla_task where  status = 'pending' and parked = 4 and deaths < 2
      order by name, tenant, priority desc, created_at, task_id limit cast(? as integer)) limited) pending limit cast(? as integer)
-- values: [10,10,10]

-- src/tasks/sql/list.ts: openTasks
select task_id from (
  select task_id from (
  select task_id from flotilla_task where status = 'claimed'
  order by claimed_by, claim_call limit cast(? as integer)) running
  union all
  select task_id from (select task_id from (select task_id from (
  select task_id from flotilla_task where name = ? and status = 'pending' and parked = 0 and deaths < 2
  order by priority desc, created_at, task_id limit cast(? as integer)) ready union all select task_id from (
  select task_id from flotilla_task where name = ? and status = 'pending' and parked = 0 and deaths >= 2
  order by created_at, task_id limit cast(? as integer)) alone union all select task_id from (
  select task_id from flotilla_task where name = ? and status = 'pending' and parked = 4 and deaths < 2
  order by tenant, priority desc, created_at, task_id limit cast(? as integer)) limited union all select task_id from (
  select task_id from flotilla_task where name = ? and status = 'pending' and parked = 4 and deaths >= 2
  order by created_at, task_id limit cast(? as integer)) limited_alone union all select task_id from (
  select task_id from flotilla_task where name = ? and status = 'pending' and parked = 5
  order by name limit cast(? as integer)) for_signal union all select task_id from (
  select task_id from flotilla_task where name = ? and status = 'pending' and parked = 6
  order by name limit cast(? as integer)) set_aside union all select task_id from (
  select task_id from flotilla_task where  status = 'pending' and parked = 1
  order by run_at limit cast(? as integer)) delayed union all select task_id from (
  select task_id from flotilla_task where  status = 'pending' and parked = 2
  order by task_id limit cast(? as integer)) for_tasks union all select task_id from (
  select task_id from flotilla_task where  status = 'pending' and parked = 3
  order by blocked_by, priority desc, created_at, task_id limit cast(? as integer)) blocked) pending limit cast(? as integer)) pending) open limit cast(? as integer)
-- values: [10,"mail",10,"mail",10,"mail",10,"mail",10,"mail",10,"mail",10,10,10,10,10,10]

-- src/tasks/sql/list.ts: tasksOfIds
select task_id from flotilla_task where task_id in (select given.task_id from (select value ->> 0 as task_id from jsonb_each(?)) given)
-- values: ["[[\"task-1\"],[\"task-2\"]]"]

-- src/tasks/sql/list.ts: tasksOfKey
with recursive step (tenant) as (
  select (select min(tenant) from flotilla_task where unique_key is not null)
  union all
  select (select min(task.tenant) from flotilla_task task
    where task.tenant > step.tenant and task.unique_key is not null)
  from step where step.tenant is not null),
found as (select tenant from step where tenant is not null limit cast(? as integer))
select (select task_id from flotilla_task where tenant = found.tenant and name = ? and unique_key = ? and unique_key is not null) as task_id
from found
-- values: [201,"mail","k"]

select task_id from flotilla_task where tenant = ? and name = ? and unique_key = ? and unique_key is not null
-- values: ["acme","mail","k"]

-- src/tasks/sql/list.ts: countNewest
select name, status, count(*) as tasks from (
  select name, status from flotilla_task where task_id < ? and task_id >= ?
  order by task_id desc limit cast(? as integer)) newest
group by name, status order by name, status
-- values: ["􏿿","",10000]

-- src/tasks/sql/list.ts: countHeld
select name, count(*) as tasks from (
  select name from flotilla_task where status = 'pending' and parked = 5 order by name limit cast(? as integer)) for_signal
group by name
union all
select name, count(*) from (
  select name from flotilla_task where status = 'pending' and parked = 6 order by name limit cast(? as integer)) set_aside
group by name
-- values: [10000,10000]

-- src/tasks/sql/inspect.ts: anyVersion
, task_version = null, begun_version = null

-- src/tasks/sql/inspect.ts: isPendingTask
status = 'pending' and flow_version is null

-- src/tasks/sql/inspect.ts: isUnreadable
status = 'pending' and flow_version is not null and parked = 6

-- src/tasks/sql/inspect.ts: startedOver
status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
depends = case when depends = 3 then 1 else depends end,
claim_token = claim_token + 1, claimed_by = null, run_at = now_ms(), last_update = now_ms(),
cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
error = null, progress = null, progress_token = claim_token + 1

-- src/tasks/sql/inspect.ts: taskPage
task_id

500 + coalesce(octet_length(payload), 0) + coalesce(octet_length(state), 0) + coalesce(octet_length(progress), 0)
    + coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0) + coalesce(octet_length(waiting), 0)
    + coalesce(octet_length(intent), 0) + coalesce(octet_length(set_aside), 0)
    + case when depends = 0 then 0 else
      (select count(*) from flotilla_task_dependency wait where wait.dependent_id = task_id) * ? end
-- values: [40]

-- src/tasks/sql/inspect.ts: requestCancel
cancel_requested = 1, wake = wake + 1, last_update = now_ms(),
claim_token = claim_token + case when true then 1 else 0 end,
status = case when true then 'cancelled' else status end,
run_at = case when flow_version is not null and status = 'pending' and run_at > now_ms()
  then now_ms() else run_at end,
parked = case when flow_version is not null and status = 'pending' and parked in (1, 2, 5)
  then case when limited = 1 then 4 else 0 end else parked end

-- src/tasks/sql/inspect.ts: cancelChildren
select task_id from flotilla_task task where task_id in (
    select child.task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent
    join flotilla_task_dependency wait on wait.dependent_id = parent.task_id
    join flotilla_task child on child.task_id = wait.dependency_id
    where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
      and child.cancel_requested = 0
      and parent.task_id in (select task.task_id from flotilla_task task where true)) order by task_id
-- values: ["[[\"run-1\"]]"]

  insert into flotilla_task_event (task_id, seq, type)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), 'cancel_requested' from flotilla_task task
  where task_id in (
select child.task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent
join flotilla_task_dependency wait on wait.dependent_id = parent.task_id
join flotilla_task child on child.task_id = wait.dependency_id
where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
  and child.cancel_requested = 0
  and parent.task_id in (select task.task_id from flotilla_task task where true))
-- values: ["[[\"run-1\"]]"]

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
    and parent.task_id in (select task.task_id from flotilla_task task where true))
-- values: ["[[\"run-1\"]]"]

-- src/tasks/sql/inspect.ts: cancelChildrenOf
select task_id from flotilla_task task where task_id in (
    select child.task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent
    join flotilla_task_dependency wait on wait.dependent_id = parent.task_id
    join flotilla_task child on child.task_id = wait.dependency_id
    where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
      and child.cancel_requested = 0
      and parent.task_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as token from jsonb_each(?)) given
    join flotilla_task task on task.task_id = given.task_id
    where task.status = 'cancelled' and task.claim_token = given.token)) order by task_id
-- values: ["[[\"task-1\"]]","[[\"task-1\",2]]"]

  insert into flotilla_task_event (task_id, seq, type)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), 'cancel_requested' from flotilla_task task
  where task_id in (
select child.task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent
join flotilla_task_dependency wait on wait.dependent_id = parent.task_id
join flotilla_task child on child.task_id = wait.dependency_id
where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
  and child.cancel_requested = 0
  and parent.task_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as token from jsonb_each(?)) given
join flotilla_task task on task.task_id = given.task_id
where task.status = 'cancelled' and task.claim_token = given.token))
-- values: ["[[\"task-1\"]]","[[\"task-1\",2]]"]

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
    and parent.task_id in (select task.task_id from (select value ->> 0 as task_id, value ->> 1 as token from jsonb_each(?)) given
  join flotilla_task task on task.task_id = given.task_id
  where task.status = 'cancelled' and task.claim_token = given.token))
-- values: ["[[\"task-1\"]]","[[\"task-1\",2]]"]

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

-- src/tasks/sql/inspect.ts: cancelTask
select task_id from flotilla_task task where task_id = ? and status in ('pending', 'claimed')
-- values: ["task-1"]

  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, case when flow_version is null then ? else ? end, ?, ?,
    cast(? as bigint), '{"status":"' || status || '"}', case when status = 'pending' and flow_version is null or status = 'pending' and flow_version is not null and parked = 6
      then '{"status":"cancelled"}' else '{"status":"cancelling"}' end,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?
  from flotilla_task where task_id = ? and status in ('pending', 'claimed') and cancel_requested = 0 and not exists (
  select 1 from flotilla_task_event past
  where past.task_id = ?
    and case when past.type in ('cancel_requested', 'given_up', 'resume')
      then past.detail like ? and past.detail not like ? || cast(wake + 1 as text) || '}' else false end) or task_id = ? and status in ('pending', 'claimed') and status = 'pending' and flow_version is not null and parked = 6 and not exists (
  select 1 from flotilla_task_event past
  where past.task_id = ?
    and case when past.type in ('cancel_requested', 'given_up', 'resume')
      then past.detail like ? and past.detail not like ? || cast(wake + 1 as text) || '}' else false end)
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","runs.cancel","task-1",null,1,"audit.full","done",null,"click-1","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

select task_id from flotilla_task task where task_id in (
    select child.task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent
    join flotilla_task_dependency wait on wait.dependent_id = parent.task_id
    join flotilla_task child on child.task_id = wait.dependency_id
    where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
      and child.cancel_requested = 0
      and parent.task_id in (select task.task_id from flotilla_task task
      where task.task_id in (
        select task_id from flotilla_task where task_id = ? and status in ('pending', 'claimed') and status = 'pending' and flow_version is not null and parked = 6 and not exists (
    select 1 from flotilla_task_event past
    where past.task_id = ?
      and case when past.type in ('cancel_requested', 'given_up', 'resume')
        then past.detail like ? and past.detail not like ? || cast(wake + 1 as text) || '}' else false end) or (task_id = ? and status in ('pending', 'claimed') and cancel_requested = 0 and not exists (
    select 1 from flotilla_task_event past
    where past.task_id = ?
      and case when past.type in ('cancel_requested', 'given_up', 'resume')
        then past.detail like ? and past.detail not like ? || cast(wake + 1 as text) || '}' else false end) and status = 'pending' and flow_version is null)))) order by task_id
-- values: ["[[\"task-1\"]]","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

  insert into flotilla_task_event (task_id, seq, type)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), 'cancel_requested' from flotilla_task task
  where task_id in (
select child.task_id from (select value ->> 0 as task_id from jsonb_each(?)) parent
join flotilla_task_dependency wait on wait.dependent_id = parent.task_id
join flotilla_task child on child.task_id = wait.dependency_id
where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
  and child.cancel_requested = 0
  and parent.task_id in (select task.task_id from flotilla_task task
  where task.task_id in (
    select task_id from flotilla_task where task_id = ? and status in ('pending', 'claimed') and status = 'pending' and flow_version is not null and parked = 6 and not exists (
select 1 from flotilla_task_event past
where past.task_id = ?
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like ? and past.detail not like ? || cast(wake + 1 as text) || '}' else false end) or (task_id = ? and status in ('pending', 'claimed') and cancel_requested = 0 and not exists (
select 1 from flotilla_task_event past
where past.task_id = ?
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like ? and past.detail not like ? || cast(wake + 1 as text) || '}' else false end) and status = 'pending' and flow_version is null))))
-- values: ["[[\"task-1\"]]","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

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
    and parent.task_id in (select task.task_id from flotilla_task task
    where task.task_id in (
      select task_id from flotilla_task where task_id = ? and status in ('pending', 'claimed') and status = 'pending' and flow_version is not null and parked = 6 and not exists (
  select 1 from flotilla_task_event past
  where past.task_id = ?
    and case when past.type in ('cancel_requested', 'given_up', 'resume')
      then past.detail like ? and past.detail not like ? || cast(wake + 1 as text) || '}' else false end) or (task_id = ? and status in ('pending', 'claimed') and cancel_requested = 0 and not exists (
  select 1 from flotilla_task_event past
  where past.task_id = ?
    and case when past.type in ('cancel_requested', 'given_up', 'resume')
      then past.detail like ? and past.detail not like ? || cast(wake + 1 as text) || '}' else false end) and status = 'pending' and flow_version is null))))
-- values: ["[[\"task-1\"]]","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

  insert into flotilla_task_event (task_id, seq, type, detail)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), 'cancel_requested', '{' || ? || cast(wake + 1 as text) || '}'
  from flotilla_task task where task_id = ? and status in ('pending', 'claimed') and cancel_requested = 0 and not exists (
select 1 from flotilla_task_event past
where past.task_id = ?
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like ? and past.detail not like ? || cast(wake + 1 as text) || '}' else false end)
-- values: ["\"request\":\"request-1\",\"wake\":","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

  insert into flotilla_task_event (task_id, seq, type, detail)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), 'given_up', '{' || ? || cast(wake + 1 as text) || '}'
  from flotilla_task task where task_id = ? and status in ('pending', 'claimed') and status = 'pending' and flow_version is not null and parked = 6 and not exists (
select 1 from flotilla_task_event past
where past.task_id = ?
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like ? and past.detail not like ? || cast(wake + 1 as text) || '}' else false end)
-- values: ["\"request\":\"request-1\",\"wake\":","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

    update flotilla_task
    set
cancel_requested = 1, wake = wake + 1, last_update = now_ms(),
claim_token = claim_token + case when (status = 'pending' and flow_version is null or status = 'pending' and flow_version is not null and parked = 6) then 1 else 0 end,
status = case when (status = 'pending' and flow_version is null or status = 'pending' and flow_version is not null and parked = 6) then 'cancelled' else status end,
run_at = case when flow_version is not null and status = 'pending' and run_at > now_ms()
  then now_ms() else run_at end,
parked = case when flow_version is not null and status = 'pending' and parked in (1, 2, 5)
  then case when limited = 1 then 4 else 0 end else parked end
    where task_id = ? and status in ('pending', 'claimed') and cancel_requested = 0 and not exists (
  select 1 from flotilla_task_event past
  where past.task_id = ?
    and case when past.type in ('cancel_requested', 'given_up', 'resume')
      then past.detail like ? and past.detail not like ? || cast(wake + 1 as text) || '}' else false end) or task_id = ? and status in ('pending', 'claimed') and status = 'pending' and flow_version is not null and parked = 6 and not exists (
  select 1 from flotilla_task_event past
  where past.task_id = ?
    and case when past.type in ('cancel_requested', 'given_up', 'resume')
      then past.detail like ? and past.detail not like ? || cast(wake + 1 as text) || '}' else false end)
-- values: ["task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

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

select status, cancel_requested, concurrency_key from flotilla_task where task_id = ?
-- values: ["task-1"]

-- src/tasks/sql/inspect.ts: retryTask
select task_id from flotilla_task task where rowid in (
    select (select rowid from flotilla_task task where task.task_id = named.id)
    from (
    select distinct child.parent_id as id from flotilla_task child
    where child.task_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) started)
      and child.parent_id is not null ) named)
      order by task_id
-- values: ["[[\"task-1\"]]"]

      insert into flotilla_task_event (task_id, seq, type, detail)
      select task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), 'retried',
        ? || cast(task.claim_token + 1 as text) || '}'
      from flotilla_task task where task_id = ? and status in ('failed', 'cancelled') and not exists (
select 1 from flotilla_task_event past
where past.task_id = ? and past.type = 'retried' and past.detail like ?)
-- values: ["{\"request\":\"request-1\",\"token\":","task-1","task-1","{\"request\":\"request-1\",\"token\":%"]

delete from flotilla_step_journal where owner_id in (select task_id from flotilla_task where task_id = ? and status in ('failed', 'cancelled') and exists (
    select 1 from flotilla_task_event past
    where past.task_id = flotilla_task.task_id and past.type = 'retried'
      and past.detail = ? || cast(flotilla_task.claim_token + 1 as text) || '}')) and (part = '' or part >= 'A') and kind = 'failed'
-- values: ["task-1","{\"request\":\"request-1\",\"token\":"]

update flotilla_task set
  status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
  parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
  depends = case when depends = 3 then 1 else depends end,
  claim_token = claim_token + 1, claimed_by = null, run_at = now_ms(), last_update = now_ms(),
  cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
  then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
  error = null, progress = null, progress_token = claim_token + 1
          where task_id = ? and status in ('failed', 'cancelled') and exists (
    select 1 from flotilla_task_event past
    where past.task_id = flotilla_task.task_id and past.type = 'retried'
      and past.detail = ? || cast(flotilla_task.claim_token + 1 as text) || '}')
-- values: ["task-1","{\"request\":\"request-1\",\"token\":"]

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

select status, case when exists (
    select 1 from flotilla_task_event past
    where past.task_id = ? and past.type = 'retried' and past.detail like ?) then 1 else 0 end as retried
      from flotilla_task where task_id = ?
-- values: ["task-1","{\"request\":\"request-1\",\"token\":%","task-1"]

select task_id from flotilla_task task where rowid in (
    select (select rowid from flotilla_task task where task.task_id = named.id)
    from (
    select distinct child.parent_id as id from flotilla_task child
    where child.task_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) started)
      and child.parent_id is not null ) named)
      order by task_id
-- values: ["[[\"task-1\"]]"]

      insert into flotilla_task_event (task_id, seq, type, detail)
      select task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), 'retried',
        ? || cast(task.claim_token + 1 as text) || '}'
      from flotilla_task task where task_id = ? and status in ('failed', 'cancelled') and not exists (
select 1 from flotilla_task_event past
where past.task_id = ? and past.type = 'retried' and past.detail like ?)
-- values: ["{\"request\":\"request-1\",\"token\":","task-1","task-1","{\"request\":\"request-1\",\"token\":%"]

delete from flotilla_step_journal where owner_id in (select task_id from flotilla_task where task_id = ? and status in ('failed', 'cancelled') and exists (
    select 1 from flotilla_task_event past
    where past.task_id = flotilla_task.task_id and past.type = 'retried'
      and past.detail = ? || cast(flotilla_task.claim_token + 1 as text) || '}')) and (part = '' or part >= 'A')
-- values: ["task-1","{\"request\":\"request-1\",\"token\":"]

update flotilla_task set
  status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
  parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
  depends = case when depends = 3 then 1 else depends end,
  claim_token = claim_token + 1, claimed_by = null, run_at = now_ms(), last_update = now_ms(),
  cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
  then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
  error = null, progress = null, progress_token = claim_token + 1 , task_version = null, begun_version = null
          where task_id = ? and status in ('failed', 'cancelled') and exists (
    select 1 from flotilla_task_event past
    where past.task_id = flotilla_task.task_id and past.type = 'retried'
      and past.detail = ? || cast(flotilla_task.claim_token + 1 as text) || '}')
-- values: ["task-1","{\"request\":\"request-1\",\"token\":"]

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

select status, case when exists (
    select 1 from flotilla_task_event past
    where past.task_id = ? and past.type = 'retried' and past.detail like ?) then 1 else 0 end as retried
      from flotilla_task where task_id = ?
-- values: ["task-1","{\"request\":\"request-1\",\"token\":%","task-1"]

select task_id from flotilla_task task where rowid in (
    select (select rowid from flotilla_task task where task.task_id = named.id)
    from (
    select distinct child.parent_id as id from flotilla_task child
    where child.task_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) started)
      and child.parent_id is not null ) named)
      order by task_id
-- values: ["[[\"task-1\"]]"]

      insert into flotilla_task_event (task_id, seq, type, detail)
      select task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), 'retried',
        ? || cast(task.claim_token + 1 as text) || '}'
      from flotilla_task task where task_id = ? and status in ('failed', 'cancelled') and not exists (
select 1 from flotilla_task_event past
where past.task_id = ? and past.type = 'retried' and past.detail like ?)
-- values: ["{\"request\":\"request-1\",\"token\":","task-1","task-1","{\"request\":\"request-1\",\"token\":%"]

  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, case when flow_version is null then ? else ? end, ?, ?,
    cast(? as bigint), '{"status":"' || status || '"}', ?,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?
  from flotilla_task where task_id = ? and status in ('failed', 'cancelled') and exists (
  select 1 from flotilla_task_event past
  where past.task_id = flotilla_task.task_id and past.type = 'retried'
    and past.detail = ? || cast(flotilla_task.claim_token + 1 as text) || '}')
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.resume","runs.resume","task-1",null,1,null,"audit.full","done",null,"click-1","task-1","{\"request\":\"request-1\",\"token\":"]

delete from flotilla_step_journal where owner_id in (select task_id from flotilla_task where task_id = ? and status in ('failed', 'cancelled') and exists (
    select 1 from flotilla_task_event past
    where past.task_id = flotilla_task.task_id and past.type = 'retried'
      and past.detail = ? || cast(flotilla_task.claim_token + 1 as text) || '}')) and (part = '' or part >= 'A') and kind = 'failed'
-- values: ["task-1","{\"request\":\"request-1\",\"token\":"]

delete from flotilla_step_journal where owner_id in (select task_id from flotilla_task where task_id = ? and status in ('failed', 'cancelled') and exists (
select 1 from flotilla_task_event past
where past.task_id = flotilla_task.task_id and past.type = 'retried'
  and past.detail = ? || cast(flotilla_task.claim_token + 1 as text) || '}')) and (part = '' or part >= 'A')
  and exists (select 1 from (select value ->> 0 as low, value ->> 1 as high from jsonb_each(?)) wanted
    where flotilla_step_journal.key >= wanted.low and flotilla_step_journal.key < wanted.high)
-- values: ["task-1","{\"request\":\"request-1\",\"token\":","[[\"read\",\"read\\u0001\"],[\"read/\",\"read0\"],[\"read@\",\"readA\"]]"]

update flotilla_task set
  status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
  parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
  depends = case when depends = 3 then 1 else depends end,
  claim_token = claim_token + 1, claimed_by = null, run_at = now_ms(), last_update = now_ms(),
  cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
  then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
  error = null, progress = null, progress_token = claim_token + 1
          where task_id = ? and status in ('failed', 'cancelled') and exists (
    select 1 from flotilla_task_event past
    where past.task_id = flotilla_task.task_id and past.type = 'retried'
      and past.detail = ? || cast(flotilla_task.claim_token + 1 as text) || '}')
-- values: ["task-1","{\"request\":\"request-1\",\"token\":"]

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

select status, case when exists (
    select 1 from flotilla_task_event past
    where past.task_id = ? and past.type = 'retried' and past.detail like ?) then 1 else 0 end as retried
      from flotilla_task where task_id = ?
-- values: ["task-1","{\"request\":\"request-1\",\"token\":%","task-1"]

-- src/tasks/sql/inspect.ts: resumeTask
  insert into flotilla_task_event (task_id, seq, type, detail)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla_task_event past where past.task_id = task.task_id), 'resume', ? || ? || cast(wake + 1 as text) || '}'
  from flotilla_task task where task_id = ? and status = 'pending' and flow_version is null
and parked = 6 and not exists (
select 1 from flotilla_task_event past
where past.task_id = ?
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like ? and past.detail not like ? || cast(wake + 1 as text) || '}' else false end)
-- values: ["{\"forget\":[\"read\"],","\"request\":\"request-1\",\"wake\":","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, ?, ?, ?,
    cast(? as bigint), ?, ?,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?
  from flotilla_task where task_id = ? and status = 'pending' and flow_version is null
  and parked = 6 and not exists (
  select 1 from flotilla_task_event past
  where past.task_id = ?
    and case when past.type in ('cancel_requested', 'given_up', 'resume')
      then past.detail like ? and past.detail not like ? || cast(wake + 1 as text) || '}' else false end)
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"{\"status\":\"set_aside\"}",null,"audit.full","done",null,"click-1","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

delete from flotilla_step_journal where owner_id in (select task_id from flotilla_task where task_id = ? and status = 'pending' and flow_version is null
and parked = 6 and not exists (
select 1 from flotilla_task_event past
where past.task_id = ?
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like ? and past.detail not like ? || cast(wake + 1 as text) || '}' else false end)) and (part = '' or part >= 'A')
  and exists (select 1 from (select value ->> 0 as low, value ->> 1 as high from jsonb_each(?)) wanted
    where flotilla_step_journal.key >= wanted.low and flotilla_step_journal.key < wanted.high)
-- values: ["task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":","[[\"read\",\"read\\u0001\"],[\"read/\",\"read0\"],[\"read@\",\"readA\"]]"]

  update flotilla_task set parked = case when limited = 1 then 4 else 0 end, set_aside = null, last_update = now_ms(),
    wake = wake + 1
  where task_id = ? and status = 'pending' and flow_version is null
and parked = 6 and not exists (
select 1 from flotilla_task_event past
where past.task_id = ?
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like ? and past.detail not like ? || cast(wake + 1 as text) || '}' else false end)
-- values: ["task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

select status, parked, flow_version, case when exists (
    select 1 from flotilla_task_event past
    where past.task_id = ?
      and case when past.type in ('cancel_requested', 'given_up', 'resume')
        then past.detail like ? and true else false end) then 1 else 0 end as resumed
      from flotilla_task where task_id = ?
-- values: ["task-1","%\"request\":\"request-1\",\"wake\":%","task-1"]

-- src/tasks/sql/inspect.ts: readTenant
select tenant from flotilla_task where task_id = ?
-- values: ["task-1"]

-- src/tasks/sql/inspect.ts: getTask
select * from flotilla_task where task_id = ?
-- values: ["task-1"]

-- src/tasks/sql/inspect.ts: getTasks
select * from flotilla_task where task_id in (select task_id from (select value ->> 0 as task_id from jsonb_each(?)) wanted)
-- values: ["[[\"task-1\"]]"]

-- src/tasks/sql/inspect.ts: countTasks
select name, status, count(*) as tasks from flotilla_task group by name, status order by name, status

-- src/tasks/sql/inspect.ts: countClaimed
select claimed_by, count(*) as tasks from (
  select claimed_by from flotilla_task where status = 'claimed'
  order by claimed_by, claim_call limit cast(? as integer)) held
group by claimed_by
-- values: [10000]

-- src/tasks/sql/inspect.ts: namesWaiting
with recursive step (name) as (
  select (select min(name) from flotilla_task where status = 'pending' and parked = 0 and deaths < 2)
  union all
  select (select min(task.name) from flotilla_task task
    where task.name > step.name and task.status = 'pending' and task.parked = 0 and task.deaths < 2)
  from step where step.name is not null)
select name from step where name is not null limit cast(? as integer)
-- values: [2000]

-- src/tasks/sql/inspect.ts: readyDepth
select level.name,
  (select count(*) from (
    select 1 from flotilla_task task
    where task.name = level.name and task.priority = level.priority
      and task.status = 'pending' and task.parked = 0 and task.deaths < 2
    order by task.created_at, task.task_id limit cast(? as integer)) counted) as tasks,
  (select now_ms() - min(run_at) from (
    select task.run_at from flotilla_task task
    where task.name = level.name and task.priority = level.priority
      and task.status = 'pending' and task.parked = 0 and task.deaths < 2
    order by task.created_at, task.task_id limit cast(? as integer)) first) as age_ms
from (select value ->> 0 as name, value ->> 1 as priority from jsonb_each(?)) level
-- values: [10000,100,"[[\"mail\",0],[\"order\",1]]"]

-- src/tasks/sql/inspect.ts: otherDepths
select 'delayed' as state, name, count(*) as tasks, now_ms() - min(run_at) as age_ms from (
  select name, run_at from flotilla_task where status = 'pending' and parked = 1
  order by run_at limit cast(? as integer)) delayed group by name
union all
select 'waiting', name, count(*), null from (
  select name from flotilla_task where status = 'pending' and parked = 2
  order by task_id limit cast(? as integer)) waiting group by name
union all
select 'blocked', name, count(*), null from (
  select name from flotilla_task where status = 'pending' and parked = 3
  order by blocked_by, priority desc, created_at, task_id limit cast(? as integer)) blocked group by name
union all
select 'ready', name, count(*), now_ms() - min(run_at) from (
  select name, run_at from flotilla_task where status = 'pending' and parked = 4 and deaths < 2
  order by name, tenant, priority desc, created_at, task_id limit cast(? as integer)) ready group by name
union all
select 'alone', name, count(*), now_ms() - min(run_at) from (
  select name, run_at from flotilla_task where status = 'pending' and parked = 0 and deaths >= 2
  order by name, created_at, task_id limit cast(? as integer)) alone group by name
union all
select 'alone', name, count(*), now_ms() - min(run_at) from (
  select name, run_at from flotilla_task where status = 'pending' and parked = 4 and deaths >= 2
  order by name, created_at, task_id limit cast(? as integer)) alone group by name
union all
select 'running', name, count(*), null from (
  select name from flotilla_task where status = 'claimed'
  order by claimed_by, claim_call limit cast(? as integer)) running group by name
union all
select 'failed', name, count(*), null from (
  select name from flotilla_task where status = 'failed'
  order by task_id desc limit cast(? as integer)) failed group by name
-- values: [10000,10000,10000,10000,10000,10000,10000,10000]

-- src/tasks/sql/inspect.ts: nextDue
select run_at - now_ms() as wait_ms from flotilla_task
where status = 'pending' and parked = 1 order by run_at limit cast(? as integer)
-- values: [1]

-- src/tasks/sql/inspect.ts: tasksInClaimOrder
select task_id from (select * from (
    select cast(? as integer) as urgency, priority, created_at, task_id from flotilla_task
    where name = ? and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= now_ms() or run_at <= last_update) order by priority desc, created_at, task_id limit cast(? as integer)) of_name union all select * from (
    select cast(? as integer) as urgency, priority, created_at, task_id from flotilla_task
    where name = ? and status = 'pending' and parked = 4 and deaths < 2 order by tenant, priority desc, created_at, task_id limit cast(? as integer)) of_name union all select * from (
    select cast(? as integer) as urgency, priority, created_at, task_id from flotilla_task
    where name = ? and status = 'pending' and parked = 0 and deaths >= 2 order by created_at, task_id limit cast(? as integer)) of_name union all select * from (
    select cast(? as integer) as urgency, priority, created_at, task_id from flotilla_task
    where name = ? and status = 'pending' and parked = 4 and deaths >= 2 order by created_at, task_id limit cast(? as integer)) of_name) ready
order by urgency, priority desc, created_at, task_id
-- values: [1,"mail",10,1,"mail",10,1,"mail",10,1,"mail",10]

-- src/tasks/sql/inspect.ts: countReady
select name, ready from (select ? as name, (select count(*) from (
  select 1 from flotilla_task where name = ? and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= now_ms() or run_at <= last_update) order by priority desc, created_at, task_id limit cast(? as integer)) first) + (select count(*) from (
  select 1 from flotilla_task where name = ? and status = 'pending' and parked = 4 and deaths < 2 order by tenant, priority desc, created_at, task_id limit cast(? as integer)) first) + (select count(*) from (
  select 1 from flotilla_task where name = ? and status = 'pending' and parked = 0 and deaths >= 2 order by created_at, task_id limit cast(? as integer)) first) + (select count(*) from (
  select 1 from flotilla_task where name = ? and status = 'pending' and parked = 4 and deaths >= 2 order by created_at, task_id limit cast(? as integer)) first) as ready) counted
where not exists (
  select 1 from flotilla_task_pause pause
  where pause.paused = 1 and pause.name in (counted.name, ?))
-- values: ["mail","mail",10,"mail",10,"mail",10,"mail",10,"*"]

-- src/tasks/sql/limits.ts: entryOfLimit
  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, ?, ?, ?,
    cast(? as bigint), '{"limit":' || coalesce(cast((select max_running from flotilla_task_limit where scope = ? and by_hand = 1) as text), 'null') || '}', ?,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?
  where coalesce((select max_running from flotilla_task_limit where scope = ? and by_hand = 1), 0) <> ?
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"tenant/acme","{\"limit\":3}","audit.full","done",null,"click-1","tenant/acme",3]

-- src/tasks/sql/limits.ts: putLimit
insert into flotilla_task_limit (scope, max_running, by_hand) values (?, ?, 1)
on conflict (scope) do update set max_running = excluded.max_running, by_hand = 1
-- values: ["tenant/acme",3]

-- src/tasks/sql/limits.ts: dropLimit
delete from flotilla_task_limit where scope = ?
-- values: ["tenant/acme"]

update flotilla_task_limit set by_hand = 0, max_running = 1 where scope = ?
-- values: ["key/mail/acme"]

-- src/tasks/sql/limits.ts: readScopes
select wanted.scope,
  (select max_running from flotilla_task_limit given where given.scope = wanted.scope) as max_running,
  (select by_hand from flotilla_task_limit given where given.scope = wanted.scope) as by_hand,
  case when wanted.tenant is null
    then (select count(*) from flotilla_task held
where coalesce(held.status, '') = 'claimed' and held.concurrency_key between wanted.scope and wanted.scope) else (select count(*) from flotilla_task held
where coalesce(held.status, '') = 'claimed' and held.limited = 1 and held.tenant <> 'default'
  and held.tenant between wanted.tenant and wanted.tenant) end as running,
  (select count(*) from (select 1 from flotilla_task task
    where task.blocked_by = wanted.scope and task.status = 'pending' and task.parked = 3
    order by task.priority desc, task.created_at, task.task_id limit cast(? as integer)) counted
  ) as blocked
from (select value ->> 0 as scope, value ->> 1 as tenant from jsonb_each(?)) wanted
-- values: [10000,"[[\"tenant/acme\",\"acme\"]]"]

-- src/tasks/sql/limits.ts: notableScopes
select scope from flotilla_task_limit where by_hand = 1
union
select scope from (
with recursive step (scope, nth) as (
  select (select min(task.blocked_by) from flotilla_task task
    where task.status = 'pending' and task.parked = 3 and task.blocked_by > ?), 1
  union all
  select (select min(task.blocked_by) from flotilla_task task
    where task.status = 'pending' and task.parked = 3 and task.blocked_by > step.scope), step.nth + 1
  from step where step.scope is not null and step.nth < ?)
select scope from step) blocked where scope is not null
order by scope limit cast(? as integer)
-- values: ["",1000,1000]

-- src/tasks/sql/limits.ts: blockedScopes
select scope, (select max_running from flotilla_task_limit given where given.scope = blocked.scope)
  - (select count(*) from flotilla_task held
where coalesce(held.status, '') = 'claimed' and held.concurrency_key between blocked.scope and blocked.scope) as free_slots
from (
with recursive step (scope, nth) as (
  select (select min(task.blocked_by) from flotilla_task task
    where task.status = 'pending' and task.parked = 3 and task.blocked_by > ?), 1
  union all
  select (select min(task.blocked_by) from flotilla_task task
    where task.status = 'pending' and task.parked = 3 and task.blocked_by > step.scope), step.nth + 1
  from step where step.scope is not null and step.nth < ?)
select scope from step) blocked where scope is not null
-- values: ["",10]

-- src/tasks/sql/limits.ts: unneededLimits
select scope, (select count(*) from flotilla_task held
where coalesce(held.status, '') = 'claimed' and held.concurrency_key between page.scope and page.scope) = 0
and not exists (select 1 from flotilla_task task
  where task.status = 'pending' and task.parked = 3 and task.blocked_by = page.scope) as unneeded
from (select scope from flotilla_task_limit where scope > ? and by_hand = 0
  order by scope limit cast(? as integer)) page
-- values: ["",10]

-- src/tasks/sql/limits.ts: dropUnneeded
delete from flotilla_task_limit where scope in (
  select scope from flotilla_task_limit given
  where given.by_hand = 0 and given.scope in (select scope from (select value ->> 0 as scope from jsonb_each(?)) old)
    and (select count(*) from flotilla_task held
where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope) = 0
and not exists (select 1 from flotilla_task task
  where task.status = 'pending' and task.parked = 3 and task.blocked_by = given.scope) )
-- values: ["[[\"key/mail/acme\"]]"]

-- src/tasks/sql/limits.ts: tenantCounts
select 'running' as state, tenant, count(*) as tasks from (
  select tenant from flotilla_task where coalesce(status, '') = 'claimed' and limited = 1 and tenant <> 'default'
  order by tenant limit cast(? as integer)) running group by tenant
union all
select 'running', tenant, count(*) from (
  select tenant from flotilla_task
  where coalesce(status, '') = 'claimed' and concurrency_key is not null and tenant = 'default'
  order by concurrency_key limit cast(? as integer)) running group by tenant
union all
select 'ready', tenant, count(*) from (
  select tenant from flotilla_task where status = 'pending' and parked = 4 and deaths < 2
  order by name, tenant, priority desc, created_at, task_id limit cast(? as integer)) ready group by tenant
union all
select 'blocked', tenant, count(*) from (
  select tenant from flotilla_task where status = 'pending' and parked = 3
  order by blocked_by, priority desc, created_at, task_id limit cast(? as integer)) blocked group by tenant
union all
select 'limit', scope, max_running from flotilla_task_limit where scope >= 'tenant/' and scope < 'tenant0'
-- values: [10000,10000,10000,10000]

-- src/tasks/sql/limits.ts: numberToPause
insert into flotilla_task_pause (name, paused, given) values (?, 0, 1)
on conflict (name) do update set given = flotilla_task_pause.given + 1
-- values: ["mail"]

select given from flotilla_task_pause where name = ?
-- values: ["mail"]

-- src/tasks/sql/limits.ts: numberToResume
update flotilla_task_pause set given = given + 1 where name = ?
-- values: ["mail"]

select given from flotilla_task_pause where name = ?
-- values: ["mail"]

-- src/tasks/sql/limits.ts: putPause
update flotilla_task_pause
set at = case when paused = 1 then at else now_ms() end,
  reason = case when paused = 1 then reason else ? end,
  paused = 1, done = ?
where name = ? and done < ?
-- values: ["repairs",2,"mail",2]

-- src/tasks/sql/limits.ts: dropPause
update flotilla_task_pause set paused = 0, reason = null, done = ?
where name = ? and done < ?
-- values: [3,"mail",3]

-- src/tasks/sql/limits.ts: entryOfPause
select name from flotilla_task_pause where name = ?
-- values: ["mail"]

  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, ?, ?, ?,
    cast(? as bigint), ?, ?,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?
  from flotilla_task_pause where name = ? and done < ? and paused <> ?
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"{\"paused\":false}","{\"paused\":true}","audit.full","done",null,"click-1","mail",2,1]

-- src/tasks/sql/limits.ts: listPauses
select name, at, reason from flotilla_task_pause where paused = 1 order by name

-- src/tasks/sql/limits.ts: listPausesWithActors
select pause.name, pause.at, pause.reason, (
  select entry.actor from flotilla_audit entry
  where entry.subject = pause.name and coalesce(entry.action, '') = 'names.pause'
    and entry.at >= pause.at - ?
  order by entry.at desc, entry.id desc limit cast(? as integer)) as actor
from flotilla_task_pause pause where pause.paused = 1 order by pause.name
-- values: [10000,1]

-- src/tasks/sql/limits.ts: notifyPods
update flotilla_pod set pauses = pauses + 1

-- src/tasks/sql/limits.ts: podIds
select pod_id from flotilla_pod order by pod_id

-- src/tasks/sql/limits.ts: notifyPod
select 1 from flotilla_pod where pod_id = ?
-- values: ["pod-1"]

update flotilla_pod set pauses = pauses + 1 where pod_id = ?
-- values: ["pod-1"]

-- src/tasks/sql/limits.ts: selectPauses
select pod.pauses, pause.name from flotilla_pod pod left join flotilla_task_pause pause on pause.paused = 1
where pod.pod_id = ?
-- values: ["pod-1"]
