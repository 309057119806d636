-- src/throttles/shares/sql.ts: insertThrottles
insert into flotilla_throttle (name, key, bound, settings)
select made.name, made.key, made.bound, made.settings from (select value ->> 0 as name, value ->> 1 as key, value ->> 2 as bound, value ->> 3 as settings from jsonb_each(?)) made where 1 = 1
on conflict (name, key) do nothing
-- values: ["[[\"openai\",\"acme\",4,\"{}\"]]"]

-- src/throttles/shares/sql.ts: putSettings
update flotilla_throttle set settings = said.settings, rev = flotilla_throttle.rev + 1
from (select value ->> 0 as name, value ->> 1 as key, value ->> 2 as settings from jsonb_each(?)) said
where flotilla_throttle.name = said.name and flotilla_throttle.key = said.key
  and flotilla_throttle.settings <> said.settings
-- values: ["[[\"openai\",\"acme\",\"{}\"]]"]

-- src/throttles/shares/sql.ts: putReports
insert into flotilla_throttle_report
  (name, key, pod_id, seq, demand, in_flight, waiting, calls_waiting, totals, at)
select said.name, said.key, said.pod_id, said.seq, said.demand, said.in_flight, said.waiting,
  said.calls_waiting, said.totals, now_ms()
from (select value ->> 0 as name, value ->> 1 as key, value ->> 2 as pod_id, value ->> 3 as seq, value ->> 4 as demand, value ->> 5 as in_flight, value ->> 6 as waiting, value ->> 7 as calls_waiting, value ->> 8 as totals from jsonb_each(?)) said where 1 = 1
on conflict (name, key, pod_id) do update
set seq = excluded.seq, demand = excluded.demand, in_flight = excluded.in_flight,
  waiting = excluded.waiting, calls_waiting = excluded.calls_waiting, totals = excluded.totals, at = excluded.at
where flotilla_throttle_report.seq < excluded.seq
-- values: ["[[\"openai\",\"acme\",\"pod-1\",1,4,2,2,1,\"{}\"]]"]

-- src/throttles/shares/sql.ts: getShares
select throttle.name, throttle.key, throttle.rev, throttle.bound, throttle.epoch, throttle.gate,
  throttle.pass, throttle.shares, now_ms() as now_at
from (select value ->> 0 as name, value ->> 1 as key from jsonb_each(?)) wanted join flotilla_throttle throttle
  on throttle.name = wanted.name and throttle.key = wanted.key
-- values: ["[[\"openai\",\"acme\"]]"]

-- src/throttles/shares/sql.ts: getDemands
select report.name, report.key, report.pod_id, report.seq, report.demand
from (select value ->> 0 as name, value ->> 1 as key from jsonb_each(?)) wanted join flotilla_throttle_report report
  on report.name = wanted.name and report.key = wanted.key
-- values: ["[[\"openai\",\"acme\"]]"]

-- src/throttles/shares/sql.ts: changeShares
update flotilla_throttle set shares = ?, rev = flotilla_throttle.rev + 1, last_update = now_ms()
where name = ? and key = ? and rev = ?
returning rev
-- instead of returning:
select rev from flotilla_throttle where name = ? and key = ? and rev = ?
-- values: ["{}","openai","acme",3]

-- src/throttles/shares/sql.ts: changeLearned
update flotilla_throttle set bound = ?, epoch = ?, gate = ?, state = ?, stats = ?,
  pass = flotilla_throttle.pass + 1, rev = flotilla_throttle.rev + 1, last_update = now_ms()
where name = ? and key = ? and rev = ?
returning rev
-- instead of returning:
select rev from flotilla_throttle where name = ? and key = ? and rev = ?
-- values: [8,2,"{}","{}","{}","openai","acme",3]

-- src/throttles/shares/sql.ts: pinBound
update flotilla_throttle set bound = ?, pinned = ?, pinned_at = now_ms(), epoch = flotilla_throttle.epoch + 1,
  gate = '{}', pass = flotilla_throttle.pass + 1, rev = flotilla_throttle.rev + 1, last_update = now_ms()
where name = ? and key = ? and rev = ?
returning rev
-- instead of returning:
select rev from flotilla_throttle where name = ? and key = ? and rev = ?
-- values: [5,5,"openai","acme",3]

-- src/throttles/shares/sql.ts: unpinBound
update flotilla_throttle set pinned = null, pinned_at = now_ms(), epoch = flotilla_throttle.epoch + 1, rev = flotilla_throttle.rev + 1, last_update = now_ms()
where name = ? and key = ? and rev = ?
returning rev
-- instead of returning:
select rev from flotilla_throttle where name = ? and key = ? and rev = ?
-- values: ["openai","acme",3]

-- src/throttles/shares/sql.ts: entryOfPin
select rev from flotilla_throttle where name = ? and key = ? and rev = ?
-- values: ["openai","acme",3]

  insert into flotilla_audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select ?, now_ms(), ?, ?, ?, ?,
    ?, ?, ?, ?, ?,
    cast(? as bigint), ?, ?,
    case when exists (
select 1 from flotilla_audit past where past.action = ? and past.outcome = 'full') then null else ? end, ?, ?
  from flotilla_throttle where name = ? and key = ? and rev = ?
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla_audit where id = ?
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"{}","{}","audit.full","done",null,"click-1","openai","acme",3]

-- src/throttles/shares/sql.ts: getRecentReports
select name, key, pod_id, seq, demand, in_flight, waiting, totals from flotilla_throttle_report
where at > now_ms() - ?
-- values: [5000]

-- src/throttles/shares/sql.ts: getThrottles
select throttle.* from (select value ->> 0 as name, value ->> 1 as key from jsonb_each(?)) wanted join flotilla_throttle throttle
  on throttle.name = wanted.name and throttle.key = wanted.key
-- values: ["[[\"openai\",\"acme\"]]"]

-- src/throttles/shares/sql.ts: listThrottles
select * from flotilla_throttle
where (name, key) > (?, ?)
order by name, key limit cast(? as integer)
-- values: ["","",10]

select * from flotilla_throttle
where (name, key) > (?, ?) and name = ?
order by name, key limit cast(? as integer)
-- values: ["openai","acme","openai",10]

-- src/throttles/shares/sql.ts: summarizeThrottles
select name, key, bound, epoch, pinned, gate, stats, last_update,
  (select coalesce(sum(report.in_flight), 0) from flotilla_throttle_report report
    where report.name = throttle.name and report.key = throttle.key
      and report.at > now_ms() - ?) as in_flight,
  (select coalesce(sum(report.waiting), 0) from flotilla_throttle_report report
    where report.name = throttle.name and report.key = throttle.key
      and report.at > now_ms() - ?) as waiting
from flotilla_throttle throttle
order by name, key limit cast(? as integer)
-- values: [10000,10000,1000]

-- src/throttles/shares/sql.ts: getReports
select report.name, report.key, report.pod_id, report.demand, report.in_flight, report.waiting,
  report.calls_waiting, report.totals, report.at, now_ms() as now_at
from (select value ->> 0 as name, value ->> 1 as key from jsonb_each(?)) wanted join flotilla_throttle_report report
  on report.name = wanted.name and report.key = wanted.key
-- values: ["[[\"openai\",\"acme\"]]"]

-- src/throttles/shares/sql.ts: pruneReports
delete from flotilla_throttle_report where at < now_ms() - ?
-- values: [60000]

-- src/throttles/shares/sql.ts: unusedThrottles
select name, key from flotilla_throttle throttle where throttle.last_update < now_ms() - ? and throttle.shares = '{}'
and throttle.pinned is null
order by name, key limit cast(? as integer)
-- values: [60000,100]

-- src/throttles/shares/sql.ts: pruneThrottles
delete from flotilla_throttle as throttle
      where throttle.name = ? and throttle.key = ? and throttle.last_update < now_ms() - ? and throttle.shares = '{}'
    and throttle.pinned is null
-- values: ["openai","acme",60000]

delete from flotilla_throttle_event where name = ? and key = ?
      and not exists (select 1 from flotilla_throttle throttle
        where throttle.name = ? and throttle.key = ?)
-- values: ["openai","acme","openai","acme"]

-- src/throttles/shares/sql.ts: noteChange
select rev from flotilla_throttle where name = ? and key = ? and rev = ?
-- values: ["openai","acme",3]

  insert into flotilla_throttle_event (name, key, seq, at, cause, bound_before, bound, epoch, breaker, actor)
  select name, key, coalesce((select max(past.seq) from flotilla_throttle_event past
where past.name = ? and past.key = ?), 0) + 1, now_ms(), ?, bound,
    coalesce(cast(? as integer), bound),
    coalesce(cast(? as bigint), epoch + 1), ?, ?
  from flotilla_throttle where name = ? and key = ? and rev = ?
-- values: ["openai","acme","refused",4,3,"closed",null,"openai","acme",3]

  delete from flotilla_throttle_event
  where name = ? and key = ? and seq <= (select max(past.seq) from flotilla_throttle_event past
where past.name = ? and past.key = ?) - ?
-- values: ["openai","acme","openai","acme",1000]

-- src/throttles/shares/sql.ts: noteFirstUse
insert into flotilla_throttle_event (name, key, seq, at, cause, bound, epoch)
select throttle.name, throttle.key, 1, now_ms(), 'first_use', throttle.bound, throttle.epoch
from (select value ->> 0 as name, value ->> 1 as key from jsonb_each(?)) wanted join flotilla_throttle throttle
  on throttle.name = wanted.name and throttle.key = wanted.key
where throttle.state is null and throttle.pinned is null
  and not exists (select 1 from flotilla_throttle_event past
    where past.name = throttle.name and past.key = throttle.key)
on conflict (name, key, seq) do nothing
-- values: ["[[\"openai\",\"acme\"]]"]

-- src/throttles/shares/sql.ts: listEvents
select seq, at, cause, bound_before, bound, epoch, breaker, actor from flotilla_throttle_event
where name = ? and key = ?  order by seq desc limit cast(? as integer)
-- values: ["openai","acme",50]

select seq, at, cause, bound_before, bound, epoch, breaker, actor from flotilla_throttle_event
where name = ? and key = ? and seq < ? order by seq desc limit cast(? as integer)
-- values: ["openai","acme",9,50]
