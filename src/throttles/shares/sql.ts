import type { Row } from "../../store/database.ts";
import {
  lockForUpdate,
  limit,
  now,
  returning,
  rows,
  sql,
  type Statement,
  table,
} from "../../store/sql.ts";
import type { LearnedAllowance } from "../learning/controller.ts";
import type { ShareEntry } from "./lease.ts";

const throttles = table("throttle");
const reports = table("throttle_report");

/** Which throttle is meant. The key is empty where it has none. */
export type ThrottleId = { readonly name: string; readonly key: string };

/** Makes the rows of throttles that nobody has used yet. */
export function insertThrottles(
  given: readonly (ThrottleId & { readonly bound: number; readonly settings: string })[],
): Statement {
  const made = rows(
    { name: "text", key: "text", bound: "integer", settings: "text" },
    given.map(({ name, key, bound, settings }) => [name, key, bound, settings]),
  );
  return sql`
    insert into ${throttles} (name, key, bound, settings)
    select made.name, made.key, made.bound, made.settings from ${made} made where 1 = 1
    on conflict (name, key) do nothing`;
}

/** Stores what the code says about throttles, where it says something else than the row. */
export function putSettings(
  given: readonly (ThrottleId & { readonly settings: string })[],
): Statement {
  const declaredRows = rows(
    { name: "text", key: "text", settings: "text" },
    given.map(({ name, key, settings }) => [name, key, settings]),
  );
  return sql`
    update ${throttles} set settings = said.settings, rev = ${throttles}.rev + 1
    from ${declaredRows} said
    where ${throttles}.name = said.name and ${throttles}.key = said.key
      and ${throttles}.settings <> said.settings`;
}

export type ReportRow = ThrottleId & {
  readonly podId: string;
  /** Rises with every report of the pod, so that one that comes late replaces no newer one. */
  readonly seq: number;
  readonly demand: number;
  readonly inFlight: number;
  /** Calls that wait, and tasks that aren't claimed for want of a permit. */
  readonly waiting: number;
  /** The calls among them. */
  readonly callsWaiting: number;
  readonly totals: string;
};

export function putReports(given: readonly ReportRow[]): Statement {
  const said = rows(
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
    given.map((each) => [
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
    from ${said} said where 1 = 1
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

/** What pods need of the shared rows. */
export function getShares(ids: readonly ThrottleId[]): Statement {
  return sql`
    select throttle.name, throttle.key, throttle.rev, throttle.bound, throttle.epoch, throttle.gate,
      throttle.pass, throttle.shares, ${now} as now_at
    from ${idRows(ids)} wanted join ${throttles} throttle
      on throttle.name = wanted.name and throttle.key = wanted.key`;
}

/** Who wants how many. */
export function getDemands(ids: readonly ThrottleId[]): Statement {
  return sql`
    select report.name, report.key, report.pod_id, report.seq, report.demand
    from ${idRows(ids)} wanted join ${reports} report
      on report.name = wanted.name and report.key = wanted.key`;
}

/** A compare-and-set: the row is as it was read, or nothing is changed and nothing returned. */
export function changeShares(id: ThrottleId, rev: number, shares: string): Statement {
  return changeRow(id, rev, sql`shares = ${shares}`);
}

export type Learned = {
  readonly bound: number;
  readonly epoch: number;
  readonly constraints: string;
  readonly state: string;
  readonly stats: string;
};

export function changeLearned(id: ThrottleId, rev: number, learned: Learned): Statement {
  const { bound, epoch, constraints, state, stats } = learned;
  return changeRow(
    id,
    rev,
    sql`bound = ${bound}, epoch = ${epoch}, gate = ${constraints}, state = ${state}, stats = ${stats},
      pass = ${throttles}.pass + 1`,
  );
}

/** From here on the bound is what somebody says, and nothing is learned. */
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

function changeRow({ name, key }: ThrottleId, rev: number, changes: Statement): Statement {
  const asSeen = sql`name = ${name} and key = ${key} and rev = ${rev}`;
  return sql`
    update ${throttles} set ${changes}, rev = ${throttles}.rev + 1, last_update = ${now}
    where ${asSeen}
    ${returning(sql`rev`, { before: sql`select rev from ${throttles} where ${asSeen} ${lockForUpdate}` })}`;
}

/** The reports of late, for whoever learns from them. Those of idle pods aren't among them. */
export function getRecentReports(withinMs: number): Statement {
  return sql`
    select name, key, pod_id, seq, demand, in_flight, waiting, totals from ${reports}
    where at > ${now} - ${withinMs}`;
}

/** Whole rows, for whoever learns. */
export function getThrottles(ids: readonly ThrottleId[]): Statement {
  return sql`
    select throttle.* from ${idRows(ids)} wanted join ${throttles} throttle
      on throttle.name = wanted.name and throttle.key = wanted.key`;
}

/** Compared as a pair, so that the index leads to where a page begins. */
export function listThrottles(after: ThrottleId, count: number, name?: string): Statement {
  const named = name === undefined ? sql`` : sql`and name = ${name}`;
  return sql`
    select * from ${throttles}
    where (name, key) > (${after.name}, ${after.key}) ${named}
    order by name, key ${limit(count)}`;
}

export function getReports(ids: readonly ThrottleId[]): Statement {
  return sql`
    select report.name, report.key, report.pod_id, report.demand, report.in_flight, report.waiting,
      report.calls_waiting, report.totals, report.at, ${now} as now_at
    from ${idRows(ids)} wanted join ${reports} report
      on report.name = wanted.name and report.key = wanted.key`;
}

/** Forgets what pods have said that are gone or idle. One that is neither says it again. */
export function pruneReports(olderMs: number): Statement {
  return sql`delete from ${reports} where at < ${now} - ${olderMs}`;
}

/** Forgets what nobody has used for so long that it is no longer known to be true. */
export function pruneThrottles(olderMs: number): Statement {
  return sql`
    delete from ${throttles}
    where last_update < ${now} - ${olderMs} and shares = '{}' and pinned is null`;
}

/** What pods obey besides the bound. */
export type CallConstraints = {
  readonly holdMs: number;
  readonly breaker: LearnedAllowance["breaker"];
  /** Of all pods together. */
  readonly refillPerS?: number;
};

export type ShareEntries = Readonly<Record<string, ShareEntry>>;

/** What pods need of a throttle's row. */
export type SharedRow = {
  readonly rev: number;
  readonly bound: number;
  readonly epoch: number;
  readonly constraints: CallConstraints;
  /** Rises whenever the gate was said anew. */
  readonly pass: number;
  readonly shares: ShareEntries;
  /** The store's time when it was read. */
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

/** By which a throttle is known in maps. */
export function throttleMapKey(name: string, key: string): string {
  return JSON.stringify([name, key]);
}
