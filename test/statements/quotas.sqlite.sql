-- src/quotas/sql.ts: addTenantCounts
insert into flotilla_tenant_count as counted (tenant, log_id, sessions, turns, bytes)
select tenant, cast(? as integer), sum(sessions), sum(turns), sum(bytes)
from (select value ->> 0 as tenant, value ->> 1 as sessions, value ->> 2 as turns, value ->> 3 as bytes, value ->> 4 as log_id from jsonb_each(?)) fresh where fresh.log_id = 1
group by tenant order by tenant
on conflict (tenant, log_id) do update
set sessions = counted.sessions + excluded.sessions, turns = counted.turns + excluded.turns,
  bytes = counted.bytes + excluded.bytes
-- values: [1,"[[\"acme\",1,1,200,1],[\"acme\",1,1,200,2]]"]

-- src/quotas/sql.ts: readCounts
select tenant, sum(sessions) as sessions, sum(turns) as turns, sum(bytes) as bytes from flotilla_tenant_count
where tenant in (select tenant from (select value ->> 0 as tenant from jsonb_each(?)) wanted)
group by tenant
-- values: ["[[\"acme\"],[\"other\"]]"]

-- src/quotas/sql.ts: listCounts
select tenant, sum(sessions) as sessions, sum(turns) as turns, sum(bytes) as bytes from flotilla_tenant_count where tenant > ?
group by tenant order by tenant limit cast(? as integer)
-- values: ["acme",51]

-- src/quotas/sql.ts: readDrift
select tenant, sum(sessions) as sessions, sum(turns) as turns, sum(bytes) as bytes, sum(old_sessions) as old_sessions, sum(old_turns) as old_turns,
  sum(old_bytes) as old_bytes
from (
  select tenant, count(*) as sessions,
    sum(case when state in ('catching_up', 'waiting') then 1 else 0 end) as turns,
    sum(bytes) as bytes, 0 as old_sessions, 0 as old_turns, 0 as old_bytes
  from flotilla_session where status <> 'deleted' group by tenant
  union all
  select tenant, -sum(sessions), -sum(turns), -sum(bytes),
    sum(case when log_id = -1 then sessions else 0 end),
    sum(case when log_id = -1 then turns else 0 end),
    sum(case when log_id = -1 then bytes else 0 end)
  from flotilla_tenant_count group by tenant) compared
group by tenant
having sum(sessions) <> 0 or sum(turns) <> 0 or sum(bytes) <> 0
limit cast(? as integer)
-- values: [100]

-- src/quotas/sql.ts: correctCounts
insert into flotilla_tenant_count as counted (tenant, log_id, sessions, turns, bytes)
select tenant, -1, sessions, turns, bytes from (select value ->> 0 as tenant, value ->> 1 as sessions, value ->> 2 as turns, value ->> 3 as bytes, value ->> 4 as old_sessions, value ->> 5 as old_turns, value ->> 6 as old_bytes from jsonb_each(?)) fresh where true
on conflict (tenant, log_id) do update
set sessions = excluded.sessions, turns = excluded.turns, bytes = excluded.bytes
where exists (select 1 from (select value ->> 0 as tenant, value ->> 1 as sessions, value ->> 2 as turns, value ->> 3 as bytes, value ->> 4 as old_sessions, value ->> 5 as old_turns, value ->> 6 as old_bytes from jsonb_each(?)) seen where seen.tenant = counted.tenant
  and seen.old_sessions = counted.sessions and seen.old_turns = counted.turns
  and seen.old_bytes = counted.bytes)
-- values: ["[[\"acme\",4,1,250,3,0,50]]","[[\"acme\",4,1,250,3,0,50]]"]

-- src/quotas/sql.ts: announceServer
insert into flotilla_quota_server (server_id, seen_at) values (?, now_ms())
on conflict (server_id) do update set seen_at = excluded.seen_at
-- values: ["server-1"]

-- src/quotas/sql.ts: dropEmptyCounts
delete from flotilla_tenant_count where sessions = 0 and turns = 0 and bytes = 0

-- src/quotas/sql.ts: dropServers
delete from flotilla_quota_server where seen_at < now_ms() - ?
-- values: [10000]

-- src/quotas/sql.ts: countServers
select count(*) as servers from flotilla_quota_server

-- src/quotas/sql.ts: removeServer
delete from flotilla_quota_server where server_id = ?
-- values: ["server-1"]
