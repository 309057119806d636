-- src/promote/sql.ts: readSizes
select cast(task_id as text) as task_id, cast(seq as text) as seq, coalesce(octet_length(task_id), 0) + 8 + 8 + coalesce(octet_length(detail), 0) as bytes from flotilla_task_event as copied
where true order by copied.task_id, copied.seq limit cast(? as integer)
-- values: [1000]

select cast(task_id as text) as task_id, cast(seq as text) as seq, coalesce(octet_length(task_id), 0) + 8 + 8 + coalesce(octet_length(detail), 0) as bytes from flotilla_task_event as copied
where (task_id, seq) > (?, cast(? as bigint)) order by copied.task_id, copied.seq limit cast(? as integer)
-- values: ["task-1","3",1000]

-- src/promote/sql.ts: readRows
select cast(task_id as text) as task_id, cast(seq as text) as seq, cast(at as text) as at, cast(detail as text) as detail from flotilla_task_event as copied
where (task_id, seq) > (?, cast(? as bigint)) and (task_id, seq) <= (?, cast(? as bigint)) order by copied.task_id, copied.seq
-- values: ["task-1","3","task-9","1"]

-- src/promote/sql.ts: countRows
select count(*) as count from flotilla_task

-- src/promote/sql.ts: hasRows
select 1 as found from flotilla_task limit cast(? as integer)
-- values: [1]

-- src/promote/sql.ts: findFilled
select case when exists (select 1 from flotilla_task) then ? else '' end || case when exists (select 1 from flotilla_session) then ? else '' end as filled
-- values: ["task ","session "]

-- src/promote/sql.ts: findUnstorable
select cast(task_id as text) as task_id, cast(seq as text) as seq, case when (instr(task_id, char(0)) > 0 or typeof(task_id) = 'blob') then ? when (not typeof(seq) in ('integer', 'null')
      or seq not between -2147483648 and 2147483647) then ? when not typeof(at) in ('integer', 'null') then ? when (instr(detail, char(0)) > 0 or typeof(detail) = 'blob') then ? end as faulty from flotilla_task_event
where (instr(task_id, char(0)) > 0 or typeof(task_id) = 'blob') or (not typeof(seq) in ('integer', 'null')
      or seq not between -2147483648 and 2147483647) or not typeof(at) in ('integer', 'null') or (instr(detail, char(0)) > 0 or typeof(detail) = 'blob') limit cast(? as integer)
-- values: ["task_id","seq","at","detail",1]

-- src/promote/sql.ts: insertCopied
insert into flotilla_task_event (task_id, seq, at, detail)
select task_id, seq, at, detail from (select value ->> 0 as task_id, value ->> 1 as seq, value ->> 2 as at, value ->> 3 as detail from jsonb_each(?)) copied
where exists (
select 1 from flotilla_promotion where id = 1 and holder = ? and state = 'copying')
on conflict do nothing
-- values: ["[[\"task-1\",\"4\",\"1800000000000\",null]]","holder-1"]

-- src/promote/sql.ts: digestRange
select count(*) as count,
  encode(sha256(coalesce(string_agg(sha256(convert_to(coalesce(octet_length(cast(task_id as text)) || ':' || cast(task_id as text), '-') || coalesce(octet_length(cast(seq as text)) || ':' || cast(seq as text), '-') || coalesce(octet_length(cast(at as text)) || ':' || cast(at as text), '-') || coalesce(octet_length(cast(detail as text)) || ':' || cast(detail as text), '-'), 'UTF8')), ''::bytea order by task_id, seq), ''::bytea)), 'hex')
    as digest
from flotilla_task_event where (task_id, seq) > (?, cast(? as bigint)) and (task_id, seq) <= (?, cast(? as bigint))
-- values: ["task-1","3","task-9","1"]

-- src/promote/sql.ts: deleteCopied
delete from flotilla_task_event
where (task_id, seq) in (select task_id, seq from flotilla_task_event limit cast(? as integer)) and exists (
select 1 from flotilla_promotion where id = 1 and holder = ? and state = 'copying')
-- values: [5000,"holder-1"]

-- src/promote/sql.ts: analyzeTable
analyze flotilla_task

-- src/promote/sql.ts: readSingles
select place, cluster_id, secret from flotilla_log_place, flotilla_bus_secret limit cast(? as integer)
-- values: [1]

-- src/promote/sql.ts: setSingles
update flotilla_log_place set place = ?, cluster_id = ? where exists (
    select 1 from flotilla_promotion where id = 1 and holder = ? and state = 'copying')
-- values: ["sql","cluster-1","holder-1"]

update flotilla_bus_secret set secret = ? where exists (
    select 1 from flotilla_promotion where id = 1 and holder = ? and state = 'copying')
-- values: ["secret-1","holder-1"]

-- src/promote/sql.ts: readPromotion
select promotion_id, source_id, source, state, logs, holder, host, progress,
  held_until - now_ms() as held_ms from flotilla_promotion where id = 1

-- src/promote/sql.ts: beginPromotion
insert into flotilla_promotion as known (id, promotion_id, source_id, source, logs)
values (1, ?, ?, ?, ?)
on conflict (id) do update
set promotion_id = excluded.promotion_id, source_id = excluded.source_id,
  source = excluded.source, logs = excluded.logs, state = 'copying', holder = null,
  held_until = 0, progress = '{}', began_at = excluded.began_at,
  last_update = excluded.last_update
where known.state = 'done'
-- values: ["promotion-1","cluster-1","sqlite:app.db",8]

insert into flotilla_migration (id, name, needs, applied_at)
select 1000000000, cast(? as text), 1000000000, now_ms()
where exists (
select 1 from flotilla_promotion where id = 1 and promotion_id = ?)
on conflict (id) do update set name = excluded.name, applied_at = excluded.applied_at
-- values: ["{\"promotionId\":\"promotion-1\",\"other\":\"sqlite:app.db\",\"state\":\"filling\"}","promotion-1"]

  update flotilla_migration set applied_at = ? where id = 1 and exists (
select 1 from flotilla_promotion where id = 1 and promotion_id = ?)
-- values: [1800000000000,"promotion-1"]

-- src/promote/sql.ts: takePromotion
  update flotilla_promotion
  set holder = ?, host = ?, held_until = now_ms() + ?, last_update = now_ms()
  where id = 1 and promotion_id = ? and state = 'copying'
    and (holder is null or holder = ? or holder = ? or held_until < now_ms())
  returning promotion_id, source_id, source, state, logs, holder, host, progress,
held_until - now_ms() as held_ms
-- instead of returning:
select promotion_id, source_id, source, state, logs, holder, host, progress,
  held_until - now_ms() as held_ms from flotilla_promotion where id = 1 and holder = ?
-- values: ["holder-1","host-1",30000,"promotion-1","holder-1","holder-0"]

-- src/promote/sql.ts: saveCopied
update flotilla_promotion
set progress = ?, held_until = now_ms() + ?, last_update = now_ms()
where id = 1 and holder = ? and state = 'copying'
returning id
-- instead of returning:
select id from flotilla_promotion where holder = ? and state = 'copying'
-- values: ["{\"task\":{\"rows\":3,\"done\":true}}",30000,"holder-1"]

-- src/promote/sql.ts: releasePromotion
update flotilla_promotion set holder = null, held_until = 0, last_update = now_ms()
where id = 1 and holder = ? and state = 'copying'
-- values: ["holder-1"]

-- src/promote/sql.ts: finishPromotion
update flotilla_promotion set state = 'done', held_until = 0, last_update = now_ms()
where id = 1 and holder = ?
returning id
-- instead of returning:
select id from flotilla_promotion where holder = ?
-- values: ["holder-1"]

delete from flotilla_migration where id = ? and exists (
      select 1 from flotilla_promotion where id = 1 and holder = ? and state = 'done')
-- values: [1000000000,"holder-1"]

-- src/promote/sql.ts: forgetPromotion
delete from flotilla_migration where id = ? and exists (
    select 1 from flotilla_promotion where id = 1 and holder = ? and state = 'copying')
-- values: [1000000000,"holder-1"]

delete from flotilla_promotion where id = 1 and holder = ? and state = 'copying'
-- values: ["holder-1"]

-- src/promote/logs/sql.ts: readMove
select promotion_id, source, state, holder, host, progress, held_until - now_ms() as held_ms from flotilla_promotion where id = ?
-- values: [2]

-- src/promote/logs/sql.ts: beginMove
insert into flotilla_promotion as known (id, promotion_id, source_id, source, logs)
values (?, ?, ?, ?, ?)
on conflict (id) do update
set promotion_id = excluded.promotion_id, source_id = excluded.source_id,
  source = excluded.source, logs = excluded.logs, state = 'copying', holder = null,
  held_until = 0, progress = '{}', began_at = excluded.began_at,
  last_update = excluded.last_update
where known.state = 'done'
  or (known.source <> excluded.source and (known.holder is null or known.held_until < now_ms()))
-- values: [2,"move-1","cluster-1","sql",8]

-- src/promote/logs/sql.ts: takeMove
update flotilla_promotion
set holder = ?, host = ?, held_until = now_ms() + ?, last_update = now_ms()
where id = ? and state = 'copying'
  and (holder is null or holder = ? or holder = ? or held_until < now_ms())
returning promotion_id, source, state, holder, host, progress, held_until - now_ms() as held_ms
-- instead of returning:
select promotion_id, source, state, holder, host, progress, held_until - now_ms() as held_ms from flotilla_promotion where id = ? and holder = ?
-- values: ["holder-1","host-1",30000,2,"holder-1","holder-0"]

-- src/promote/logs/sql.ts: keepMove
update flotilla_promotion set held_until = now_ms() + ?, last_update = now_ms()
where id = ? and holder = ? and state = 'copying'
returning id
-- instead of returning:
select id from flotilla_promotion where id = ? and holder = ? and state = 'copying'
-- values: [30000,2,"holder-1"]

update flotilla_promotion set held_until = now_ms() + ?, last_update = now_ms() , progress = ?
where id = ? and holder = ? and state = 'copying'
returning id
-- instead of returning:
select id from flotilla_promotion where id = ? and holder = ? and state = 'copying'
-- values: [30000,"{\"lives\":[]}",2,"holder-1"]

-- src/promote/logs/sql.ts: releaseMove
update flotilla_promotion set holder = null, held_until = 0, last_update = now_ms()
where id = ? and holder = ? and state = 'copying'
-- values: [2,"holder-1"]

-- src/promote/logs/sql.ts: finishMove
update flotilla_promotion set state = 'done', held_until = 0, last_update = now_ms()
where id = ? and holder = ?
-- values: [2,"holder-1"]
