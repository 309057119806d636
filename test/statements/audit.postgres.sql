-- src/audit/sql.ts: insertEntry
  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, $8, $9, $10,
    cast($11 as bigint), $12, $13,
    case when exists (
select 1 from flotilla.audit past where past.action = $14 and past.outcome = 'full') then null else $15 end, $16, $17

  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,null,null,"audit.full","done",null,"click-1"]

-- src/audit/sql.ts: insertDecided
insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
  filter, count, before, after, outcome, reason)
select id, now_ms(), actor, tenant, user_id, key_name, role, address, action, subject,
  filter, 1, before, after, 'done', reason
from (select id collate "C" as id, actor collate "C" as actor, tenant collate "C" as tenant, user_id collate "C" as user_id, key_name collate "C" as key_name, role collate "C" as role, address collate "C" as address, action collate "C" as action, subject collate "C" as subject, filter collate "C" as filter, before collate "C" as before, after collate "C" as after, reason collate "C" as reason, log_id from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::bigint[]) as each_row (id, actor, tenant, user_id, key_name, role, address, action, subject, filter, before, after, reason, log_id)) fresh where fresh.log_id = 1
on conflict (id) do nothing
-- values: ["{\"act-1\"}","{\"key/web\"}","{\"default\"}","{\"zoe\"}","{\"web\"}","{\"operator\"}","{\"10.0.0.1\"}","{\"tasks.cancel\"}","{\"task-1\"}","{null}","{\"{}\"}","{\"{}\"}","{null}","{1}"]

-- src/audit/sql.ts: readFull
select 1 as full_now where exists (
  select 1 from flotilla.audit past where past.action = $1 and past.outcome = 'full')
-- values: ["audit.full"]

-- src/audit/sql.ts: countEntry
update flotilla.audit set count = cast($1 as bigint) + cast($2 as bigint)
where id = $3
-- values: [250,10,"act-1"]

-- src/audit/sql.ts: endEntry
update flotilla.audit set outcome = 'done' where id = $1 and outcome = 'begun' and true
-- values: ["act-1"]

update flotilla.audit set outcome = 'done' where id = $1 and outcome = 'begun' and 1 = 1
-- values: ["act-1"]

-- src/audit/sql.ts: readEntry
select * from flotilla.audit where actor = $1 and tenant = $2 and user_id = $3 and act_id = $4
-- values: ["key/web","default","zoe","click-1"]

select * from flotilla.audit where id = $1
-- values: ["act-1"]

-- src/audit/sql.ts: listEntries
select * from flotilla.audit  order by at desc, id desc limit cast($1 as integer)
-- values: [51]

select * from flotilla.audit where actor = $1 and action = $2 order by at desc, id desc limit cast($3 as integer)
-- values: ["key/web","tasks.cancel",51]

select * from flotilla.audit where subject = $1 and coalesce(actor, '') = $2 and coalesce(action, '') = $3 and at >= $4 and at <= $5 and (at, id) < ($6, $7) order by at desc, id desc limit cast($8 as integer)
-- values: ["task-1","key/web","tasks.cancel",1,2,1,"act-1",51]

-- src/audit/sql.ts: deleteOldEntries
delete from flotilla.audit where id = any(array(select id from flotilla.audit where at < now_ms() - $1 order by at, id limit cast($2 as integer)))
-- values: [1000,100]

-- src/audit/sql.ts: deleteOldestOf
delete from flotilla.audit where id = any(array(select id from flotilla.audit where actor = $1 order by at, id limit cast($2 as integer)))
-- values: ["program",100]

-- src/audit/sql.ts: countEntries
select count(*) as entries, case when exists (
  select 1 from flotilla.audit past where past.action = $1 and past.outcome = 'full') then 1 else 0 end as is_full from flotilla.audit
-- values: ["audit.full"]

-- src/audit/sql.ts: hasOldEntries
select id from flotilla.audit where at < now_ms() - $1 order by at, id limit cast($2 as integer)
-- values: [1000,1]

-- src/audit/sql.ts: markFull
  insert into flotilla.audit (id, at, actor, action, count, outcome)
  select $1, now_ms(), 'leader', $2, cast($3 as bigint), 'full'
  where not exists (
select 1 from flotilla.audit past where past.action = $4 and past.outcome = 'full')
-- values: ["act-2","audit.full",1000,"audit.full"]

-- src/audit/sql.ts: endFull
update flotilla.audit set outcome = 'over' where action = $1 and outcome = 'full'
-- values: ["audit.full"]
