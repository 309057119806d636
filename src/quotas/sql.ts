import { isAmong, limit, literal, now, rows, sql, type Statement, table } from "../store/sql.ts";

const counts = table("tenant_count");
const servers = table("quota_server");
const sessions = table("session");

/** No log has this number. Its rows are the leader's. */
const correction = -1;

/** What a record of sessions changes in the counts of a tenant. */
export type TenantChange = {
  readonly tenant: string;
  readonly sessions: number;
  readonly turns: number;
  readonly bytes: number;
};

/** What is missing in the counts of a tenant, and what the leader has added to them so far. */
export type TenantDrift = TenantChange & { readonly corrected: Omit<TenantChange, "tenant"> };

const changeColumns = {
  tenant: "text",
  sessions: "integer",
  turns: "integer",
  bytes: "integer",
} as const;

function fromChange({ tenant, sessions: made, turns, bytes }: TenantChange) {
  return [tenant, made, turns, bytes];
}

/**
 * Adds changes to the counts, in the transaction of the records that make them. `when` is the condition that
 * a row is of a log whose record is stored now. All go to the rows of one of the logs, so that a transaction
 * changes one row for each tenant.
 */
export function addTenantCounts(
  changes: readonly (TenantChange & { readonly logId: number })[],
  when: (logId: Statement) => Statement,
): Statement {
  const toLog = Math.min(...changes.map(({ logId }) => logId));
  const fresh = rows(
    { ...changeColumns, log_id: "integer" },
    changes.map((change) => [...fromChange(change), change.logId]),
  );
  return sql`
    insert into ${counts} as counted (tenant, log_id, sessions, turns, bytes)
    select tenant, cast(${toLog} as integer), sum(sessions), sum(turns), sum(bytes)
    from ${fresh} fresh where ${when(sql`fresh.log_id`)}
    group by tenant order by tenant
    on conflict (tenant, log_id) do update
    set sessions = counted.sessions + excluded.sessions, turns = counted.turns + excluded.turns,
      bytes = counted.bytes + excluded.bytes`;
}

const sums = sql`sum(sessions) as sessions, sum(turns) as turns, sum(bytes) as bytes`;

/** The counts of these tenants. A tenant without any has no row. */
export function readCounts(tenants: readonly string[]): Statement {
  const wanted = rows(
    { tenant: "text" },
    tenants.map((tenant) => [tenant]),
  );
  return sql`
    select tenant, ${sums} from ${counts}
    where ${isAmong(sql`select tenant from ${wanted} wanted`, sql`tenant`)}
    group by tenant`;
}

/** The counts of all tenants after the given one, by name. */
export function listCounts(after: string, count: number): Statement {
  return sql`
    select tenant, ${sums} from ${counts} where tenant > ${after}
    group by tenant order by tenant ${limit(count)}`;
}

/**
 * Tenants whose counts differ from their sessions. A record changes both in one transaction, so a single
 * query sees both before it or both after it, and what it finds was stored without being counted.
 */
export function readDrift(count: number): Statement {
  const isCorrection = sql`log_id = ${literal(correction)}`;
  return sql`
    select tenant, ${sums}, sum(old_sessions) as old_sessions, sum(old_turns) as old_turns,
      sum(old_bytes) as old_bytes
    from (
      select tenant, count(*) as sessions,
        sum(case when state in ('catching_up', 'waiting') then 1 else 0 end) as turns,
        sum(bytes) as bytes, 0 as old_sessions, 0 as old_turns, 0 as old_bytes
      from ${sessions} where status <> 'deleted' group by tenant
      union all
      select tenant, -sum(sessions), -sum(turns), -sum(bytes),
        sum(case when ${isCorrection} then sessions else 0 end),
        sum(case when ${isCorrection} then turns else 0 end),
        sum(case when ${isCorrection} then bytes else 0 end)
      from ${counts} group by tenant) compared
    group by tenant
    having sum(sessions) <> 0 or sum(turns) <> 0 or sum(bytes) <> 0
    ${limit(count)}`;
}

/** Adds what is missing, unless a correction has been stored since it was read. */
export function correctCounts(drifts: readonly TenantDrift[]): Statement {
  const fresh = rows(
    { ...changeColumns, old_sessions: "integer", old_turns: "integer", old_bytes: "integer" },
    drifts.map(({ tenant, corrected, ...drift }) => [
      tenant,
      corrected.sessions + drift.sessions,
      corrected.turns + drift.turns,
      corrected.bytes + drift.bytes,
      corrected.sessions,
      corrected.turns,
      corrected.bytes,
    ]),
  );
  return sql`
    insert into ${counts} as counted (tenant, log_id, sessions, turns, bytes)
    select tenant, ${literal(correction)}, sessions, turns, bytes from ${fresh} fresh where true
    on conflict (tenant, log_id) do update
    set sessions = excluded.sessions, turns = excluded.turns, bytes = excluded.bytes
    where exists (select 1 from ${fresh} seen where seen.tenant = counted.tenant
      and seen.old_sessions = counted.sessions and seen.old_turns = counted.turns
      and seen.old_bytes = counted.bytes)`;
}

/**
 * Deletes rows that count nothing, such as those of tenants that have no session any more. Leaving them out
 * changes no sum, and a record that counts for one of them makes it again.
 */
export function dropEmptyCounts(): Statement {
  return sql`delete from ${counts} where sessions = 0 and turns = 0 and bytes = 0`;
}

/** Says that a server is up. */
export function announceServer(serverId: string): Statement {
  return sql`
    insert into ${servers} (server_id, seen_at) values (${serverId}, ${now})
    on conflict (server_id) do update set seen_at = excluded.seen_at`;
}

/** Removes servers that have been silent for this long. */
export function dropServers(silentMs: number): Statement {
  return sql`delete from ${servers} where seen_at < ${now} - ${silentMs}`;
}

/** How many servers are up. */
export function countServers(): Statement {
  return sql`select count(*) as servers from ${servers}`;
}

export function removeServer(serverId: string): Statement {
  return sql`delete from ${servers} where server_id = ${serverId}`;
}
