import type { WriteEntry } from "../../audit/act.ts";
import type { Row } from "../../store/database.ts";
import {
  forUpdate,
  limit,
  now,
  returning,
  rows,
  sql,
  type Statement,
  table,
} from "../../store/sql.ts";
import type { LearnedAllowance, LearnedCause } from "../learning/limit-controller.ts";
import type { ShareEntry } from "./lease.ts";
import type { SilentPods } from "./silence.ts";

const throttles = table("throttle");
const reports = table("throttle_report");
const events = table("throttle_event");

/** How many changes are kept for each throttle and key. */
export const maxEventsKept = 1_000;

/** A throttle's name and key. The key is empty where it has none. */
export type ThrottleId = { readonly name: string; readonly key: string };

/** Inserts the rows of throttles that no pod has used before. */
export function insertThrottles(
  newThrottles: readonly (ThrottleId & { readonly bound: number; readonly settings: string })[],
): Statement {
  const made = rows(
    { name: "text", key: "text", bound: "integer", settings: "text" },
    newThrottles.map(({ name, key, bound, settings }) => [name, key, bound, settings]),
  );
  return sql`
    insert into ${throttles} (name, key, bound, settings)
    select made.name, made.key, made.bound, made.settings from ${made} made where 1 = 1
    on conflict (name, key) do nothing`;
}

/** Updates the settings of throttles, where the code declares other ones than the row has. */
export function putSettings(
  declared: readonly (ThrottleId & { readonly settings: string })[],
): Statement {
  const declaredRows = rows(
    { name: "text", key: "text", settings: "text" },
    declared.map(({ name, key, settings }) => [name, key, settings]),
  );
  return sql`
    update ${throttles} set settings = said.settings, rev = ${throttles}.rev + 1
    from ${declaredRows} said
    where ${throttles}.name = said.name and ${throttles}.key = said.key
      and ${throttles}.settings <> said.settings`;
}

export type ReportRow = ThrottleId & {
  readonly podId: string;
  /** Rises with every report of the pod, so that a late one doesn't replace a newer one. */
  readonly seq: number;
  readonly demand: number;
  readonly inFlight: number;
  /** Waiting calls, and tasks that aren't claimed because there is no permit. */
  readonly waiting: number;
  /** Only the waiting calls. */
  readonly callsWaiting: number;
  readonly totals: string;
};

export function putReports(newReports: readonly ReportRow[]): Statement {
  const reportRows = rows(
    {
      name: "text",
      key: "text",
      pod_id: "text",
      seq: "integer",
      demand: "integer",
      in_flight: "integer",
      waiting: "integer",
      calls_waiting: "integer",
      totals: "text",
    },
    newReports.map((each) => [
      each.name,
      each.key,
      each.podId,
      each.seq,
      each.demand,
      each.inFlight,
      each.waiting,
      each.callsWaiting,
      each.totals,
    ]),
  );
  return sql`
    insert into ${reports}
      (name, key, pod_id, seq, demand, in_flight, waiting, calls_waiting, totals, at)
    select said.name, said.key, said.pod_id, said.seq, said.demand, said.in_flight, said.waiting,
      said.calls_waiting, said.totals, ${now}
    from ${reportRows} said where 1 = 1
    on conflict (name, key, pod_id) do update
    set seq = excluded.seq, demand = excluded.demand, in_flight = excluded.in_flight,
      waiting = excluded.waiting, calls_waiting = excluded.calls_waiting, totals = excluded.totals, at = excluded.at
    where ${reports}.seq < excluded.seq`;
}

function idRows(ids: readonly ThrottleId[]) {
  return rows(
    { name: "text", key: "text" },
    ids.map(({ name, key }) => [name, key]),
  );
}

/** The columns of throttles that pods need for their shares. */
export function getShares(ids: readonly ThrottleId[]): Statement {
  return sql`
    select throttle.name, throttle.key, throttle.rev, throttle.bound, throttle.epoch, throttle.gate,
      throttle.pass, throttle.shares, ${now} as now_at
    from ${idRows(ids)} wanted join ${throttles} throttle
      on throttle.name = wanted.name and throttle.key = wanted.key`;
}

/** The demand of each pod. */
export function getDemands(ids: readonly ThrottleId[]): Statement {
  return sql`
    select report.name, report.key, report.pod_id, report.seq, report.demand
    from ${idRows(ids)} wanted join ${reports} report
      on report.name = wanted.name and report.key = wanted.key`;
}

/** A compare-and-set: if the row isn't at `rev`, nothing is changed and no row returned. */
export function changeShares(id: ThrottleId, rev: number, shares: string): Statement {
  return changeRow(id, rev, sql`shares = ${shares}`);
}

export type Learned = {
  readonly bound: number;
  readonly epoch: number;
  readonly constraints: string;
  readonly state: string;
  readonly stats: string;
  /** Why the bound or the breaker is another than before; absent where both are as they were. */
  readonly change?: Pick<BoundChange, "cause" | "breaker">;
};

/** A change of a bound, for the transaction that makes it. */
export type BoundChange = {
  readonly cause: LearnedCause | "pinned";
  readonly breaker: LearnedAllowance["breaker"];
  /** Undefined: it stays as it is. */
  readonly bound?: number | undefined;
  /** Undefined: the next. */
  readonly epoch?: number | undefined;
  /** Of a change by hand: its actor, as the audit names it. */
  readonly actor?: string | undefined;
};

/**
 * Notes a change of the row as it was read, with the lock that keeps it so, and forgets the oldest. Goes
 * before the change itself: if the row has moved on, neither is stored.
 */
export function noteChange(id: ThrottleId, rev: number, change: BoundChange): Statement[] {
  const { cause, breaker, bound = null, epoch = null, actor = null } = change;
  const asSeen = isAt(id, rev);
  const newest = sql`(select max(past.seq) from ${events} past
    where past.name = ${id.name} and past.key = ${id.key})`;
  return [
    sql`select rev from ${throttles} where ${asSeen} ${forUpdate}`,
    sql`
      insert into ${events} (name, key, seq, at, cause, bound_before, bound, epoch, breaker, actor)
      select name, key, coalesce(${newest}, 0) + 1, ${now}, ${cause}, bound,
        coalesce(cast(${bound} as integer), bound),
        coalesce(cast(${epoch} as bigint), epoch + 1), ${breaker}, ${actor}
      from ${throttles} where ${asSeen}`,
    sql`
      delete from ${events}
      where name = ${id.name} and key = ${id.key} and seq <= ${newest} - ${maxEventsKept}`,
  ];
}

/** Notes the first bounds of throttles. Goes after `insertThrottles`. */
export function noteFirstUse(ids: readonly ThrottleId[]): Statement {
  return sql`
    insert into ${events} (name, key, seq, at, cause, bound, epoch)
    select throttle.name, throttle.key, 1, ${now}, 'first_use', throttle.bound, throttle.epoch
    from ${idRows(ids)} wanted join ${throttles} throttle
      on throttle.name = wanted.name and throttle.key = wanted.key
    where throttle.state is null and throttle.pinned is null
      and not exists (select 1 from ${events} past
        where past.name = throttle.name and past.key = throttle.key)
    on conflict (name, key, seq) do nothing`;
}

/** The changes of a bound, newest first. */
export function listEvents(
  { name, key }: ThrottleId,
  { before, count }: { before?: number | undefined; count: number },
): Statement {
  const below = before === undefined ? sql`` : sql`and seq < ${before}`;
  return sql`
    select seq, at, cause, bound_before, bound, epoch, breaker, actor from ${events}
    where name = ${name} and key = ${key} ${below} order by seq desc ${limit(count)}`;
}

export function changeLearned(id: ThrottleId, rev: number, learned: Learned): Statement {
  const { bound, epoch, constraints, state, stats } = learned;
  return changeRow(
    id,
    rev,
    sql`bound = ${bound}, epoch = ${epoch}, gate = ${constraints}, state = ${state}, stats = ${stats},
      pass = ${throttles}.pass + 1`,
  );
}

/** Sets the bound by hand. Nothing is learned while it is pinned. */
export function pinBound(id: ThrottleId, rev: number, bound: number): Statement {
  return changeRow(
    id,
    rev,
    sql`bound = ${bound}, pinned = ${bound}, pinned_at = ${now}, epoch = ${throttles}.epoch + 1,
      gate = '{}', pass = ${throttles}.pass + 1`,
  );
}

export function unpinBound(id: ThrottleId, rev: number): Statement {
  return changeRow(id, rev, sql`pinned = null, pinned_at = ${now}, epoch = ${throttles}.epoch + 1`);
}

/** The entry of a change by hand of the row as it was read, with the lock that keeps it so. */
export function entryOfPin(
  id: ThrottleId,
  rev: number,
  { before, after }: { before: string; after: string },
  entry: WriteEntry,
): Statement[] {
  const asSeen = isAt(id, rev);
  const stated = entry({ when: sql`from ${throttles} where ${asSeen}`, before, after });
  if (stated.length === 0) return [];
  return [sql`select rev from ${throttles} where ${asSeen} ${forUpdate}`, ...stated];
}

function changeRow(id: ThrottleId, rev: number, changes: Statement): Statement {
  const asSeen = isAt(id, rev);
  return sql`
    update ${throttles} set ${changes}, rev = ${throttles}.rev + 1, last_update = ${now}
    where ${asSeen}
    ${returning(sql`rev`, { before: sql`select rev from ${throttles} where ${asSeen} ${forUpdate}` })}`;
}

function isAt({ name, key }: ThrottleId, rev: number): Statement {
  return sql`name = ${name} and key = ${key} and rev = ${rev}`;
}

/** The recent reports, for the leader. Idle pods send none. */
export function getRecentReports(withinMs: number): Statement {
  return sql`
    select name, key, pod_id, seq, demand, in_flight, waiting, totals from ${reports}
    where at > ${now} - ${withinMs}`;
}

/** Whole rows, for the leader and for `throttles.get`. */
export function getThrottles(ids: readonly ThrottleId[]): Statement {
  return sql`
    select throttle.* from ${idRows(ids)} wanted join ${throttles} throttle
      on throttle.name = wanted.name and throttle.key = wanted.key`;
}

/** Compared as a pair, so that the index finds the start of the page. */
export function listThrottles(after: ThrottleId, count: number, name?: string): Statement {
  const named = name === undefined ? sql`` : sql`and name = ${name}`;
  return sql`
    select * from ${throttles}
    where (name, key) > (${after.name}, ${after.key}) ${named}
    order by name, key ${limit(count)}`;
}

/**
 * The first throttles without their shares, with what pods have reported of each within so many ms. Added
 * up one by one, because reports of keys beyond the first are many.
 */
export function summarizeThrottles(count: number, withinMs: number): Statement {
  const reported = sql`from ${reports} report
        where report.name = throttle.name and report.key = throttle.key
          and report.at > ${now} - ${withinMs}`;
  return sql`
    select name, key, bound, epoch, pinned, gate, stats, last_update,
      (select coalesce(sum(report.in_flight), 0) ${reported}) as in_flight,
      (select coalesce(sum(report.waiting), 0) ${reported}) as waiting
    from ${throttles} throttle
    order by name, key ${limit(count)}`;
}

export function getReports(ids: readonly ThrottleId[]): Statement {
  return sql`
    select report.name, report.key, report.pod_id, report.demand, report.in_flight, report.waiting,
      report.calls_waiting, report.totals, report.at, ${now} as now_at
    from ${idRows(ids)} wanted join ${reports} report
      on report.name = wanted.name and report.key = wanted.key`;
}

/** Deletes reports of pods that are gone or idle. A pod with demand reports again. */
export function pruneReports(olderMs: number): Statement {
  return sql`delete from ${reports} where at < ${now} - ${olderMs}`;
}

/** The first throttles that were unused for so long that what was learned may be wrong by now. */
export function unusedThrottles(olderMs: number, count: number): Statement {
  return sql`
    select name, key from ${throttles} throttle where ${isUnused(olderMs)}
    order by name, key ${limit(count)}`;
}

/** Deletes those that are still unused, with their changes. */
export function pruneThrottles(ids: readonly ThrottleId[], olderMs: number): Statement[] {
  // One by one, because a planner would compare a list with every change that there is.
  return ids.flatMap(({ name, key }) => [
    sql`delete from ${throttles} as throttle
      where throttle.name = ${name} and throttle.key = ${key} and ${isUnused(olderMs)}`,
    sql`delete from ${events} where name = ${name} and key = ${key}
      and not exists (select 1 from ${throttles} throttle
        where throttle.name = ${name} and throttle.key = ${key})`,
  ]);
}

function isUnused(olderMs: number): Statement {
  return sql`throttle.last_update < ${now} - ${olderMs} and throttle.shares = '{}'
    and throttle.pinned is null`;
}

/** What limits calls besides the bound. Stored in the column `gate`. */
export type CallConstraints = {
  readonly holdMs: number;
  readonly breaker: LearnedAllowance["breaker"];
  /** Units per second of all pods together. */
  readonly refillPerS?: number;
  /** Pods whose permits others may use too. */
  readonly silent?: SilentPods;
};

export type ShareEntries = Readonly<Record<string, ShareEntry>>;

/** The part of a throttle's row that pods need. */
export type SharedRow = {
  readonly rev: number;
  readonly bound: number;
  readonly epoch: number;
  readonly constraints: CallConstraints;
  /** Rises whenever the constraints are written. */
  readonly pass: number;
  readonly shares: ShareEntries;
  /** The store's time when the row was read. */
  readonly nowMs: number;
};

export function toSharedRow(row: Row): SharedRow {
  return {
    rev: Number(row["rev"]),
    bound: Number(row["bound"]),
    epoch: Number(row["epoch"]),
    constraints: toConstraints(row["gate"] as string),
    pass: Number(row["pass"]),
    shares: JSON.parse(row["shares"] as string) as ShareEntries,
    nowMs: Number(row["now_at"]),
  };
}

export function toConstraints(text: string): CallConstraints {
  return { holdMs: 0, breaker: "closed", ...(JSON.parse(text) as Partial<CallConstraints>) };
}

/** The key of a throttle in maps. */
export function throttleMapKey(name: string, key: string): string {
  return JSON.stringify([name, key]);
}
