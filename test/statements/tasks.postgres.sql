-- src/tasks/sql/task-state.ts: awaitsSignal
status = 'pending' and parked = 1 and awaits is not null

status = 'pending' and parked = 5 and awaits is not null

-- src/tasks/sql/task-state.ts: dependsAs
0

1

2

3

-- src/tasks/sql/task-state.ts: hasFreeSlots
not exists (select 1 from flotilla.task_limit given
    where given.scope = task.concurrency_key and given.max_running <= (select count(*) from flotilla.task held
    where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope))
  and not exists (select 1 from flotilla.task_limit given
    where given.scope = 'tenant/' || task.tenant
      and given.max_running <= (select count(*) from flotilla.task held
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
from flotilla.task where task_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) wanted))
-- values: ["{\"task-1\",\"task-2\"}"]

-- src/tasks/sql/task-state.ts: isPending
coalesce(task.status, '') = 'pending'

-- src/tasks/sql/task-state.ts: isOfCall
task.claim_call in ($1, $2)
-- values: [5,-5]

-- src/tasks/sql/task-state.ts: isRunning
coalesce(task.status, '') = 'claimed'

-- src/tasks/sql/task-state.ts: nextSeq
(select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id)

-- src/tasks/sql/task-state.ts: requestMark
$1 || cast(wake + 1 as text) || '}'
-- values: ["\"request\":\"request-1\",\"wake\":"]

not exists (
    select 1 from flotilla.task_event past
    where past.task_id = $1
      and case when past.type in ('cancel_requested', 'given_up', 'resume')
        then past.detail like $2 and past.detail not like $3 || cast(wake + 1 as text) || '}' else false end)
-- values: ["task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

exists (
    select 1 from flotilla.task_event past
    where past.task_id = $1
      and case when past.type in ('cancel_requested', 'given_up', 'resume')
        then past.detail like $2 and true else false end)
-- values: ["task-1","%\"request\":\"request-1\",\"wake\":%"]

-- src/tasks/sql/task-state.ts: writesBefore
((select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id) - 1) / cast($1 as integer)
-- values: [100]

-- src/tasks/sql/task-state.ts: getEvents
select * from flotilla.task_event where task_id = $1 and seq > $2  order by seq
-- values: ["task-1",0]

  with listed as (
    select seq as place, 200 + coalesce(octet_length(detail), 0) as bytes from flotilla.task_event where task_id = $1 and seq > $2
    order by seq asc limit cast($3 as integer)),
  measured as (
    select place, row_number() over (order by place asc) as nth,
      sum(bytes) over (order by place asc) as up_to
    from listed)
select *, (select count(*) from listed) as found from flotilla.task_event where task_id = $4 and seq = any(array(select place from measured
  where nth = 1 or (nth <= $5 and up_to <= $6)))
order by seq
-- values: ["task-1",2,11,"task-1",10,1048576]

  with listed as (
    select seq as place, 200 + coalesce(octet_length(detail), 0) as bytes from flotilla.task_event where task_id = $1 and seq > $2 and seq < $3
    order by seq desc limit cast($4 as integer)),
  measured as (
    select place, row_number() over (order by place desc) as nth,
      sum(bytes) over (order by place desc) as up_to
    from listed)
select *, (select count(*) from listed) as found from flotilla.task_event where task_id = $5 and seq = any(array(select place from measured
  where nth = 1 or (nth <= $6 and up_to <= $7)))
order by seq
-- values: ["task-1",0,900,11,"task-1",10,1048576]

-- src/tasks/sql/task-state.ts: runningOfKey
(select count(*) from flotilla.task held
    where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope)

-- src/tasks/sql/task-state.ts: runningOfTenant
(select count(*) from flotilla.task held
    where coalesce(held.status, '') = 'claimed' and held.limited = 1 and held.tenant <> 'default'
      and held.tenant between task.tenant and task.tenant)

-- src/tasks/sql/task-state.ts: freeSlotsOfKey
(select given.max_running - (select count(*) from flotilla.task held
    where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope) from flotilla.task_limit given
    where given.scope = task.concurrency_key)

-- src/tasks/sql/task-state.ts: freeSlotsOfTenant
(select given.max_running - (select count(*) from flotilla.task held
    where coalesce(held.status, '') = 'claimed' and held.limited = 1 and held.tenant <> 'default'
      and held.tenant between task.tenant and task.tenant) from flotilla.task_limit given
    where given.scope = 'tenant/' || task.tenant)

-- src/tasks/sql/inherit-files.ts: inheritFiles
  insert into flotilla.file_reference as referring
    (owner_kind, owner_id, hash, file_id, size, metadata, kept)
  select distinct 'task', wanted.task_id, source.hash, source.file_id, source.size, source.metadata, 1
  from (select task_id collate "C" as task_id, tenant collate "C" as tenant, hash collate "C" as hash, from_kind collate "C" as from_kind, from_id collate "C" as from_id from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) as each_row (task_id, tenant, hash, from_kind, from_id)) wanted join flotilla.file_reference source on source.owner_kind = wanted.from_kind and source.owner_id = wanted.from_id
and source.hash = wanted.hash and exists (select 1 from flotilla.file file
  where file.file_id = source.file_id and file.tenant = wanted.tenant)
  where wanted.task_id = (select task_id from flotilla.task where task_id = wanted.task_id)
  on conflict (owner_kind, owner_id, hash) do update set kept = 1, token = null
-- values: ["{\"task-1\"}","{\"default\"}","{\"abababababababababababababababababababababababababababababababab\"}","{\"task\"}","{\"task-0\"}"]

-- src/tasks/sql/enqueue.ts: insertTasks
insert into flotilla.task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
  max_attempts, unique_key, trace, parked)
select task_id, tenant, name, payload, priority, now_ms() + delay_ms, now_ms(), now_ms(),
  max_attempts, unique_key, trace, case when delay_ms > 0 then 1 else 0 end
from (select task_id collate "C" as task_id, tenant collate "C" as tenant, name collate "C" as name, payload collate "C" as payload, priority, delay_ms, max_attempts, unique_key collate "C" as unique_key, trace collate "C" as trace from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[]) as each_row (task_id, tenant, name, payload, priority, delay_ms, max_attempts, unique_key, trace)) fresh where true
on conflict do nothing
returning task_id
-- instead of returning:
select task_id from flotilla.task where task_id in (select task_id from (select task_id collate "C" as task_id, tenant collate "C" as tenant, name collate "C" as name, payload collate "C" as payload, priority, delay_ms, max_attempts, unique_key collate "C" as unique_key, trace collate "C" as trace from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[]) as each_row (task_id, tenant, name, payload, priority, delay_ms, max_attempts, unique_key, trace)) fresh)
-- values: ["{\"task-1\"}","{\"default\"}","{\"mail\"}","{\"{}\"}","{0}","{0}","{null}","{null}","{null}"]

  insert into flotilla.task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
    max_attempts, unique_key, trace, concurrency_key, limited, depends, scheduled_at, flow_version, parent_id, parked)
  select task_id, tenant, name, payload, priority, case when fresh.start_at is null then now_ms() + fresh.delay_ms
  when fresh.start_at > now_ms() then fresh.start_at else now_ms() end, now_ms(), now_ms(),
    max_attempts, unique_key, trace, concurrency_key, limited, depends, scheduled_at, flow_version, parent_id,
case when depends > 0 then 2 when delay_ms > 0 or start_at > now_ms() then 1
  when limited = 1 then 4 else 0 end
  from (select task_id collate "C" as task_id, tenant collate "C" as tenant, name collate "C" as name, payload collate "C" as payload, priority, delay_ms, max_attempts, unique_key collate "C" as unique_key, trace collate "C" as trace, start_at, concurrency_key collate "C" as concurrency_key, limited, depends, scheduled_at, flow_version, parent_id collate "C" as parent_id from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[], $10::bigint[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::text[]) as each_row (task_id, tenant, name, payload, priority, delay_ms, max_attempts, unique_key, trace, start_at, concurrency_key, limited, depends, scheduled_at, flow_version, parent_id)) fresh where fresh.task_id <> ''
  on conflict do nothing
  returning task_id
-- instead of returning:
select task_id from flotilla.task where task_id in (select task_id from (select task_id collate "C" as task_id, tenant collate "C" as tenant, name collate "C" as name, payload collate "C" as payload, priority, delay_ms, max_attempts, unique_key collate "C" as unique_key, trace collate "C" as trace from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[]) as each_row (task_id, tenant, name, payload, priority, delay_ms, max_attempts, unique_key, trace)) fresh)
-- values: ["{\"task-1\"}","{\"default\"}","{\"mail\"}","{\"{}\"}","{0}","{0}","{null}","{\"key-1\"}","{null}","{null}","{\"key/mail/acme\"}","{1}","{1}","{null}","{null}","{null}"]

  insert into flotilla.task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
    max_attempts, unique_key, trace, parked)
  select task_id, tenant, name, payload, priority, now_ms() + delay_ms, now_ms(), now_ms(),
    max_attempts, unique_key, trace, case when delay_ms > 0 then 1 else 0 end
  from (select task_id collate "C" as task_id, tenant collate "C" as tenant, name collate "C" as name, payload collate "C" as payload, priority, delay_ms, max_attempts, unique_key collate "C" as unique_key, trace collate "C" as trace from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[]) as each_row (task_id, tenant, name, payload, priority, delay_ms, max_attempts, unique_key, trace)) fresh where true and not exists (select 1 from (select task_id collate "C" as task_id, tenant collate "C" as tenant, hash collate "C" as hash, from_kind collate "C" as from_kind, from_id collate "C" as from_id from unnest($10::text[], $11::text[], $12::text[], $13::text[], $14::text[]) as each_row (task_id, tenant, hash, from_kind, from_id)) wanted
  where not exists (select 1 from flotilla.file_reference source where source.owner_kind = wanted.from_kind and source.owner_id = wanted.from_id
and source.hash = wanted.hash and exists (select 1 from flotilla.file file
  where file.file_id = source.file_id and file.tenant = wanted.tenant)))
  on conflict do nothing
  returning task_id
-- instead of returning:
select task_id from flotilla.task where task_id in (select task_id from (select task_id collate "C" as task_id, tenant collate "C" as tenant, name collate "C" as name, payload collate "C" as payload, priority, delay_ms, max_attempts, unique_key collate "C" as unique_key, trace collate "C" as trace from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[]) as each_row (task_id, tenant, name, payload, priority, delay_ms, max_attempts, unique_key, trace)) fresh)
-- values: ["{\"task-1\"}","{\"default\"}","{\"mail\"}","{\"{\\\"doc\\\":{\\\"type\\\":\\\"file\\\",\\\"url\\\":\\\"flotilla-file:abababababababababababababababababababababababababababababababab\\\"}}\"}","{0}","{0}","{null}","{null}","{null}","{\"task-1\"}","{\"default\"}","{\"abababababababababababababababababababababababababababababababab\"}","{\"upload\"}","{\"upload-1\"}"]

-- src/tasks/sql/enqueue.ts: replaceTaskFiles
    update flotilla.file set unused_at = now_ms()
    where file_id = any(array(select file_id from flotilla.file_reference where owner_kind = 'task'
    and owner_id = any(array(select task_id from (
  select task.task_id, wanted.task_id as new_id
  from (select tenant collate "C" as tenant, name collate "C" as name, unique_key collate "C" as unique_key, task_id collate "C" as task_id, mark collate "C" as mark from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) as each_row (tenant, name, unique_key, task_id, mark)) wanted join flotilla.task task on task.tenant = wanted.tenant and task.name = wanted.name
and task.unique_key = wanted.unique_key
  where exists (select 1 from flotilla.task_event past
    where past.task_id = task.task_id and past.type = 'replaced'
      and past.detail = wanted.mark || cast(task.claim_token as text) || '}')) holder))))
-- values: ["{\"default\"}","{\"mail\"}","{\"key-1\"}","{\"task-1\"}","{\"{\\\"request\\\":\\\"task-1\\\",\\\"token\\\":\"}"]

delete from flotilla.file_reference where owner_kind = 'task'
      and owner_id = any(array(select task_id from (
    select task.task_id, wanted.task_id as new_id
    from (select tenant collate "C" as tenant, name collate "C" as name, unique_key collate "C" as unique_key, task_id collate "C" as task_id, mark collate "C" as mark from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) as each_row (tenant, name, unique_key, task_id, mark)) wanted join flotilla.task task on task.tenant = wanted.tenant and task.name = wanted.name
  and task.unique_key = wanted.unique_key
    where exists (select 1 from flotilla.task_event past
      where past.task_id = task.task_id and past.type = 'replaced'
        and past.detail = wanted.mark || cast(task.claim_token as text) || '}')) holder))
-- values: ["{\"default\"}","{\"mail\"}","{\"key-1\"}","{\"task-1\"}","{\"{\\\"request\\\":\\\"task-1\\\",\\\"token\\\":\"}"]

    insert into flotilla.file_reference as referring
      (owner_kind, owner_id, hash, file_id, size, metadata, kept)
    select distinct 'task', holder.task_id, source.hash, source.file_id, source.size,
      source.metadata, 1
    from (
  select task.task_id, wanted.task_id as new_id
  from (select tenant collate "C" as tenant, name collate "C" as name, unique_key collate "C" as unique_key, task_id collate "C" as task_id, mark collate "C" as mark from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) as each_row (tenant, name, unique_key, task_id, mark)) wanted join flotilla.task task on task.tenant = wanted.tenant and task.name = wanted.name
and task.unique_key = wanted.unique_key
  where exists (select 1 from flotilla.task_event past
    where past.task_id = task.task_id and past.type = 'replaced'
      and past.detail = wanted.mark || cast(task.claim_token as text) || '}')) holder
    join (select task_id collate "C" as task_id, tenant collate "C" as tenant, hash collate "C" as hash, from_kind collate "C" as from_kind, from_id collate "C" as from_id from unnest($6::text[], $7::text[], $8::text[], $9::text[], $10::text[]) as each_row (task_id, tenant, hash, from_kind, from_id)) wanted on wanted.task_id = holder.new_id
    join flotilla.file_reference source on source.owner_kind = wanted.from_kind and source.owner_id = wanted.from_id
and source.hash = wanted.hash and exists (select 1 from flotilla.file file
  where file.file_id = source.file_id and file.tenant = wanted.tenant)
    where 1 = 1
    on conflict (owner_kind, owner_id, hash) do update set kept = 1, token = null
-- values: ["{\"default\"}","{\"mail\"}","{\"key-1\"}","{\"task-1\"}","{\"{\\\"request\\\":\\\"task-1\\\",\\\"token\\\":\"}","{\"task-1\"}","{\"default\"}","{\"abababababababababababababababababababababababababababababababab\"}","{\"upload\"}","{\"upload-1\"}"]

-- src/tasks/sql/enqueue.ts: linkTasks
insert into flotilla.link (from_id, to_id, what, at)
select from_id, to_id, what, now_ms() from (select from_id collate "C" as from_id, to_id collate "C" as to_id, what collate "C" as what from unnest($1::text[], $2::text[], $3::text[]) as each_row (from_id, to_id, what)) wanted
where to_id = (select task_id from flotilla.task where task_id = wanted.to_id)
on conflict do nothing
-- values: ["{\"task-0\"}","{\"task-1\"}","{\"task\"}"]

-- src/tasks/sql/enqueue.ts: findKeys
  select task.task_id, task.tenant, task.name, task.unique_key
  from (select tenant collate "C" as tenant, name collate "C" as name, unique_key collate "C" as unique_key, task_id collate "C" as task_id from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as each_row (tenant, name, unique_key, task_id)) wanted join flotilla.task task on task.tenant = wanted.tenant and task.name = wanted.name
and task.unique_key = wanted.unique_key
-- values: ["{\"default\"}","{\"mail\"}","{\"key-1\"}","{\"task-1\"}"]

-- src/tasks/sql/enqueue.ts: findOwn
select task_id from flotilla.task where task_id in (select task_id from (select tenant collate "C" as tenant, name collate "C" as name, unique_key collate "C" as unique_key, task_id collate "C" as task_id from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as each_row (tenant, name, unique_key, task_id)) wanted)
-- values: ["{\"default\"}","{\"mail\"}","{\"key-1\"}","{\"task-1\"}"]

-- src/tasks/sql/enqueue.ts: lockHolders
  select task.task_id from (select tenant collate "C" as tenant, name collate "C" as name, unique_key collate "C" as unique_key, task_id collate "C" as task_id from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as each_row (tenant, name, unique_key, task_id)) wanted join flotilla.task task on task.tenant = wanted.tenant and task.name = wanted.name
and task.unique_key = wanted.unique_key
  order by task.task_id for update of task
-- values: ["{\"default\"}","{\"mail\"}","{\"key-1\"}","{\"task-1\"}"]

-- src/tasks/sql/enqueue.ts: insertAliases
insert into flotilla.task_alias (alias_id, task_id)
select fresh.task_id, holder.task_id
from (select tenant collate "C" as tenant, name collate "C" as name, unique_key collate "C" as unique_key, task_id collate "C" as task_id from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as each_row (tenant, name, unique_key, task_id)) fresh join flotilla.task holder on holder.tenant = fresh.tenant
  and holder.name = fresh.name and holder.unique_key = fresh.unique_key
where holder.task_id <> fresh.task_id and fresh.task_id <> ''
  and not exists (select 1 from flotilla.task own where own.task_id = fresh.task_id)
on conflict do nothing
-- values: ["{\"default\"}","{\"mail\"}","{\"key-1\"}","{\"task-1\"}"]

-- src/tasks/sql/enqueue.ts: findAliases
select alias.alias_id, alias.task_id from (select alias_id collate "C" as alias_id from unnest($1::text[]) as each_row (alias_id)) wanted
join flotilla.task_alias alias on alias.alias_id = wanted.alias_id
-- values: ["{\"task-1\"}"]

-- src/tasks/sql/enqueue.ts: deleteAliasesOf
delete from flotilla.task_alias as alias where task_id = any(array(select 'task-1'))

-- src/tasks/sql/enqueue.ts: probeTask
select task_id, tenant, name, unique_key, trace, concurrency_key, from_id,
  length(payload) as chars
from (select task_id collate "C" as task_id, tenant collate "C" as tenant, name collate "C" as name, payload collate "C" as payload, unique_key collate "C" as unique_key, trace collate "C" as trace, concurrency_key collate "C" as concurrency_key, from_id collate "C" as from_id from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[]) as each_row (task_id, tenant, name, payload, unique_key, trace, concurrency_key, from_id)) probe
-- values: ["{\"task-1\"}","{\"default\"}","{\"mail\"}","{\"{}\"}","{\"key-1\"}","{null}","{\"key/mail/acme\"}","{null}"]

-- src/tasks/sql/enqueue.ts: releaseKeys
  update flotilla.task set unique_key = null
  from (select tenant collate "C" as tenant, name collate "C" as name, unique_key collate "C" as unique_key, task_id collate "C" as task_id, while_unfinished, for_ms from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[]) as each_row (tenant, name, unique_key, task_id, while_unfinished, for_ms)) wanted
  where flotilla.task.tenant = wanted.tenant and flotilla.task.name = wanted.name
and flotilla.task.unique_key = wanted.unique_key and flotilla.task.task_id <> wanted.task_id
    and parent_id is null
    and ((wanted.while_unfinished = 1 and status in ('completed', 'failed', 'cancelled'))
      or created_at <= now_ms() - wanted.for_ms)
-- values: ["{\"default\"}","{\"mail\"}","{\"key-1\"}","{\"task-1\"}","{1}","{60000}"]

-- src/tasks/sql/enqueue.ts: noteReplaced
  insert into flotilla.task_event (task_id, seq, type, detail)
  select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'replaced',
    wanted.mark || cast(task.claim_token + 1 as text) || '}'
  from (select tenant collate "C" as tenant, name collate "C" as name, unique_key collate "C" as unique_key, task_id collate "C" as task_id, mark collate "C" as mark from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) as each_row (tenant, name, unique_key, task_id, mark)) wanted join flotilla.task task on task.tenant = wanted.tenant and task.name = wanted.name
and task.unique_key = wanted.unique_key
  where task.status = 'pending' and task.flow_version is null and task.parent_id is null
    and not exists (
select 1 from flotilla.task_event past
where past.task_id = task.task_id and past.type = 'replaced'
  and past.detail like wanted.mark || '%')
    and task.task_id <> wanted.task_id
    and true
  for update of task
-- values: ["{\"default\"}","{\"mail\"}","{\"key-1\"}","{\"task-1\"}","{\"{\\\"request\\\":\\\"task-1\\\",\\\"token\\\":\"}"]

  insert into flotilla.task_event (task_id, seq, type, detail)
  select task.task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'replaced',
    wanted.mark || cast(task.claim_token + 1 as text) || '}'
  from (select tenant collate "C" as tenant, name collate "C" as name, unique_key collate "C" as unique_key, task_id collate "C" as task_id, mark collate "C" as mark from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) as each_row (tenant, name, unique_key, task_id, mark)) wanted join flotilla.task task on task.tenant = wanted.tenant and task.name = wanted.name
and task.unique_key = wanted.unique_key
  where task.status = 'pending' and task.flow_version is null and task.parent_id is null
    and not exists (
select 1 from flotilla.task_event past
where past.task_id = task.task_id and past.type = 'replaced'
  and past.detail like wanted.mark || '%')
    and task.task_id < wanted.task_id
    and (select count(*) from flotilla.task stored
  where stored.task_id in (select task_id from (select tenant collate "C" as tenant, name collate "C" as name, unique_key collate "C" as unique_key, task_id collate "C" as task_id from unnest($6::text[], $7::text[], $8::text[], $9::text[]) as each_row (tenant, name, unique_key, task_id)) wanted)) = $10
  for update of task
-- values: ["{\"default\"}","{\"mail\"}","{\"key-1\"}","{\"task-1\"}","{\"{\\\"request\\\":\\\"task-1\\\",\\\"token\\\":\"}","{\"default\"}","{\"mail\"}","{null}","{\"task-1\"}",1]

-- src/tasks/sql/enqueue.ts: replaceHolders
  update flotilla.task
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
  from (select tenant collate "C" as tenant, name collate "C" as name, unique_key collate "C" as unique_key, task_id collate "C" as task_id, mark collate "C" as mark, payload collate "C" as payload, priority, delay_ms, start_at, max_attempts, trace collate "C" as trace, concurrency_key collate "C" as concurrency_key, limited from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::text[], $12::text[], $13::bigint[]) as each_row (tenant, name, unique_key, task_id, mark, payload, priority, delay_ms, start_at, max_attempts, trace, concurrency_key, limited)) wanted
  where flotilla.task.tenant = wanted.tenant and flotilla.task.name = wanted.name
and flotilla.task.unique_key = wanted.unique_key and status = 'pending' and exists (
    select 1 from flotilla.task_event past
    where past.task_id = flotilla.task.task_id and past.type = 'replaced'
      and past.detail = wanted.mark || cast(flotilla.task.claim_token + 1 as text) || '}')
-- values: ["{\"default\"}","{\"mail\"}","{\"key-1\"}","{\"task-1\"}","{\"{\\\"request\\\":\\\"task-1\\\",\\\"token\\\":\"}","{\"{}\"}","{0}","{0}","{null}","{null}","{null}","{\"key/mail/acme\"}","{1}"]

-- src/tasks/sql/enqueue.ts: trimReplaced
  delete from flotilla.task_event
  where type = 'replaced'
    and task_id in (
      select task.task_id from (select tenant collate "C" as tenant, name collate "C" as name, unique_key collate "C" as unique_key, task_id collate "C" as task_id from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as each_row (tenant, name, unique_key, task_id)) wanted join flotilla.task task on task.tenant = wanted.tenant and task.name = wanted.name
and task.unique_key = wanted.unique_key)
    and seq < (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = flotilla.task_event.task_id) - $5
-- values: ["{\"default\"}","{\"mail\"}","{\"key-1\"}","{\"task-1\"}",100]

-- src/tasks/sql/enqueue.ts: findReplaced
  select wanted.task_id from (select tenant collate "C" as tenant, name collate "C" as name, unique_key collate "C" as unique_key, task_id collate "C" as task_id, mark collate "C" as mark from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) as each_row (tenant, name, unique_key, task_id, mark)) wanted join flotilla.task task on task.tenant = wanted.tenant and task.name = wanted.name
and task.unique_key = wanted.unique_key
  where exists (
select 1 from flotilla.task_event past
where past.task_id = task.task_id and past.type = 'replaced'
  and past.detail like wanted.mark || '%')
-- values: ["{\"default\"}","{\"mail\"}","{\"key-1\"}","{\"task-1\"}","{\"{\\\"request\\\":\\\"task-1\\\",\\\"token\\\":\"}"]

-- src/tasks/sql/enqueue.ts: undoUnlessStored
delete from flotilla.task
where task_id in (select task_id from (select tenant collate "C" as tenant, name collate "C" as name, unique_key collate "C" as unique_key, task_id collate "C" as task_id from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as each_row (tenant, name, unique_key, task_id)) wanted) and not (select count(*) from flotilla.task stored
where stored.task_id in (select task_id from (select tenant collate "C" as tenant, name collate "C" as name, unique_key collate "C" as unique_key, task_id collate "C" as task_id from unnest($5::text[], $6::text[], $7::text[], $8::text[]) as each_row (tenant, name, unique_key, task_id)) wanted)) = $9
-- values: ["{\"default\"}","{\"mail\"}","{\"key-1\"}","{\"task-1\"}","{\"default\"}","{\"mail\"}","{null}","{\"task-1\"}",1]

-- src/tasks/sql/logged.ts: runOutdated
select task.task_id from (select task_id collate "C" as task_id, log_id from unnest($1::text[], $2::bigint[]) as each_row (task_id, log_id)) outdated
join flotilla.task task on task.task_id = outdated.task_id
where task.status = 'pending' and task.run_at > now_ms() order by task.task_id for update of task
-- values: ["{\"task-0\"}","{1}"]

  update flotilla.task set run_at = now_ms(), last_update = now_ms()
  where task_id = any(array(
select task.task_id from (select task_id collate "C" as task_id, log_id from unnest($1::text[], $2::bigint[]) as each_row (task_id, log_id)) outdated
join flotilla.task task on task.task_id = outdated.task_id
where task.status = 'pending' and task.run_at > now_ms() and outdated.log_id = 1)) and status = 'pending'
-- values: ["{\"task-0\"}","{1}"]

-- src/tasks/sql/claim.ts: isDue
(run_at <= now_ms() or run_at <= last_update)

-- src/tasks/sql/claim.ts: unparkDue
update flotilla.task set parked = case when limited = 1 then 4 else 0 end, last_update = now_ms()
where ctid = any(array(
  select ctid from flotilla.task
  where status = 'pending' and parked = 1 and run_at <= now_ms()
  order by run_at limit cast($1 as integer) for update skip locked))
-- values: [500]

-- src/tasks/sql/claim.ts: readAhead
select
  (select run_at - now_ms() from flotilla.task
    where status = 'pending' and parked = 1 order by run_at limit 1) as wait_ms,
  exists (
    select 1 from (select name collate "C" as name from unnest($1::text[]) as each_row (name)) wanted where (select task_id from flotilla.task task
      where task.name = wanted.name and task.status = 'pending' and parked = 4 and deaths < 2
      order by tenant, priority desc, created_at, task_id limit 1) is not null) as limited,
  exists (
    select 1 from (select name collate "C" as name from unnest($2::text[]) as each_row (name)) wanted where (select task_id from flotilla.task task
      where task.name = wanted.name and task.status = 'pending' and parked = 0 and deaths >= 2
      order by created_at, task_id limit 1) is not null)
  or exists (
    select 1 from (select name collate "C" as name from unnest($3::text[]) as each_row (name)) wanted where (select task_id from flotilla.task task
      where task.name = wanted.name and task.status = 'pending' and parked = 4 and deaths >= 2
      order by created_at, task_id limit 1) is not null) as alone,
  (select pauses from flotilla.pod where pod_id = $4) as pauses, now_ms() as now
-- values: ["{\"mail\"}","{\"mail\"}","{\"mail\"}","pod-1"]

-- src/tasks/sql/claim.ts: claimTasks
  update flotilla.task
  set status = 'claimed', claimed_by = $1, claim_token = claim_token + 1,
    claim_call = $2, last_update = now_ms()
  where ctid = any(array(
  select address from (select * from (
    select ctid as address, task_id, priority, created_at from flotilla.task
    where name = $3 and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= now_ms() or run_at <= last_update)
       and flow_version is null and task_version is null
    order by priority desc, created_at, task_id limit cast($4 as integer) for update skip locked) of_name union all select * from (
    select ctid as address, task_id, priority, created_at from flotilla.task
    where name = $5 and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= now_ms() or run_at <= last_update)
       and flow_version is null and task_version is null
    order by priority desc, created_at, task_id limit cast($6 as integer) for update skip locked) of_name) ready
  order by priority desc, created_at, task_id limit cast($7 as integer))) and status = 'pending'
    and exists (select 1 from flotilla.pod where pod_id = $8 and claim_floor < $9
       for key share)

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
  nullif(limited, 0) as limited from flotilla.task
        where claimed_by = $1 and claim_call = $2 and status = 'claimed'
-- values: ["pod-1",5,"mail",10,"order",10,10,"pod-1",5]

  update flotilla.task
  set status = 'claimed', claimed_by = $1, claim_token = claim_token + 1,
    claim_call = $2, last_update = now_ms() , flow_version = case when flow_version is null and name in ($3) then 0 else flow_version end,
      run_seq = case when flow_version is null and name in ($4) then ((select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = flotilla.task.task_id) - 1) / cast($5 as integer) else run_seq end
  where ctid = any(array(
  select address from (select * from (
    select ctid as address, task_id, priority, created_at from flotilla.task
    where name = $6 and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= now_ms() or run_at <= last_update)
       and flow_version is null and task_version is null and (deaths = 0 or task_id not in (select task_id from (select task_id collate "C" as task_id from unnest($7::text[]) as each_row (task_id)) held))
    order by priority desc, created_at, task_id limit cast($8 as integer) - (select count(*) from flotilla.task
  where claimed_by = $9 and claim_call = $10 and status = 'claimed'
    and name in ($11)) for update skip locked) of_name union all select * from (select * from (select * from (
    select ctid as address, task_id, priority, created_at from flotilla.task
    where name = $12 and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= now_ms() or run_at <= last_update)
      and priority > $13 and (name <> $14 or coalesce(flow_version, 0) <= $15) and task_version is null and (deaths = 0 or task_id not in (select task_id from (select task_id collate "C" as task_id from unnest($16::text[]) as each_row (task_id)) held))
    order by priority desc, created_at, task_id limit cast($17 as integer) for update skip locked) of_name union all select * from (
    select ctid as address, task_id, priority, created_at from flotilla.task
    where name = $18 and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= now_ms() or run_at <= last_update)
      and priority = $19 and created_at >= $20 and (name <> $21 or coalesce(flow_version, 0) <= $22) and task_version is null and (deaths = 0 or task_id not in (select task_id from (select task_id collate "C" as task_id from unnest($23::text[]) as each_row (task_id)) held))
    order by priority desc, created_at, task_id limit cast($24 as integer) for update skip locked) of_name) of_names order by priority desc, created_at, task_id limit cast($25 as integer) - (select count(*) from flotilla.task
  where claimed_by = $26 and claim_call = $27 and status = 'claimed'
    and name in ($28))) of_set) ready
  order by priority desc, created_at, task_id limit cast($29 as integer) - (select count(*) from flotilla.task
  where claimed_by = $30 and claim_call = $31 and status = 'claimed'))) and status = 'pending'
    and exists (select 1 from flotilla.pod where pod_id = $32 and claim_floor < $33
      and pauses = $34 for key share)

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
  run_seq, cancel_requested, last_update from flotilla.task
        where claimed_by = $1 and claim_call = $2 and status = 'claimed'
-- values: ["pod-1",5,"order","order",100,"mail","{\"task-9\"}",3,"pod-1",5,"mail","order",1,"order",2,"{\"task-9\"}",10,"order",1,100,"order",2,"{\"task-9\"}",10,2,"pod-1",5,"order",10,"pod-1",5,"pod-1",5,4]

  update flotilla.task
  set status = 'claimed', claimed_by = $1, claim_token = claim_token + 1,
    claim_call = $2, last_update = now_ms()
  where ctid = any(array(
  select address from (select * from (
    select ctid as address, task_id, priority, created_at from flotilla.task
    where name = $3 and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= now_ms() or run_at <= last_update)
       and flow_version is null and task_version is null
    order by priority desc, created_at, task_id limit cast($4 as integer) for update skip locked) of_name union all select * from (
    select ctid as address, task_id, priority, created_at from flotilla.task
    where name = $5 and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= now_ms() or run_at <= last_update)
       and flow_version is null and task_version is null
    order by priority desc, created_at, task_id limit cast($6 as integer) for update skip locked) of_name) ready
  order by priority desc, created_at, task_id limit cast($7 as integer))) and status = 'pending'
    and exists (select 1 from flotilla.pod where pod_id = $8 and claim_floor < $9
       for key share)
    and not exists (select 1 from flotilla.pod other
  where other.waiting = 1 and other.status = 'up' and other.pod_id <> $10
    and (replace(other.metadata, $11, '') <> other.metadata or replace(other.metadata, $12, '') <> other.metadata))
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
  nullif(limited, 0) as limited from flotilla.task
        where claimed_by = $1 and claim_call = $2 and status = 'claimed'
-- values: ["pod-1",-5,"mail",10,"order",10,10,"pod-1",5,"pod-1","\"mail\"","\"order\""]

  update flotilla.task
  set status = 'claimed', claimed_by = $1, claim_token = claim_token + 1,
    claim_call = $2, last_update = now_ms()
  where ctid = any(array(
  select address from (select * from (
    select ctid as address, task_id, priority, created_at from flotilla.task
    where name = $3 and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= now_ms() or run_at <= last_update)
       and flow_version is null and (name <> $4 or coalesce(task_version, 0) <= $5)
    order by priority desc, created_at, task_id limit cast($6 as integer) for update skip locked) of_name union all select * from (
    select ctid as address, task_id, priority, created_at from flotilla.task
    where name = $7 and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= now_ms() or run_at <= last_update)
       and flow_version is null and task_version is null
    order by priority desc, created_at, task_id limit cast($8 as integer) for update skip locked) of_name) ready
  order by priority desc, created_at, task_id limit cast($9 as integer))) and status = 'pending'
    and exists (select 1 from flotilla.pod where pod_id = $10 and claim_floor < $11
       for key share)

  returning task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
nullif(priority, 0) as priority, nullif(wake, 0) as wake,
nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
nullif(limited, 0) as limited, task_version, begun_version, case when exists (select 1 from flotilla.step_journal stored
  where stored.owner_id = flotilla.task.task_id and stored.part = '') then 1 else 0 end as has_steps
-- instead of returning:
select task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
  trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
  nullif(priority, 0) as priority, nullif(wake, 0) as wake,
  nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
  nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
  nullif(limited, 0) as limited, task_version, begun_version, case when exists (select 1 from flotilla.step_journal stored
    where stored.owner_id = flotilla.task.task_id and stored.part = '') then 1 else 0 end as has_steps from flotilla.task
        where claimed_by = $1 and claim_call = $2 and status = 'claimed'
-- values: ["pod-1",5,"mail","mail",3,10,"order",10,10,"pod-1",5]

-- src/tasks/sql/claim.ts: markBegun
update flotilla.pod set begun_task = case when begun_call > $1 or begun_call = $2 and begun_task > $3 then begun_task else $4 end,
  begun_call = case when begun_call > $5 then begun_call else $6 end
where pod_id = $7 and status = 'up' and pauses = $8
returning pod_id
-- instead of returning:
select pod_id from flotilla.pod where pod_id = $1 and status = 'up' and pauses = $2
-- values: [5,5,"task-1","task-1",5,5,"pod-1",1]

-- src/tasks/sql/claim.ts: isHeldBack
exists (select 1 from flotilla.pod holder
    where holder.pod_id = task.claimed_by and task.claim_call < 0 and holder.begun_call >= 0
      and (-task.claim_call > holder.begun_call
        or -task.claim_call = holder.begun_call and task.task_id > holder.begun_task))

-- src/tasks/sql/claim.ts: levelsInUse
with recursive level (name, priority) as (
  select wanted.name, (select max(priority) from flotilla.task task
    where task.name = wanted.name and status = 'pending' and parked = 0 and deaths < 2)
  from (select name collate "C" as name from unnest($1::text[]) as each_row (name)) wanted
  union all
  select level.name, (select max(priority) from flotilla.task task
    where task.name = level.name and status = 'pending' and parked = 0 and deaths < 2 and task.priority < level.priority)
  from level where level.priority is not null)
select name, priority from level where priority is not null
order by priority, name limit cast($2 as integer)
-- values: ["{\"mail\"}",400]

-- src/tasks/sql/claim.ts: claimOldest
  update flotilla.task
  set status = 'claimed', claimed_by = $1, claim_token = claim_token + 1,
    claim_call = $2, last_update = now_ms()
  where ctid = any(array(
  select address from (select * from (
    select ctid as address, task_id, created_at from flotilla.task
    where name = $3 and status = 'pending' and parked = 0 and deaths < 2
      and priority = $4 and (run_at <= now_ms() or run_at <= last_update) and flow_version is null and task_version is null
    order by created_at, task_id limit cast($5 as integer) for update skip locked) of_level union all select * from (
    select ctid as address, task_id, created_at from flotilla.task
    where name = $6 and status = 'pending' and parked = 0 and deaths < 2
      and priority = $7 and (run_at <= now_ms() or run_at <= last_update) and flow_version is null and task_version is null
    order by created_at, task_id limit cast($8 as integer) for update skip locked) of_level) ready
  order by created_at, task_id limit cast($9 as integer))) and status = 'pending'
    and exists (select 1 from flotilla.pod where pod_id = $10 and claim_floor < $11
       for key share)

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
  nullif(limited, 0) as limited from flotilla.task
        where claimed_by = $1 and claim_call = $2 and status = 'claimed'
-- values: ["pod-1",5,"mail",0,10,"order",1,10,10,"pod-1",5]

  update flotilla.task
  set status = 'claimed', claimed_by = $1, claim_token = claim_token + 1,
    claim_call = $2, last_update = now_ms() , flow_version = case when flow_version is null and name in ($3) then 0 else flow_version end,
      run_seq = case when flow_version is null and name in ($4) then ((select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = flotilla.task.task_id) - 1) / cast($5 as integer) else run_seq end
  where ctid = any(array(
  select address from (select * from (
    select * from (select * from (
    select ctid as address, task_id, created_at from flotilla.task
    where name = $6 and status = 'pending' and parked = 0 and deaths < 2
      and priority = $7 and (run_at <= now_ms() or run_at <= last_update) and flow_version is null and task_version is null and (deaths = 0 or task_id not in (select task_id from (select task_id collate "C" as task_id from unnest($8::text[]) as each_row (task_id)) held))
    order by created_at, task_id limit cast($9 as integer) for update skip locked) of_level) of_levels
    order by created_at, task_id limit cast($10 as integer) - (select count(*) from flotilla.task
  where claimed_by = $11 and claim_call = $12 and status = 'claimed'
    and name in ($13))) of_name union all select * from (select * from (select * from (
    select ctid as address, task_id, created_at from flotilla.task
    where name = $14 and status = 'pending' and parked = 0 and deaths < 2
      and priority = $15 and (run_at <= now_ms() or run_at <= last_update) and (name <> $16 or coalesce(flow_version, 0) <= $17) and task_version is null and (deaths = 0 or task_id not in (select task_id from (select task_id collate "C" as task_id from unnest($18::text[]) as each_row (task_id)) held))
    order by created_at, task_id limit cast($19 as integer) for update skip locked) of_level) of_names order by created_at, task_id limit cast($20 as integer) - (select count(*) from flotilla.task
  where claimed_by = $21 and claim_call = $22 and status = 'claimed'
    and name in ($23))) of_set) ready
  order by created_at, task_id limit cast($24 as integer) - (select count(*) from flotilla.task
  where claimed_by = $25 and claim_call = $26 and status = 'claimed'))) and status = 'pending'
    and exists (select 1 from flotilla.pod where pod_id = $27 and claim_floor < $28
      and pauses = $29 for key share)

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
  run_seq, cancel_requested, last_update from flotilla.task
        where claimed_by = $1 and claim_call = $2 and status = 'claimed'
-- values: ["pod-1",5,"order","order",100,"mail",0,"{\"task-9\"}",10,3,"pod-1",5,"mail","order",1,"order",2,"{\"task-9\"}",10,2,"pod-1",5,"order",10,"pod-1",5,"pod-1",5,4]

-- src/tasks/sql/claim.ts: notNewer
and flow_version is null and task_version is null

and (name <> $1 or coalesce(flow_version, 0) <= $2) and (flow_version is null or name in ($3)) and task_version is null
-- values: ["order",2,"order"]

and flow_version is null and (name <> $1 or coalesce(task_version, 0) <= $2) and (task_version is null or name in ($3))
-- values: ["mail",3,"mail"]

-- src/tasks/sql/claim.ts: claimReserved
  update flotilla.task
  set status = 'claimed', claimed_by = $1, claim_token = claim_token + 1,
    claim_call = $2, last_update = now_ms()
  where task_id = $3 and parked = 0 and name in ($4, $5) and (run_at <= now_ms() or run_at <= last_update)
    and flow_version is null and task_version is null and status = 'pending'
    and exists (select 1 from flotilla.pod where pod_id = $6 and claim_floor < $7
       for key share)

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
  nullif(limited, 0) as limited from flotilla.task
        where claimed_by = $1 and claim_call = $2 and status = 'claimed'
-- values: ["pod-1",5,"task-1","mail","order","pod-1",5]

-- src/tasks/sql/claim.ts: claimWhere
  update flotilla.task
  set status = 'claimed', claimed_by = $1, claim_token = claim_token + 1,
    claim_call = $2, last_update = now_ms()
  where task_id = 'task-1' and status = 'pending'
    and exists (select 1 from flotilla.pod where pod_id = $3 and claim_floor < $4
       for key share)

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
  nullif(limited, 0) as limited from flotilla.task
        where claimed_by = $1 and claim_call = $2 and status = 'claimed'
-- values: ["pod-1",5,"pod-1",5]

-- src/tasks/sql/claim.ts: reserveAlone
  update flotilla.task set claimed_by = $1
  where status = 'pending' and ctid = any(array(
    select address from (select * from (
  select ctid as address, task_id, name, tenant, concurrency_key, limited, created_at
  from flotilla.task task
  where name in ($2) and status = 'pending' and parked = 0 and deaths >= 2
    and (run_at <= now_ms() or run_at <= last_update) and (claimed_by is null or claimed_by = $3
  or claimed_by not in (select pod_id from flotilla.pod where status = 'up' and drain = 0)
  or (select task_id from flotilla.task where status = 'claimed' and claimed_by = $4
  order by claim_call limit 1) is null) and flow_version is null and task_version is null
  order by created_at, task_id limit 1 for update skip locked) of_kind union all
  select * from (
  select ctid as address, task_id, name, tenant, concurrency_key, limited, created_at
  from flotilla.task task
  where name in ($5) and status = 'pending' and parked = 4 and not exists (select 1 from flotilla.task_limit given
  where given.scope = task.concurrency_key and given.max_running <= (select count(*) from flotilla.task held
  where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope))
and not exists (select 1 from flotilla.task_limit given
  where given.scope = 'tenant/' || task.tenant
    and given.max_running <= (select count(*) from flotilla.task held
  where coalesce(held.status, '') = 'claimed' and held.limited = 1 and held.tenant <> 'default'
    and held.tenant between task.tenant and task.tenant)) and deaths >= 2
    and (run_at <= now_ms() or run_at <= last_update) and (claimed_by is null or claimed_by = $6
  or claimed_by not in (select pod_id from flotilla.pod where status = 'up' and drain = 0)
  or (select task_id from flotilla.task where status = 'claimed' and claimed_by = $7
  order by claim_call limit 1) is null) and flow_version is null and task_version is null
  order by created_at, task_id limit 1 for update skip locked) of_kind) alone
    order by created_at, task_id limit 1))
  returning task_id, name, tenant, concurrency_key, limited
-- instead of returning:
select task_id, name, tenant, concurrency_key, limited
        from (select * from (
    select ctid as address, task_id, name, tenant, concurrency_key, limited, created_at
    from flotilla.task task
    where name in ($1) and status = 'pending' and parked = 0 and deaths >= 2
      and (run_at <= now_ms() or run_at <= last_update) and claimed_by = $2
    order by created_at, task_id limit 1 ) of_kind union all
    select * from (
    select ctid as address, task_id, name, tenant, concurrency_key, limited, created_at
    from flotilla.task task
    where name in ($3) and status = 'pending' and parked = 4 and not exists (select 1 from flotilla.task_limit given
    where given.scope = task.concurrency_key and given.max_running <= (select count(*) from flotilla.task held
    where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope))
  and not exists (select 1 from flotilla.task_limit given
    where given.scope = 'tenant/' || task.tenant
      and given.max_running <= (select count(*) from flotilla.task held
    where coalesce(held.status, '') = 'claimed' and held.limited = 1 and held.tenant <> 'default'
      and held.tenant between task.tenant and task.tenant)) and deaths >= 2
      and (run_at <= now_ms() or run_at <= last_update) and claimed_by = $4
    order by created_at, task_id limit 1 ) of_kind) alone
        order by created_at, task_id limit 1
-- values: ["pod-1","mail","pod-1","pod-1","mail","pod-1","pod-1"]

-- src/tasks/sql/claim.ts: releaseCall
select 1 from flotilla.pod where pod_id = $1 for update
-- values: ["pod-1"]

insert into flotilla.pod (pod_id, claim_floor, pauses, begun_call)
values ($1, $2, now_ms(), $3)
on conflict (pod_id) do update set claim_floor = excluded.claim_floor
where flotilla.pod.claim_floor < excluded.claim_floor
-- values: ["pod-1",5,-1]

select task_id from flotilla.task task
      where claimed_by = $1 and claim_call in ($2, $3) and status = 'claimed'
      order by task_id for update of task
-- values: ["pod-1",5,-5]

select task_id from flotilla.task task where ctid = any(array(
    select (select ctid from flotilla.task task where task.task_id = named.id)
    from (select distinct dependent_id as id from flotilla.task_dependency where dependency_id in (
      select task.task_id from flotilla.task task where task.claimed_by = $1
    and task.claim_call in ($2, $3) and task.status = 'claimed' and task.cancel_requested = 1
    and task.flow_version is null)) named)) order by task_id for update of task
-- values: ["pod-1",5,-5]

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
    then case when dependency.claimed_by = $1
and dependency.claim_call in ($2, $3) and dependency.status = 'claimed' and dependency.cancel_requested = 1
and dependency.flow_version is null then 'cancelled' else dependency.status end end
when flotilla.task.awaits is null then case when dependency.claimed_by = $4
and dependency.claim_call in ($5, $6) and dependency.status = 'claimed' and dependency.cancel_requested = 1
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
  select task.task_id from flotilla.task task where task.claimed_by = $7
and task.claim_call in ($8, $9) and task.status = 'claimed' and task.cancel_requested = 1
and task.flow_version is null)) named)) and coalesce(flotilla.task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["pod-1",5,-5,"pod-1",5,-5,"pod-1",5,-5]

update flotilla.task
set status = case when cancel_requested = 1 and flow_version is null then 'cancelled'
    else 'pending' end,
  claimed_by = null, claim_call = null, claim_token = claim_token + 1, last_update = now_ms()
where claimed_by = $1 and claim_call in ($2, $3) and status = 'claimed'
-- values: ["pod-1",5,-5]

-- src/tasks/sql/concurrency.ts: limitedPairs
with recursive step (name, tenant, nth) as (
  select wanted.name, (select min(task.tenant) from flotilla.task task
    where task.name = wanted.name and task.status = 'pending' and task.parked = 4 and task.deaths < 2 and task.tenant > $1), 1
  from (select name collate "C" as name from unnest($2::text[]) as each_row (name)) wanted
  union all
  select step.name, (select min(task.tenant) from flotilla.task task
    where task.name = step.name and task.status = 'pending' and task.parked = 4 and task.deaths < 2 and task.tenant > step.tenant), step.nth + 1
  from step where step.tenant is not null and step.nth < $3)
select name, tenant, exists (select 1 from flotilla.task_limit given
  where given.scope = 'tenant/' || step.tenant
    and given.max_running <= (select count(*) from flotilla.task held
where coalesce(held.status, '') = 'claimed' and held.limited = 1 and held.tenant <> 'default'
  and held.tenant between step.tenant and step.tenant)) as is_full
from step where tenant is not null
-- values: ["","{\"mail\"}",10]

-- src/tasks/sql/concurrency.ts: selectCandidates
select ready.*, (select case when by_hand = 1 then 0 else max_running end from flotilla.task_limit given
  where given.scope = ready.concurrency_key) as stored_limit
from (select * from (
  select task_id, name, tenant, concurrency_key, priority, created_at from flotilla.task task
  where name = $1 and tenant = $2 and task.status = 'pending' and task.parked = 4 and task.deaths < 2 and priority <= $3
    and (run_at <= now_ms() or run_at <= last_update) and flow_version is null and task_version is null
    and task_id not in (select task_id from (select task_id collate "C" as task_id from unnest($4::text[]) as each_row (task_id)) without)
  order by priority desc, created_at, task_id limit cast($5 as integer)) of_pair) ready
-- values: ["mail","acme",5,"{\"x\"}",10]

-- src/tasks/sql/concurrency.ts: lockScopes
insert into flotilla.task_limit (scope, max_running)
select scope, max_running from (select scope collate "C" as scope, max_running from unnest($1::text[], $2::bigint[]) as each_row (scope, max_running)) fresh where true order by scope
on conflict (scope) do update set max_running = excluded.max_running
where flotilla.task_limit.by_hand = 0 and flotilla.task_limit.max_running <> excluded.max_running
-- values: ["{\"key/mail/acme\"}","{2}"]

select count(*) from (
  select scope from flotilla.task_limit where scope in (select scope from (select scope collate "C" as scope from unnest($1::text[]) as each_row (scope)) wanted)
  order by scope for update) locked
-- values: ["{\"tenant/acme\"}"]

select count(*) from (
  select scope from flotilla.task_limit where scope in (select scope from (select scope collate "C" as scope from unnest($1::text[]) as each_row (scope)) wanted)
  order by scope for update) locked
-- values: ["{\"key/mail/acme\",\"tenant/acme\"}"]

-- src/tasks/sql/concurrency.ts: lockLimits
select count(*) from (
  select scope from flotilla.task_limit where scope in (select scope from (select scope collate "C" as scope from unnest($1::text[]) as each_row (scope)) wanted)
  order by scope for update) locked
-- values: ["{\"tenant/acme\"}"]

-- src/tasks/sql/concurrency.ts: claimCandidates
  update flotilla.task
  set status = 'claimed', claimed_by = $1, claim_token = claim_token + 1,
    claim_call = $2, last_update = now_ms()
  where ctid = any(array(
  select address from (
  select address, place, tenant, concurrency_key from (
    select address, place, tenant, concurrency_key, nth,
      max(first_slots) over (partition by tenant) as slots
    from (
      select address, place, tenant, concurrency_key, row_number() over (partition by tenant order by place) as nth,
        case when row_number() over (partition by tenant order by place) = 1 then (select given.max_running - (select count(*) from flotilla.task held
  where coalesce(held.status, '') = 'claimed' and held.limited = 1 and held.tenant <> 'default'
    and held.tenant between tried.tenant and tried.tenant) from flotilla.task_limit given
  where given.scope = 'tenant/' || tried.tenant) end as first_slots
      from (select * from (
  select task.ctid as address, wanted.place, task.tenant, task.concurrency_key
  from (select task_id collate "C" as task_id, place, concurrency_key collate "C" as concurrency_key from unnest($3::text[], $4::bigint[], $5::text[]) as each_row (task_id, place, concurrency_key)) wanted
  join flotilla.task task on task.task_id = wanted.task_id
  where coalesce(task.status, '') = 'pending' and task.parked = 4
    and coalesce(task.concurrency_key, '') = coalesce(wanted.concurrency_key, '')
    and task.deaths < 2 and (run_at <= now_ms() or run_at <= last_update)
    and flow_version is null and task_version is null
  for update of task skip locked) tried
      where concurrency_key is null or (select given.max_running - (select count(*) from flotilla.task held
  where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope) from flotilla.task_limit given
  where given.scope = tried.concurrency_key) >= 1) tried) counted) ranked
  where slots is null or nth <= slots) free order by place limit cast($6 as integer))) and status = 'pending'
    and exists (select 1 from flotilla.pod where pod_id = $7 and claim_floor < $8
       for key share)

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
  nullif(limited, 0) as limited from flotilla.task
        where claimed_by = $1 and claim_call = $2 and status = 'claimed'
-- values: ["pod-1",5,"{\"task-1\"}","{0}","{\"key/mail/acme\"}",10,"pod-1",5]

  update flotilla.task
  set status = 'claimed', claimed_by = $1, claim_token = claim_token + 1,
    claim_call = $2, last_update = now_ms()
  where ctid = any(array(
  select address from (
  select address, place, tenant, concurrency_key from (
    select address, place, tenant, concurrency_key, nth,
      max(first_slots) over (partition by tenant) as slots
    from (
      select address, place, tenant, concurrency_key, row_number() over (partition by tenant order by place) as nth,
        case when row_number() over (partition by tenant order by place) = 1 then (select given.max_running - (select count(*) from flotilla.task held
  where coalesce(held.status, '') = 'claimed' and held.limited = 1 and held.tenant <> 'default'
    and held.tenant between tried.tenant and tried.tenant) from flotilla.task_limit given
  where given.scope = 'tenant/' || tried.tenant) end as first_slots
      from (select * from (
  select task.ctid as address, wanted.place, task.tenant, task.concurrency_key
  from (select task_id collate "C" as task_id, place, concurrency_key collate "C" as concurrency_key from unnest($3::text[], $4::bigint[], $5::text[]) as each_row (task_id, place, concurrency_key)) wanted
  join flotilla.task task on task.task_id = wanted.task_id
  where coalesce(task.status, '') = 'pending' and task.parked = 4
    and coalesce(task.concurrency_key, '') = coalesce(wanted.concurrency_key, '')
    and task.deaths >= 2 and (run_at <= now_ms() or run_at <= last_update)
    and flow_version is null and task_version is null
  for update of task skip locked) tried
      where concurrency_key is null or (select given.max_running - (select count(*) from flotilla.task held
  where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope) from flotilla.task_limit given
  where given.scope = tried.concurrency_key) >= 1) tried) counted) ranked
  where slots is null or nth <= slots) free order by place limit cast($6 as integer))) and status = 'pending'
    and exists (select 1 from flotilla.pod where pod_id = $7 and claim_floor < $8
       for key share)

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
  nullif(limited, 0) as limited from flotilla.task
        where claimed_by = $1 and claim_call = $2 and status = 'claimed'
-- values: ["pod-1",5,"{\"task-1\"}","{0}","{\"key/mail/acme\"}",10,"pod-1",5]

-- src/tasks/sql/concurrency.ts: blockCandidates
update flotilla.task set parked = 3, blocked_by = concurrency_key
where ctid = any(array(
with tried as (
  select task.ctid as address, task.task_id, task.concurrency_key as scope
  from (select task_id collate "C" as task_id, place, concurrency_key collate "C" as concurrency_key from unnest($1::text[], $2::bigint[], $3::text[]) as each_row (task_id, place, concurrency_key)) wanted join flotilla.task task on task.task_id = wanted.task_id
  where coalesce(task.status, '') = 'pending' and task.parked = 4
    and task.concurrency_key = wanted.concurrency_key
    and (select count(*) from flotilla.task
where claimed_by = $4 and claim_call = $5 and status = 'claimed') < $6 for update of task skip locked)
select address from tried where tried.scope = any(array(
  select given.scope from flotilla.task_limit given
  where given.scope = any(array(select scope from tried))
    and given.max_running <= (select count(*) from flotilla.task held
where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope)))))
returning task_id
-- instead of returning:
with tried as (
  select task.ctid as address, task.task_id, task.concurrency_key as scope
  from (select task_id collate "C" as task_id, place, concurrency_key collate "C" as concurrency_key from unnest($1::text[], $2::bigint[], $3::text[]) as each_row (task_id, place, concurrency_key)) wanted join flotilla.task task on task.task_id = wanted.task_id
  where coalesce(task.status, '') = 'pending' and task.parked = 4
    and task.concurrency_key = wanted.concurrency_key
    and (select count(*) from flotilla.task
where claimed_by = $4 and claim_call = $5 and status = 'claimed') < $6 for update of task)
select task_id from tried where tried.scope = any(array(
  select given.scope from flotilla.task_limit given
  where given.scope = any(array(select scope from tried))
    and given.max_running <= (select count(*) from flotilla.task held
where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope)))
-- values: ["{\"task-1\"}","{0}","{\"key/mail/acme\"}","pod-1",5,2]

-- src/tasks/sql/concurrency.ts: claimLimited
insert into flotilla.task_limit (scope, max_running)
select scope, max_running from (select scope collate "C" as scope, max_running from unnest($1::text[], $2::bigint[]) as each_row (scope, max_running)) fresh where true order by scope
on conflict (scope) do update set max_running = excluded.max_running
where flotilla.task_limit.by_hand = 0 and flotilla.task_limit.max_running <> excluded.max_running
-- values: ["{\"key/mail/acme\"}","{2}"]

select count(*) from (
  select scope from flotilla.task_limit where scope in (select scope from (select scope collate "C" as scope from unnest($1::text[]) as each_row (scope)) wanted)
  order by scope for update) locked
-- values: ["{\"tenant/acme\"}"]

  update flotilla.task
  set status = 'claimed', claimed_by = $1, claim_token = claim_token + 1,
    claim_call = $2, last_update = now_ms()
  where ctid = any(array(
  select address from (
  select address, place, tenant, concurrency_key from (
    select address, place, tenant, concurrency_key, nth,
      max(first_slots) over (partition by tenant) as slots
    from (
      select address, place, tenant, concurrency_key, row_number() over (partition by tenant order by place) as nth,
        case when row_number() over (partition by tenant order by place) = 1 then (select given.max_running - (select count(*) from flotilla.task held
  where coalesce(held.status, '') = 'claimed' and held.limited = 1 and held.tenant <> 'default'
    and held.tenant between tried.tenant and tried.tenant) from flotilla.task_limit given
  where given.scope = 'tenant/' || tried.tenant) end as first_slots
      from (select * from (
  select task.ctid as address, wanted.place, task.tenant, task.concurrency_key
  from (select task_id collate "C" as task_id, place, concurrency_key collate "C" as concurrency_key from unnest($3::text[], $4::bigint[], $5::text[]) as each_row (task_id, place, concurrency_key)) wanted
  join flotilla.task task on task.task_id = wanted.task_id
  where coalesce(task.status, '') = 'pending' and task.parked = 4
    and coalesce(task.concurrency_key, '') = coalesce(wanted.concurrency_key, '')
    and task.deaths < 2 and (run_at <= now_ms() or run_at <= last_update)
    and flow_version is null and task_version is null
  for update of task skip locked) tried
      where concurrency_key is null or (select given.max_running - (select count(*) from flotilla.task held
  where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope) from flotilla.task_limit given
  where given.scope = tried.concurrency_key) >= 1) tried) counted) ranked
  where slots is null or nth <= slots) free order by place limit cast($6 as integer))) and status = 'pending'
    and exists (select 1 from flotilla.pod where pod_id = $7 and claim_floor < $8
       for key share)

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
  nullif(limited, 0) as limited from flotilla.task
        where claimed_by = $1 and claim_call = $2 and status = 'claimed'
-- values: ["pod-1",5,"{\"task-1\"}","{0}","{\"key/mail/acme\"}",10,"pod-1",5]

update flotilla.task set parked = 3, blocked_by = concurrency_key
where ctid = any(array(
with tried as (
  select task.ctid as address, task.task_id, task.concurrency_key as scope
  from (select task_id collate "C" as task_id, place, concurrency_key collate "C" as concurrency_key from unnest($1::text[], $2::bigint[], $3::text[]) as each_row (task_id, place, concurrency_key)) wanted join flotilla.task task on task.task_id = wanted.task_id
  where coalesce(task.status, '') = 'pending' and task.parked = 4
    and task.concurrency_key = wanted.concurrency_key
    and (select count(*) from flotilla.task
where claimed_by = $4 and claim_call = $5 and status = 'claimed') < $6 for update of task skip locked)
select address from tried where tried.scope = any(array(
  select given.scope from flotilla.task_limit given
  where given.scope = any(array(select scope from tried))
    and given.max_running <= (select count(*) from flotilla.task held
where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope)))))
returning task_id
-- instead of returning:
with tried as (
  select task.ctid as address, task.task_id, task.concurrency_key as scope
  from (select task_id collate "C" as task_id, place, concurrency_key collate "C" as concurrency_key from unnest($1::text[], $2::bigint[], $3::text[]) as each_row (task_id, place, concurrency_key)) wanted join flotilla.task task on task.task_id = wanted.task_id
  where coalesce(task.status, '') = 'pending' and task.parked = 4
    and task.concurrency_key = wanted.concurrency_key
    and (select count(*) from flotilla.task
where claimed_by = $4 and claim_call = $5 and status = 'claimed') < $6 for update of task)
select task_id from tried where tried.scope = any(array(
  select given.scope from flotilla.task_limit given
  where given.scope = any(array(select scope from tried))
    and given.max_running <= (select count(*) from flotilla.task held
where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope)))
-- values: ["{\"task-1\"}","{0}","{\"key/mail/acme\"}","pod-1",5,1]

-- src/tasks/sql/concurrency.ts: unblock
update flotilla.task set parked = 4, blocked_by = null
where ctid = any(array(
  select address from (
    select address, nth, max(slots) over (partition by blocked_by) as slots
    from (
      select address, blocked_by, row_number() over (partition by blocked_by order by priority desc, created_at, task_id) as nth,
        case when row_number() over (partition by blocked_by order by priority desc, created_at, task_id) = 1 then (select given.max_running - (select count(*) from flotilla.task held
where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope) from flotilla.task_limit given
where given.scope = blocked.blocked_by) end as slots
      from (select * from (
  select ctid as address, blocked_by, priority, created_at, task_id from flotilla.task
  where blocked_by = $1 and status = 'pending' and parked = 3
  order by priority desc, created_at, task_id limit cast($2 as integer) for update skip locked) of_scope) blocked) with_slots) ranked
  where slots is null or ranked.nth <= slots))
-- values: ["key/mail/acme",3]

-- src/tasks/sql/concurrency.ts: unblockUnchecked
update flotilla.task set parked = 4, blocked_by = null
where ctid = any(array(select address from (select * from (
  select ctid as address, blocked_by, priority, created_at, task_id from flotilla.task
  where blocked_by = $1 and status = 'pending' and parked = 3
  order by priority desc, created_at, task_id limit cast($2 as integer) for update skip locked) of_scope) blocked))
-- values: ["key/mail/acme",3]

-- src/tasks/sql/concurrency.ts: unblockAfter
select count(*) from (
  select scope from flotilla.task_limit where scope in (select scope from (select scope collate "C" as scope from unnest($1::text[]) as each_row (scope)) wanted)
  order by scope for update) locked
-- values: ["{\"key/mail/acme\"}"]

update flotilla.task set parked = 4, blocked_by = null
where status = 'pending' and ctid = any(array(
  with next as materialized (
    select wanted.scope, (select ctid from flotilla.task task
      where task.blocked_by = wanted.scope and task.status = 'pending' and task.parked = 3
      order by task.priority desc, task.created_at, task.task_id limit 1 for update of task skip locked) as address
    from (select scope collate "C" as scope from unnest($1::text[]) as each_row (scope)) wanted)
  select address from next
  where address is not null and coalesce((select given.max_running - (select count(*) from flotilla.task held
where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope) from flotilla.task_limit given
where given.scope = next.scope), 1) > 0))
-- values: ["{\"key/mail/acme\"}"]

select count(*) from (
  select scope from flotilla.task_limit where scope in (select scope from (select scope collate "C" as scope from unnest($1::text[]) as each_row (scope)) wanted)
  order by scope for update) locked
-- values: ["{\"key/mail/acme\"}"]

update flotilla.task set parked = 4, blocked_by = null
where ctid = any(array(
  select address from (
    select address, nth, max(slots) over (partition by blocked_by) as slots
    from (
      select address, blocked_by, row_number() over (partition by blocked_by order by priority desc, created_at, task_id) as nth,
        case when row_number() over (partition by blocked_by order by priority desc, created_at, task_id) = 1 then (select given.max_running - (select count(*) from flotilla.task held
where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope) from flotilla.task_limit given
where given.scope = blocked.blocked_by) end as slots
      from (select * from (
  select ctid as address, blocked_by, priority, created_at, task_id from flotilla.task
  where blocked_by = $1 and status = 'pending' and parked = 3
  order by priority desc, created_at, task_id limit cast($2 as integer) for update skip locked) of_scope) blocked) with_slots) ranked
  where slots is null or ranked.nth <= slots))
-- values: ["key/mail/acme",2]

-- src/tasks/sql/dependencies.ts: hasNoOpenDependents
(dependents = 0 or not exists (
  select 1 from flotilla.task_dependency wait where wait.dependency_id = flotilla.task.task_id
    and (select waiter.status from flotilla.task waiter where waiter.task_id = wait.dependent_id)
      in ('pending', 'claimed')))

-- src/tasks/sql/dependencies.ts: wakeDependents
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

-- src/tasks/sql/dependencies.ts: wakeDependentsOfCall
select task_id from flotilla.task task where ctid = any(array(
    select (select ctid from flotilla.task task where task.task_id = named.id)
    from (select distinct dependent_id as id from flotilla.task_dependency where dependency_id in (
      select task.task_id from flotilla.task task where task.claimed_by = $1
    and task.claim_call in ($2, $3) and task.status = 'claimed' and task.cancel_requested = 1
    and task.flow_version is null)) named)) order by task_id for update of task
-- values: ["pod-1",5,-5]

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
    then case when dependency.claimed_by = $1
and dependency.claim_call in ($2, $3) and dependency.status = 'claimed' and dependency.cancel_requested = 1
and dependency.flow_version is null then 'cancelled' else dependency.status end end
when flotilla.task.awaits is null then case when dependency.claimed_by = $4
and dependency.claim_call in ($5, $6) and dependency.status = 'claimed' and dependency.cancel_requested = 1
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
  select task.task_id from flotilla.task task where task.claimed_by = $7
and task.claim_call in ($8, $9) and task.status = 'claimed' and task.cancel_requested = 1
and task.flow_version is null)) named)) and coalesce(flotilla.task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["pod-1",5,-5,"pod-1",5,-5,"pod-1",5,-5]

-- src/tasks/sql/dependencies.ts: wakeDependentsOfChildren
select task_id from flotilla.task task where ctid = any(array(
    select (select ctid from flotilla.task task where task.task_id = named.id)
    from (
    select distinct wait.dependent_id as id
    from flotilla.task_dependency own join flotilla.task_dependency wait on wait.dependency_id = own.dependency_id
    where own.dependent_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent))
      and (select task.status from flotilla.task task
        where task.task_id = own.dependency_id and task.parent_id = own.dependent_id) = 'cancelled') named)) order by task_id for update of task
-- values: ["{\"run-1\"}"]

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
-- values: ["{\"run-1\"}"]

-- src/tasks/sql/dependencies.ts: wakeIfDependenciesEnded
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

-- src/tasks/sql/dependencies.ts: wakeChildren
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
select dependency_id as id from flotilla.task_dependency
where dependent_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent))) named)) and coalesce(flotilla.task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["{\"run-1\"}"]

-- src/tasks/sql/dependencies.ts: notifyingParents
select task_id from flotilla.task task where ctid = any(array(
    select (select ctid from flotilla.task task where task.task_id = named.id)
    from (
    select distinct child.parent_id as id from flotilla.task child
    where child.task_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) started))
      and child.parent_id is not null ) named))
      order by task_id for update of task
-- values: ["{\"task-1\"}"]

select 'starting'

update flotilla.task set wake = wake + 1
      where ctid = any(array(
    select (select ctid from flotilla.task task where task.task_id = named.id)
    from (
    select distinct child.parent_id as id from flotilla.task child
    where child.task_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) started))
      and child.parent_id is not null and child.status in ('pending', 'claimed')) named))
        and status in ('pending', 'claimed')
-- values: ["{\"task-1\"}"]

-- src/tasks/sql/dependencies.ts: dependenciesExist
not exists (
    select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) wanted
    where not exists (select 1 from flotilla.task task where task.task_id = wanted.task_id))
-- values: ["{\"task-1\"}"]

-- src/tasks/sql/dependencies.ts: missingDependencies
select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) wanted
where not exists (select 1 from flotilla.task task where task.task_id = wanted.task_id)
-- values: ["{\"task-1\"}"]

-- src/tasks/sql/dependencies.ts: insertDependencies
insert into flotilla.task_dependency (dependency_id, dependent_id, place)
select coalesce(holder.task_id, wanted.dependency_id), wanted.dependent_id, wanted.place
from (select dependency_id collate "C" as dependency_id, dependent_id collate "C" as dependent_id, place, tenant collate "C" as tenant, name collate "C" as name, unique_key collate "C" as unique_key from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[]) as each_row (dependency_id, dependent_id, place, tenant, name, unique_key)) wanted left join flotilla.task holder
  on holder.tenant = wanted.tenant and holder.name = wanted.name
  and holder.unique_key = wanted.unique_key
where exists (select 1 from flotilla.task task where task.task_id = wanted.dependent_id)
  and not exists (select 1 from flotilla.task_dependency wait where wait.dependent_id = wanted.dependent_id)
on conflict do nothing
-- values: ["{\"task-1\"}","{\"task-2\"}","{0}","{null}","{null}","{null}"]

select task_id from flotilla.task task where ctid = any(array(
    select (select ctid from flotilla.task task where task.task_id = named.id)
    from (select distinct dependency_id as id from flotilla.task_dependency
    where dependent_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) fresh))) named)) order by task_id for update of task
-- values: ["{\"task-2\"}"]

update flotilla.task set dependents = dependents + 1 where ctid = any(array(
    select (select ctid from flotilla.task task where task.task_id = named.id)
    from (select distinct dependency_id as id from flotilla.task_dependency
    where dependent_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) fresh))) named))
-- values: ["{\"task-2\"}"]

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
-- values: ["{\"task-2\"}"]

-- src/tasks/sql/dependencies.ts: dependenciesOf
select dependent_id, dependency_id from flotilla.task_dependency
where dependent_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) wanted)) order by dependent_id, place
-- values: ["{\"task-2\"}"]

-- src/tasks/sql/dependencies.ts: getParents
select task.* from flotilla.task_dependency wait join flotilla.task task on task.task_id = wait.dependency_id
where wait.dependent_id = $1 order by wait.place
-- values: ["task-2"]

-- src/tasks/sql/dependencies.ts: deleteDependencies
delete from flotilla.task_dependency where dependent_id in (select 'task-1')

-- src/tasks/sql/finish.ts: finishTasks
update flotilla.task
set status = 'completed', result = done.result, started_at = done.started_at, claim_call = null, last_update = now_ms()
from (select task_id collate "C" as task_id, token, result collate "C" as result, started_at from unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[]) as each_row (task_id, token, result, started_at)) done
where flotilla.task.task_id = done.task_id
  and flotilla.task.claim_token = done.token
  and flotilla.task.status in ('claimed', 'pending')
   and dependents = 0
returning flotilla.task.task_id
-- instead of returning:
select task.task_id from (select task_id collate "C" as task_id, token, result collate "C" as result, started_at from unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[]) as each_row (task_id, token, result, started_at)) done join flotilla.task task on task.task_id = done.task_id
where task.claim_token = done.token
  and task.status in ('claimed', 'pending')
   and dependents = 0
for update of task
-- values: ["{\"task-1\"}","{3}","{\"{}\"}","{null}"]

update flotilla.task
set
status = done.status, result = done.result, error = coalesce(done.error, flotilla.task.error),
started_at = coalesce(done.started_at, flotilla.task.started_at),
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
from (select task_id collate "C" as task_id, token, status collate "C" as status, result collate "C" as result, error collate "C" as error, counted, snoozed, stepped, delay_ms, awaits collate "C" as awaits, children, set_aside collate "C" as set_aside, wake, started_at from unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::text[], $11::bigint[], $12::text[], $13::bigint[], $14::bigint[]) as each_row (task_id, token, status, result, error, counted, snoozed, stepped, delay_ms, awaits, children, set_aside, wake, started_at)) done
where flotilla.task.task_id = done.task_id
  and flotilla.task.claim_token = done.token
  and flotilla.task.status in ('claimed', 'pending')
  and (done.wake is null or flotilla.task.wake = done.wake)
returning flotilla.task.task_id
-- instead of returning:
select task.task_id from (select task_id collate "C" as task_id, token, status collate "C" as status, result collate "C" as result, error collate "C" as error, counted, snoozed, stepped, delay_ms, awaits collate "C" as awaits, children, set_aside collate "C" as set_aside, wake, started_at from unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::text[], $11::bigint[], $12::text[], $13::bigint[], $14::bigint[]) as each_row (task_id, token, status, result, error, counted, snoozed, stepped, delay_ms, awaits, children, set_aside, wake, started_at)) done join flotilla.task task on task.task_id = done.task_id
where task.claim_token = done.token
  and task.status in ('claimed', 'pending')
  and (done.wake is null or task.wake = done.wake)
for update of task
-- values: ["{\"task-1\"}","{3}","{\"failed\"}","{\"{}\"}","{\"{}\"}","{1}","{0}","{0}","{null}","{null}","{0}","{null}","{2}","{null}"]

-- src/tasks/sql/finish.ts: noteFinishes
insert into flotilla.task_event (task_id, seq, type, attempt, pod_id, detail)
select noted.task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = noted.task_id), noted.type, noted.attempt, $1, noted.detail
from (select task_id collate "C" as task_id, token, wake, type collate "C" as type, attempt, detail collate "C" as detail from unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::text[]) as each_row (task_id, token, wake, type, attempt, detail)) noted join flotilla.task task on task.task_id = noted.task_id
where task.claim_token = noted.token
  and task.status in ('claimed', 'pending')
  and (noted.wake is null or task.wake = noted.wake)
for update of task
-- values: ["pod-1","{\"task-1\"}","{3}","{2}","{\"failed\"}","{1}","{\"{}\"}"]

-- src/tasks/sql/finish.ts: insertFinishFollowUps
insert into flotilla.task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
  unique_key, parent_id, trace, limited, parked)
select failed.id, task.tenant, failed.name, failed.payload, task.priority, now_ms(), now_ms(), now_ms(),
  failed.key, task.task_id, task.trace, case when task.tenant <> 'default' then cast($1 as integer) else 0 end, case when task.tenant <> 'default' then cast($2 as integer) else 0 end
from (select id collate "C" as id, failed_id collate "C" as failed_id, token, name collate "C" as name, payload collate "C" as payload, key collate "C" as key from unnest($3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::text[]) as each_row (id, failed_id, token, name, payload, key)) failed join flotilla.task task
  on task.task_id = failed.failed_id and task.claim_token = failed.token
where task.status in ('claimed', 'pending')  for update of task
on conflict do nothing
-- values: [1,4,"{\"task-2\"}","{\"task-1\"}","{3}","{\"alarm\"}","{\"{}\"}","{\"task-1/3\"}"]

insert into flotilla.link (from_id, to_id, what, at)
select from_id, to_id, what, now_ms() from (select from_id collate "C" as from_id, to_id collate "C" as to_id, what collate "C" as what from unnest($1::text[], $2::text[], $3::text[]) as each_row (from_id, to_id, what)) wanted
where to_id = (select task_id from flotilla.task where task_id = wanted.to_id)
on conflict do nothing
-- values: ["{\"task-1\"}","{\"task-2\"}","{\"follow_up\"}"]

-- src/tasks/sql/finish.ts: wakeDependentsAfter
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

-- src/tasks/sql/finish.ts: readTaskStates
select task_id, status, claimed_by, claim_token, wake, dependents, cancel_requested, run_seq
from flotilla.task
where task_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) wanted))
-- values: ["{\"task-1\"}"]

-- src/tasks/sql/finish.ts: saveProgress
update flotilla.task set progress = newest.value, progress_token = newest.token
from (select task_id collate "C" as task_id, token, run_seq, value collate "C" as value from unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[]) as each_row (task_id, token, run_seq, value)) newest
where flotilla.task.task_id = newest.task_id and flotilla.task.claim_token = newest.token
  and flotilla.task.run_seq = newest.run_seq and flotilla.task.status = 'claimed'
-- values: ["{\"task-1\"}","{3}","{0}","{\"{}\"}"]

-- src/tasks/sql/finish.ts: forgetEarlierSnoozes
delete from flotilla.task_event
where task_id in (select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) snoozed) and type = 'snoozed'
  and exists (select 1 from flotilla.task_event later where later.task_id = flotilla.task_event.task_id
    and later.seq = flotilla.task_event.seq + 1 and later.type = 'snoozed')
-- values: ["{\"task-1\"}"]

-- src/tasks/sql/finish.ts: insertFollowUps
insert into flotilla.task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
  unique_key, parent_id, trace, limited, parked)
select failed.id, task.tenant, failed.name, failed.payload, task.priority, now_ms(), now_ms(), now_ms(),
  failed.key, task.task_id, task.trace, case when task.tenant <> 'default' then cast($1 as integer) else 0 end, case when task.tenant <> 'default' then cast($2 as integer) else 0 end
from (select id collate "C" as id, failed_id collate "C" as failed_id, token, name collate "C" as name, payload collate "C" as payload, key collate "C" as key from unnest($3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::text[]) as each_row (id, failed_id, token, name, payload, key)) failed join flotilla.task task
  on task.task_id = failed.failed_id and task.claim_token = failed.token
where task.status = 'claimed'
on conflict do nothing
-- values: [1,4,"{\"task-2\"}","{\"task-1\"}","{3}","{\"alarm\"}","{\"{}\"}","{\"task-1/3\"}"]

-- src/tasks/sql/finish.ts: linkFollowUps
insert into flotilla.link (from_id, to_id, what, at)
select from_id, to_id, what, now_ms() from (select from_id collate "C" as from_id, to_id collate "C" as to_id, what collate "C" as what from unnest($1::text[], $2::text[], $3::text[]) as each_row (from_id, to_id, what)) wanted
where to_id = (select task_id from flotilla.task where task_id = wanted.to_id)
on conflict do nothing
-- values: ["{\"task-1\"}","{\"task-2\"}","{\"follow_up\"}"]

-- src/tasks/sql/finish.ts: readProgress
select progress, progress_token from flotilla.task where task_id = $1
-- values: ["task-1"]

-- src/tasks/sql/recover.ts: isSettled
created_at < now_ms() - $1 and last_update < now_ms() - $2
-- values: [60000,60000]

-- src/tasks/sql/recover.ts: claimsOf
select task_id, claim_token, claimed_by, deaths, last_update from (
  select task_id, claim_token, claimed_by, deaths, last_update from flotilla.task
  where status = 'claimed' and claimed_by in (select pod_id from (select pod_id collate "C" as pod_id from unnest($1::text[]) as each_row (pod_id)) silent)
  order by claimed_by, claim_call limit cast($2 as integer)) held
order by task_id
-- values: ["{\"pod-2\"}",10]

-- src/tasks/sql/recover.ts: recoverTasks
update flotilla.task
set status = case when cancel_requested = 1 and flow_version is null then 'cancelled' when case when exists (
select 1 from flotilla.step_journal stored
where stored.owner_id = flotilla.task.task_id and stored.part = ''
  and stored.token = flotilla.task.claim_token) then 0 else flotilla.task.deaths end + case when exists (select 1 from flotilla.pod holder
where holder.pod_id = flotilla.task.claimed_by and flotilla.task.claim_call < 0 and holder.begun_call >= 0
  and (-flotilla.task.claim_call > holder.begun_call
    or -flotilla.task.claim_call = holder.begun_call and flotilla.task.task_id > holder.begun_task)) then 0 else 1 end >= $1 and flow_version is null then 'failed'
else 'pending' end,
  error = case when cancel_requested = 1 and flow_version is null then error when case when exists (
select 1 from flotilla.step_journal stored
where stored.owner_id = flotilla.task.task_id and stored.part = ''
  and stored.token = flotilla.task.claim_token) then 0 else flotilla.task.deaths end + case when exists (select 1 from flotilla.pod holder
where holder.pod_id = flotilla.task.claimed_by and flotilla.task.claim_call < 0 and holder.begun_call >= 0
  and (-flotilla.task.claim_call > holder.begun_call
    or -flotilla.task.claim_call = holder.begun_call and flotilla.task.task_id > holder.begun_task)) then 0 else 1 end >= $2 and flow_version is null then $3 else error end,
  claim_token = claim_token + case when cancel_requested = 1 and flow_version is null or case when exists (
select 1 from flotilla.step_journal stored
where stored.owner_id = flotilla.task.task_id and stored.part = ''
  and stored.token = flotilla.task.claim_token) then 0 else flotilla.task.deaths end + case when exists (select 1 from flotilla.pod holder
where holder.pod_id = flotilla.task.claimed_by and flotilla.task.claim_call < 0 and holder.begun_call >= 0
  and (-flotilla.task.claim_call > holder.begun_call
    or -flotilla.task.claim_call = holder.begun_call and flotilla.task.task_id > holder.begun_task)) then 0 else 1 end >= $4 and flow_version is null then 1 else 0 end,
  deaths = case when exists (
select 1 from flotilla.step_journal stored
where stored.owner_id = flotilla.task.task_id and stored.part = ''
  and stored.token = flotilla.task.claim_token) then 0 else flotilla.task.deaths end + case when exists (select 1 from flotilla.pod holder
where holder.pod_id = flotilla.task.claimed_by and flotilla.task.claim_call < 0 and holder.begun_call >= 0
  and (-flotilla.task.claim_call > holder.begun_call
    or -flotilla.task.claim_call = holder.begun_call and flotilla.task.task_id > holder.begun_task)) then 0 else 1 end, retry_count = case when exists (
select 1 from flotilla.step_journal stored
where stored.owner_id = flotilla.task.task_id and stored.part = ''
  and stored.token = flotilla.task.claim_token) then 0 else retry_count end, claimed_by = null, claim_call = null, last_update = now_ms()
from (select task_id collate "C" as task_id, token, pod_id collate "C" as pod_id, beat from unnest($5::text[], $6::bigint[], $7::text[], $8::bigint[]) as each_row (task_id, token, pod_id, beat)) orphan
where flotilla.task.task_id = orphan.task_id and flotilla.task.claim_token = orphan.token
and flotilla.task.status = 'claimed' and flotilla.task.claimed_by = orphan.pod_id
and coalesce((select pod.beat from flotilla.pod pod where pod.pod_id = orphan.pod_id), -1) = orphan.beat and flotilla.task.ctid = any(array(
  select ctid from flotilla.task
  where task_id = any(array(select task_id from (select task_id collate "C" as task_id, token, pod_id collate "C" as pod_id, beat from unnest($9::text[], $10::bigint[], $11::text[], $12::bigint[]) as each_row (task_id, token, pod_id, beat)) wanted)) for update skip locked))
returning flotilla.task.task_id, flotilla.task.name, flotilla.task.status, flotilla.task.claim_token
-- instead of returning:
    select task.task_id, task.name, case when cancel_requested = 1 and flow_version is null then 'cancelled' when case when exists (
select 1 from flotilla.step_journal stored
where stored.owner_id = task.task_id and stored.part = ''
  and stored.token = task.claim_token) then 0 else task.deaths end + case when exists (select 1 from flotilla.pod holder
where holder.pod_id = task.claimed_by and task.claim_call < 0 and holder.begun_call >= 0
  and (-task.claim_call > holder.begun_call
    or -task.claim_call = holder.begun_call and task.task_id > holder.begun_task)) then 0 else 1 end >= $1 and flow_version is null then 'failed'
else 'pending' end as status,
      claim_token + case when cancel_requested = 1 and flow_version is null or case when exists (
select 1 from flotilla.step_journal stored
where stored.owner_id = task.task_id and stored.part = ''
  and stored.token = task.claim_token) then 0 else task.deaths end + case when exists (select 1 from flotilla.pod holder
where holder.pod_id = task.claimed_by and task.claim_call < 0 and holder.begun_call >= 0
  and (-task.claim_call > holder.begun_call
    or -task.claim_call = holder.begun_call and task.task_id > holder.begun_task)) then 0 else 1 end >= $2 and flow_version is null then 1 else 0 end as claim_token
    from (select task_id collate "C" as task_id, token, pod_id collate "C" as pod_id, beat from unnest($3::text[], $4::bigint[], $5::text[], $6::bigint[]) as each_row (task_id, token, pod_id, beat)) orphan join flotilla.task task on task.task_id = orphan.task_id and task.claim_token = orphan.token
and task.status = 'claimed' and task.claimed_by = orphan.pod_id
and coalesce((select pod.beat from flotilla.pod pod where pod.pod_id = orphan.pod_id), -1) = orphan.beat for update of task
-- values: [4,4,"{\"code\":\"pod_died\",\"message\":\"4 pods died while they ran this task, 2 of them with nothing else to run\"}",4,"{\"task-1\"}","{3}","{\"pod-2\"}","{4}","{\"task-1\"}","{3}","{\"pod-2\"}","{4}"]

-- src/tasks/sql/recover.ts: noteRecovery
insert into flotilla.task_event (task_id, seq, type, attempt, pod_id, detail)
select orphan.task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = orphan.task_id), 'pod_died', task.retry_count + 1,
  orphan.pod_id, orphan.detail
from (select task_id collate "C" as task_id, token, pod_id collate "C" as pod_id, beat, detail collate "C" as detail from unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::text[]) as each_row (task_id, token, pod_id, beat, detail)) orphan join flotilla.task task on task.task_id = orphan.task_id and task.claim_token = orphan.token
and task.status = 'claimed' and task.claimed_by = orphan.pod_id
and coalesce((select pod.beat from flotilla.pod pod where pod.pod_id = orphan.pod_id), -1) = orphan.beat
where not exists (select 1 from flotilla.pod holder
where holder.pod_id = task.claimed_by and task.claim_call < 0 and holder.begun_call >= 0
  and (-task.claim_call > holder.begun_call
    or -task.claim_call = holder.begun_call and task.task_id > holder.begun_task)) for update of task skip locked
-- values: ["{\"task-1\"}","{3}","{\"pod-2\"}","{4}","{null}"]

-- src/tasks/sql/recover.ts: insertRecoveryFollowUps
insert into flotilla.task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
  unique_key, parent_id, trace, limited, parked)
select failed.id, task.tenant, failed.name, failed.payload, task.priority, now_ms(), now_ms(), now_ms(),
  failed.key, task.task_id, task.trace, case when task.tenant <> 'default' then cast($1 as integer) else 0 end, case when task.tenant <> 'default' then cast($2 as integer) else 0 end
from (select id collate "C" as id, failed_id collate "C" as failed_id, token, name collate "C" as name, payload collate "C" as payload, key collate "C" as key from unnest($3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::text[]) as each_row (id, failed_id, token, name, payload, key)) failed join flotilla.task task
  on task.task_id = failed.failed_id and task.claim_token = failed.token
where case when exists (
select 1 from flotilla.step_journal stored
where stored.owner_id = task.task_id and stored.part = ''
  and stored.token = task.claim_token) then 0 else task.deaths end + case when exists (select 1 from flotilla.pod holder
where holder.pod_id = task.claimed_by and task.claim_call < 0 and holder.begun_call >= 0
  and (-task.claim_call > holder.begun_call
    or -task.claim_call = holder.begun_call and task.task_id > holder.begun_task)) then 0 else 1 end >= $9 and task.cancel_requested = 0 and task.flow_version is null
  and exists (select 1 from (select task_id collate "C" as task_id, token, pod_id collate "C" as pod_id, beat from unnest($10::text[], $11::bigint[], $12::text[], $13::bigint[]) as each_row (task_id, token, pod_id, beat)) orphan where task.task_id = orphan.task_id and task.claim_token = orphan.token
and task.status = 'claimed' and task.claimed_by = orphan.pod_id
and coalesce((select pod.beat from flotilla.pod pod where pod.pod_id = orphan.pod_id), -1) = orphan.beat)
for update of task skip locked
on conflict do nothing
-- values: [1,4,"{\"task-2\"}","{\"task-1\"}","{3}","{\"alarm\"}","{\"{}\"}","{\"task-1/3\"}",4,"{\"task-1\"}","{3}","{\"pod-2\"}","{4}"]

-- src/tasks/sql/recover.ts: sweep
with page as (
  select task_id, status, created_at, last_update from flotilla.task
  where task_id > $1 order by task_id limit cast($2 as integer))
select task_id, 1 as old from page where created_at < now_ms() - $3
and (status = 'completed' and last_update < now_ms() - $4
  or status = 'failed' and last_update < now_ms() - $5
  or status = 'cancelled' and last_update < now_ms() - $6)
union all
select max(task_id), 0 from page having count(*) = $7
-- values: ["",10,60000,1000,2000,3000,10]

with page as (
  select task_id, status, created_at, last_update from flotilla.task
  where task_id > $1 order by task_id limit cast($2 as integer))
select task_id, 1 as old from page where created_at < now_ms() - $3
and (status = 'completed' and last_update < now_ms() - $4
  or status = 'failed' and last_update < now_ms() - $5
  or status = 'cancelled' and last_update < now_ms() - $6)
union all
select max(task_id), 0 from page having count(*) = $7 and min(created_at) < now_ms() - $8
-- values: ["",10,60000,1000,2000,3000,10,1000]

-- src/tasks/sql/recover.ts: deleteFinished
delete from flotilla.task where ctid = any(array(
      select ctid from flotilla.task
      where task_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) old))
        and created_at < now_ms() - $2
    and (status = 'completed' and last_update < now_ms() - $3
      or status = 'failed' and last_update < now_ms() - $4
      or status = 'cancelled' and last_update < now_ms() - $5) and (dependents = 0 or not exists (
  select 1 from flotilla.task_dependency wait where wait.dependency_id = flotilla.task.task_id
    and (select waiter.status from flotilla.task waiter where waiter.task_id = wait.dependent_id)
      in ('pending', 'claimed'))) for update skip locked))
-- values: ["{\"task-1\"}",60000,1000,2000,3000]

  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, $8, $9, $10,
    cast((select count(*) from (select task_id from (select task_id collate "C" as task_id from unnest($11::text[]) as each_row (task_id)) old
  where not exists (select 1 from flotilla.task task where task.task_id = old.task_id)) deleted) as bigint), $12, $13,
    case when exists (
select 1 from flotilla.audit past where past.action = $14 and past.outcome = 'full') then null else $15 end, $16, $17
  where exists (select task_id from (select task_id collate "C" as task_id from unnest($18::text[]) as each_row (task_id)) old
  where not exists (select 1 from flotilla.task task where task.task_id = old.task_id))
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,"{\"task-1\"}",null,null,"audit.full","begun",null,"click-1","{\"task-1\"}"]

delete from flotilla.task_event where task_id in (select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) old
    where not exists (select 1 from flotilla.task task where task.task_id = old.task_id))
-- values: ["{\"task-1\"}"]

delete from flotilla.task_dependency where dependent_id in (select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) old
    where not exists (select 1 from flotilla.task task where task.task_id = old.task_id))
-- values: ["{\"task-1\"}"]

delete from flotilla.task_signal where task_id in (select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) old
    where not exists (select 1 from flotilla.task task where task.task_id = old.task_id))
-- values: ["{\"task-1\"}"]

delete from flotilla.step_journal where owner_id in (select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) old
    where not exists (select 1 from flotilla.task task where task.task_id = old.task_id)) and (part = '' or part >= 'A')
-- values: ["{\"task-1\"}"]

delete from flotilla.link as link where to_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) old
    where not exists (select 1 from flotilla.task task where task.task_id = old.task_id)))
-- values: ["{\"task-1\"}"]

delete from flotilla.task_alias as alias where task_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) old
    where not exists (select 1 from flotilla.task task where task.task_id = old.task_id)))
-- values: ["{\"task-1\"}"]

  update flotilla.file set unused_at = now_ms()
  where file_id = any(array(select file_id from flotilla.file_reference where owner_kind = $1 and owner_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($2::text[]) as each_row (task_id)) old
where not exists (select 1 from flotilla.task task where task.task_id = old.task_id)))))
-- values: ["task","{\"task-1\"}"]

delete from flotilla.file_reference where owner_kind = $1 and owner_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($2::text[]) as each_row (task_id)) old
    where not exists (select 1 from flotilla.task task where task.task_id = old.task_id)))
-- values: ["task","{\"task-1\"}"]

-- src/tasks/sql/recover.ts: deleteBelongings
delete from flotilla.task_event where task_id in (select 'task-1')

delete from flotilla.task_dependency where dependent_id in (select 'task-1')

delete from flotilla.task_signal where task_id in (select 'task-1')

delete from flotilla.step_journal where owner_id in (select 'task-1') and (part = '' or part >= 'A')

delete from flotilla.link as link where to_id = any(array(select 'task-1'))

delete from flotilla.task_alias as alias where task_id = any(array(select 'task-1'))

update flotilla.file set unused_at = now_ms()
where file_id = any(array(select file_id from flotilla.file_reference where owner_kind = $1 and owner_id = any(array(select 'task-1'))))
-- values: ["task"]

delete from flotilla.file_reference where owner_kind = $1 and owner_id = any(array(select 'task-1'))
-- values: ["task"]

-- src/tasks/sql/runs.ts: storeRuns
update flotilla.task set
flow_version = next.version, cursor = next.cursor, state = coalesce(next.state, flotilla.task.state),
intent = null, waiting = null, stopped_at = null, retry_count = 0, deaths = 0, progress = null,
error = null, run_seq = flotilla.task.run_seq + 1, advanced_at = now_ms()
from (select task_id collate "C" as task_id, token, run_seq, version, cursor collate "C" as cursor, state collate "C" as state from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[]) as each_row (task_id, token, run_seq, version, cursor, state)) next
where flotilla.task.task_id = next.task_id and flotilla.task.claim_token = next.token
and flotilla.task.run_seq = next.run_seq and flotilla.task.status in ('claimed', 'pending')

returning flotilla.task.task_id, flotilla.task.status, flotilla.task.wake, flotilla.task.cancel_requested
-- instead of returning:
    select task.task_id, task.status, task.wake, task.cancel_requested from (select task_id collate "C" as task_id, token, run_seq, version, cursor collate "C" as cursor, state collate "C" as state from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[]) as each_row (task_id, token, run_seq, version, cursor, state)) next join flotilla.task task on task.task_id = next.task_id
    where task.claim_token = next.token
and task.run_seq = next.run_seq and task.status in ('claimed', 'pending')
 for update of task
-- values: ["{\"run-1\"}","{3}","{1}","{2}","{\"charge\"}","{\"{}\"}"]

insert into flotilla.task_event (task_id, seq, type, attempt, pod_id, detail)
select noted.task_id, noted.seq, noted.type, noted.attempt, $1, noted.detail
from (select task_id collate "C" as task_id, token, run_seq, wake, ends, seq, type collate "C" as type, attempt, detail collate "C" as detail from unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::bigint[], $10::text[]) as each_row (task_id, token, run_seq, wake, ends, seq, type, attempt, detail)) noted join flotilla.task task on task.task_id = noted.task_id
where task.claim_token = noted.token and task.run_seq = noted.run_seq + 1
on conflict do nothing
-- values: ["pod-1","{\"run-1\"}","{3}","{1}","{null}","{0}","{200}","{\"step\"}","{1}","{\"{}\"}"]

select task.task_id from (select task_id collate "C" as task_id, token, run_seq, wake, ends from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) as each_row (task_id, token, run_seq, wake, ends)) given join flotilla.task task on task.task_id = given.task_id
    where task.claim_token = given.token and task.run_seq = given.run_seq
    and task.status in ('claimed', 'pending')
    and (given.wake is null or task.wake = given.wake)
     order by task.task_id for update of task
-- values: ["{\"run-1\"}","{3}","{1}","{2}","{0}"]

  insert into flotilla.task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
    max_attempts, unique_key, trace, concurrency_key, limited, depends, scheduled_at, flow_version, parent_id, parked)
  select task_id, tenant, name, payload, priority, case when fresh.start_at is null then now_ms() + fresh.delay_ms
  when fresh.start_at > now_ms() then fresh.start_at else now_ms() end, now_ms(), now_ms(),
    max_attempts, unique_key, trace, concurrency_key, limited, depends, scheduled_at, flow_version, parent_id,
case when depends > 0 then 2 when delay_ms > 0 or start_at > now_ms() then 1
  when limited = 1 then 4 else 0 end
  from (select task_id collate "C" as task_id, tenant collate "C" as tenant, name collate "C" as name, payload collate "C" as payload, priority, delay_ms, max_attempts, unique_key collate "C" as unique_key, trace collate "C" as trace, start_at, concurrency_key collate "C" as concurrency_key, limited, depends, scheduled_at, flow_version, parent_id collate "C" as parent_id from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[], $10::bigint[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::text[]) as each_row (task_id, tenant, name, payload, priority, delay_ms, max_attempts, unique_key, trace, start_at, concurrency_key, limited, depends, scheduled_at, flow_version, parent_id)) fresh where fresh.parent_id = any(array(select task.task_id from (select task_id collate "C" as task_id, token, run_seq, wake, ends from unnest($17::text[], $18::bigint[], $19::bigint[], $20::bigint[], $21::bigint[]) as each_row (task_id, token, run_seq, wake, ends)) given join flotilla.task task on task.task_id = given.task_id
  where task.claim_token = given.token and task.run_seq = given.run_seq
  and task.status in ('claimed', 'pending')
  and (given.wake is null or task.wake = given.wake)
  ))
  on conflict do nothing
  returning task_id
-- instead of returning:
select task_id from flotilla.task where task_id in (select task_id from (select task_id collate "C" as task_id, tenant collate "C" as tenant, name collate "C" as name, payload collate "C" as payload, priority, delay_ms, max_attempts, unique_key collate "C" as unique_key, trace collate "C" as trace from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[]) as each_row (task_id, tenant, name, payload, priority, delay_ms, max_attempts, unique_key, trace)) fresh)
-- values: ["{\"child-1\"}","{\"default\"}","{\"mail\"}","{\"{}\"}","{0}","{0}","{null}","{\"run-1/charge/0\"}","{null}","{null}","{null}","{0}","{0}","{null}","{null}","{\"run-1\"}","{\"run-1\"}","{3}","{1}","{2}","{0}"]

  insert into flotilla.task_event (task_id, seq, type)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'retried' from flotilla.task task
  where task_id = any(array(
select child.task_id from (select parent_id collate "C" as parent_id, name collate "C" as name, tenant collate "C" as tenant, unique_key collate "C" as unique_key from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as each_row (parent_id, name, tenant, unique_key)) wanted
join flotilla.task child on child.tenant = wanted.tenant and child.name = wanted.name
  and child.unique_key = wanted.unique_key
where child.parent_id = wanted.parent_id and child.status in ('failed', 'cancelled')
  and wanted.parent_id in (select task.task_id from (select task_id collate "C" as task_id, token, run_seq, wake, ends from unnest($5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[]) as each_row (task_id, token, run_seq, wake, ends)) given join flotilla.task task on task.task_id = given.task_id
where task.claim_token = given.token and task.run_seq = given.run_seq
and task.status in ('claimed', 'pending')
and (given.wake is null or task.wake = given.wake)
))) for update of task
-- values: ["{\"run-1\"}","{\"mail\"}","{\"default\"}","{\"run-1/charge/0\"}","{\"run-1\"}","{3}","{1}","{2}","{0}"]

delete from flotilla.step_journal where owner_id in (
    select child.task_id from (select parent_id collate "C" as parent_id, name collate "C" as name, tenant collate "C" as tenant, unique_key collate "C" as unique_key from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as each_row (parent_id, name, tenant, unique_key)) wanted
    join flotilla.task child on child.tenant = wanted.tenant and child.name = wanted.name
      and child.unique_key = wanted.unique_key
    where child.parent_id = wanted.parent_id and child.status in ('failed', 'cancelled')
      and wanted.parent_id in (select task.task_id from (select task_id collate "C" as task_id, token, run_seq, wake, ends from unnest($5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[]) as each_row (task_id, token, run_seq, wake, ends)) given join flotilla.task task on task.task_id = given.task_id
    where task.claim_token = given.token and task.run_seq = given.run_seq
    and task.status in ('claimed', 'pending')
    and (given.wake is null or task.wake = given.wake)
    )) and (part = '' or part >= 'A') and kind = 'failed'
-- values: ["{\"run-1\"}","{\"mail\"}","{\"default\"}","{\"run-1/charge/0\"}","{\"run-1\"}","{3}","{1}","{2}","{0}"]

update flotilla.task set
  status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
  parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
  depends = case when depends = 3 then 1 else depends end,
  claim_token = claim_token + 1, claimed_by = null, run_at = now_ms(), last_update = now_ms(),
  cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
  then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
  error = null, progress = null, progress_token = claim_token + 1 where task_id = any(array(
    select child.task_id from (select parent_id collate "C" as parent_id, name collate "C" as name, tenant collate "C" as tenant, unique_key collate "C" as unique_key from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as each_row (parent_id, name, tenant, unique_key)) wanted
    join flotilla.task child on child.tenant = wanted.tenant and child.name = wanted.name
      and child.unique_key = wanted.unique_key
    where child.parent_id = wanted.parent_id and child.status in ('failed', 'cancelled')
      and wanted.parent_id in (select task.task_id from (select task_id collate "C" as task_id, token, run_seq, wake, ends from unnest($5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[]) as each_row (task_id, token, run_seq, wake, ends)) given join flotilla.task task on task.task_id = given.task_id
    where task.claim_token = given.token and task.run_seq = given.run_seq
    and task.status in ('claimed', 'pending')
    and (given.wake is null or task.wake = given.wake)
    )))
-- values: ["{\"run-1\"}","{\"mail\"}","{\"default\"}","{\"run-1/charge/0\"}","{\"run-1\"}","{3}","{1}","{2}","{0}"]

delete from flotilla.task_dependency
where dependent_id = any(array(select task.task_id from (select task_id collate "C" as task_id, token, run_seq, wake, ends from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) as each_row (task_id, token, run_seq, wake, ends)) given join flotilla.task task on task.task_id = given.task_id
where task.claim_token = given.token and task.run_seq = given.run_seq
and task.status in ('claimed', 'pending')
and (given.wake is null or task.wake = given.wake)
))
  and exists (select 1 from flotilla.task child join (select parent_id collate "C" as parent_id, name collate "C" as name, tenant collate "C" as tenant, unique_key collate "C" as unique_key, prefix collate "C" as prefix from unnest($6::text[], $7::text[], $8::text[], $9::text[], $10::text[]) as each_row (parent_id, name, tenant, unique_key, prefix)) wanted
      on substr(child.unique_key, 1, length(wanted.prefix)) = wanted.prefix
    where child.task_id = flotilla.task_dependency.dependency_id and child.parent_id = flotilla.task_dependency.dependent_id
      and wanted.parent_id = flotilla.task_dependency.dependent_id)
  and not exists (select 1 from flotilla.task child join (select parent_id collate "C" as parent_id, name collate "C" as name, tenant collate "C" as tenant, unique_key collate "C" as unique_key, prefix collate "C" as prefix from unnest($11::text[], $12::text[], $13::text[], $14::text[], $15::text[]) as each_row (parent_id, name, tenant, unique_key, prefix)) wanted
      on child.tenant = wanted.tenant and child.name = wanted.name
        and child.unique_key = wanted.unique_key
    where child.task_id = flotilla.task_dependency.dependency_id and wanted.parent_id = flotilla.task_dependency.dependent_id)
-- values: ["{\"run-1\"}","{3}","{1}","{2}","{0}","{\"run-1\"}","{\"mail\"}","{\"default\"}","{\"run-1/charge/0\"}","{\"run-1/charge/\"}","{\"run-1\"}","{\"mail\"}","{\"default\"}","{\"run-1/charge/0\"}","{\"run-1/charge/\"}"]

update flotilla.task_signal set taken = 1
from (select task_id collate "C" as task_id, signal_id collate "C" as signal_id from unnest($1::text[], $2::text[]) as each_row (task_id, signal_id)) used
where flotilla.task_signal.task_id = used.task_id and flotilla.task_signal.signal_id = used.signal_id
  and used.task_id in (select task.task_id from (select task_id collate "C" as task_id, token, run_seq, wake, ends from unnest($3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[]) as each_row (task_id, token, run_seq, wake, ends)) given join flotilla.task task on task.task_id = given.task_id
where task.claim_token = given.token and task.run_seq = given.run_seq
and task.status in ('claimed', 'pending')
and (given.wake is null or task.wake = given.wake)
)
-- values: ["{\"run-1\"}","{\"signal-1\"}","{\"run-1\"}","{3}","{1}","{2}","{0}"]

select task_id from flotilla.task task where task_id = any(array(
    select child.task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent
    join flotilla.task_dependency wait on wait.dependent_id = parent.task_id
    join flotilla.task child on child.task_id = wait.dependency_id
    where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
      and child.cancel_requested = 0
      and parent.task_id in (select task.task_id from (select task_id collate "C" as task_id, token, run_seq, wake, ends from unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) as each_row (task_id, token, run_seq, wake, ends)) given join flotilla.task task on task.task_id = given.task_id
    where task.claim_token = given.token and task.run_seq = given.run_seq
    and task.status in ('claimed', 'pending')
    and (given.wake is null or task.wake = given.wake)
    ))) order by task_id for update of task
-- values: ["{\"run-1\"}","{\"run-1\"}","{3}","{1}","{2}","{0}"]

  insert into flotilla.task_event (task_id, seq, type)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'cancel_requested' from flotilla.task task
  where task_id = any(array(
select child.task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent
join flotilla.task_dependency wait on wait.dependent_id = parent.task_id
join flotilla.task child on child.task_id = wait.dependency_id
where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
  and child.cancel_requested = 0
  and parent.task_id in (select task.task_id from (select task_id collate "C" as task_id, token, run_seq, wake, ends from unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) as each_row (task_id, token, run_seq, wake, ends)) given join flotilla.task task on task.task_id = given.task_id
where task.claim_token = given.token and task.run_seq = given.run_seq
and task.status in ('claimed', 'pending')
and (given.wake is null or task.wake = given.wake)
)))
-- values: ["{\"run-1\"}","{\"run-1\"}","{3}","{1}","{2}","{0}"]

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
    and parent.task_id in (select task.task_id from (select task_id collate "C" as task_id, token, run_seq, wake, ends from unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) as each_row (task_id, token, run_seq, wake, ends)) given join flotilla.task task on task.task_id = given.task_id
  where task.claim_token = given.token and task.run_seq = given.run_seq
  and task.status in ('claimed', 'pending')
  and (given.wake is null or task.wake = given.wake)
  )))
-- values: ["{\"run-1\"}","{\"run-1\"}","{3}","{1}","{2}","{0}"]

insert into flotilla.task_event (task_id, seq, type, attempt, pod_id, detail)
select noted.task_id, noted.seq, noted.type, noted.attempt, $1, noted.detail
from (select task_id collate "C" as task_id, token, run_seq, wake, ends, seq, type collate "C" as type, attempt, detail collate "C" as detail from unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::bigint[], $10::text[]) as each_row (task_id, token, run_seq, wake, ends, seq, type, attempt, detail)) noted join flotilla.task task on task.task_id = noted.task_id
where task.claim_token = noted.token and task.run_seq = noted.run_seq
and task.status in ('claimed', 'pending')
and (noted.wake is null or task.wake = noted.wake)

for update of task
-- values: ["pod-1","{\"run-1\"}","{3}","{1}","{2}","{0}","{200}","{\"step\"}","{1}","{\"{}\"}"]

  update flotilla.task set
flow_version = coalesce(next.version, flow_version), cursor = next.cursor,
state = coalesce(next.state, flotilla.task.state), intent = next.intent, waiting = next.waiting,
stopped_at = next.stopped_at, retry_count = next.failures, run_seq = flotilla.task.run_seq + 1,
deaths = case when next.moved = 1 or next.stepped = 1 then 0 else deaths end,
progress = case when next.moved = 1 then null else progress end,
error = case when next.moved = 1 then next.error else coalesce(next.error, flotilla.task.error) end,
trace = coalesce(next.trace, flotilla.task.trace), advanced_at = now_ms(), status = next.status, result = next.result,
    claim_token = claim_token + case when next.status = 'pending' then 1 else 0 end,
    claimed_by = case when next.status = 'pending' then null else claimed_by end,
    claim_call = null, last_update = now_ms(),
    run_at = case when next.status = 'pending' then coalesce(next.until_at, now_ms()) else run_at end,
    parked = case when next.parked <> 0 then next.parked when next.until_at > now_ms() then 1
      else case when limited = 1 then 4 else 0 end end,
    depends = case when next.parked = 2 then 2 else depends end,
    awaits = next.awaits, set_aside = next.set_aside, set_aside_version = next.set_aside_version,
    concurrency_key = coalesce(next.scope, flotilla.task.concurrency_key),
    limited = case when next.scope is null then limited else 1 end
  from (select task_id collate "C" as task_id, token, run_seq, wake, ends, version, cursor collate "C" as cursor, state collate "C" as state, intent collate "C" as intent, waiting collate "C" as waiting, stopped_at collate "C" as stopped_at, failures, moved, stepped, error collate "C" as error, trace collate "C" as trace, status collate "C" as status, result collate "C" as result, parked, until_at, awaits collate "C" as awaits, set_aside collate "C" as set_aside, set_aside_version, scope collate "C" as scope from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[], $15::text[], $16::text[], $17::text[], $18::text[], $19::bigint[], $20::bigint[], $21::text[], $22::text[], $23::bigint[], $24::text[]) as each_row (task_id, token, run_seq, wake, ends, version, cursor, state, intent, waiting, stopped_at, failures, moved, stepped, error, trace, status, result, parked, until_at, awaits, set_aside, set_aside_version, scope)) next
  where flotilla.task.task_id = next.task_id and flotilla.task.claim_token = next.token and flotilla.task.run_seq = next.run_seq
  and flotilla.task.status in ('claimed', 'pending')
  and (next.wake is null or flotilla.task.wake = next.wake)

  returning flotilla.task.task_id, flotilla.task.status, flotilla.task.wake, flotilla.task.cancel_requested
-- instead of returning:
    select task.task_id, task.status, task.wake, task.cancel_requested from (select task_id collate "C" as task_id, token, run_seq, wake, ends, version, cursor collate "C" as cursor, state collate "C" as state, intent collate "C" as intent, waiting collate "C" as waiting, stopped_at collate "C" as stopped_at, failures, moved, stepped, error collate "C" as error, trace collate "C" as trace, status collate "C" as status, result collate "C" as result, parked, until_at, awaits collate "C" as awaits, set_aside collate "C" as set_aside, set_aside_version, scope collate "C" as scope from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[], $15::text[], $16::text[], $17::text[], $18::text[], $19::bigint[], $20::bigint[], $21::text[], $22::text[], $23::bigint[], $24::text[]) as each_row (task_id, token, run_seq, wake, ends, version, cursor, state, intent, waiting, stopped_at, failures, moved, stepped, error, trace, status, result, parked, until_at, awaits, set_aside, set_aside_version, scope)) next join flotilla.task task on task.task_id = next.task_id
    where task.claim_token = next.token and task.run_seq = next.run_seq
and task.status in ('claimed', 'pending')
and (next.wake is null or task.wake = next.wake)
 for update of task
-- values: ["{\"run-1\"}","{3}","{1}","{2}","{0}","{2}","{\"charge\"}","{\"{}\"}","{null}","{null}","{\"charge\"}","{0}","{1}","{0}","{null}","{null}","{\"pending\"}","{\"{}\"}","{2}","{null}","{\"run-1/charge/\"}","{null}","{null}","{null}"]

delete from flotilla.task_dependency
where dependent_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent))
  and not exists (select 1 from flotilla.task child where child.task_id = flotilla.task_dependency.dependency_id)
-- values: ["{\"run-1\"}"]

insert into flotilla.task_dependency (dependency_id, dependent_id, place)
select fresh.dependency_id, fresh.dependent_id, fresh.place from (select dependency_id collate "C" as dependency_id, dependent_id collate "C" as dependent_id, place from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (dependency_id, dependent_id, place)) fresh
where exists (select 1 from flotilla.task child where child.task_id = fresh.dependency_id)
on conflict do nothing
-- values: ["{\"child-1\"}","{\"run-1\"}","{0}"]

update flotilla.task set dependents = dependents + 1 where task_id = any(array(select child.task_id from (select dependency_id collate "C" as dependency_id, dependent_id collate "C" as dependent_id, place from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (dependency_id, dependent_id, place)) fresh
    join flotilla.task child on child.task_id = fresh.dependency_id))
-- values: ["{\"child-1\"}","{\"run-1\"}","{0}"]

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
select dependency_id as id from flotilla.task_dependency
where dependent_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent))) named)) and coalesce(flotilla.task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["{\"run-1\"}"]

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
-- values: ["{\"run-1\"}"]

select task_id from flotilla.task task where ctid = any(array(
    select (select ctid from flotilla.task task where task.task_id = named.id)
    from (
    select distinct wait.dependent_id as id
    from flotilla.task_dependency own join flotilla.task_dependency wait on wait.dependency_id = own.dependency_id
    where own.dependent_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent))
      and (select task.status from flotilla.task task
        where task.task_id = own.dependency_id and task.parent_id = own.dependent_id) = 'cancelled') named)) order by task_id for update of task
-- values: ["{\"run-1\"}"]

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
-- values: ["{\"run-1\"}"]

select task.task_id from (select task_id collate "C" as task_id, token, run_seq, wake, ends from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) as each_row (task_id, token, run_seq, wake, ends)) given join flotilla.task task on task.task_id = given.task_id
    where task.claim_token = given.token and task.run_seq = given.run_seq
    and task.status in ('claimed', 'pending')
    and (given.wake is null or task.wake = given.wake)
    and (given.ends = 0 or task.dependents = 0) order by task.task_id for update of task
-- values: ["{\"run-1\"}","{3}","{1}","{null}","{0}"]

delete from flotilla.step_journal where ctid = any(array(
  select stored.ctid from (select task_id collate "C" as task_id, part collate "C" as part from unnest($1::text[], $2::text[]) as each_row (task_id, part)) over_part
  join flotilla.step_journal stored on stored.owner_id = over_part.task_id and stored.part = over_part.part
  where over_part.task_id in (select task.task_id from (select task_id collate "C" as task_id, token, run_seq, wake, ends from unnest($3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[]) as each_row (task_id, token, run_seq, wake, ends)) given join flotilla.task task on task.task_id = given.task_id
where task.claim_token = given.token and task.run_seq = given.run_seq
and task.status in ('claimed', 'pending')
and (given.wake is null or task.wake = given.wake)
and (given.ends = 0 or task.dependents = 0))))
-- values: ["{\"run-1\"}","{\"reserve\"}","{\"run-1\"}","{3}","{1}","{null}","{0}"]

  update flotilla.task set
flow_version = coalesce(next.version, flow_version), cursor = next.cursor,
state = coalesce(next.state, flotilla.task.state), intent = next.intent, waiting = next.waiting,
stopped_at = next.stopped_at, retry_count = next.failures, run_seq = flotilla.task.run_seq + 1,
deaths = case when next.moved = 1 or next.stepped = 1 then 0 else deaths end,
progress = case when next.moved = 1 then null else progress end,
error = case when next.moved = 1 then next.error else coalesce(next.error, flotilla.task.error) end,
trace = coalesce(next.trace, flotilla.task.trace), advanced_at = now_ms()
  from (select task_id collate "C" as task_id, token, run_seq, wake, ends, version, cursor collate "C" as cursor, state collate "C" as state, intent collate "C" as intent, waiting collate "C" as waiting, stopped_at collate "C" as stopped_at, failures, moved, stepped, error collate "C" as error, trace collate "C" as trace from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[], $15::text[], $16::text[]) as each_row (task_id, token, run_seq, wake, ends, version, cursor, state, intent, waiting, stopped_at, failures, moved, stepped, error, trace)) next
  where flotilla.task.task_id = next.task_id and flotilla.task.claim_token = next.token
  and flotilla.task.run_seq = next.run_seq and flotilla.task.status in ('claimed', 'pending')
  and (next.wake is null or flotilla.task.wake = next.wake)
  returning flotilla.task.task_id, flotilla.task.status, flotilla.task.wake, flotilla.task.cancel_requested
-- instead of returning:
    select task.task_id, task.status, task.wake, task.cancel_requested from (select task_id collate "C" as task_id, token, run_seq, wake, ends, version, cursor collate "C" as cursor, state collate "C" as state, intent collate "C" as intent, waiting collate "C" as waiting, stopped_at collate "C" as stopped_at, failures, moved, stepped, error collate "C" as error, trace collate "C" as trace from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[], $15::text[], $16::text[]) as each_row (task_id, token, run_seq, wake, ends, version, cursor, state, intent, waiting, stopped_at, failures, moved, stepped, error, trace)) next join flotilla.task task on task.task_id = next.task_id
    where task.claim_token = next.token
and task.run_seq = next.run_seq and task.status in ('claimed', 'pending')
and (next.wake is null or task.wake = next.wake) for update of task
-- values: ["{\"run-1\"}","{3}","{1}","{null}","{0}","{2}","{\"charge\"}","{\"{}\"}","{null}","{null}","{null}","{0}","{0}","{1}","{null}","{null}"]

insert into flotilla.task_event (task_id, seq, type, attempt, pod_id, detail)
select noted.task_id, noted.seq, noted.type, noted.attempt, $1, noted.detail
from (select task_id collate "C" as task_id, token, run_seq, wake, ends, seq, type collate "C" as type, attempt, detail collate "C" as detail from unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::bigint[], $10::text[]) as each_row (task_id, token, run_seq, wake, ends, seq, type, attempt, detail)) noted join flotilla.task task on task.task_id = noted.task_id
where task.claim_token = noted.token and task.run_seq = noted.run_seq + 1
on conflict do nothing
-- values: ["pod-1","{\"run-1\"}","{3}","{1}","{null}","{0}","{200}","{\"step\"}","{1}","{\"{}\"}"]

insert into flotilla.step_journal as stored (owner_id, part, key, seq, token, kind, input_hash, value, started_at, at)
select given.task_id, given.part, given.key, given.seq, given.token, given.kind,
  given.input_hash, given.value, now_ms() - given.took_ms, now_ms()
from (select task_id collate "C" as task_id, part collate "C" as part, token, run_seq, key collate "C" as key, seq, kind collate "C" as kind, input_hash collate "C" as input_hash, value collate "C" as value, took_ms from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::bigint[]) as each_row (task_id, part, token, run_seq, key, seq, kind, input_hash, value, took_ms)) given join flotilla.task task on task.task_id = given.task_id
where task.claim_token = given.token and task.run_seq = given.run_seq
  and task.status in ('claimed', 'pending')
for update of task
on conflict (owner_id, part, key) do update set seq = excluded.seq, token = excluded.token,
  kind = excluded.kind, input_hash = excluded.input_hash, value = excluded.value,
  started_at = excluded.started_at, at = excluded.at
where stored.seq < excluded.seq
returning owner_id, part, key
-- instead of returning:
select stored.owner_id, stored.part, stored.key from (select task_id collate "C" as task_id, part collate "C" as part, token, key collate "C" as key, seq from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[]) as each_row (task_id, part, token, key, seq)) given join flotilla.step_journal stored
  on stored.owner_id = given.task_id and stored.part = given.part and stored.key = given.key
where stored.token = given.token and stored.seq = given.seq
-- values: ["{\"run-1\"}","{\"charge\"}","{3}","{2}","{\"read\"}","{3}","{\"done\"}","{null}","{\"1\"}","{5}"]

-- src/tasks/sql/runs.ts: keepRuns
update flotilla.task set
flow_version = next.version, cursor = next.cursor, state = coalesce(next.state, flotilla.task.state),
intent = null, waiting = null, stopped_at = null, retry_count = 0, deaths = 0, progress = null,
error = null, run_seq = flotilla.task.run_seq + 1, advanced_at = now_ms()
from (select task_id collate "C" as task_id, token, run_seq, version, cursor collate "C" as cursor, state collate "C" as state from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[]) as each_row (task_id, token, run_seq, version, cursor, state)) next
where flotilla.task.task_id = next.task_id and flotilla.task.claim_token = next.token
and flotilla.task.run_seq = next.run_seq and flotilla.task.status in ('claimed', 'pending')

returning flotilla.task.task_id, flotilla.task.status, flotilla.task.wake, flotilla.task.cancel_requested
-- instead of returning:
    select task.task_id, task.status, task.wake, task.cancel_requested from (select task_id collate "C" as task_id, token, run_seq, version, cursor collate "C" as cursor, state collate "C" as state from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[]) as each_row (task_id, token, run_seq, version, cursor, state)) next join flotilla.task task on task.task_id = next.task_id
    where task.claim_token = next.token
and task.run_seq = next.run_seq and task.status in ('claimed', 'pending')
 for update of task
-- values: ["{\"run-1\"}","{3}","{1}","{2}","{\"charge\"}","{\"{}\"}"]

  update flotilla.task set
flow_version = coalesce(next.version, flow_version), cursor = next.cursor,
state = coalesce(next.state, flotilla.task.state), intent = next.intent, waiting = next.waiting,
stopped_at = next.stopped_at, retry_count = next.failures, run_seq = flotilla.task.run_seq + 1,
deaths = case when next.moved = 1 or next.stepped = 1 then 0 else deaths end,
progress = case when next.moved = 1 then null else progress end,
error = case when next.moved = 1 then next.error else coalesce(next.error, flotilla.task.error) end,
trace = coalesce(next.trace, flotilla.task.trace), advanced_at = now_ms()
  from (select task_id collate "C" as task_id, token, run_seq, wake, ends, version, cursor collate "C" as cursor, state collate "C" as state, intent collate "C" as intent, waiting collate "C" as waiting, stopped_at collate "C" as stopped_at, failures, moved, stepped, error collate "C" as error, trace collate "C" as trace from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[], $15::text[], $16::text[]) as each_row (task_id, token, run_seq, wake, ends, version, cursor, state, intent, waiting, stopped_at, failures, moved, stepped, error, trace)) next
  where flotilla.task.task_id = next.task_id and flotilla.task.claim_token = next.token
  and flotilla.task.run_seq = next.run_seq and flotilla.task.status in ('claimed', 'pending')
  and (next.wake is null or flotilla.task.wake = next.wake)
  returning flotilla.task.task_id, flotilla.task.status, flotilla.task.wake, flotilla.task.cancel_requested
-- instead of returning:
    select task.task_id, task.status, task.wake, task.cancel_requested from (select task_id collate "C" as task_id, token, run_seq, wake, ends, version, cursor collate "C" as cursor, state collate "C" as state, intent collate "C" as intent, waiting collate "C" as waiting, stopped_at collate "C" as stopped_at, failures, moved, stepped, error collate "C" as error, trace collate "C" as trace from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[], $15::text[], $16::text[]) as each_row (task_id, token, run_seq, wake, ends, version, cursor, state, intent, waiting, stopped_at, failures, moved, stepped, error, trace)) next join flotilla.task task on task.task_id = next.task_id
    where task.claim_token = next.token
and task.run_seq = next.run_seq and task.status in ('claimed', 'pending')
and (next.wake is null or task.wake = next.wake) for update of task
-- values: ["{\"run-1\"}","{3}","{1}","{2}","{0}","{2}","{\"charge\"}","{\"{}\"}","{null}","{null}","{null}","{0}","{1}","{0}","{null}","{null}"]

-- src/tasks/sql/runs.ts: leaveRuns
  update flotilla.task set
flow_version = coalesce(next.version, flow_version), cursor = next.cursor,
state = coalesce(next.state, flotilla.task.state), intent = next.intent, waiting = next.waiting,
stopped_at = next.stopped_at, retry_count = next.failures, run_seq = flotilla.task.run_seq + 1,
deaths = case when next.moved = 1 or next.stepped = 1 then 0 else deaths end,
progress = case when next.moved = 1 then null else progress end,
error = case when next.moved = 1 then next.error else coalesce(next.error, flotilla.task.error) end,
trace = coalesce(next.trace, flotilla.task.trace), advanced_at = now_ms(), status = next.status, result = next.result,
    claim_token = claim_token + case when next.status = 'pending' then 1 else 0 end,
    claimed_by = case when next.status = 'pending' then null else claimed_by end,
    claim_call = null, last_update = now_ms(),
    run_at = case when next.status = 'pending' then coalesce(next.until_at, now_ms()) else run_at end,
    parked = case when next.parked <> 0 then next.parked when next.until_at > now_ms() then 1
      else case when limited = 1 then 4 else 0 end end,
    depends = case when next.parked = 2 then 2 else depends end,
    awaits = next.awaits, set_aside = next.set_aside, set_aside_version = next.set_aside_version,
    concurrency_key = coalesce(next.scope, flotilla.task.concurrency_key),
    limited = case when next.scope is null then limited else 1 end
  from (select task_id collate "C" as task_id, token, run_seq, wake, ends, version, cursor collate "C" as cursor, state collate "C" as state, intent collate "C" as intent, waiting collate "C" as waiting, stopped_at collate "C" as stopped_at, failures, moved, stepped, error collate "C" as error, trace collate "C" as trace, status collate "C" as status, result collate "C" as result, parked, until_at, awaits collate "C" as awaits, set_aside collate "C" as set_aside, set_aside_version, scope collate "C" as scope from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[], $15::text[], $16::text[], $17::text[], $18::text[], $19::bigint[], $20::bigint[], $21::text[], $22::text[], $23::bigint[], $24::text[]) as each_row (task_id, token, run_seq, wake, ends, version, cursor, state, intent, waiting, stopped_at, failures, moved, stepped, error, trace, status, result, parked, until_at, awaits, set_aside, set_aside_version, scope)) next
  where flotilla.task.task_id = next.task_id and flotilla.task.claim_token = next.token and flotilla.task.run_seq = next.run_seq
  and flotilla.task.status in ('claimed', 'pending')
  and (next.wake is null or flotilla.task.wake = next.wake)
  and (next.ends = 0 or flotilla.task.dependents = 0)
  returning flotilla.task.task_id, flotilla.task.status, flotilla.task.wake, flotilla.task.cancel_requested
-- instead of returning:
    select task.task_id, task.status, task.wake, task.cancel_requested from (select task_id collate "C" as task_id, token, run_seq, wake, ends, version, cursor collate "C" as cursor, state collate "C" as state, intent collate "C" as intent, waiting collate "C" as waiting, stopped_at collate "C" as stopped_at, failures, moved, stepped, error collate "C" as error, trace collate "C" as trace, status collate "C" as status, result collate "C" as result, parked, until_at, awaits collate "C" as awaits, set_aside collate "C" as set_aside, set_aside_version, scope collate "C" as scope from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[], $15::text[], $16::text[], $17::text[], $18::text[], $19::bigint[], $20::bigint[], $21::text[], $22::text[], $23::bigint[], $24::text[]) as each_row (task_id, token, run_seq, wake, ends, version, cursor, state, intent, waiting, stopped_at, failures, moved, stepped, error, trace, status, result, parked, until_at, awaits, set_aside, set_aside_version, scope)) next join flotilla.task task on task.task_id = next.task_id
    where task.claim_token = next.token and task.run_seq = next.run_seq
and task.status in ('claimed', 'pending')
and (next.wake is null or task.wake = next.wake)
and (next.ends = 0 or task.dependents = 0) for update of task
-- values: ["{\"run-1\",\"run-1\",\"run-1\",\"run-1\",\"run-1\",\"run-1\"}","{3,3,3,3,3,3}","{1,1,1,1,1,1}","{null,null,null,null,null,null}","{0,0,0,0,0,0}","{2,2,2,2,2,2}","{\"charge\",\"charge\",\"charge\",\"charge\",\"charge\",\"charge\"}","{\"{}\",\"{}\",\"{}\",\"{}\",\"{}\",\"{}\"}","{null,null,null,null,null,null}","{null,null,null,null,null,null}","{null,null,null,null,null,null}","{0,0,0,0,0,0}","{1,1,1,1,1,1}","{0,0,0,0,0,0}","{null,null,null,null,null,null}","{null,null,null,null,null,null}","{\"pending\",\"pending\",\"pending\",\"pending\",\"pending\",\"pending\"}","{\"{}\",\"{}\",\"{}\",\"{}\",\"{}\",\"{}\"}","{0,5,0,2,4,6}","{100,null,100,null,null,null}","{null,\"paid\",\"paid\",\"run-1/charge/\",null,null}","{null,null,null,null,null,\"{}\"}","{null,null,null,null,null,2}","{null,null,null,null,\"queue/orders\",null}"]

-- src/tasks/sql/runs.ts: findNotedWrites
select noted.task_id, noted.detail from (select task_id collate "C" as task_id, seq, type collate "C" as type from unnest($1::text[], $2::bigint[], $3::text[]) as each_row (task_id, seq, type)) wanted join flotilla.task_event noted
  on noted.task_id = wanted.task_id and noted.seq = wanted.seq
where noted.pod_id = $4 and noted.type = wanted.type
-- values: ["{\"run-1\"}","{200}","{\"step\"}","pod-1"]

-- src/tasks/sql/signals.ts: sendSignal
select task_id from flotilla.task task where task_id = $1 for update of task
-- values: ["run-1"]

  update flotilla.task
  set wake = wake + 1,
    last_update = case when status = 'pending' then now_ms() else last_update end,
    run_at = case when status = 'pending' and parked in (1, 5) and awaits is not null then now_ms() else run_at end,
    parked = case when status = 'pending' and parked in (1, 5) and awaits is not null then case when limited = 1 then 4 else 0 end else parked end
  where task_id = $1 and status in ('pending', 'claimed')
and flow_version is not null and not exists (select 1 from flotilla.task_signal past
where past.task_id = $2 and past.signal_id = $3) and (select count(*) from flotilla.task_signal past
where past.task_id = $4 and past.taken = 0) < $5
-- values: ["run-1","run-1","signal-1","run-1",1000]

  insert into flotilla.task_signal (task_id, signal_id, seq, name, payload)
  select task_id, $1, (select coalesce(max(seq), 0) + 1 from flotilla.task_signal past
    where past.task_id = $2), $3, $4
  from flotilla.task where task_id = $5 and status in ('pending', 'claimed')
and flow_version is not null and not exists (select 1 from flotilla.task_signal past
where past.task_id = $6 and past.signal_id = $7) and (select count(*) from flotilla.task_signal past
where past.task_id = $8 and past.taken = 0) < $9
-- values: ["signal-1","run-1","paid","{}","run-1","run-1","signal-1","run-1",1000]

select status, flow_version, case when exists (select 1 from flotilla.task_signal past
    where past.task_id = $1 and past.signal_id = $2) then 1 else 0 end as sent
      from flotilla.task where task_id = $3
-- values: ["run-1","signal-1","run-1"]

select task_id from flotilla.task task where task_id = $1 for update of task
-- values: ["task-1"]

  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, $8, $9, $10,
    cast($11 as bigint), $12, $13,
    case when exists (
select 1 from flotilla.audit past where past.action = $14 and past.outcome = 'full') then null else $15 end, $16, $17
  from flotilla.task where task_id = $18 and status in ('pending', 'claimed')
  and flow_version is null and not exists (select 1 from flotilla.task_signal past
  where past.task_id = $19 and past.signal_id = $20) and (select count(*) from flotilla.task_signal past
  where past.task_id = $21 and past.taken = 0) < $22
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,null,"{\"signal\":\"paid\"}","audit.full","done",null,"click-1","task-1","task-1","signal-1","task-1",1000]

  update flotilla.task
  set wake = wake + 1,
    last_update = case when status = 'pending' then now_ms() else last_update end,
    run_at = case when status = 'pending' and parked in (1, 5) and awaits is not null then now_ms() else run_at end,
    parked = case when status = 'pending' and parked in (1, 5) and awaits is not null then case when limited = 1 then 4 else 0 end else parked end
  where task_id = $1 and status in ('pending', 'claimed')
and flow_version is null and not exists (select 1 from flotilla.task_signal past
where past.task_id = $2 and past.signal_id = $3) and (select count(*) from flotilla.task_signal past
where past.task_id = $4 and past.taken = 0) < $5
-- values: ["task-1","task-1","signal-1","task-1",1000]

  insert into flotilla.task_signal (task_id, signal_id, seq, name, payload)
  select task_id, $1, (select coalesce(max(seq), 0) + 1 from flotilla.task_signal past
    where past.task_id = $2), $3, $4
  from flotilla.task where task_id = $5 and status in ('pending', 'claimed')
and flow_version is null and not exists (select 1 from flotilla.task_signal past
where past.task_id = $6 and past.signal_id = $7) and (select count(*) from flotilla.task_signal past
where past.task_id = $8 and past.taken = 0) < $9
-- values: ["signal-1","task-1","paid","{}","task-1","task-1","signal-1","task-1",1000]

select status, flow_version, case when exists (select 1 from flotilla.task_signal past
    where past.task_id = $1 and past.signal_id = $2) then 1 else 0 end as sent
      from flotilla.task where task_id = $3
-- values: ["task-1","signal-1","task-1"]

-- src/tasks/sql/signals.ts: listAwaiting
select task_id, tenant, name, flow_version, awaits, since_at, until_at from (
  select task_id, tenant, name, flow_version, awaits, coalesce(advanced_at, last_update) as since_at,
    case when status = 'pending' and parked = 1 then run_at end as until_at
  from flotilla.task where status = 'pending' and parked = 1 and awaits is not null
and run_at >= $1 and (run_at > $2 or task_id > $3)
order by run_at, task_id limit cast($4 as integer)) waiting
where awaits not like '%/'
order by until_at, task_id limit cast($5 as integer)
-- values: [5,5,"run-1",20000,51]

select task_id, tenant, name, flow_version, awaits, since_at, until_at from (
  select task_id, tenant, name, flow_version, awaits, coalesce(advanced_at, last_update) as since_at,
    case when status = 'pending' and parked = 1 then run_at end as until_at
  from flotilla.task where status = 'pending' and parked = 5 and awaits is not null
and coalesce(advanced_at, last_update) >= $1 and (coalesce(advanced_at, last_update) > $2 or task_id > $3)
order by coalesce(advanced_at, last_update), task_id limit cast($4 as integer)) waiting
where awaits not like '%/' and tenant = $5
order by since_at, task_id limit cast($6 as integer)
-- values: [5,5,"run-1",20000,"acme",51]

-- src/tasks/sql/signals.ts: hasMoreAwaiting
select case when exists (
  select 1 from flotilla.task where status = 'pending' and parked = 5 and awaits is not null
and coalesce(advanced_at, last_update) >= $1 and (coalesce(advanced_at, last_update) > $2 or task_id > $3)
order by coalesce(advanced_at, last_update), task_id limit 1 offset 20000)
  then 1 else 0 end as more
-- values: [5,5,"run-1"]

-- src/tasks/sql/signals.ts: firstSignal
select signal_id, payload from flotilla.task_signal
where task_id = $1 and name in ($2, $3) and taken = 0 order by seq limit 1
-- values: ["run-1","paid","refused"]

-- src/tasks/sql/signals.ts: addSignals
insert into flotilla.task_signal (task_id, signal_id, seq, name, payload)
select task.task_id, $1, (select coalesce(max(seq), 0) + 1 from flotilla.task_signal past where past.task_id = task.task_id), $2,
  $3
from flotilla.task task where true and not exists (select 1 from flotilla.task_signal past where past.task_id = task.task_id and past.signal_id = $4)
  and (select count(*) from flotilla.task_signal past where past.task_id = task.task_id and past.taken = 0) < $5
-- values: ["signal-1","paid","{}","signal-1",1000]

-- src/tasks/sql/signals.ts: wakeSignalled
update flotilla.task
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
  case when exists (select 1 from flotilla.step_journal step
    where step.owner_id = flotilla.task.task_id and step.kind = 'wait') then 1 else 0 end as has_wait,
  case when status = 'claimed' and exists (select 1 from flotilla.pod holder
where holder.pod_id = flotilla.task.claimed_by and flotilla.task.claim_call < 0 and holder.begun_call >= 0
  and (-flotilla.task.claim_call > holder.begun_call
    or -flotilla.task.claim_call = holder.begun_call and flotilla.task.task_id > holder.begun_task)) then 1 else 0 end as held_back
from flotilla.task where task_id = $1
-- values: ["task-1"]

-- src/tasks/sql/why.ts: readLateness
select type, at, attempt, pod_id,
  case when type in ('retry', 'snoozed', 'error', 'park') and coalesce(octet_length(detail), 0) <= $1
    then detail end as detail
from flotilla.task_event where task_id = $2 order by seq desc limit cast($3 as integer)
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
    case when dependency.parent_id = $1 then 1 else 0 end as is_child
  from flotilla.task_dependency wait
  left join flotilla.task dependency on dependency.task_id = wait.dependency_id
  where wait.dependent_id = $2) known
order by case when status in ('failed', 'cancelled') then 0
when status in ('pending', 'claimed') then 1 when status is null then 2 else 3 end, place, task_id limit cast($3 as integer)
-- values: ["task-1","task-1",100]

-- src/tasks/sql/why.ts: readSlotHolders
select task_id, name, tenant, claimed_by, since_at from (
  select task_id, name, tenant, claimed_by, last_update as since_at
  from flotilla.task where coalesce(status, '') = 'claimed' and concurrency_key between $1 and $2 limit cast($3 as integer)) held
order by since_at, task_id limit cast($4 as integer)
-- values: ["key/mail/acme","key/mail/acme",1000,20]

select task_id, name, tenant, claimed_by, since_at from (
  select task_id, name, tenant, claimed_by, last_update as since_at
  from flotilla.task where coalesce(status, '') = 'claimed' and limited = 1 and tenant <> 'default'
      and tenant between $1 and $2 limit cast($3 as integer)) held
order by since_at, task_id limit cast($4 as integer)
-- values: ["acme","acme",1000,20]

-- src/tasks/sql/why.ts: countHeldBy
select pod.pod_id, (select count(*) from (
  select 1 from flotilla.task task
  where task.status = 'claimed' and task.claimed_by = pod.pod_id
  order by task.claim_call limit cast($1 as integer)) held) as held
from (select pod_id collate "C" as pod_id from unnest($2::text[]) as each_row (pod_id)) pod
-- values: [10000,"{\"pod-1\"}"]

-- src/tasks/sql/why.ts: countAhead
select (select count(*) from (
select 1 from flotilla.task where name = $1 and status = 'pending' and parked = 0 and deaths < 2 and priority > $2
order by priority desc, created_at, task_id limit cast($3 as integer)) higher) + (select count(*) from (
  select 1 from flotilla.task where name = $4 and status = 'pending' and parked = 0 and deaths < 2 and (created_at, task_id) < ($5, $6) and priority = $7
  order by priority desc, created_at, task_id limit cast($8 as integer)) earlier) as ahead
-- values: ["mail",1,10000,"mail",100,"task-1",1,10000]

select  (select count(*) from (
  select 1 from flotilla.task where name = $1 and status = 'pending' and parked = 0 and deaths >= 2 and (created_at, task_id) < ($2, $3)
  order by created_at, task_id limit cast($4 as integer)) earlier) as ahead
-- values: ["mail",100,"task-1",10000]

select (select count(*) from (
select 1 from flotilla.task where name = $1 and tenant = $2 and status = 'pending' and parked = 4 and deaths < 2 and priority > $3
order by priority desc, created_at, task_id limit cast($4 as integer)) higher) + (select count(*) from (
  select 1 from flotilla.task where name = $5 and tenant = $6 and status = 'pending' and parked = 4 and deaths < 2 and (created_at, task_id) < ($7, $8) and priority = $9
  order by priority desc, created_at, task_id limit cast($10 as integer)) earlier) as ahead
-- values: ["mail","acme",1,10000,"mail","acme",100,"task-1",1,10000]

select  (select count(*) from (
  select 1 from flotilla.task where name = $1 and status = 'pending' and parked = 4 and deaths >= 2 and (created_at, task_id) < ($2, $3)
  order by created_at, task_id limit cast($4 as integer)) earlier) as ahead
-- values: ["mail",100,"task-1",10000]

select (select count(*) from (
select 1 from flotilla.task where blocked_by = $1 and status = 'pending' and parked = 3 and priority > $2
order by priority desc, created_at, task_id limit cast($3 as integer)) higher) + (select count(*) from (
  select 1 from flotilla.task where blocked_by = $4 and status = 'pending' and parked = 3 and (created_at, task_id) < ($5, $6) and priority = $7
  order by priority desc, created_at, task_id limit cast($8 as integer)) earlier) as ahead
-- values: ["key/mail/acme",1,10000,"key/mail/acme",100,"task-1",1,10000]

-- src/tasks/sql/steps.ts: storeSteps
insert into flotilla.step_journal as stored (owner_id, part, key, seq, token, kind, input_hash, value, started_at, at)
select given.task_id, given.part, given.key, given.seq, given.token, given.kind,
  given.input_hash, given.value, now_ms() - given.took_ms, now_ms()
from (select task_id collate "C" as task_id, part collate "C" as part, token, run_seq, key collate "C" as key, seq, kind collate "C" as kind, input_hash collate "C" as input_hash, value collate "C" as value, took_ms from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::bigint[]) as each_row (task_id, part, token, run_seq, key, seq, kind, input_hash, value, took_ms)) given join flotilla.task task on task.task_id = given.task_id
where task.claim_token = given.token and task.run_seq = given.run_seq
  and task.status in ('claimed', 'pending')
for update of task
on conflict (owner_id, part, key) do update set seq = excluded.seq, token = excluded.token,
  kind = excluded.kind, input_hash = excluded.input_hash, value = excluded.value,
  started_at = excluded.started_at, at = excluded.at
where stored.seq < excluded.seq
returning owner_id, part, key
-- instead of returning:
select stored.owner_id, stored.part, stored.key from (select task_id collate "C" as task_id, part collate "C" as part, token, key collate "C" as key, seq from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[]) as each_row (task_id, part, token, key, seq)) given join flotilla.step_journal stored
  on stored.owner_id = given.task_id and stored.part = given.part and stored.key = given.key
where stored.token = given.token and stored.seq = given.seq
-- values: ["{\"task-1\"}","{\"\"}","{2}","{0}","{\"read\"}","{3}","{\"done\"}","{null}","{\"1\"}","{5}"]

insert into flotilla.step_journal as stored (owner_id, part, key, seq, token, kind, input_hash, value, started_at, at)
select given.task_id, given.part, given.key, given.seq, given.token, given.kind,
  given.input_hash, given.value, now_ms() - given.took_ms, now_ms()
from (select task_id collate "C" as task_id, part collate "C" as part, token, run_seq, key collate "C" as key, seq, kind collate "C" as kind, input_hash collate "C" as input_hash, value collate "C" as value, took_ms from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::bigint[]) as each_row (task_id, part, token, run_seq, key, seq, kind, input_hash, value, took_ms)) given join flotilla.task task on task.task_id = given.task_id
where task.claim_token = given.token and task.run_seq = given.run_seq
  and task.status in ('claimed', 'pending')
for update of task
on conflict (owner_id, part, key) do update set seq = excluded.seq, token = excluded.token,
  kind = excluded.kind, input_hash = excluded.input_hash, value = excluded.value,
  started_at = excluded.started_at, at = excluded.at
where stored.seq < excluded.seq
returning owner_id, part, key
-- instead of returning:
select stored.owner_id, stored.part, stored.key from (select task_id collate "C" as task_id, part collate "C" as part, token, key collate "C" as key, seq from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[]) as each_row (task_id, part, token, key, seq)) given join flotilla.step_journal stored
  on stored.owner_id = given.task_id and stored.part = given.part and stored.key = given.key
where stored.token = given.token and stored.seq = given.seq
-- values: ["{\"task-1\"}","{\"\"}","{2}","{0}","{\"read\"}","{3}","{\"done\"}","{null}","{\"1\"}","{5}"]

delete from flotilla.step_journal where ctid = any(array(
  select inner_step.ctid from (select task_id collate "C" as task_id, part collate "C" as part, token, key collate "C" as key, seq, low collate "C" as low, high collate "C" as high from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::text[], $7::text[]) as each_row (task_id, part, token, key, seq, low, high)) given
  join flotilla.step_journal stored on stored.owner_id = given.task_id and stored.part = given.part
    and stored.key = given.key and stored.token = given.token and stored.seq = given.seq
  join flotilla.step_journal inner_step on inner_step.owner_id = given.task_id
    and inner_step.part = given.part
    and inner_step.key >= given.low and inner_step.key < given.high))
-- values: ["{\"task-1\",\"task-1\"}","{\"\",\"\"}","{2,2}","{\"read\",\"read\"}","{3,3}","{\"read/\",\"read@\"}","{\"read0\",\"readA\"}"]

insert into flotilla.step_journal as stored (owner_id, part, key, seq, token, kind, input_hash, value, started_at, at)
select given.task_id, given.part, given.key, given.seq, given.token, given.kind,
  given.input_hash, given.value, now_ms() - given.took_ms, now_ms()
from (select task_id collate "C" as task_id, part collate "C" as part, token, run_seq, key collate "C" as key, seq, kind collate "C" as kind, input_hash collate "C" as input_hash, value collate "C" as value, took_ms from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::bigint[]) as each_row (task_id, part, token, run_seq, key, seq, kind, input_hash, value, took_ms)) given join flotilla.task task on task.task_id = given.task_id
where task.claim_token = given.token and task.run_seq = given.run_seq
  and task.status in ('claimed', 'pending')
for update of task
on conflict (owner_id, part, key) do update set seq = excluded.seq, token = excluded.token,
  kind = excluded.kind, input_hash = excluded.input_hash, value = excluded.value,
  started_at = excluded.started_at, at = excluded.at
where stored.seq < excluded.seq
returning owner_id, part, key
-- instead of returning:
select stored.owner_id, stored.part, stored.key from (select task_id collate "C" as task_id, part collate "C" as part, token, key collate "C" as key, seq from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[]) as each_row (task_id, part, token, key, seq)) given join flotilla.step_journal stored
  on stored.owner_id = given.task_id and stored.part = given.part and stored.key = given.key
where stored.token = given.token and stored.seq = given.seq
-- values: ["{\"task-1\"}","{\"\"}","{2}","{0}","{\"read\"}","{3}","{\"done\"}","{null}","{\"1\"}","{5}"]

update flotilla.task_signal set taken = 1 from (select task_id collate "C" as task_id, part collate "C" as part, token, key collate "C" as key, seq, signal_id collate "C" as signal_id from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::text[]) as each_row (task_id, part, token, key, seq, signal_id)) used
where flotilla.task_signal.task_id = used.task_id and flotilla.task_signal.signal_id = used.signal_id
  and exists (select 1 from flotilla.step_journal stored
    where stored.owner_id = used.task_id and stored.part = used.part
      and stored.key = used.key
      and stored.token = used.token and stored.seq = used.seq)
-- values: ["{\"task-1\"}","{\"\"}","{2}","{\"read\"}","{3}","{\"signal-1\"}"]

insert into flotilla.step_journal as stored (owner_id, part, key, seq, token, kind, input_hash, value, started_at, at)
select given.task_id, given.part, given.key, given.seq, given.token, given.kind,
  given.input_hash, given.value, now_ms() - given.took_ms, now_ms()
from (select task_id collate "C" as task_id, part collate "C" as part, token, run_seq, key collate "C" as key, seq, kind collate "C" as kind, input_hash collate "C" as input_hash, value collate "C" as value, took_ms from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::bigint[]) as each_row (task_id, part, token, run_seq, key, seq, kind, input_hash, value, took_ms)) given join flotilla.task task on task.task_id = given.task_id
where task.claim_token = given.token and task.run_seq = given.run_seq
  and task.status in ('claimed', 'pending')
for update of task
on conflict (owner_id, part, key) do update set seq = excluded.seq, token = excluded.token,
  kind = excluded.kind, input_hash = excluded.input_hash, value = excluded.value,
  started_at = excluded.started_at, at = excluded.at
where stored.seq < excluded.seq
returning owner_id, part, key
-- instead of returning:
select stored.owner_id, stored.part, stored.key from (select task_id collate "C" as task_id, part collate "C" as part, token, key collate "C" as key, seq from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[]) as each_row (task_id, part, token, key, seq)) given join flotilla.step_journal stored
  on stored.owner_id = given.task_id and stored.part = given.part and stored.key = given.key
where stored.token = given.token and stored.seq = given.seq
-- values: ["{\"task-1\"}","{\"\"}","{2}","{0}","{\"read\"}","{3}","{\"done\"}","{null}","{\"1\"}","{5}"]

update flotilla.task set task_version = raised.version,
  begun_version = coalesce(flotilla.task.begun_version, raised.begun_by)
from (select task_id collate "C" as task_id, part collate "C" as part, token, key collate "C" as key, seq, version, begun_by from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[]) as each_row (task_id, part, token, key, seq, version, begun_by)) raised
where flotilla.task.task_id = raised.task_id and flotilla.task.claim_token = raised.token
  and coalesce(flotilla.task.task_version, 0) < raised.version and exists (select 1 from flotilla.step_journal stored
    where stored.owner_id = raised.task_id and stored.part = raised.part
      and stored.key = raised.key
      and stored.token = raised.token and stored.seq = raised.seq)
-- values: ["{\"task-1\"}","{\"\"}","{2}","{\"read\"}","{3}","{2}","{1}"]

-- src/tasks/sql/steps.ts: selectStored
select stored.owner_id, stored.part, stored.key from (select task_id collate "C" as task_id, part collate "C" as part, token, key collate "C" as key, seq from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[]) as each_row (task_id, part, token, key, seq)) given join flotilla.step_journal stored
  on stored.owner_id = given.task_id and stored.part = given.part and stored.key = given.key
where stored.token = given.token and stored.seq = given.seq
-- values: ["{\"task-1\"}","{\"\"}","{2}","{\"read\"}","{3}"]

-- src/tasks/sql/steps.ts: listSteps
select part, key, seq, token, kind, started_at, at, coalesce(octet_length(value), 0) as bytes
from flotilla.step_journal where owner_id = $1 and (part = '' or part >= 'A') and seq > $2
order by seq, part
-- values: ["task-1",0]

select part, key, seq, token, kind, started_at, at, coalesce(octet_length(value), 0) as bytes
from flotilla.step_journal where owner_id = $1 and (part = '' or part >= 'A') and seq > $2
order by seq, part limit cast($3 as integer)
-- values: ["task-1",3,10]

-- src/tasks/sql/steps.ts: readUnasked
select noted.detail, task.claim_token from flotilla.task_event noted
join flotilla.task task on task.task_id = noted.task_id
where noted.task_id = $1 and noted.type = $2
order by noted.seq desc limit 1
-- values: ["task-1","steps_unasked"]

-- src/tasks/sql/steps.ts: countSteps
select count(*) as steps from flotilla.step_journal where owner_id = $1 and (part = '' or part >= 'A')
-- values: ["task-1"]

-- src/tasks/sql/steps.ts: countStepsOf
select count(*) from flotilla.step_journal where owner_id in (select 'task-1') and (part = '' or part >= 'A')

-- src/tasks/sql/steps.ts: forgetParts
delete from flotilla.step_journal where ctid = any(array(
  select stored.ctid from (select task_id collate "C" as task_id, part collate "C" as part from unnest($1::text[], $2::text[]) as each_row (task_id, part)) over_part
  join flotilla.step_journal stored on stored.owner_id = over_part.task_id and stored.part = over_part.part
  where over_part.task_id in (select task.task_id from flotilla.task task where true)))
-- values: ["{\"run-1\"}","{\"charge\"}"]

-- src/tasks/sql/steps.ts: forgetSteps
delete from flotilla.step_journal where owner_id in (select 'task-1') and (part = '' or part >= 'A') and kind = 'failed'

delete from flotilla.step_journal where owner_id in (select 'task-1') and (part = '' or part >= 'A')

-- src/tasks/sql/steps.ts: hasSteps
select case when exists (select 1 from flotilla.step_journal stored
    where stored.owner_id = task.task_id and stored.part = '') then 1 else 0 end from flotilla.task task

-- src/tasks/sql/steps.ts: hasStepped
select 1 from flotilla.task task where exists (
    select 1 from flotilla.step_journal stored
    where stored.owner_id = task.task_id and stored.part = ''
      and stored.token = task.claim_token)

-- src/tasks/sql/steps.ts: forgetStepsByKey
delete from flotilla.step_journal where owner_id in (select 'task-1') and (part = '' or part >= 'A')
  and exists (select 1 from (select low collate "C" as low, high collate "C" as high from unnest($1::text[], $2::text[]) as each_row (low, high)) wanted
    where flotilla.step_journal.key >= wanted.low and flotilla.step_journal.key < wanted.high)
-- values: ["{\"read[a]\",\"read[a]/\",\"read[a]@\"}","{\"read[a]\u0001\",\"read[a]0\",\"read[a]A\"}"]

-- src/tasks/sql/steps.ts: isStoredBy
select 1 from (select 'task-1' as task_id, '' as part, 'a' as key, 1 as token, 1 as seq) given
        where exists (select 1 from flotilla.step_journal stored
        where stored.owner_id = given.task_id and stored.part = given.part
          and stored.key = given.key
          and stored.token = given.token and stored.seq = given.seq)

-- src/tasks/sql/step-children.ts: startStepChildren
  insert into flotilla.task (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
    max_attempts, unique_key, trace, concurrency_key, limited, depends, scheduled_at, flow_version, parent_id, parked)
  select task_id, tenant, name, payload, priority, case when fresh.start_at is null then now_ms() + fresh.delay_ms
  when fresh.start_at > now_ms() then fresh.start_at else now_ms() end, now_ms(), now_ms(),
    max_attempts, unique_key, trace, concurrency_key, limited, depends, scheduled_at, flow_version, parent_id,
case when depends > 0 then 2 when delay_ms > 0 or start_at > now_ms() then 1
  when limited = 1 then 4 else 0 end
  from (select task_id collate "C" as task_id, tenant collate "C" as tenant, name collate "C" as name, payload collate "C" as payload, priority, delay_ms, max_attempts, unique_key collate "C" as unique_key, trace collate "C" as trace, start_at, concurrency_key collate "C" as concurrency_key, limited, depends, scheduled_at, flow_version, parent_id collate "C" as parent_id from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[], $10::bigint[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::text[]) as each_row (task_id, tenant, name, payload, priority, delay_ms, max_attempts, unique_key, trace, start_at, concurrency_key, limited, depends, scheduled_at, flow_version, parent_id)) fresh where fresh.parent_id = any(array(select task.task_id from (select task_id collate "C" as task_id, part collate "C" as part, token, key collate "C" as key, seq from unnest($17::text[], $18::text[], $19::bigint[], $20::text[], $21::bigint[]) as each_row (task_id, part, token, key, seq)) given join flotilla.task task on task.task_id = given.task_id
  where exists (select 1 from flotilla.step_journal stored
      where stored.owner_id = given.task_id and stored.part = given.part
        and stored.key = given.key
        and stored.token = given.token and stored.seq = given.seq)))
  on conflict do nothing
  returning task_id
-- instead of returning:
select task_id from flotilla.task where task_id in (select task_id from (select task_id collate "C" as task_id, tenant collate "C" as tenant, name collate "C" as name, payload collate "C" as payload, priority, delay_ms, max_attempts, unique_key collate "C" as unique_key, trace collate "C" as trace from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[]) as each_row (task_id, tenant, name, payload, priority, delay_ms, max_attempts, unique_key, trace)) fresh)
-- values: ["{\"child-1\"}","{\"default\"}","{\"mail\"}","{\"{}\"}","{0}","{0}","{null}","{\"run-1/charge/0\"}","{null}","{null}","{null}","{0}","{0}","{null}","{null}","{\"task-1\"}","{\"task-1\"}","{\"\"}","{2}","{\"read\"}","{3}"]

  insert into flotilla.task_event (task_id, seq, type)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'retried' from flotilla.task task
  where task_id = any(array(
select child.task_id from (select parent_id collate "C" as parent_id, task_id collate "C" as task_id, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (parent_id, task_id, token)) wanted
join flotilla.task child on child.task_id = wanted.task_id
where child.parent_id = wanted.parent_id and child.claim_token = wanted.token
  and child.status in ('failed', 'cancelled')
  and wanted.parent_id in (select task.task_id from (select task_id collate "C" as task_id, part collate "C" as part, token, key collate "C" as key, seq from unnest($4::text[], $5::text[], $6::bigint[], $7::text[], $8::bigint[]) as each_row (task_id, part, token, key, seq)) given join flotilla.task task on task.task_id = given.task_id
where exists (select 1 from flotilla.step_journal stored
    where stored.owner_id = given.task_id and stored.part = given.part
      and stored.key = given.key
      and stored.token = given.token and stored.seq = given.seq)))) for update of task
-- values: ["{\"task-1\"}","{\"child-0\"}","{2}","{\"task-1\"}","{\"\"}","{2}","{\"read\"}","{3}"]

delete from flotilla.step_journal where owner_id in (
    select child.task_id from (select parent_id collate "C" as parent_id, task_id collate "C" as task_id, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (parent_id, task_id, token)) wanted
    join flotilla.task child on child.task_id = wanted.task_id
    where child.parent_id = wanted.parent_id and child.claim_token = wanted.token
      and child.status in ('failed', 'cancelled')
      and wanted.parent_id in (select task.task_id from (select task_id collate "C" as task_id, part collate "C" as part, token, key collate "C" as key, seq from unnest($4::text[], $5::text[], $6::bigint[], $7::text[], $8::bigint[]) as each_row (task_id, part, token, key, seq)) given join flotilla.task task on task.task_id = given.task_id
    where exists (select 1 from flotilla.step_journal stored
        where stored.owner_id = given.task_id and stored.part = given.part
          and stored.key = given.key
          and stored.token = given.token and stored.seq = given.seq))) and (part = '' or part >= 'A') and kind = 'failed'
-- values: ["{\"task-1\"}","{\"child-0\"}","{2}","{\"task-1\"}","{\"\"}","{2}","{\"read\"}","{3}"]

update flotilla.task set
  status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
  parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
  depends = case when depends = 3 then 1 else depends end,
  claim_token = claim_token + 1, claimed_by = null, run_at = now_ms(), last_update = now_ms(),
  cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
  then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
  error = null, progress = null, progress_token = claim_token + 1 where task_id = any(array(
    select child.task_id from (select parent_id collate "C" as parent_id, task_id collate "C" as task_id, token from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (parent_id, task_id, token)) wanted
    join flotilla.task child on child.task_id = wanted.task_id
    where child.parent_id = wanted.parent_id and child.claim_token = wanted.token
      and child.status in ('failed', 'cancelled')
      and wanted.parent_id in (select task.task_id from (select task_id collate "C" as task_id, part collate "C" as part, token, key collate "C" as key, seq from unnest($4::text[], $5::text[], $6::bigint[], $7::text[], $8::bigint[]) as each_row (task_id, part, token, key, seq)) given join flotilla.task task on task.task_id = given.task_id
    where exists (select 1 from flotilla.step_journal stored
        where stored.owner_id = given.task_id and stored.part = given.part
          and stored.key = given.key
          and stored.token = given.token and stored.seq = given.seq))))
-- values: ["{\"task-1\"}","{\"child-0\"}","{2}","{\"task-1\"}","{\"\"}","{2}","{\"read\"}","{3}"]

delete from flotilla.task_dependency
where dependent_id = any(array(select task.task_id from (select task_id collate "C" as task_id, part collate "C" as part, token, key collate "C" as key, seq from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[]) as each_row (task_id, part, token, key, seq)) given join flotilla.task task on task.task_id = given.task_id
where exists (select 1 from flotilla.step_journal stored
    where stored.owner_id = given.task_id and stored.part = given.part
      and stored.key = given.key
      and stored.token = given.token and stored.seq = given.seq)))
  and exists (select 1 from flotilla.task child join (select parent_id collate "C" as parent_id, name collate "C" as name, tenant collate "C" as tenant, unique_key collate "C" as unique_key, prefix collate "C" as prefix from unnest($6::text[], $7::text[], $8::text[], $9::text[], $10::text[]) as each_row (parent_id, name, tenant, unique_key, prefix)) wanted
      on substr(child.unique_key, 1, length(wanted.prefix)) = wanted.prefix
    where child.task_id = flotilla.task_dependency.dependency_id and child.parent_id = flotilla.task_dependency.dependent_id
      and wanted.parent_id = flotilla.task_dependency.dependent_id)
  and not exists (select 1 from flotilla.task child join (select parent_id collate "C" as parent_id, name collate "C" as name, tenant collate "C" as tenant, unique_key collate "C" as unique_key, prefix collate "C" as prefix from unnest($11::text[], $12::text[], $13::text[], $14::text[], $15::text[]) as each_row (parent_id, name, tenant, unique_key, prefix)) wanted
      on child.tenant = wanted.tenant and child.name = wanted.name
        and child.unique_key = wanted.unique_key
    where child.task_id = flotilla.task_dependency.dependency_id and wanted.parent_id = flotilla.task_dependency.dependent_id)
-- values: ["{\"task-1\"}","{\"\"}","{2}","{\"read\"}","{3}","{\"task-1\"}","{\"mail\"}","{\"default\"}","{\"run-1/charge/0\"}","{\"run-1/charge/\"}","{\"task-1\"}","{\"mail\"}","{\"default\"}","{\"run-1/charge/0\"}","{\"run-1/charge/\"}"]

delete from flotilla.task_dependency
where dependent_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent))
  and not exists (select 1 from flotilla.task child where child.task_id = flotilla.task_dependency.dependency_id)
-- values: ["{\"task-1\"}"]

insert into flotilla.task_dependency (dependency_id, dependent_id, place)
select fresh.dependency_id, fresh.dependent_id, fresh.place from (select dependency_id collate "C" as dependency_id, dependent_id collate "C" as dependent_id, place from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (dependency_id, dependent_id, place)) fresh
where exists (select 1 from flotilla.task child where child.task_id = fresh.dependency_id)
on conflict do nothing
-- values: ["{\"child-1\"}","{\"task-1\"}","{0}"]

update flotilla.task set dependents = dependents + 1 where task_id = any(array(select child.task_id from (select dependency_id collate "C" as dependency_id, dependent_id collate "C" as dependent_id, place from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (dependency_id, dependent_id, place)) fresh
    join flotilla.task child on child.task_id = fresh.dependency_id))
-- values: ["{\"child-1\"}","{\"task-1\"}","{0}"]

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
select dependency_id as id from flotilla.task_dependency
where dependent_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent))) named)) and coalesce(flotilla.task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["{\"task-1\"}"]

-- src/tasks/sql/step-children.ts: readStartedChildren
select task.tenant, child.task_id, child.status, child.claim_token
from flotilla.task task
left join flotilla.task_dependency wait on wait.dependent_id = task.task_id
left join flotilla.task child on child.task_id = wait.dependency_id and child.parent_id = task.task_id
  and substr(child.unique_key, 1, $1) = $2
where task.task_id = $3
-- values: [12,"task-1/read/","task-1"]

-- src/tasks/sql/step-children.ts: readStepChildren
select wait.place, child.task_id, child.name, child.status, child.result, child.error
from flotilla.task_dependency wait join flotilla.task child on child.task_id = wait.dependency_id
where wait.dependent_id = $1 and child.parent_id = $2
  and substr(child.unique_key, 1, $3) = $4
order by wait.place
-- values: ["task-1","task-1",12,"task-1/read/"]

-- src/tasks/sql/run-relations.ts: takeSignals
update flotilla.task_signal set taken = 1
from (select task_id collate "C" as task_id, signal_id collate "C" as signal_id from unnest($1::text[], $2::text[]) as each_row (task_id, signal_id)) used
where flotilla.task_signal.task_id = used.task_id and flotilla.task_signal.signal_id = used.signal_id
  and used.task_id in (select task.task_id from flotilla.task task where true)
-- values: ["{\"run-1\"}","{\"signal-1\"}"]

-- src/tasks/sql/run-relations.ts: startOver
  insert into flotilla.task_event (task_id, seq, type)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'retried' from flotilla.task task
  where task_id = any(array(
select child.task_id from (select parent_id collate "C" as parent_id, name collate "C" as name, tenant collate "C" as tenant, unique_key collate "C" as unique_key from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as each_row (parent_id, name, tenant, unique_key)) wanted
join flotilla.task child on child.tenant = wanted.tenant and child.name = wanted.name
  and child.unique_key = wanted.unique_key
where child.parent_id = wanted.parent_id and child.status in ('failed', 'cancelled')
  and wanted.parent_id in (select task.task_id from flotilla.task task where true))) for update of task
-- values: ["{\"run-1\"}","{\"mail\"}","{\"default\"}","{\"run-1/charge/0\"}"]

delete from flotilla.step_journal where owner_id in (
    select child.task_id from (select parent_id collate "C" as parent_id, name collate "C" as name, tenant collate "C" as tenant, unique_key collate "C" as unique_key from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as each_row (parent_id, name, tenant, unique_key)) wanted
    join flotilla.task child on child.tenant = wanted.tenant and child.name = wanted.name
      and child.unique_key = wanted.unique_key
    where child.parent_id = wanted.parent_id and child.status in ('failed', 'cancelled')
      and wanted.parent_id in (select task.task_id from flotilla.task task where true)) and (part = '' or part >= 'A') and kind = 'failed'
-- values: ["{\"run-1\"}","{\"mail\"}","{\"default\"}","{\"run-1/charge/0\"}"]

update flotilla.task set
  status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
  parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
  depends = case when depends = 3 then 1 else depends end,
  claim_token = claim_token + 1, claimed_by = null, run_at = now_ms(), last_update = now_ms(),
  cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
  then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
  error = null, progress = null, progress_token = claim_token + 1 where task_id = any(array(
    select child.task_id from (select parent_id collate "C" as parent_id, name collate "C" as name, tenant collate "C" as tenant, unique_key collate "C" as unique_key from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as each_row (parent_id, name, tenant, unique_key)) wanted
    join flotilla.task child on child.tenant = wanted.tenant and child.name = wanted.name
      and child.unique_key = wanted.unique_key
    where child.parent_id = wanted.parent_id and child.status in ('failed', 'cancelled')
      and wanted.parent_id in (select task.task_id from flotilla.task task where true)))
-- values: ["{\"run-1\"}","{\"mail\"}","{\"default\"}","{\"run-1/charge/0\"}"]

-- src/tasks/sql/run-relations.ts: deleteOtherChildren
delete from flotilla.task_dependency
where dependent_id = any(array(select task.task_id from flotilla.task task where true))
  and exists (select 1 from flotilla.task child join (select parent_id collate "C" as parent_id, name collate "C" as name, tenant collate "C" as tenant, unique_key collate "C" as unique_key, prefix collate "C" as prefix from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) as each_row (parent_id, name, tenant, unique_key, prefix)) wanted
      on substr(child.unique_key, 1, length(wanted.prefix)) = wanted.prefix
    where child.task_id = flotilla.task_dependency.dependency_id and child.parent_id = flotilla.task_dependency.dependent_id
      and wanted.parent_id = flotilla.task_dependency.dependent_id)
  and not exists (select 1 from flotilla.task child join (select parent_id collate "C" as parent_id, name collate "C" as name, tenant collate "C" as tenant, unique_key collate "C" as unique_key, prefix collate "C" as prefix from unnest($6::text[], $7::text[], $8::text[], $9::text[], $10::text[]) as each_row (parent_id, name, tenant, unique_key, prefix)) wanted
      on child.tenant = wanted.tenant and child.name = wanted.name
        and child.unique_key = wanted.unique_key
    where child.task_id = flotilla.task_dependency.dependency_id and wanted.parent_id = flotilla.task_dependency.dependent_id)
-- values: ["{\"run-1\"}","{\"mail\"}","{\"default\"}","{\"run-1/charge/0\"}","{\"run-1/charge/\"}","{\"run-1\"}","{\"mail\"}","{\"default\"}","{\"run-1/charge/0\"}","{\"run-1/charge/\"}"]

-- src/tasks/sql/run-relations.ts: startTasksOver
insert into flotilla.task_event (task_id, seq, type)
select task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'retried' from flotilla.task task
where task_id = any(array(select 'task-1')) for update of task

delete from flotilla.step_journal where owner_id in (select 'task-1') and (part = '' or part >= 'A') and kind = 'failed'

update flotilla.task set
  status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
  parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
  depends = case when depends = 3 then 1 else depends end,
  claim_token = claim_token + 1, claimed_by = null, run_at = now_ms(), last_update = now_ms(),
  cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
  then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
  error = null, progress = null, progress_token = claim_token + 1 where task_id = any(array(select 'task-1'))

-- src/tasks/sql/run-relations.ts: insertChildDependencies
delete from flotilla.task_dependency
where dependent_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent))
  and not exists (select 1 from flotilla.task child where child.task_id = flotilla.task_dependency.dependency_id)
-- values: ["{\"run-1\"}"]

insert into flotilla.task_dependency (dependency_id, dependent_id, place)
select fresh.dependency_id, fresh.dependent_id, fresh.place from (select dependency_id collate "C" as dependency_id, dependent_id collate "C" as dependent_id, place from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (dependency_id, dependent_id, place)) fresh
where exists (select 1 from flotilla.task child where child.task_id = fresh.dependency_id)
on conflict do nothing
-- values: ["{\"child-1\"}","{\"run-1\"}","{0}"]

update flotilla.task set dependents = dependents + 1 where task_id = any(array(select child.task_id from (select dependency_id collate "C" as dependency_id, dependent_id collate "C" as dependent_id, place from unnest($1::text[], $2::text[], $3::bigint[]) as each_row (dependency_id, dependent_id, place)) fresh
    join flotilla.task child on child.task_id = fresh.dependency_id))
-- values: ["{\"child-1\"}","{\"run-1\"}","{0}"]

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
select dependency_id as id from flotilla.task_dependency
where dependent_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent))) named)) and coalesce(flotilla.task.status, '') = 'pending' and (parked = 2
  or parked in (1, 5)
    and substr(awaits, 1, length(task_id) + 1) = task_id || '/')
-- values: ["{\"run-1\"}"]

-- src/tasks/sql/list.ts: isFailed
status = 'failed'

-- src/tasks/sql/list.ts: taskConditions
name = $1
-- values: ["mail"]

status = $1
-- values: ["failed"]

tenant = $1
-- values: ["acme"]

unique_key = $1
-- values: ["k"]

concurrency_key = $1
-- values: ["key/mail/k"]

claimed_by = $1 and status = 'claimed'
-- values: ["pod-1"]

(status = 'pending' and parked = 0 and deaths < 2 or status = 'pending' and parked = 4 and deaths < 2)

flotilla.json_of(payload) #> $1::text[] = $2::jsonb
-- values: ["{\"order\",\"id\"}","7"]

flotilla.json_of(payload) #> $1::text[] = $2::jsonb
-- values: ["{\"to\"}","\"ada\""]

-- src/tasks/sql/list.ts: walkTasks
with walked as materialized (
  select task_id, created_at, case when true then 500 + coalesce(octet_length(payload), 0) + coalesce(octet_length(state), 0) + coalesce(octet_length(progress), 0)
+ coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0) + coalesce(octet_length(waiting), 0)
+ coalesce(octet_length(intent), 0) + coalesce(octet_length(set_aside), 0)
+ case when depends = 0 then 0 else
  (select count(*) from flotilla.task_dependency wait where wait.dependent_id = task_id) * $1 end end as bytes
  from flotilla.task where  task_id < $2 and task_id >= $3
  order by task_id desc limit cast($4 as integer))
select task_id, created_at, bytes, null as walked from (
  select task_id, created_at, bytes from walked where bytes is not null
  order by task_id desc limit cast($5 as integer)) found
union all
select task_id, created_at, null, (select count(*) from walked) from (
  select task_id, created_at from walked order by task_id limit cast($6 as integer)) last
-- values: [40,"task-9","task-1",2000,11,1]

with walked as materialized (
  select task_id, created_at, case when name = $1 and status = $2 then 500 + coalesce(octet_length(payload), 0) + coalesce(octet_length(state), 0) + coalesce(octet_length(progress), 0)
+ coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0) + coalesce(octet_length(waiting), 0)
+ coalesce(octet_length(intent), 0) + coalesce(octet_length(set_aside), 0)
+ case when depends = 0 then 0 else
  (select count(*) from flotilla.task_dependency wait where wait.dependent_id = task_id) * $3 end end as bytes
  from flotilla.task where status = 'failed' and task_id < $4 and task_id >= $5
  order by task_id desc limit cast($6 as integer))
select task_id, created_at, bytes, null as walked from (
  select task_id, created_at, bytes from walked where bytes is not null
  order by task_id desc limit cast($7 as integer)) found
union all
select task_id, created_at, null, (select count(*) from walked) from (
  select task_id, created_at from walked order by task_id limit cast($8 as integer)) last
-- values: ["mail","failed",40,"task-9","task-1",2000,11,1]

-- src/tasks/sql/list.ts: isRunNamed
flow_version is not null and name = $1
-- values: ["order"]

-- src/tasks/sql/list.ts: isAmongIds
task_id = any(array(select given.task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) given))
-- values: ["{\"task-2\",\"task-1\"}"]

-- src/tasks/sql/list.ts: tasksSetAside
select task_id from flotilla.task where  status = 'pending' and parked = 6 order by name limit cast($1 as integer)
-- values: [10]

select task_id from flotilla.task where name = $1 and status = 'pending' and parked = 6 order by name limit cast($2 as integer)
-- values: ["order",10]

-- src/tasks/sql/list.ts: checkTasks
select task_id, created_at, bytes, null as walked from (
  select task_id, created_at, 500 + coalesce(octet_length(payload), 0) + coalesce(octet_length(state), 0) + coalesce(octet_length(progress), 0)
+ coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0) + coalesce(octet_length(waiting), 0)
+ coalesce(octet_length(intent), 0) + coalesce(octet_length(set_aside), 0)
+ case when depends = 0 then 0 else
  (select count(*) from flotilla.task_dependency wait where wait.dependent_id = task_id) * $1 end as bytes from flotilla.task
  where task_id = any(array(select given.task_id from (select task_id collate "C" as task_id from unnest($2::text[]) as each_row (task_id)) given)) and true
  order by task_id desc limit cast($3 as integer)) found
union all
select task_id, created_at, null, cast($4 as integer) from flotilla.task
where task_id = $5
-- values: [40,"{\"task-2\",\"task-1\"}",11,2,"task-1"]

-- src/tasks/sql/list.ts: readListed
select * from flotilla.task where task_id = any(array(select given.task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) given)) and name = $2 order by task_id desc
-- values: ["{\"task-2\"}","mail"]

-- src/tasks/sql/list.ts: runningTasks
select task_id from flotilla.task where status = 'claimed'
order by claimed_by, claim_call limit cast($1 as integer)
-- values: [10]

select task_id from flotilla.task where status = 'claimed' and claimed_by = $1
order by claimed_by, claim_call limit cast($2 as integer)
-- values: ["pod-1",10]

select task_id from flotilla.task
where coalesce(status, '') = 'claimed' and concurrency_key is not null
  and concurrency_key >= $1 and concurrency_key <= $2
order by concurrency_key limit cast($3 as integer)
-- values: ["key/mail/k","key/mail/k",10]

-- src/tasks/sql/list.ts: pendingTasks
select task_id from (select task_id from (
      select task_id from flotilla.task where  status = 'pending' and parked = 0 and deaths < 2
      order by name, priority desc, created_at, task_id limit cast($1 as integer)) ready union all select task_id from (
      select task_id from flotilla.task where  status = 'pending' and parked = 0 and deaths >= 2
      order by name, created_at, task_id limit cast($2 as integer)) alone union all select task_id from (
      select task_id from flotilla.task where  status = 'pending' and parked = 4 and deaths < 2
      order by name, tenant, priority desc, created_at, task_id limit cast($3 as integer)) limited union all select task_id from (
      select task_id from flotilla.task where  status = 'pending' and parked = 4 and deaths >= 2
      order by name, created_at, task_id limit cast($4 as integer)) limited_alone union all select task_id from (
      select task_id from flotilla.task where  status = 'pending' and parked = 5
      order by name, name limit cast($5 as integer)) for_signal union all select task_id from (
      select task_id from flotilla.task where  status = 'pending' and parked = 6
      order by name, name limit cast($6 as integer)) set_aside union all select task_id from (
      select task_id from flotilla.task where  status = 'pending' and parked = 1
      order by run_at limit cast($7 as integer)) delayed union all select task_id from (
      select task_id from flotilla.task where  status = 'pending' and parked = 2
      order by task_id limit cast($8 as integer)) for_tasks union all select task_id from (
      select task_id from flotilla.task where  status = 'pending' and parked = 3
      order by blocked_by, priority desc, created_at, task_id limit cast($9 as integer)) blocked) pending limit cast($10 as integer)
-- values: [10,10,10,10,10,10,10,10,10,10]

select task_id from (select task_id from (
      select task_id from flotilla.task where name = $1 and status = 'pending' and parked = 0 and deaths < 2
      order by priority desc, created_at, task_id limit cast($2 as integer)) ready union all select task_id from (
      select task_id from flotilla.task where name = $3 and status = 'pending' and parked = 0 and deaths >= 2
      order by created_at, task_id limit cast($4 as integer)) alone union all select task_id from (
      select task_id from flotilla.task where name = $5 and status = 'pending' and parked = 4 and deaths < 2
      order by tenant, priority desc, created_at, task_id limit cast($6 as integer)) limited union all select task_id from (
      select task_id from flotilla.task where name = $7 and status = 'pending' and parked = 4 and deaths >= 2
      order by created_at, task_id limit cast($8 as integer)) limited_alone union all select task_id from (
      select task_id from flotilla.task where name = $9 and status = 'pending' and parked = 5
      order by name limit cast($10 as integer)) for_signal union all select task_id from (
      select task_id from flotilla.task where name = $11 and status = 'pending' and parked = 6
      order by name limit cast($12 as integer)) set_aside union all select task_id from (
      select task_id from flotilla.task where  status = 'pending' and parked = 1
      order by run_at limit cast($13 as integer)) delayed union all select task_id from (
      select task_id from flotilla.task where  status = 'pending' and parked = 2
      order by task_id limit cast($14 as integer)) for_tasks union all select task_id from (
      select task_id from flotilla.task where  status = 'pending' and parked = 3
      order by blocked_by, priority desc, created_at, task_id limit cast($15 as integer)) blocked) pending limit cast($16 as integer)
-- values: ["mail",10,"mail",10,"mail",10,"mail",10,"mail",10,"mail",10,10,10,10,10]

select task_id from (select task_id from (
      select task_id from flotilla.task where  status = 'pending' and parked = 1
      order by run_at limit cast($1 as integer)) delayed) pending limit cast($2 as integer)
-- values: [10,10]

select task_id from (select task_id from (
      select task_id from flotilla.task where  status = 'pending' and parked = 0 and deaths < 2
      order by name, priority desc, created_at, task_id limit cast($1 as integer)) ready union all select task_id from (
      select task_id from flotilla.task where  status = 'pending' and parked = 4 and deaths < 2
      order by name, tenant, priority desc, created_at, task_id limit cast($2 as integer)) limited) pending limit cast($3 as integer)
-- values: [10,10,10]

-- src/tasks/sql/list.ts: openTasks
select task_id from (
  select task_id from (
  select task_id from flotilla.task where status = 'claimed'
  order by claimed_by, claim_call limit cast($1 as integer)) running
  union all
  select task_id from (select task_id from (select task_id from (
  select task_id from flotilla.task where name = $2 and status = 'pending' and parked = 0 and deaths < 2
  order by priority desc, created_at, task_id limit cast($3 as integer)) ready union all select task_id from (
  select task_id from flotilla.task where name = $4 and status = 'pending' and parked = 0 and deaths >= 2
  order by created_at, task_id limit cast($5 as integer)) alone union all select task_id from (
  select task_id from flotilla.task where name = $6 and status = 'pending' and parked = 4 and deaths < 2
  order by tenant, priority desc, created_at, task_id limit cast($7 as integer)) limited union all select task_id from (
  select task_id from flotilla.task where name = $8 and status = 'pending' and parked = 4 and deaths >= 2
  order by created_at, task_id limit cast($9 as integer)) limited_alone union all select task_id from (
  select task_id from flotilla.task where name = $10 and status = 'pending' and parked = 5
  order by name limit cast($11 as integer)) for_signal union all select task_id from (
  select task_id from flotilla.task where name = $12 and status = 'pending' and parked = 6
  order by name limit cast($13 as integer)) set_aside union all select task_id from (
  select task_id from flotilla.task where  status = 'pending' and parked = 1
  order by run_at limit cast($14 as integer)) delayed union all select task_id from (
  select task_id from flotilla.task where  status = 'pending' and parked = 2
  order by task_id limit cast($15 as integer)) for_tasks union all select task_id from (
  select task_id from flotilla.task where  status = 'pending' and parked = 3
  order by blocked_by, priority desc, created_at, task_id limit cast($16 as integer)) blocked) pending limit cast($17 as integer)) pending) open limit cast($18 as integer)
-- values: [10,"mail",10,"mail",10,"mail",10,"mail",10,"mail",10,"mail",10,10,10,10,10,10]

-- src/tasks/sql/list.ts: tasksOfIds
select task_id from flotilla.task where task_id = any(array(select given.task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) given))
-- values: ["{\"task-1\",\"task-2\"}"]

-- src/tasks/sql/list.ts: tasksOfKey
with recursive step (tenant) as (
  select (select min(tenant) from flotilla.task where unique_key is not null)
  union all
  select (select min(task.tenant) from flotilla.task task
    where task.tenant > step.tenant and task.unique_key is not null)
  from step where step.tenant is not null),
found as (select tenant from step where tenant is not null limit cast($1 as integer))
select (select task_id from flotilla.task where tenant = found.tenant and name = $2 and unique_key = $3 and unique_key is not null) as task_id
from found
-- values: [201,"mail","k"]

select task_id from flotilla.task where tenant = $1 and name = $2 and unique_key = $3 and unique_key is not null
-- values: ["acme","mail","k"]

-- src/tasks/sql/list.ts: countNewest
select name, status, count(*) as tasks from (
  select name, status from flotilla.task where task_id < $1 and task_id >= $2
  order by task_id desc limit cast($3 as integer)) newest
group by name, status order by name, status
-- values: ["􏿿","",10000]

-- src/tasks/sql/list.ts: countHeld
select name, count(*) as tasks from (
  select name from flotilla.task where status = 'pending' and parked = 5 order by name limit cast($1 as integer)) for_signal
group by name
union all
select name, count(*) from (
  select name from flotilla.task where status = 'pending' and parked = 6 order by name limit cast($2 as integer)) set_aside
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
      (select count(*) from flotilla.task_dependency wait where wait.dependent_id = task_id) * $1 end
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
select task_id from flotilla.task task where task_id = any(array(
    select child.task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent
    join flotilla.task_dependency wait on wait.dependent_id = parent.task_id
    join flotilla.task child on child.task_id = wait.dependency_id
    where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
      and child.cancel_requested = 0
      and parent.task_id in (select task.task_id from flotilla.task task where true))) order by task_id for update of task
-- values: ["{\"run-1\"}"]

  insert into flotilla.task_event (task_id, seq, type)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'cancel_requested' from flotilla.task task
  where task_id = any(array(
select child.task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent
join flotilla.task_dependency wait on wait.dependent_id = parent.task_id
join flotilla.task child on child.task_id = wait.dependency_id
where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
  and child.cancel_requested = 0
  and parent.task_id in (select task.task_id from flotilla.task task where true)))
-- values: ["{\"run-1\"}"]

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
    and parent.task_id in (select task.task_id from flotilla.task task where true)))
-- values: ["{\"run-1\"}"]

-- src/tasks/sql/inspect.ts: cancelChildrenOf
select task_id from flotilla.task task where task_id = any(array(
    select child.task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent
    join flotilla.task_dependency wait on wait.dependent_id = parent.task_id
    join flotilla.task child on child.task_id = wait.dependency_id
    where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
      and child.cancel_requested = 0
      and parent.task_id in (select task.task_id from (select task_id collate "C" as task_id, token from unnest($2::text[], $3::bigint[]) as each_row (task_id, token)) given
    join flotilla.task task on task.task_id = given.task_id
    where task.status = 'cancelled' and task.claim_token = given.token))) order by task_id for update of task
-- values: ["{\"task-1\"}","{\"task-1\"}","{2}"]

  insert into flotilla.task_event (task_id, seq, type)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'cancel_requested' from flotilla.task task
  where task_id = any(array(
select child.task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent
join flotilla.task_dependency wait on wait.dependent_id = parent.task_id
join flotilla.task child on child.task_id = wait.dependency_id
where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
  and child.cancel_requested = 0
  and parent.task_id in (select task.task_id from (select task_id collate "C" as task_id, token from unnest($2::text[], $3::bigint[]) as each_row (task_id, token)) given
join flotilla.task task on task.task_id = given.task_id
where task.status = 'cancelled' and task.claim_token = given.token)))
-- values: ["{\"task-1\"}","{\"task-1\"}","{2}"]

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
    and parent.task_id in (select task.task_id from (select task_id collate "C" as task_id, token from unnest($2::text[], $3::bigint[]) as each_row (task_id, token)) given
  join flotilla.task task on task.task_id = given.task_id
  where task.status = 'cancelled' and task.claim_token = given.token)))
-- values: ["{\"task-1\"}","{\"task-1\"}","{2}"]

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

-- src/tasks/sql/inspect.ts: cancelTask
select task_id from flotilla.task task where task_id = $1 and status in ('pending', 'claimed') for update of task
-- values: ["task-1"]

  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, case when flow_version is null then $8 else $9 end, $10, $11,
    cast($12 as bigint), '{"status":"' || status || '"}', case when status = 'pending' and flow_version is null or status = 'pending' and flow_version is not null and parked = 6
      then '{"status":"cancelled"}' else '{"status":"cancelling"}' end,
    case when exists (
select 1 from flotilla.audit past where past.action = $13 and past.outcome = 'full') then null else $14 end, $15, $16
  from flotilla.task where task_id = $17 and status in ('pending', 'claimed') and cancel_requested = 0 and not exists (
  select 1 from flotilla.task_event past
  where past.task_id = $18
    and case when past.type in ('cancel_requested', 'given_up', 'resume')
      then past.detail like $19 and past.detail not like $20 || cast(wake + 1 as text) || '}' else false end) or task_id = $21 and status in ('pending', 'claimed') and status = 'pending' and flow_version is not null and parked = 6 and not exists (
  select 1 from flotilla.task_event past
  where past.task_id = $22
    and case when past.type in ('cancel_requested', 'given_up', 'resume')
      then past.detail like $23 and past.detail not like $24 || cast(wake + 1 as text) || '}' else false end)
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","runs.cancel","task-1",null,1,"audit.full","done",null,"click-1","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

select task_id from flotilla.task task where task_id = any(array(
    select child.task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent
    join flotilla.task_dependency wait on wait.dependent_id = parent.task_id
    join flotilla.task child on child.task_id = wait.dependency_id
    where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
      and child.cancel_requested = 0
      and parent.task_id in (select task.task_id from flotilla.task task
      where task.task_id in (
        select task_id from flotilla.task where task_id = $2 and status in ('pending', 'claimed') and status = 'pending' and flow_version is not null and parked = 6 and not exists (
    select 1 from flotilla.task_event past
    where past.task_id = $3
      and case when past.type in ('cancel_requested', 'given_up', 'resume')
        then past.detail like $4 and past.detail not like $5 || cast(wake + 1 as text) || '}' else false end) or (task_id = $6 and status in ('pending', 'claimed') and cancel_requested = 0 and not exists (
    select 1 from flotilla.task_event past
    where past.task_id = $7
      and case when past.type in ('cancel_requested', 'given_up', 'resume')
        then past.detail like $8 and past.detail not like $9 || cast(wake + 1 as text) || '}' else false end) and status = 'pending' and flow_version is null))))) order by task_id for update of task
-- values: ["{\"task-1\"}","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

  insert into flotilla.task_event (task_id, seq, type)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'cancel_requested' from flotilla.task task
  where task_id = any(array(
select child.task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) parent
join flotilla.task_dependency wait on wait.dependent_id = parent.task_id
join flotilla.task child on child.task_id = wait.dependency_id
where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
  and child.cancel_requested = 0
  and parent.task_id in (select task.task_id from flotilla.task task
  where task.task_id in (
    select task_id from flotilla.task where task_id = $2 and status in ('pending', 'claimed') and status = 'pending' and flow_version is not null and parked = 6 and not exists (
select 1 from flotilla.task_event past
where past.task_id = $3
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like $4 and past.detail not like $5 || cast(wake + 1 as text) || '}' else false end) or (task_id = $6 and status in ('pending', 'claimed') and cancel_requested = 0 and not exists (
select 1 from flotilla.task_event past
where past.task_id = $7
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like $8 and past.detail not like $9 || cast(wake + 1 as text) || '}' else false end) and status = 'pending' and flow_version is null)))))
-- values: ["{\"task-1\"}","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

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
    and parent.task_id in (select task.task_id from flotilla.task task
    where task.task_id in (
      select task_id from flotilla.task where task_id = $2 and status in ('pending', 'claimed') and status = 'pending' and flow_version is not null and parked = 6 and not exists (
  select 1 from flotilla.task_event past
  where past.task_id = $3
    and case when past.type in ('cancel_requested', 'given_up', 'resume')
      then past.detail like $4 and past.detail not like $5 || cast(wake + 1 as text) || '}' else false end) or (task_id = $6 and status in ('pending', 'claimed') and cancel_requested = 0 and not exists (
  select 1 from flotilla.task_event past
  where past.task_id = $7
    and case when past.type in ('cancel_requested', 'given_up', 'resume')
      then past.detail like $8 and past.detail not like $9 || cast(wake + 1 as text) || '}' else false end) and status = 'pending' and flow_version is null)))))
-- values: ["{\"task-1\"}","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

  insert into flotilla.task_event (task_id, seq, type, detail)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'cancel_requested', '{' || $1 || cast(wake + 1 as text) || '}'
  from flotilla.task task where task_id = $2 and status in ('pending', 'claimed') and cancel_requested = 0 and not exists (
select 1 from flotilla.task_event past
where past.task_id = $3
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like $4 and past.detail not like $5 || cast(wake + 1 as text) || '}' else false end)
-- values: ["\"request\":\"request-1\",\"wake\":","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

  insert into flotilla.task_event (task_id, seq, type, detail)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'given_up', '{' || $1 || cast(wake + 1 as text) || '}'
  from flotilla.task task where task_id = $2 and status in ('pending', 'claimed') and status = 'pending' and flow_version is not null and parked = 6 and not exists (
select 1 from flotilla.task_event past
where past.task_id = $3
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like $4 and past.detail not like $5 || cast(wake + 1 as text) || '}' else false end)
-- values: ["\"request\":\"request-1\",\"wake\":","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

    update flotilla.task
    set
cancel_requested = 1, wake = wake + 1, last_update = now_ms(),
claim_token = claim_token + case when (status = 'pending' and flow_version is null or status = 'pending' and flow_version is not null and parked = 6) then 1 else 0 end,
status = case when (status = 'pending' and flow_version is null or status = 'pending' and flow_version is not null and parked = 6) then 'cancelled' else status end,
run_at = case when flow_version is not null and status = 'pending' and run_at > now_ms()
  then now_ms() else run_at end,
parked = case when flow_version is not null and status = 'pending' and parked in (1, 2, 5)
  then case when limited = 1 then 4 else 0 end else parked end
    where task_id = $1 and status in ('pending', 'claimed') and cancel_requested = 0 and not exists (
  select 1 from flotilla.task_event past
  where past.task_id = $2
    and case when past.type in ('cancel_requested', 'given_up', 'resume')
      then past.detail like $3 and past.detail not like $4 || cast(wake + 1 as text) || '}' else false end) or task_id = $5 and status in ('pending', 'claimed') and status = 'pending' and flow_version is not null and parked = 6 and not exists (
  select 1 from flotilla.task_event past
  where past.task_id = $6
    and case when past.type in ('cancel_requested', 'given_up', 'resume')
      then past.detail like $7 and past.detail not like $8 || cast(wake + 1 as text) || '}' else false end)
-- values: ["task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

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

select status, cancel_requested, concurrency_key from flotilla.task where task_id = $1
-- values: ["task-1"]

-- src/tasks/sql/inspect.ts: retryTask
select task_id from flotilla.task task where ctid = any(array(
    select (select ctid from flotilla.task task where task.task_id = named.id)
    from (
    select distinct child.parent_id as id from flotilla.task child
    where child.task_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) started))
      and child.parent_id is not null ) named))
      order by task_id for update of task
-- values: ["{\"task-1\"}"]

      insert into flotilla.task_event (task_id, seq, type, detail)
      select task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'retried',
        $1 || cast(task.claim_token + 1 as text) || '}'
      from flotilla.task task where task_id = $2 and status in ('failed', 'cancelled') and not exists (
select 1 from flotilla.task_event past
where past.task_id = $3 and past.type = 'retried' and past.detail like $4) for update of task
-- values: ["{\"request\":\"request-1\",\"token\":","task-1","task-1","{\"request\":\"request-1\",\"token\":%"]

delete from flotilla.step_journal where owner_id in (select task_id from flotilla.task where task_id = $1 and status in ('failed', 'cancelled') and exists (
    select 1 from flotilla.task_event past
    where past.task_id = flotilla.task.task_id and past.type = 'retried'
      and past.detail = $2 || cast(flotilla.task.claim_token + 1 as text) || '}')) and (part = '' or part >= 'A') and kind = 'failed'
-- values: ["task-1","{\"request\":\"request-1\",\"token\":"]

update flotilla.task set
  status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
  parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
  depends = case when depends = 3 then 1 else depends end,
  claim_token = claim_token + 1, claimed_by = null, run_at = now_ms(), last_update = now_ms(),
  cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
  then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
  error = null, progress = null, progress_token = claim_token + 1
          where task_id = $1 and status in ('failed', 'cancelled') and exists (
    select 1 from flotilla.task_event past
    where past.task_id = flotilla.task.task_id and past.type = 'retried'
      and past.detail = $2 || cast(flotilla.task.claim_token + 1 as text) || '}')
-- values: ["task-1","{\"request\":\"request-1\",\"token\":"]

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

select status, case when exists (
    select 1 from flotilla.task_event past
    where past.task_id = $1 and past.type = 'retried' and past.detail like $2) then 1 else 0 end as retried
      from flotilla.task where task_id = $3
-- values: ["task-1","{\"request\":\"request-1\",\"token\":%","task-1"]

select task_id from flotilla.task task where ctid = any(array(
    select (select ctid from flotilla.task task where task.task_id = named.id)
    from (
    select distinct child.parent_id as id from flotilla.task child
    where child.task_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) started))
      and child.parent_id is not null ) named))
      order by task_id for update of task
-- values: ["{\"task-1\"}"]

      insert into flotilla.task_event (task_id, seq, type, detail)
      select task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'retried',
        $1 || cast(task.claim_token + 1 as text) || '}'
      from flotilla.task task where task_id = $2 and status in ('failed', 'cancelled') and not exists (
select 1 from flotilla.task_event past
where past.task_id = $3 and past.type = 'retried' and past.detail like $4) for update of task
-- values: ["{\"request\":\"request-1\",\"token\":","task-1","task-1","{\"request\":\"request-1\",\"token\":%"]

delete from flotilla.step_journal where owner_id in (select task_id from flotilla.task where task_id = $1 and status in ('failed', 'cancelled') and exists (
    select 1 from flotilla.task_event past
    where past.task_id = flotilla.task.task_id and past.type = 'retried'
      and past.detail = $2 || cast(flotilla.task.claim_token + 1 as text) || '}')) and (part = '' or part >= 'A')
-- values: ["task-1","{\"request\":\"request-1\",\"token\":"]

update flotilla.task set
  status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
  parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
  depends = case when depends = 3 then 1 else depends end,
  claim_token = claim_token + 1, claimed_by = null, run_at = now_ms(), last_update = now_ms(),
  cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
  then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
  error = null, progress = null, progress_token = claim_token + 1 , task_version = null, begun_version = null
          where task_id = $1 and status in ('failed', 'cancelled') and exists (
    select 1 from flotilla.task_event past
    where past.task_id = flotilla.task.task_id and past.type = 'retried'
      and past.detail = $2 || cast(flotilla.task.claim_token + 1 as text) || '}')
-- values: ["task-1","{\"request\":\"request-1\",\"token\":"]

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

select status, case when exists (
    select 1 from flotilla.task_event past
    where past.task_id = $1 and past.type = 'retried' and past.detail like $2) then 1 else 0 end as retried
      from flotilla.task where task_id = $3
-- values: ["task-1","{\"request\":\"request-1\",\"token\":%","task-1"]

select task_id from flotilla.task task where ctid = any(array(
    select (select ctid from flotilla.task task where task.task_id = named.id)
    from (
    select distinct child.parent_id as id from flotilla.task child
    where child.task_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) started))
      and child.parent_id is not null ) named))
      order by task_id for update of task
-- values: ["{\"task-1\"}"]

      insert into flotilla.task_event (task_id, seq, type, detail)
      select task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'retried',
        $1 || cast(task.claim_token + 1 as text) || '}'
      from flotilla.task task where task_id = $2 and status in ('failed', 'cancelled') and not exists (
select 1 from flotilla.task_event past
where past.task_id = $3 and past.type = 'retried' and past.detail like $4) for update of task
-- values: ["{\"request\":\"request-1\",\"token\":","task-1","task-1","{\"request\":\"request-1\",\"token\":%"]

  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, case when flow_version is null then $8 else $9 end, $10, $11,
    cast($12 as bigint), '{"status":"' || status || '"}', $13,
    case when exists (
select 1 from flotilla.audit past where past.action = $14 and past.outcome = 'full') then null else $15 end, $16, $17
  from flotilla.task where task_id = $18 and status in ('failed', 'cancelled') and exists (
  select 1 from flotilla.task_event past
  where past.task_id = flotilla.task.task_id and past.type = 'retried'
    and past.detail = $19 || cast(flotilla.task.claim_token + 1 as text) || '}')
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.resume","runs.resume","task-1",null,1,null,"audit.full","done",null,"click-1","task-1","{\"request\":\"request-1\",\"token\":"]

delete from flotilla.step_journal where owner_id in (select task_id from flotilla.task where task_id = $1 and status in ('failed', 'cancelled') and exists (
    select 1 from flotilla.task_event past
    where past.task_id = flotilla.task.task_id and past.type = 'retried'
      and past.detail = $2 || cast(flotilla.task.claim_token + 1 as text) || '}')) and (part = '' or part >= 'A') and kind = 'failed'
-- values: ["task-1","{\"request\":\"request-1\",\"token\":"]

delete from flotilla.step_journal where owner_id in (select task_id from flotilla.task where task_id = $1 and status in ('failed', 'cancelled') and exists (
select 1 from flotilla.task_event past
where past.task_id = flotilla.task.task_id and past.type = 'retried'
  and past.detail = $2 || cast(flotilla.task.claim_token + 1 as text) || '}')) and (part = '' or part >= 'A')
  and exists (select 1 from (select low collate "C" as low, high collate "C" as high from unnest($3::text[], $4::text[]) as each_row (low, high)) wanted
    where flotilla.step_journal.key >= wanted.low and flotilla.step_journal.key < wanted.high)
-- values: ["task-1","{\"request\":\"request-1\",\"token\":","{\"read\",\"read/\",\"read@\"}","{\"read\u0001\",\"read0\",\"readA\"}"]

update flotilla.task set
  status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
  parked = case when depends > 0 then 2 else case when limited = 1 then 4 else 0 end end,
  depends = case when depends = 3 then 1 else depends end,
  claim_token = claim_token + 1, claimed_by = null, run_at = now_ms(), last_update = now_ms(),
  cursor = case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
  then cursor else coalesce(stopped_at, cursor) end, intent = null, waiting = null,
  error = null, progress = null, progress_token = claim_token + 1
          where task_id = $1 and status in ('failed', 'cancelled') and exists (
    select 1 from flotilla.task_event past
    where past.task_id = flotilla.task.task_id and past.type = 'retried'
      and past.detail = $2 || cast(flotilla.task.claim_token + 1 as text) || '}')
-- values: ["task-1","{\"request\":\"request-1\",\"token\":"]

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

select status, case when exists (
    select 1 from flotilla.task_event past
    where past.task_id = $1 and past.type = 'retried' and past.detail like $2) then 1 else 0 end as retried
      from flotilla.task where task_id = $3
-- values: ["task-1","{\"request\":\"request-1\",\"token\":%","task-1"]

-- src/tasks/sql/inspect.ts: resumeTask
  insert into flotilla.task_event (task_id, seq, type, detail)
  select task_id, (select coalesce(max(seq), 0) + 1 from flotilla.task_event past where past.task_id = task.task_id), 'resume', $1 || $2 || cast(wake + 1 as text) || '}'
  from flotilla.task task where task_id = $3 and status = 'pending' and flow_version is null
and parked = 6 and not exists (
select 1 from flotilla.task_event past
where past.task_id = $4
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like $5 and past.detail not like $6 || cast(wake + 1 as text) || '}' else false end) for update of task
-- values: ["{\"forget\":[\"read\"],","\"request\":\"request-1\",\"wake\":","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, $8, $9, $10,
    cast($11 as bigint), $12, $13,
    case when exists (
select 1 from flotilla.audit past where past.action = $14 and past.outcome = 'full') then null else $15 end, $16, $17
  from flotilla.task where task_id = $18 and status = 'pending' and flow_version is null
  and parked = 6 and not exists (
  select 1 from flotilla.task_event past
  where past.task_id = $19
    and case when past.type in ('cancel_requested', 'given_up', 'resume')
      then past.detail like $20 and past.detail not like $21 || cast(wake + 1 as text) || '}' else false end)
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"{\"status\":\"set_aside\"}",null,"audit.full","done",null,"click-1","task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

delete from flotilla.step_journal where owner_id in (select task_id from flotilla.task where task_id = $1 and status = 'pending' and flow_version is null
and parked = 6 and not exists (
select 1 from flotilla.task_event past
where past.task_id = $2
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like $3 and past.detail not like $4 || cast(wake + 1 as text) || '}' else false end)) and (part = '' or part >= 'A')
  and exists (select 1 from (select low collate "C" as low, high collate "C" as high from unnest($5::text[], $6::text[]) as each_row (low, high)) wanted
    where flotilla.step_journal.key >= wanted.low and flotilla.step_journal.key < wanted.high)
-- values: ["task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":","{\"read\",\"read/\",\"read@\"}","{\"read\u0001\",\"read0\",\"readA\"}"]

  update flotilla.task set parked = case when limited = 1 then 4 else 0 end, set_aside = null, last_update = now_ms(),
    wake = wake + 1
  where task_id = $1 and status = 'pending' and flow_version is null
and parked = 6 and not exists (
select 1 from flotilla.task_event past
where past.task_id = $2
  and case when past.type in ('cancel_requested', 'given_up', 'resume')
    then past.detail like $3 and past.detail not like $4 || cast(wake + 1 as text) || '}' else false end)
-- values: ["task-1","task-1","%\"request\":\"request-1\",\"wake\":%","%\"request\":\"request-1\",\"wake\":"]

select status, parked, flow_version, case when exists (
    select 1 from flotilla.task_event past
    where past.task_id = $1
      and case when past.type in ('cancel_requested', 'given_up', 'resume')
        then past.detail like $2 and true else false end) then 1 else 0 end as resumed
      from flotilla.task where task_id = $3
-- values: ["task-1","%\"request\":\"request-1\",\"wake\":%","task-1"]

-- src/tasks/sql/inspect.ts: readTenant
select tenant from flotilla.task where task_id = $1
-- values: ["task-1"]

-- src/tasks/sql/inspect.ts: getTask
select * from flotilla.task where task_id = $1
-- values: ["task-1"]

-- src/tasks/sql/inspect.ts: getTasks
select * from flotilla.task where task_id = any(array(select task_id from (select task_id collate "C" as task_id from unnest($1::text[]) as each_row (task_id)) wanted))
-- values: ["{\"task-1\"}"]

-- src/tasks/sql/inspect.ts: countTasks
select name, status, count(*) as tasks from flotilla.task group by name, status order by name, status

-- src/tasks/sql/inspect.ts: countClaimed
select claimed_by, count(*) as tasks from (
  select claimed_by from flotilla.task where status = 'claimed'
  order by claimed_by, claim_call limit cast($1 as integer)) held
group by claimed_by
-- values: [10000]

-- src/tasks/sql/inspect.ts: namesWaiting
with recursive step (name) as (
  select (select min(name) from flotilla.task where status = 'pending' and parked = 0 and deaths < 2)
  union all
  select (select min(task.name) from flotilla.task task
    where task.name > step.name and task.status = 'pending' and task.parked = 0 and task.deaths < 2)
  from step where step.name is not null)
select name from step where name is not null limit cast($1 as integer)
-- values: [2000]

-- src/tasks/sql/inspect.ts: readyDepth
select level.name,
  (select count(*) from (
    select 1 from flotilla.task task
    where task.name = level.name and task.priority = level.priority
      and task.status = 'pending' and task.parked = 0 and task.deaths < 2
    order by task.created_at, task.task_id limit cast($1 as integer)) counted) as tasks,
  (select now_ms() - min(run_at) from (
    select task.run_at from flotilla.task task
    where task.name = level.name and task.priority = level.priority
      and task.status = 'pending' and task.parked = 0 and task.deaths < 2
    order by task.created_at, task.task_id limit cast($2 as integer)) first) as age_ms
from (select name collate "C" as name, priority from unnest($3::text[], $4::bigint[]) as each_row (name, priority)) level
-- values: [10000,100,"{\"mail\",\"order\"}","{0,1}"]

-- src/tasks/sql/inspect.ts: otherDepths
select 'delayed' as state, name, count(*) as tasks, now_ms() - min(run_at) as age_ms from (
  select name, run_at from flotilla.task where status = 'pending' and parked = 1
  order by run_at limit cast($1 as integer)) delayed group by name
union all
select 'waiting', name, count(*), null from (
  select name from flotilla.task where status = 'pending' and parked = 2
  order by task_id limit cast($2 as integer)) waiting group by name
union all
select 'blocked', name, count(*), null from (
  select name from flotilla.task where status = 'pending' and parked = 3
  order by blocked_by, priority desc, created_at, task_id limit cast($3 as integer)) blocked group by name
union all
select 'ready', name, count(*), now_ms() - min(run_at) from (
  select name, run_at from flotilla.task where status = 'pending' and parked = 4 and deaths < 2
  order by name, tenant, priority desc, created_at, task_id limit cast($4 as integer)) ready group by name
union all
select 'alone', name, count(*), now_ms() - min(run_at) from (
  select name, run_at from flotilla.task where status = 'pending' and parked = 0 and deaths >= 2
  order by name, created_at, task_id limit cast($5 as integer)) alone group by name
union all
select 'alone', name, count(*), now_ms() - min(run_at) from (
  select name, run_at from flotilla.task where status = 'pending' and parked = 4 and deaths >= 2
  order by name, created_at, task_id limit cast($6 as integer)) alone group by name
union all
select 'running', name, count(*), null from (
  select name from flotilla.task where status = 'claimed'
  order by claimed_by, claim_call limit cast($7 as integer)) running group by name
union all
select 'failed', name, count(*), null from (
  select name from flotilla.task where status = 'failed'
  order by task_id desc limit cast($8 as integer)) failed group by name
-- values: [10000,10000,10000,10000,10000,10000,10000,10000]

-- src/tasks/sql/inspect.ts: nextDue
select run_at - now_ms() as wait_ms from flotilla.task
where status = 'pending' and parked = 1 order by run_at limit cast($1 as integer)
-- values: [1]

-- src/tasks/sql/inspect.ts: tasksInClaimOrder
select task_id from (select * from (
    select cast($1 as integer) as urgency, priority, created_at, task_id from flotilla.task
    where name = $2 and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= now_ms() or run_at <= last_update) order by priority desc, created_at, task_id limit cast($3 as integer)) of_name union all select * from (
    select cast($4 as integer) as urgency, priority, created_at, task_id from flotilla.task
    where name = $5 and status = 'pending' and parked = 4 and deaths < 2 order by tenant, priority desc, created_at, task_id limit cast($6 as integer)) of_name union all select * from (
    select cast($7 as integer) as urgency, priority, created_at, task_id from flotilla.task
    where name = $8 and status = 'pending' and parked = 0 and deaths >= 2 order by created_at, task_id limit cast($9 as integer)) of_name union all select * from (
    select cast($10 as integer) as urgency, priority, created_at, task_id from flotilla.task
    where name = $11 and status = 'pending' and parked = 4 and deaths >= 2 order by created_at, task_id limit cast($12 as integer)) of_name) ready
order by urgency, priority desc, created_at, task_id
-- values: [1,"mail",10,1,"mail",10,1,"mail",10,1,"mail",10]

-- src/tasks/sql/inspect.ts: countReady
select name, ready from (select $1 as name, (select count(*) from (
  select 1 from flotilla.task where name = $2 and status = 'pending' and parked = 0 and deaths < 2 and (run_at <= now_ms() or run_at <= last_update) order by priority desc, created_at, task_id limit cast($3 as integer)) first) + (select count(*) from (
  select 1 from flotilla.task where name = $4 and status = 'pending' and parked = 4 and deaths < 2 order by tenant, priority desc, created_at, task_id limit cast($5 as integer)) first) + (select count(*) from (
  select 1 from flotilla.task where name = $6 and status = 'pending' and parked = 0 and deaths >= 2 order by created_at, task_id limit cast($7 as integer)) first) + (select count(*) from (
  select 1 from flotilla.task where name = $8 and status = 'pending' and parked = 4 and deaths >= 2 order by created_at, task_id limit cast($9 as integer)) first) as ready) counted
where not exists (
  select 1 from flotilla.task_pause pause
  where pause.paused = 1 and pause.name in (counted.name, $10))
-- values: ["mail","mail",10,"mail",10,"mail",10,"mail",10,"*"]

-- src/tasks/sql/limits.ts: entryOfLimit
  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, $8, $9, $10,
    cast($11 as bigint), '{"limit":' || coalesce(cast((select max_running from flotilla.task_limit where scope = $12 and by_hand = 1) as text), 'null') || '}', $13,
    case when exists (
select 1 from flotilla.audit past where past.action = $14 and past.outcome = 'full') then null else $15 end, $16, $17
  where coalesce((select max_running from flotilla.task_limit where scope = $18 and by_hand = 1), 0) <> $19
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"tenant/acme","{\"limit\":3}","audit.full","done",null,"click-1","tenant/acme",3]

-- src/tasks/sql/limits.ts: putLimit
insert into flotilla.task_limit (scope, max_running, by_hand) values ($1, $2, 1)
on conflict (scope) do update set max_running = excluded.max_running, by_hand = 1
-- values: ["tenant/acme",3]

-- src/tasks/sql/limits.ts: dropLimit
delete from flotilla.task_limit where scope = $1
-- values: ["tenant/acme"]

update flotilla.task_limit set by_hand = 0, max_running = 1 where scope = $1
-- values: ["key/mail/acme"]

-- src/tasks/sql/limits.ts: readScopes
select wanted.scope,
  (select max_running from flotilla.task_limit given where given.scope = wanted.scope) as max_running,
  (select by_hand from flotilla.task_limit given where given.scope = wanted.scope) as by_hand,
  case when wanted.tenant is null
    then (select count(*) from flotilla.task held
where coalesce(held.status, '') = 'claimed' and held.concurrency_key between wanted.scope and wanted.scope) else (select count(*) from flotilla.task held
where coalesce(held.status, '') = 'claimed' and held.limited = 1 and held.tenant <> 'default'
  and held.tenant between wanted.tenant and wanted.tenant) end as running,
  (select count(*) from (select 1 from flotilla.task task
    where task.blocked_by = wanted.scope and task.status = 'pending' and task.parked = 3
    order by task.priority desc, task.created_at, task.task_id limit cast($1 as integer)) counted
  ) as blocked
from (select scope collate "C" as scope, tenant collate "C" as tenant from unnest($2::text[], $3::text[]) as each_row (scope, tenant)) wanted
-- values: [10000,"{\"tenant/acme\"}","{\"acme\"}"]

-- src/tasks/sql/limits.ts: notableScopes
select scope from flotilla.task_limit where by_hand = 1
union
select scope from (
with recursive step (scope, nth) as (
  select (select min(task.blocked_by) from flotilla.task task
    where task.status = 'pending' and task.parked = 3 and task.blocked_by > $1), 1
  union all
  select (select min(task.blocked_by) from flotilla.task task
    where task.status = 'pending' and task.parked = 3 and task.blocked_by > step.scope), step.nth + 1
  from step where step.scope is not null and step.nth < $2)
select scope from step) blocked where scope is not null
order by scope limit cast($3 as integer)
-- values: ["",1000,1000]

-- src/tasks/sql/limits.ts: blockedScopes
select scope, (select max_running from flotilla.task_limit given where given.scope = blocked.scope)
  - (select count(*) from flotilla.task held
where coalesce(held.status, '') = 'claimed' and held.concurrency_key between blocked.scope and blocked.scope) as free_slots
from (
with recursive step (scope, nth) as (
  select (select min(task.blocked_by) from flotilla.task task
    where task.status = 'pending' and task.parked = 3 and task.blocked_by > $1), 1
  union all
  select (select min(task.blocked_by) from flotilla.task task
    where task.status = 'pending' and task.parked = 3 and task.blocked_by > step.scope), step.nth + 1
  from step where step.scope is not null and step.nth < $2)
select scope from step) blocked where scope is not null
-- values: ["",10]

-- src/tasks/sql/limits.ts: unneededLimits
select scope, (select count(*) from flotilla.task held
where coalesce(held.status, '') = 'claimed' and held.concurrency_key between page.scope and page.scope) = 0
and not exists (select 1 from flotilla.task task
  where task.status = 'pending' and task.parked = 3 and task.blocked_by = page.scope) as unneeded
from (select scope from flotilla.task_limit where scope > $1 and by_hand = 0
  order by scope limit cast($2 as integer)) page
-- values: ["",10]

-- src/tasks/sql/limits.ts: dropUnneeded
delete from flotilla.task_limit where scope in (
  select scope from flotilla.task_limit given
  where given.by_hand = 0 and given.scope in (select scope from (select scope collate "C" as scope from unnest($1::text[]) as each_row (scope)) old)
    and (select count(*) from flotilla.task held
where coalesce(held.status, '') = 'claimed' and held.concurrency_key between given.scope and given.scope) = 0
and not exists (select 1 from flotilla.task task
  where task.status = 'pending' and task.parked = 3 and task.blocked_by = given.scope) for update skip locked)
-- values: ["{\"key/mail/acme\"}"]

-- src/tasks/sql/limits.ts: tenantCounts
select 'running' as state, tenant, count(*) as tasks from (
  select tenant from flotilla.task where coalesce(status, '') = 'claimed' and limited = 1 and tenant <> 'default'
  order by tenant limit cast($1 as integer)) running group by tenant
union all
select 'running', tenant, count(*) from (
  select tenant from flotilla.task
  where coalesce(status, '') = 'claimed' and concurrency_key is not null and tenant = 'default'
  order by concurrency_key limit cast($2 as integer)) running group by tenant
union all
select 'ready', tenant, count(*) from (
  select tenant from flotilla.task where status = 'pending' and parked = 4 and deaths < 2
  order by name, tenant, priority desc, created_at, task_id limit cast($3 as integer)) ready group by tenant
union all
select 'blocked', tenant, count(*) from (
  select tenant from flotilla.task where status = 'pending' and parked = 3
  order by blocked_by, priority desc, created_at, task_id limit cast($4 as integer)) blocked group by tenant
union all
select 'limit', scope, max_running from flotilla.task_limit where scope >= 'tenant/' and scope < 'tenant0'
-- values: [10000,10000,10000,10000]

-- src/tasks/sql/limits.ts: numberToPause
insert into flotilla.task_pause (name, paused, given) values ($1, 0, 1)
on conflict (name) do update set given = flotilla.task_pause.given + 1
-- values: ["mail"]

select given from flotilla.task_pause where name = $1
-- values: ["mail"]

-- src/tasks/sql/limits.ts: numberToResume
update flotilla.task_pause set given = given + 1 where name = $1
-- values: ["mail"]

select given from flotilla.task_pause where name = $1
-- values: ["mail"]

-- src/tasks/sql/limits.ts: putPause
update flotilla.task_pause
set at = case when paused = 1 then at else now_ms() end,
  reason = case when paused = 1 then reason else $1 end,
  paused = 1, done = $2
where name = $3 and done < $4
-- values: ["repairs",2,"mail",2]

-- src/tasks/sql/limits.ts: dropPause
update flotilla.task_pause set paused = 0, reason = null, done = $1
where name = $2 and done < $3
-- values: [3,"mail",3]

-- src/tasks/sql/limits.ts: entryOfPause
select name from flotilla.task_pause where name = $1 for update
-- values: ["mail"]

  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, $8, $9, $10,
    cast($11 as bigint), $12, $13,
    case when exists (
select 1 from flotilla.audit past where past.action = $14 and past.outcome = 'full') then null else $15 end, $16, $17
  from flotilla.task_pause where name = $18 and done < $19 and paused <> $20
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"{\"paused\":false}","{\"paused\":true}","audit.full","done",null,"click-1","mail",2,1]

-- src/tasks/sql/limits.ts: listPauses
select name, at, reason from flotilla.task_pause where paused = 1 order by name

-- src/tasks/sql/limits.ts: listPausesWithActors
select pause.name, pause.at, pause.reason, (
  select entry.actor from flotilla.audit entry
  where entry.subject = pause.name and coalesce(entry.action, '') = 'names.pause'
    and entry.at >= pause.at - $1
  order by entry.at desc, entry.id desc limit cast($2 as integer)) as actor
from flotilla.task_pause pause where pause.paused = 1 order by pause.name
-- values: [10000,1]

-- src/tasks/sql/limits.ts: notifyPods
update flotilla.pod set pauses = pauses + 1

-- src/tasks/sql/limits.ts: podIds
select pod_id from flotilla.pod order by pod_id

-- src/tasks/sql/limits.ts: notifyPod
select 1 from flotilla.pod where pod_id = $1 for update
-- values: ["pod-1"]

update flotilla.pod set pauses = pauses + 1 where pod_id = $1
-- values: ["pod-1"]

-- src/tasks/sql/limits.ts: selectPauses
select pod.pauses, pause.name from flotilla.pod pod left join flotilla.task_pause pause on pause.paused = 1
where pod.pod_id = $1
-- values: ["pod-1"]
