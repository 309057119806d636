-- src/throttles/shares/sql.ts: insertThrottles
insert into flotilla.throttle (name, key, bound, settings)
select made.name, made.key, made.bound, made.settings from (select name collate "C" as name, key collate "C" as key, bound, settings collate "C" as settings from unnest($1::text[], $2::text[], $3::bigint[], $4::text[]) as each_row (name, key, bound, settings)) made where 1 = 1
on conflict (name, key) do nothing
-- values: ["{\"openai\"}","{\"acme\"}","{4}","{\"{}\"}"]

-- src/throttles/shares/sql.ts: putSettings
update flotilla.throttle set settings = said.settings, rev = flotilla.throttle.rev + 1
from (select name collate "C" as name, key collate "C" as key, settings collate "C" as settings from unnest($1::text[], $2::text[], $3::text[]) as each_row (name, key, settings)) said
where flotilla.throttle.name = said.name and flotilla.throttle.key = said.key
  and flotilla.throttle.settings <> said.settings
-- values: ["{\"openai\"}","{\"acme\"}","{\"{}\"}"]

-- src/throttles/shares/sql.ts: putReports
insert into flotilla.throttle_report
  (name, key, pod_id, seq, demand, in_flight, waiting, calls_waiting, totals, at)
select said.name, said.key, said.pod_id, said.seq, said.demand, said.in_flight, said.waiting,
  said.calls_waiting, said.totals, now_ms()
from (select name collate "C" as name, key collate "C" as key, pod_id collate "C" as pod_id, seq, demand, in_flight, waiting, calls_waiting, totals collate "C" as totals from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[]) as each_row (name, key, pod_id, seq, demand, in_flight, waiting, calls_waiting, totals)) said where 1 = 1
on conflict (name, key, pod_id) do update
set seq = excluded.seq, demand = excluded.demand, in_flight = excluded.in_flight,
  waiting = excluded.waiting, calls_waiting = excluded.calls_waiting, totals = excluded.totals, at = excluded.at
where flotilla.throttle_report.seq < excluded.seq
-- values: ["{\"openai\"}","{\"acme\"}","{\"pod-1\"}","{1}","{4}","{2}","{2}","{1}","{\"{}\"}"]

-- src/throttles/shares/sql.ts: getShares
select throttle.name, throttle.key, throttle.rev, throttle.bound, throttle.epoch, throttle.gate,
  throttle.pass, throttle.shares, now_ms() as now_at
from (select name collate "C" as name, key collate "C" as key from unnest($1::text[], $2::text[]) as each_row (name, key)) wanted join flotilla.throttle throttle
  on throttle.name = wanted.name and throttle.key = wanted.key
-- values: ["{\"openai\"}","{\"acme\"}"]

-- src/throttles/shares/sql.ts: getDemands
select report.name, report.key, report.pod_id, report.seq, report.demand
from (select name collate "C" as name, key collate "C" as key from unnest($1::text[], $2::text[]) as each_row (name, key)) wanted join flotilla.throttle_report report
  on report.name = wanted.name and report.key = wanted.key
-- values: ["{\"openai\"}","{\"acme\"}"]

-- src/throttles/shares/sql.ts: changeShares
update flotilla.throttle set shares = $1, rev = flotilla.throttle.rev + 1, last_update = now_ms()
where name = $2 and key = $3 and rev = $4
returning rev
-- instead of returning:
select rev from flotilla.throttle where name = $1 and key = $2 and rev = $3 for update
-- values: ["{}","openai","acme",3]

-- src/throttles/shares/sql.ts: changeLearned
update flotilla.throttle set bound = $1, epoch = $2, gate = $3, state = $4, stats = $5,
  pass = flotilla.throttle.pass + 1, rev = flotilla.throttle.rev + 1, last_update = now_ms()
where name = $6 and key = $7 and rev = $8
returning rev
-- instead of returning:
select rev from flotilla.throttle where name = $1 and key = $2 and rev = $3 for update
-- values: [8,2,"{}","{}","{}","openai","acme",3]

-- src/throttles/shares/sql.ts: pinBound
update flotilla.throttle set bound = $1, pinned = $2, pinned_at = now_ms(), epoch = flotilla.throttle.epoch + 1,
  gate = '{}', pass = flotilla.throttle.pass + 1, rev = flotilla.throttle.rev + 1, last_update = now_ms()
where name = $3 and key = $4 and rev = $5
returning rev
-- instead of returning:
select rev from flotilla.throttle where name = $1 and key = $2 and rev = $3 for update
-- values: [5,5,"openai","acme",3]

-- src/throttles/shares/sql.ts: unpinBound
update flotilla.throttle set pinned = null, pinned_at = now_ms(), epoch = flotilla.throttle.epoch + 1, rev = flotilla.throttle.rev + 1, last_update = now_ms()
where name = $1 and key = $2 and rev = $3
returning rev
-- instead of returning:
select rev from flotilla.throttle where name = $1 and key = $2 and rev = $3 for update
-- values: ["openai","acme",3]

-- src/throttles/shares/sql.ts: entryOfPin
select rev from flotilla.throttle where name = $1 and key = $2 and rev = $3 for update
-- values: ["openai","acme",3]

  insert into flotilla.audit (id, at, actor, tenant, user_id, key_name, role, address, action, subject,
    filter, count, before, after, outcome, reason, act_id)
  select $1, now_ms(), $2, $3, $4, $5,
    $6, $7, $8, $9, $10,
    cast($11 as bigint), $12, $13,
    case when exists (
select 1 from flotilla.audit past where past.action = $14 and past.outcome = 'full') then null else $15 end, $16, $17
  from flotilla.throttle where name = $18 and key = $19 and rev = $20
  returning id, action, outcome
-- instead of returning:
select id, action, outcome from flotilla.audit where id = $1
-- values: ["act-1","key/web","default","zoe","web","operator","10.0.0.1","tasks.cancel","task-1",null,1,"{}","{}","audit.full","done",null,"click-1","openai","acme",3]

-- src/throttles/shares/sql.ts: getRecentReports
select name, key, pod_id, seq, demand, in_flight, waiting, totals from flotilla.throttle_report
where at > now_ms() - $1
-- values: [5000]

-- src/throttles/shares/sql.ts: getThrottles
select throttle.* from (select name collate "C" as name, key collate "C" as key from unnest($1::text[], $2::text[]) as each_row (name, key)) wanted join flotilla.throttle throttle
  on throttle.name = wanted.name and throttle.key = wanted.key
-- values: ["{\"openai\"}","{\"acme\"}"]

-- src/throttles/shares/sql.ts: listThrottles
select * from flotilla.throttle
where (name, key) > ($1, $2)
order by name, key limit cast($3 as integer)
-- values: ["","",10]

select * from flotilla.throttle
where (name, key) > ($1, $2) and name = $3
order by name, key limit cast($4 as integer)
-- values: ["openai","acme","openai",10]

-- src/throttles/shares/sql.ts: summarizeThrottles
select name, key, bound, epoch, pinned, gate, stats, last_update,
  (select coalesce(sum(report.in_flight), 0) from flotilla.throttle_report report
    where report.name = throttle.name and report.key = throttle.key
      and report.at > now_ms() - $1) as in_flight,
  (select coalesce(sum(report.waiting), 0) from flotilla.throttle_report report
    where report.name = throttle.name and report.key = throttle.key
      and report.at > now_ms() - $2) as waiting
from flotilla.throttle throttle
order by name, key limit cast($3 as integer)
-- values: [10000,10000,1000]

-- src/throttles/shares/sql.ts: getReports
select report.name, report.key, report.pod_id, report.demand, report.in_flight, report.waiting,
  report.calls_waiting, report.totals, report.at, now_ms() as now_at
from (select name collate "C" as name, key collate "C" as key from unnest($1::text[], $2::text[]) as each_row (name, key)) wanted join flotilla.throttle_report report
  on report.name = wanted.name and report.key = wanted.key
-- values: ["{\"openai\"}","{\"acme\"}"]

-- src/throttles/shares/sql.ts: pruneReports
delete from flotilla.throttle_report where at < now_ms() - $1
-- values: [60000]

-- src/throttles/shares/sql.ts: unusedThrottles
select name, key from flotilla.throttle throttle where throttle.last_update < now_ms() - $1 and throttle.shares = '{}'
and throttle.pinned is null
order by name, key limit cast($2 as integer)
-- values: [60000,100]

-- src/throttles/shares/sql.ts: pruneThrottles
delete from flotilla.throttle as throttle
      where throttle.name = $1 and throttle.key = $2 and throttle.last_update < now_ms() - $3 and throttle.shares = '{}'
    and throttle.pinned is null
-- values: ["openai","acme",60000]

delete from flotilla.throttle_event where name = $1 and key = $2
      and not exists (select 1 from flotilla.throttle throttle
        where throttle.name = $3 and throttle.key = $4)
-- values: ["openai","acme","openai","acme"]

-- src/throttles/shares/sql.ts: noteChange
select rev from flotilla.throttle where name = $1 and key = $2 and rev = $3 for update
-- values: ["openai","acme",3]

  insert into flotilla.throttle_event (name, key, seq, at, cause, bound_before, bound, epoch, breaker, actor)
  select name, key, coalesce((select max(past.seq) from flotilla.throttle_event past
where past.name = $1 and past.key = $2), 0) + 1, now_ms(), $3, bound,
    coalesce(cast($4 as integer), bound),
    coalesce(cast($5 as bigint), epoch + 1), $6, $7
  from flotilla.throttle where name = $8 and key = $9 and rev = $10
-- values: ["openai","acme","refused",4,3,"closed",null,"openai","acme",3]

  delete from flotilla.throttle_event
  where name = $1 and key = $2 and seq <= (select max(past.seq) from flotilla.throttle_event past
where past.name = $3 and past.key = $4) - $5
-- values: ["openai","acme","openai","acme",1000]

-- src/throttles/shares/sql.ts: noteFirstUse
insert into flotilla.throttle_event (name, key, seq, at, cause, bound, epoch)
select throttle.name, throttle.key, 1, now_ms(), 'first_use', throttle.bound, throttle.epoch
from (select name collate "C" as name, key collate "C" as key from unnest($1::text[], $2::text[]) as each_row (name, key)) wanted join flotilla.throttle throttle
  on throttle.name = wanted.name and throttle.key = wanted.key
where throttle.state is null and throttle.pinned is null
  and not exists (select 1 from flotilla.throttle_event past
    where past.name = throttle.name and past.key = throttle.key)
on conflict (name, key, seq) do nothing
-- values: ["{\"openai\"}","{\"acme\"}"]

-- src/throttles/shares/sql.ts: listEvents
select seq, at, cause, bound_before, bound, epoch, breaker, actor from flotilla.throttle_event
where name = $1 and key = $2  order by seq desc limit cast($3 as integer)
-- values: ["openai","acme",50]

select seq, at, cause, bound_before, bound, epoch, breaker, actor from flotilla.throttle_event
where name = $1 and key = $2 and seq < $3 order by seq desc limit cast($4 as integer)
-- values: ["openai","acme",9,50]
