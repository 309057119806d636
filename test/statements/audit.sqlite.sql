-- src/audit/sql.ts: insertEntry
  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, ?, ?, ?,
    cast(? as bigint), ?, ?,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?

  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,null,null,"audit.full","done",null,"click-1"]

-- src/audit/sql.ts: insertDecided
insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
  filter, count, before, after, outcome, reason)
select id, now_ms(), actor, tenant, user_id, key_name, role, address, action, subject,
  filter, 1, before, after, 'done', reason
from (select value ->> 0 as id, value ->> 1 as actor, value ->> 2 as tenant, value ->> 3 as user_id, value ->> 4 as key_name, value ->> 5 as role, value ->> 6 as address, value ->> 7 as action, value ->> 8 as subject, value ->> 9 as filter, value ->> 10 as before, value ->> 11 as after, value ->> 12 as reason, value ->> 13 as log_id from jsonb_each(?)) fresh where fresh.log_id = 1
on conflict (id) do nothing
-- values: ["[[\"act-1\",\"key/web\",\"default\",\"zoe\",\"web\",\"operator\",\"10.0.0.1\",\"tasks.cancel\",\"task-1\",null,\"{}\",\"{}\",null,1]]"]

-- src/audit/sql.ts: readFull
select 1 as full_now where exists (
  select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full')
-- values: ["audit.full"]

-- src/audit/sql.ts: countEntry
update flotilla_audit set count = cast(? as bigint) + cast(? as bigint)
where id = ?
-- values: [250,10,"act-1"]

-- src/audit/sql.ts: endEntry
update flotilla_audit set outcome = 'done' where id = ? and outcome = 'begun' and true
-- values: ["act-1"]

update flotilla_audit set outcome = 'done' where id = ? and outcome = 'begun' and 1 = 1
-- values: ["act-1"]

-- src/audit/sql.ts: readEntry
select * from flotilla_audit where actor = ? and tenant = ? and user_id = ? and act_id = ?
-- values: ["key/web","default","zoe","click-1"]

select * from flotilla_audit where id = ?
-- values: ["act-1"]

-- src/audit/sql.ts: listEntries
select * from flotilla_audit  order by at desc, id desc limit cast(? as integer)
-- values: [51]

select * from flotilla_audit where actor = ? and action = ? order by at desc, id desc limit cast(? as integer)
-- values: ["key/web","tasks.cancel",51]

select * from flotilla_audit where subject = ? and coalesce(actor, '') = ? and coalesce(action, '') = ? and at >= ? and at <= ? and (at, id) < (?, ?) order by at desc, id desc limit cast(? as integer)
-- values: ["task-1","key/web","tasks.cancel",1,2,1,"act-1",51]

-- src/audit/sql.ts: deleteOldEntries
delete from flotilla_audit where id in (select id from flotilla_audit where at < now_ms() - ? order by at, id limit cast(? as integer))
-- values: [1000,100]

-- src/audit/sql.ts: deleteOldestOf
delete from flotilla_audit where id in (select id from flotilla_audit where actor = ? order by at, id limit cast(? as integer))
-- values: ["program",100]

-- src/audit/sql.ts: countEntries
select count(*) as entries, case when exists (
  select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then 1 else 0 end as is_full from flotilla_audit
-- values: ["audit.full"]

-- src/audit/sql.ts: hasOldEntries
select id from flotilla_audit where at < now_ms() - ? order by at, id limit cast(? as integer)
-- values: [1000,1]

-- src/audit/sql.ts: markFull
  insert into flotilla_audit (id, at, actor, action, count, outcome)
  select ?, now_ms(), 'leader', ?, cast(? as bigint), 'full'
  where not exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full')
-- values: ["act-2","audit.full",1000,"audit.full"]

-- src/audit/sql.ts: endFull
update flotilla_audit set outcome = 'over' where action = ? and outcome = 'full'
-- values: ["audit.full"]
