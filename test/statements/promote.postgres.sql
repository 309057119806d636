-- src/promote/sql.ts: readSizes
select cast(task_id as text) as task_id, cast(seq as text) as seq, coalesce(octet_length(task_id), 0) + 8 + 8 + coalesce(octet_length(detail), 0) as bytes from flotilla.task_event as copied
where true order by copied.task_id, copied.seq limit cast($1 as integer)
-- values: [1000]

select cast(task_id as text) as task_id, cast(seq as text) as seq, coalesce(octet_length(task_id), 0) + 8 + 8 + coalesce(octet_length(detail), 0) as bytes from flotilla.task_event as copied
where (task_id, seq) > ($1, cast($2 as bigint)) order by copied.task_id, copied.seq limit cast($3 as integer)
-- values: ["task-1","3",1000]

-- src/promote/sql.ts: readRows
select cast(task_id as text) as task_id, cast(seq as text) as seq, cast(at as text) as at, cast(detail as text) as detail from flotilla.task_event as copied
where (task_id, seq) > ($1, cast($2 as bigint)) and (task_id, seq) <= ($3, cast($4 as bigint)) order by copied.task_id, copied.seq
-- values: ["task-1","3","task-9","1"]

-- src/promote/sql.ts: countRows
select count(*) as count from flotilla.task

-- src/promote/sql.ts: hasRows
select 1 as found from flotilla.task limit cast($1 as integer)
-- values: [1]

-- src/promote/sql.ts: findFilled
select case when exists (select 1 from flotilla.task) then $1 else '' end || case when exists (select 1 from flotilla.session) then $2 else '' end as filled
-- values: ["task ","session "]

-- src/promote/sql.ts: findUnstorable
select cast(task_id as text) as task_id, cast(seq as text) as seq, case when (instr(task_id, char(0)) > 0 or typeof(task_id) = 'blob') then $1 when (not typeof(seq) in ('integer', 'null')
      or seq not between -2147483648 and 2147483647) then $2 when not typeof(at) in ('integer', 'null') then $3 when (instr(detail, char(0)) > 0 or typeof(detail) = 'blob') then $4 end as faulty from flotilla.task_event
where (instr(task_id, char(0)) > 0 or typeof(task_id) = 'blob') or (not typeof(seq) in ('integer', 'null')
      or seq not between -2147483648 and 2147483647) or not typeof(at) in ('integer', 'null') or (instr(detail, char(0)) > 0 or typeof(detail) = 'blob') limit cast($5 as integer)
-- values: ["task_id","seq","at","detail",1]

-- src/promote/sql.ts: insertCopied
insert into flotilla.task_event (task_id, seq, at, detail)
select task_id, seq, at, detail from (select task_id collate "C" as task_id, seq, at, detail collate "C" as detail from unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[]) as each_row (task_id, seq, at, detail)) copied
where exists (
select 1 from flotilla.promotion where id = 1 and holder = $5 and state = 'copying')
on conflict do nothing
-- values: ["{\"task-1\"}","{\"4\"}","{\"1800000000000\"}","{null}","holder-1"]

-- src/promote/sql.ts: digestRange
select count(*) as count,
  encode(sha256(coalesce(string_agg(sha256(convert_to(coalesce(octet_length(cast(task_id as text)) || ':' || cast(task_id as text), '-') || coalesce(octet_length(cast(seq as text)) || ':' || cast(seq as text), '-') || coalesce(octet_length(cast(at as text)) || ':' || cast(at as text), '-') || coalesce(octet_length(cast(detail as text)) || ':' || cast(detail as text), '-'), 'UTF8')), ''::bytea order by task_id, seq), ''::bytea)), 'hex')
    as digest
from flotilla.task_event where (task_id, seq) > ($1, cast($2 as bigint)) and (task_id, seq) <= ($3, cast($4 as bigint))
-- values: ["task-1","3","task-9","1"]

-- src/promote/sql.ts: deleteCopied
delete from flotilla.task_event
where (task_id, seq) in (select task_id, seq from flotilla.task_event limit cast($1 as integer)) and exists (
select 1 from flotilla.promotion where id = 1 and holder = $2 and state = 'copying')
-- values: [5000,"holder-1"]

-- src/promote/sql.ts: analyzeTable
analyze flotilla.task

-- src/promote/sql.ts: readSingles
select place, cluster_id, secret from flotilla.log_place, flotilla.bus_secret limit cast($1 as integer)
-- values: [1]

-- src/promote/sql.ts: setSingles
update flotilla.log_place set place = $1, cluster_id = $2 where exists (
    select 1 from flotilla.promotion where id = 1 and holder = $3 and state = 'copying')
-- values: ["sql","cluster-1","holder-1"]

update flotilla.bus_secret set secret = $1 where exists (
    select 1 from flotilla.promotion where id = 1 and holder = $2 and state = 'copying')
-- values: ["secret-1","holder-1"]

-- src/promote/sql.ts: readPromotion
select promotion_id, source_id, source, state, logs, holder, host, progress,
  held_until - now_ms() as held_ms from flotilla.promotion where id = 1

-- src/promote/sql.ts: beginPromotion
insert into flotilla.promotion as known (id, promotion_id, source_id, source, logs)
values (1, $1, $2, $3, $4)
on conflict (id) do update
set promotion_id = excluded.promotion_id, source_id = excluded.source_id,
  source = excluded.source, logs = excluded.logs, state = 'copying', holder = null,
  held_until = 0, progress = '{}', began_at = excluded.began_at,
  last_update = excluded.last_update
where known.state = 'done'
-- values: ["promotion-1","cluster-1","sqlite:app.db",8]

insert into flotilla.migration (id, name, needs, applied_at)
select 1000000000, cast($1 as text), 1000000000, now_ms()
where exists (
select 1 from flotilla.promotion where id = 1 and promotion_id = $2)
on conflict (id) do update set name = excluded.name, applied_at = excluded.applied_at
-- values: ["{\"promotionId\":\"promotion-1\",\"other\":\"sqlite:app.db\",\"state\":\"filling\"}","promotion-1"]

  update flotilla.migration set applied_at = $1 where id = 1 and exists (
select 1 from flotilla.promotion where id = 1 and promotion_id = $2)
-- values: [1800000000000,"promotion-1"]

-- src/promote/sql.ts: takePromotion
  update flotilla.promotion
  set holder = $1, host = $2, held_until = now_ms() + $3, last_update = now_ms()
  where id = 1 and promotion_id = $4 and state = 'copying'
    and (holder is null or holder = $5 or holder = $6 or held_until < now_ms())
  returning promotion_id, source_id, source, state, logs, holder, host, progress,
held_until - now_ms() as held_ms
-- instead of returning:
select promotion_id, source_id, source, state, logs, holder, host, progress,
  held_until - now_ms() as held_ms from flotilla.promotion where id = 1 and holder = $1
-- values: ["holder-1","host-1",30000,"promotion-1","holder-1","holder-0"]

-- src/promote/sql.ts: saveCopied
update flotilla.promotion
set progress = $1, held_until = now_ms() + $2, last_update = now_ms()
where id = 1 and holder = $3 and state = 'copying'
returning id
-- instead of returning:
select id from flotilla.promotion where holder = $1 and state = 'copying'
-- values: ["{\"task\":{\"rows\":3,\"done\":true}}",30000,"holder-1"]

-- src/promote/sql.ts: releasePromotion
update flotilla.promotion set holder = null, held_until = 0, last_update = now_ms()
where id = 1 and holder = $1 and state = 'copying'
-- values: ["holder-1"]

-- src/promote/sql.ts: finishPromotion
update flotilla.promotion set state = 'done', held_until = 0, last_update = now_ms()
where id = 1 and holder = $1
returning id
-- instead of returning:
select id from flotilla.promotion where holder = $1
-- values: ["holder-1"]

delete from flotilla.migration where id = $1 and exists (
      select 1 from flotilla.promotion where id = 1 and holder = $2 and state = 'done')
-- values: [1000000000,"holder-1"]

-- src/promote/sql.ts: forgetPromotion
delete from flotilla.migration where id = $1 and exists (
    select 1 from flotilla.promotion where id = 1 and holder = $2 and state = 'copying')
-- values: [1000000000,"holder-1"]

delete from flotilla.promotion where id = 1 and holder = $1 and state = 'copying'
-- values: ["holder-1"]

-- src/promote/logs/sql.ts: readMove
select promotion_id, source, state, holder, host, progress, held_until - now_ms() as held_ms from flotilla.promotion where id = $1
-- values: [2]

-- src/promote/logs/sql.ts: beginMove
insert into flotilla.promotion as known (id, promotion_id, source_id, source, logs)
values ($1, $2, $3, $4, $5)
on conflict (id) do update
set promotion_id = excluded.promotion_id, source_id = excluded.source_id,
  source = excluded.source, logs = excluded.logs, state = 'copying', holder = null,
  held_until = 0, progress = '{}', began_at = excluded.began_at,
  last_update = excluded.last_update
where known.state = 'done'
  or (known.source <> excluded.source and (known.holder is null or known.held_until < now_ms()))
-- values: [2,"move-1","cluster-1","sql",8]

-- src/promote/logs/sql.ts: takeMove
update flotilla.promotion
set holder = $1, host = $2, held_until = now_ms() + $3, last_update = now_ms()
where id = $4 and state = 'copying'
  and (holder is null or holder = $5 or holder = $6 or held_until < now_ms())
returning promotion_id, source, state, holder, host, progress, held_until - now_ms() as held_ms
-- instead of returning:
select promotion_id, source, state, holder, host, progress, held_until - now_ms() as held_ms from flotilla.promotion where id = $1 and holder = $2
-- values: ["holder-1","host-1",30000,2,"holder-1","holder-0"]

-- src/promote/logs/sql.ts: keepMove
update flotilla.promotion set held_until = now_ms() + $1, last_update = now_ms()
where id = $2 and holder = $3 and state = 'copying'
returning id
-- instead of returning:
select id from flotilla.promotion where id = $1 and holder = $2 and state = 'copying'
-- values: [30000,2,"holder-1"]

update flotilla.promotion set held_until = now_ms() + $1, last_update = now_ms() , progress = $2
where id = $3 and holder = $4 and state = 'copying'
returning id
-- instead of returning:
select id from flotilla.promotion where id = $1 and holder = $2 and state = 'copying'
-- values: [30000,"{\"lives\":[]}",2,"holder-1"]

-- src/promote/logs/sql.ts: releaseMove
update flotilla.promotion set holder = null, held_until = 0, last_update = now_ms()
where id = $1 and holder = $2 and state = 'copying'
-- values: [2,"holder-1"]

-- src/promote/logs/sql.ts: finishMove
update flotilla.promotion set state = 'done', held_until = 0, last_update = now_ms()
where id = $1 and holder = $2
-- values: [2,"holder-1"]
