-- src/quotas/sql.ts: addTenantCounts
insert into flotilla.tenant_count as counted (tenant, log_id, sessions, turns, bytes)
select tenant, cast($1 as integer), sum(sessions), sum(turns), sum(bytes)
from (select tenant collate "C" as tenant, sessions, turns, bytes, log_id from unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) as each_row (tenant, sessions, turns, bytes, log_id)) fresh where fresh.log_id = 1
group by tenant order by tenant
on conflict (tenant, log_id) do update
set sessions = counted.sessions + excluded.sessions, turns = counted.turns + excluded.turns,
  bytes = counted.bytes + excluded.bytes
-- values: [1,"{\"acme\",\"acme\"}","{1,1}","{1,1}","{200,200}","{1,2}"]

-- src/quotas/sql.ts: readCounts
select tenant, sum(sessions) as sessions, sum(turns) as turns, sum(bytes) as bytes from flotilla.tenant_count
where tenant = any(array(select tenant from (select tenant collate "C" as tenant from unnest($1::text[]) as each_row (tenant)) wanted))
group by tenant
-- values: ["{\"acme\",\"other\"}"]

-- src/quotas/sql.ts: listCounts
select tenant, sum(sessions) as sessions, sum(turns) as turns, sum(bytes) as bytes from flotilla.tenant_count where tenant > $1
group by tenant order by tenant limit cast($2 as integer)
-- values: ["acme",51]

-- src/quotas/sql.ts: readDrift
select tenant, sum(sessions) as sessions, sum(turns) as turns, sum(bytes) as bytes, sum(old_sessions) as old_sessions, sum(old_turns) as old_turns,
  sum(old_bytes) as old_bytes
from (
  select tenant, count(*) as sessions,
    sum(case when state in ('catching_up', 'waiting') then 1 else 0 end) as turns,
    sum(bytes) as bytes, 0 as old_sessions, 0 as old_turns, 0 as old_bytes
  from flotilla.session where status <> 'deleted' group by tenant
  union all
  select tenant, -sum(sessions), -sum(turns), -sum(bytes),
    sum(case when log_id = -1 then sessions else 0 end),
    sum(case when log_id = -1 then turns else 0 end),
    sum(case when log_id = -1 then bytes else 0 end)
  from flotilla.tenant_count group by tenant) compared
group by tenant
having sum(sessions) <> 0 or sum(turns) <> 0 or sum(bytes) <> 0
limit cast($1 as integer)
-- values: [100]

-- src/quotas/sql.ts: correctCounts
insert into flotilla.tenant_count as counted (tenant, log_id, sessions, turns, bytes)
select tenant, -1, sessions, turns, bytes from (select tenant collate "C" as tenant, sessions, turns, bytes, old_sessions, old_turns, old_bytes from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[]) as each_row (tenant, sessions, turns, bytes, old_sessions, old_turns, old_bytes)) fresh where true
on conflict (tenant, log_id) do update
set sessions = excluded.sessions, turns = excluded.turns, bytes = excluded.bytes
where exists (select 1 from (select tenant collate "C" as tenant, sessions, turns, bytes, old_sessions, old_turns, old_bytes from unnest($8::text[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[]) as each_row (tenant, sessions, turns, bytes, old_sessions, old_turns, old_bytes)) seen where seen.tenant = counted.tenant
  and seen.old_sessions = counted.sessions and seen.old_turns = counted.turns
  and seen.old_bytes = counted.bytes)
-- values: ["{\"acme\"}","{4}","{1}","{250}","{3}","{0}","{50}","{\"acme\"}","{4}","{1}","{250}","{3}","{0}","{50}"]

-- src/quotas/sql.ts: announceServer
insert into flotilla.quota_server (server_id, seen_at) values ($1, now_ms())
on conflict (server_id) do update set seen_at = excluded.seen_at
-- values: ["server-1"]

-- src/quotas/sql.ts: dropEmptyCounts
delete from flotilla.tenant_count where sessions = 0 and turns = 0 and bytes = 0

-- src/quotas/sql.ts: dropServers
delete from flotilla.quota_server where seen_at < now_ms() - $1
-- values: [10000]

-- src/quotas/sql.ts: countServers
select count(*) as servers from flotilla.quota_server

-- src/quotas/sql.ts: removeServer
delete from flotilla.quota_server where server_id = $1
-- values: ["server-1"]
