import { jsonPaths } from "../store/json-values.ts";
import { columnBytes } from "../store/page.ts";
import { isAmong, isJsonAt, join, limit, rows, sql, type Statement, table } from "../store/sql.ts";
import type { ListSessionsAmong } from "./service.ts";

const sessions = table("session");
const members = table("session_user");
const messages = table("message");
/** Bounds the scan, so that counting costs the same however many sessions there are. */
const maxCountedSessions = 10_000;
const viewBytes = sql`200 + ${columnBytes(sql`header`)} + ${columnBytes(sql`metadata`)}`;

export type SessionFilter = Pick<
  ListSessionsAmong,
  "user" | "agent" | "status" | "state" | "metadata" | "only"
>;

/** A position in the listing order: by last activity, then by id. */
export type SessionCursor = { readonly activeAtMs: number; readonly sessionId: string };

export type SessionWindow = { readonly before: SessionCursor; readonly count: number };

export function readSessions(
  tenant: string,
  sessionIds: readonly string[],
  filter: SessionFilter = {},
): Statement {
  const asked = rows(
    { session_id: "text" },
    sessionIds.map((sessionId) => [sessionId]),
  );
  return sql`
    select session_id, header, metadata from ${sessions} session
    where ${isAmong(sql`select asked.session_id from ${asked} asked`, sql`session.session_id`)}
      and tenant = ${tenant} and ${conditionOf(filter)} ${ofUser(filter)}`;
}

/** The owner of a session's log, by the log that the session was stored with. */
export function readOwner(tenant: string, sessionId: string): Statement {
  return sql`
    select log.log_id, log.term, log.owner from ${sessions} session
    join ${table("session_log")} log on log.log_id = session.log_id
    where session.session_id = ${sessionId} and session.tenant = ${tenant}
      and session.status <> 'deleted'`;
}

/** The log that a session was stored with. */
export function readLogOf(tenant: string, sessionId: string): Statement {
  return sql`
    select log_id from ${sessions}
    where session_id = ${sessionId} and tenant = ${tenant} and status <> 'deleted'`;
}

/**
 * Counts the sessions of all tenants, and those with work in progress. The latter are read in the order of
 * an index, because the planner would otherwise scan the table.
 */
export function countSessions(): Statement {
  const there = (looked: Statement) => sql`
    select count(*) from (${looked} ${limit(maxCountedSessions)}) looked where status <> 'deleted'`;
  return sql`
    select (${there(sql`select status from ${sessions}`)}) as total,
      (${there(sql`select status from ${sessions} where state <> 'idle' order by log_id`)}) as busy`;
}

/** Counts the sessions of a user, up to a bound. */
export function countSessionsOf(tenant: string, user: string, bound: number): Statement {
  return sql`
    select count(*) as total from (select 1 from ${members} member
      where member.tenant = ${tenant} and member.user_id = ${user} ${limit(bound)}) theirs`;
}

/**
 * The next `count` sessions of a tenant below a position, by a walk over all of them: with the size of those
 * that match the filter, as `sessionsBelow` has them.
 */
export function walkSessionsBelow(
  tenant: string,
  filter: SessionFilter,
  { before, count }: SessionWindow,
): Statement {
  const fits = sql`${conditionOf(filter)} ${ofUser(filter)}`;
  return sql`
    select session_id, active_at, case when ${fits} then ${viewBytes} end as bytes
    from ${sessions} session
    where tenant = ${tenant}
      and (active_at, session_id) < (${before.activeAtMs}, ${before.sessionId})
    order by active_at desc, session_id desc ${limit(count)}`;
}

/**
 * The next `count` sessions below a position, the most recently active first, with the size of those that
 * match the filter. Others are returned too, without a size, so that the caller knows how far it has
 * scanned. With `user` all sessions of that user are read, because only the member table names them: for
 * users with few.
 */
export function sessionsBelow(
  tenant: string,
  filter: SessionFilter,
  window: SessionWindow,
): Statement {
  const fits = conditionOf(filter);
  const columns = sql`session_id, active_at, case when ${fits} then ${viewBytes} end as bytes`;
  const { before, count } = window;
  if (filter.only) {
    const asked = rows(
      { session_id: "text" },
      filter.only.map((sessionId) => [sessionId]),
    );
    return sql`
      select ${columns} from ${sessions} session
      where ${isAmong(sql`select asked.session_id from ${asked} asked`, sql`session.session_id`)}
        and tenant = ${tenant} ${ofUser(filter)}
        and (active_at, session_id) < (${before.activeAtMs}, ${before.sessionId})
      order by active_at desc, session_id desc ${limit(count)}`;
  }
  if (filter.user === undefined) return walkSessionsBelow(tenant, filter, window);
  const theirs = sql`
    select member.session_id from ${members} member
    where member.tenant = ${tenant} and member.user_id = ${filter.user}`;
  return sql`
    select ${columns} from ${sessions} session
    where ${isAmong(theirs, sql`session.session_id`)}
      and (active_at, session_id) < (${before.activeAtMs}, ${before.sessionId})
    order by active_at desc, session_id desc ${limit(count)}`;
}

/**
 * A tenant's sessions with work in progress, searched among those of all tenants, which are few. The
 * expressions are written so that no other index applies.
 */
export function busySessionsBelow(
  tenant: string,
  filter: SessionFilter,
  window: SessionWindow,
): Statement {
  const { before } = window;
  return sql`
    select session_id, active_at, ${viewBytes} as bytes from ${sessions} session
    where state <> 'idle' and log_id >= 0 and (tenant || '') = ${tenant}
      and (active_at + 0, session_id || '') < (${before.activeAtMs}, ${before.sessionId})
      and ${conditionOf(filter)}
      ${ofUser(filter)}
    order by active_at + 0 desc, (session_id || '') desc ${limit(window.count)}`;
}

export type InboxQuery = {
  readonly tenant: string;
  readonly user: string;
  readonly limit: number;
  /** How many of the user's newest sessions are considered. */
  readonly maxConsidered: number;
  /** How many of a session's newest entries are scanned for unread ones. */
  readonly maxCounted: number;
  readonly only?: readonly string[];
};

/**
 * A user's sessions by activity, with the number of messages by others after the user's read position. A
 * replacement of an earlier message is not counted again.
 */
export function readInboxRows(query: InboxQuery): Statement {
  const { tenant, user, only, maxConsidered, maxCounted } = query;
  const theirs = sql`member.tenant = ${tenant} and member.user_id = ${user}`;
  const named = rows({ session_id: "text" }, only?.map((sessionId) => [sessionId]) ?? []);
  const considered =
    only === undefined
      ? sql`
        select member.session_id from ${members} member where ${theirs}
        order by member.session_id desc ${limit(maxConsidered)}`
      : sql`
        select named.session_id from ${named} named where exists (select 1 from ${members} member
          where member.session_id = named.session_id and ${theirs})`;
  const readSeq = sql`(select read_seq from ${members} member
    where member.session_id = shown.session_id and member.user_id = ${user})`;
  return sql`
    select shown.session_id, shown.header, ${readSeq} as read_seq,
      (select count(*) from (
        select kind, author, replaces from ${messages} message
        where message.session_id = shown.session_id and message.seq > ${readSeq}
        order by message.seq desc ${limit(maxCounted)}) recent
      where kind = 'message' and replaces is null and author <> ${user}) as unread
    from (
      select session_id, header, active_at from ${sessions} session
      where ${isAmong(considered, sql`session.session_id`)}
        and tenant = ${tenant} and status <> 'deleted'
      order by active_at desc, session_id desc ${limit(query.limit)}) shown
    order by shown.active_at desc, shown.session_id desc`;
}

/**
 * A position in the order of approvals: the nearest deadline first (`until`), then, of those without one,
 * the longest waiting (`since`).
 */
export type ApprovalCursor = {
  readonly by: "until" | "since";
  readonly atMs: number;
  readonly id: string;
};

const awaiting = {
  until: { at: sql`approval_until`, which: sql`approval_until is not null` },
  since: {
    at: sql`approval_since`,
    which: sql`approval_since is not null and approval_until is null`,
  },
} as const;

/**
 * The next sessions with calls that wait for a person, of those with a deadline or of those without. One
 * that a pod of an earlier release has gone on with since isn't found.
 */
export function sessionsAwaiting(
  after: ApprovalCursor,
  { tenant, count }: { tenant: string | undefined; count: number },
): Statement {
  const ofTenant = tenant === undefined ? sql`` : sql`and tenant = ${tenant}`;
  const { at, which } = awaiting[after.by];
  return sql`
    select session_id, tenant, agent, header, approval_since, approval_until from ${sessions}
    where ${which} ${ofTenant} and (${at}, session_id) > (${after.atMs}, ${after.id})
      and status = 'active' and approval_seq = last_seq
    order by ${at}, session_id ${limit(count)}`;
}

function ofUser({ user }: SessionFilter): Statement {
  if (user === undefined) return sql``;
  return sql`and exists (select 1 from ${members} member
    where member.session_id = session.session_id and member.user_id = ${user})`;
}

function conditionOf({ agent, status, state, metadata = {} }: SessionFilter): Statement {
  const conditions = [sql`status <> 'deleted'`];
  if (agent !== undefined) conditions.push(sql`agent = ${agent}`);
  if (status !== undefined) conditions.push(sql`status = ${status}`);
  if (state !== undefined) conditions.push(sql`state = ${state}`);
  for (const { path, value } of jsonPaths(metadata))
    conditions.push(sql`${isJsonAt(sql`metadata`, path, value)}`);
  return join(conditions, " and ");
}
