import type { Row } from "../../store/database.ts";
import {
  forKeyShare,
  forUpdateOfTask,
  isAmong,
  join,
  limit,
  now,
  returning,
  rowAddress,
  rows,
  forUpdate,
  sql,
  type Statement,
  table,
  forUpdateSkipLocked,
} from "../../store/sql.ts";
import { wakeDependentsOfCall } from "./dependencies.ts";
import { hasFreeSlots, readyOrLimited, writesBefore } from "./task-state.ts";

const tasks = table("task");
const pods = table("pod");

// What was due when it was written stays due, so that a clock that is set back holds nothing up but
// what waits for a time.
export const isDue = sql`(run_at <= ${now} or run_at <= last_update)`;

/** What the index of tasks to claim is made of. */
export const isReady = sql`status = 'pending' and parked = 0 and deaths < 2`;

export type ClaimCall = {
  readonly podId: string;
  /** Rises with every call of this pod, so that a call that was given up can be undone by its number. */
  readonly call: number;
  readonly names: readonly string[];
  /** Those of the names that are flows, with the version that this pod has. */
  readonly flows?: FlowVersions;
  readonly limit: number;
  /** Names of which no more than so many may be claimed. */
  readonly most?: ReadonlyMap<string, number>;
  /** Names of which no more than so many may be claimed together. No name is in two of them. */
  readonly together?: readonly SharedNameLimit[];
  /** Where the last claim ended, if this one is to go on from there. */
  readonly from?: Frontier;
  /** Tasks that this pod still runs, though recovery may have given them back while it was silent. */
  readonly held?: readonly string[];
  /** The number of the pauses that `names` leaves out, if there may be any. */
  readonly pauses?: number;
  /** Whether the same call has claimed behind the gates before, of the same limit. */
  readonly shared?: boolean;
};

export type FlowVersions = ReadonlyMap<string, number>;

export type SharedNameLimit = { readonly names: readonly string[]; readonly max: number };

/** A place in the order of claiming. */
export type Frontier = { readonly priority: number; readonly createdAt: number };

/** Makes due what was waiting for its time, so that claims never wade through what isn't. */
export function unparkDue(): Statement {
  return sql`
    update ${tasks} set parked = ${readyOrLimited}, last_update = ${now}
    where ${isAmong(sql`
      select ${rowAddress} from ${tasks}
      where status = 'pending' and parked = 1 and run_at <= ${now}
      order by run_at ${limit(maxUnparked)} ${forUpdateSkipLocked}`)}`;
}

const maxUnparked = 500;

/**
 * What a later claim should see to: how long until the next waiting task is due, whether any is at a
 * gate or must run alone, and which pauses there are. One look is cheaper than trying all of it with
 * every claim.
 */
export function readAhead(names: readonly string[], podId = ""): Statement {
  const wanted = rows(
    { name: "text" },
    names.map((name) => [name]),
  );
  // The order leaves the planner no choice but the index: where it believes that nearly every task is
  // one of these, it would look through all of them for the first.
  const any = (which: Statement, order: Statement) => sql`exists (
        select 1 from ${wanted} wanted where (select task_id from ${tasks} task
          where task.name = wanted.name and task.status = 'pending' and ${which}
          order by ${order} limit 1) is not null)`;
  const byAge = sql`created_at, task_id`;
  return sql`
    select
      (select run_at - ${now} from ${tasks}
        where status = 'pending' and parked = 1 order by run_at limit 1) as wait_ms,
      ${any(sql`parked = 4 and deaths < 2`, sql`tenant, priority desc, ${byAge}`)} as limited,
      ${any(sql`parked = 0 and deaths >= 2`, byAge)}
      or ${any(sql`parked = 4 and deaths >= 2`, byAge)} as alone,
      (select pauses from ${pods} where pod_id = ${podId}) as pauses`;
}

/**
 * Claims up to `limit` tasks: by priority, then age. Each name is looked up on its own, so a long
 * backlog of one that isn't asked for costs nothing.
 */
export function claimTasks(claim: ClaimCall): Statement {
  const perName = claim.names.flatMap((name) =>
    partsFrom(claim.most?.has(name) ? undefined : claim.from).map((part) => ({
      name,
      statement: sql`select * from (
      select ${rowAddress} as address, task_id, priority, created_at from ${tasks}
      where name = ${name} and status = 'pending' and parked = 0 and deaths < 2 and ${isDue}
        ${part} ${notNewer(claim.flows, [name])} ${notHeld(claim)}
      order by priority desc, created_at, task_id ${limitOfName(claim, name)} ${forUpdateSkipLocked}) of_name`,
    })),
  );
  const order = sql`order by priority desc, created_at, task_id`;
  const first = sql`
    select address from (${join(limitedTogether(claim, perName, order), " union all ")}) ready
    ${order} ${claimLimitOf(claim)}`;
  return claimWhere(claim, sql`${isAmong(first)}`);
}

function claimLimitOf(claim: ClaimCall): Statement {
  if (claim.shared !== true) return limit(claim.limit);
  return sql`${limit(claim.limit)} - (select count(*) from ${tasks}
    where claimed_by = ${claim.podId} and claim_call = ${claim.call} and status = 'claimed')`;
}

/** A name that is limited begins at the head each time: what it was refused before is still there. */
function limitOfName(claim: ClaimCall, name: string): Statement {
  const most = claim.most?.get(name);
  if (most === undefined) return limit(claim.limit);
  const ofName = limit(Math.max(0, Math.min(most, claim.limit)));
  return claim.shared === true ? sql`${ofName} - ${claimedBefore(claim, [name])}` : ofName;
}

/** How many of these names the same call has claimed behind the gates. */
function claimedBefore(claim: ClaimCall, names: readonly string[]): Statement {
  return sql`(select count(*) from ${tasks}
    where claimed_by = ${claim.podId} and claim_call = ${claim.call} and status = 'claimed'
      and name in (${list(names)}))`;
}

type NamePart = { readonly name: string; readonly statement: Statement };

/** What the names may bring, where some of them have a limit together. */
function limitedTogether(
  claim: ClaimCall,
  all: readonly NamePart[],
  order: Statement,
): Statement[] {
  const { together = [] } = claim;
  const parts = all
    .filter(({ name }) => !together.some(({ names }) => names.includes(name)))
    .map(({ statement }) => statement);
  for (const { names, max: most } of together) {
    const own = all.filter(({ name }) => names.includes(name));
    if (own.length === 0) continue;
    const count = limit(Math.max(0, Math.min(most, claim.limit)));
    const before = claim.shared === true ? sql`- ${claimedBefore(claim, names)}` : sql``;
    const of = join(
      own.map(({ statement }) => statement),
      " union all ",
    );
    parts.push(
      sql`select * from (select * from (${of}) of_names ${order} ${count} ${before}) of_set`,
    );
  }
  return parts;
}

/**
 * What isn't before a place in the order, in parts that an index can begin at. An index keeps what was
 * claimed until it is cleaned up, so a claim that began at its head would step over all of that.
 */
function partsFrom(from: Frontier | undefined): Statement[] {
  if (from === undefined) return [sql``];
  const { priority, createdAt } = from;
  return [
    sql`and priority > ${priority}`,
    sql`and priority = ${priority} and created_at >= ${createdAt}`,
  ];
}

/** Where a claim that took all it was asked to take has ended. */
export function frontierOf(claimed: readonly Row[]): Frontier {
  let last: Frontier = { priority: Infinity, createdAt: 0 };
  for (const row of claimed) {
    const priority = Number(row["priority"]);
    const createdAt = Number(row["created_at"]);
    const isLater = priority === last.priority && createdAt > last.createdAt;
    if (priority < last.priority || isLater) last = { priority, createdAt };
  }
  return last;
}

/** A name and a priority that tasks are waiting with. */
export type Level = { readonly name: string; readonly priority: number };

/**
 * The priorities in use, found by stepping along the index, since looking at every row of a backlog
 * would take for ever.
 */
export function levelsInUse(names: readonly string[]): Statement {
  const wanted = rows(
    { name: "text" },
    names.map((name) => [name]),
  );
  return sql`
    with recursive level (name, priority) as (
      select wanted.name, (select max(priority) from ${tasks} task
        where task.name = wanted.name and ${isReady})
      from ${wanted} wanted
      union all
      select level.name, (select max(priority) from ${tasks} task
        where task.name = level.name and ${isReady} and task.priority < level.priority)
      from level where level.priority is not null)
    select name, priority from level where priority is not null
    order by priority, name ${limit(maxLevels)}`;
}

// A statement can join so many parts. The lowest come first, because it is for them.
const maxLevels = 400;

/** The same as `claimTasks`, but oldest first whatever the priority, so that nothing starves. */
export function claimOldest(claim: ClaimCall, levels: readonly Level[]): Statement {
  const ofLevel = ({ name, priority }: Level) => sql`select * from (
      select ${rowAddress} as address, task_id, created_at from ${tasks}
      where name = ${name} and status = 'pending' and parked = 0 and deaths < 2
        and priority = ${priority} and ${isDue} ${notNewer(claim.flows, [name])} ${notHeld(claim)}
      order by created_at, task_id ${limit(claim.limit)} ${forUpdateSkipLocked}) of_level`;
  const isLimited = ({ name }: Level) => claim.most?.has(name) === true;
  const parts: NamePart[] = levels
    .filter((level) => !isLimited(level))
    .map((level) => ({ name: level.name, statement: ofLevel(level) }));
  const limited = levels.filter(isLimited);
  for (const name of new Set(limited.map((level) => level.name))) {
    const own = limited.filter((level) => level.name === name);
    const statement = sql`select * from (
      select * from (${join(own.map(ofLevel), " union all ")}) of_levels
      order by created_at, task_id ${limitOfName(claim, name)}) of_name`;
    parts.push({ name, statement });
  }
  const order = sql`order by created_at, task_id`;
  const first = sql`
    select address from (${join(limitedTogether(claim, parts, order), " union all ")}) ready
    ${order} ${claimLimitOf(claim)}`;
  return claimWhere(claim, sql`${isAmong(first)}`);
}

/**
 * A run that a later version of its flow has advanced is none of this pod's business, nor is any run where
 * the name is a task's here: nobody would run its finalizers.
 */
export function notNewer(flows: FlowVersions | undefined, names: readonly string[]): Statement {
  const own = names.filter((name) => flows?.has(name));
  if (own.length === 0) return sql`and flow_version is null`;
  const conditions = own.map(
    (name) => sql`(name <> ${name} or coalesce(flow_version, 0) <= ${flows!.get(name)!})`,
  );
  if (own.length < names.length) {
    conditions.push(sql`(flow_version is null or name in (${list(own)}))`);
  }
  return sql`and ${join(conditions, " and ")}`;
}

// A pod that was taken for dead may still finish what nobody else has claimed, so it doesn't run it
// again itself. Only tasks that saw a pod die can be among them, and only those are compared.
function notHeld({ held = [], from }: ClaimCall): Statement {
  if (held.length === 0) return sql``;
  // A long list with every claim of a long backlog costs more than the rest of it. What saw a pod die
  // is left to the claims that begin at the head, as every sixteenth does.
  if (from !== undefined && held.length > maxHeldListed) return sql`and deaths = 0`;
  const ids = rows(
    { task_id: "text" },
    held.map((taskId) => [taskId]),
  );
  return sql`and (deaths = 0 or task_id not in (select task_id from ${ids} held))`;
}

const maxHeldListed = 64;

/**
 * Claims the task that this pod has emptied itself for. The mark isn't asked for: it keeps others
 * from draining in vain, and the first that is empty may have the task.
 */
export function claimReserved(claim: ClaimCall, taskId: string): Statement {
  return claimWhere(
    claim,
    sql`task_id = ${taskId} and parked = 0 and name in (${list(claim.names)}) and ${isDue}
      ${notNewer(claim.flows, claim.names)}`,
  );
}

// The floor is the fence of claims whose answer was lost: once a call has been released, it can't
// land any more. The number of the pauses is the fence of those who don't know of one yet.
export function claimWhere(claim: ClaimCall, which: Statement): Statement {
  const { flows } = claim;
  // A row that somebody has inserted by hand, or by its name, becomes a run when it is claimed as one.
  const becomesRun =
    flows && sql`case when flow_version is null and name in (${list([...flows.keys()])})`;
  const asRun = becomesRun
    ? sql`, flow_version = ${becomesRun} then 0 else flow_version end,
        run_seq = ${becomesRun} then ${writesBefore(sql`${tasks}.task_id`)} else run_seq end`
    : sql``;
  const columns = flows ? runColumns : claimColumns;
  return sql`
    update ${tasks}
    set status = 'claimed', claimed_by = ${claim.podId}, claim_token = claim_token + 1,
      claim_call = ${claim.call}, last_update = ${now} ${asRun}
    where ${which} and status = 'pending'
      and exists (select 1 from ${pods} where pod_id = ${claim.podId} and claim_floor < ${claim.call}
        ${claim.pauses === undefined ? sql`` : sql`and pauses = ${claim.pauses}`} ${forKeyShare})
    ${returning(columns, {
      after: sql`select ${columns} from ${tasks}
        where claimed_by = ${claim.podId} and claim_call = ${claim.call} and status = 'claimed'`,
    })}`;
}

// What is 0 for nearly every task comes as null, which takes no time to send or to read.
const claimColumns = sql`task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
  trace, scheduled_at, nullif(priority, 0) as priority, nullif(wake, 0) as wake,
  nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
  nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
  nullif(limited, 0) as limited`;

// Where there may be runs among them. The time of the claim is what they measure time from.
const runColumns = sql`${claimColumns}, tenant, flow_version, cursor, state, intent, waiting, stopped_at,
  run_seq, cancel_requested, last_update`;

/**
 * Marks one task that must run alone as meant for this pod, which then finishes what it has before
 * it claims it. A mark of a pod that is no longer up doesn't count, nor does anybody's for a pod that
 * holds nothing and needn't wait.
 */
export function reserveAlone(
  podId: string,
  names: readonly string[],
  flows?: FlowVersions,
): Statement {
  const free = sql`(claimed_by is null or claimed_by = ${podId}
    or claimed_by not in (select pod_id from ${pods} where status = 'up')
    or ${holdsNothing(podId)}) ${notNewer(flows, names)}`;
  return sql`
    update ${tasks} set claimed_by = ${podId}
    where status = 'pending' and ${isAmong(sql`
      select address from (${firstAlone(names, free, forUpdateSkipLocked)}) alone
      order by created_at, task_id limit 1`)}
    ${returning(sql`task_id, name, tenant, concurrency_key, limited`, {
      // A mark of an earlier call is as good: that task is meant for this pod as well.
      after: sql`select task_id, name, tenant, concurrency_key, limited
        from (${firstAlone(names, sql`claimed_by = ${podId}`, sql``)}) alone
        order by created_at, task_id limit 1`,
    })}`;
}

/** The first that must run alone, and the first of those behind a gate that there is room for. */
function firstAlone(
  names: readonly string[],
  which: Statement,
  ending: Statement | typeof forUpdateSkipLocked,
): Statement {
  const part = (parked: Statement) => sql`select * from (
    select ${rowAddress} as address, task_id, name, tenant, concurrency_key, limited, created_at
    from ${tasks} task
    where name in (${list(names)}) and status = 'pending' and ${parked} and deaths >= 2
      and ${isDue} and ${which}
    order by created_at, task_id limit 1 ${ending}) of_kind`;
  return sql`${part(sql`parked = 0`)} union all
    ${part(sql`parked = 4 and ${hasFreeSlots}`)}`;
}

// The order leaves the planner no choice but the index: where it believes that nearly every task is
// claimed, it would look through all of them for the first.
function holdsNothing(podId: string): Statement {
  return sql`(select task_id from ${tasks} where status = 'claimed' and claimed_by = ${podId}
    order by claim_call limit 1) is null`;
}

function list(names: readonly string[]): Statement {
  return join(
    names.map((name) => sql`${name}`),
    ", ",
  );
}

/**
 * Gives back whatever a claim call took, and makes sure that it can take nothing any more. Where
 * this pod's row was pruned it is made anew, because a beat that was sent before this may land after
 * it, and would bring the row back with an older floor.
 */
export function releaseCall(podId: string, call: number): Statement[] {
  return [
    // A claim that is under way is waited for, so that what it takes can be seen below.
    sql`select 1 from ${pods} where pod_id = ${podId} ${forUpdate}`,
    sql`
      insert into ${pods} (pod_id, claim_floor, pauses) values (${podId}, ${call}, ${now})
      on conflict (pod_id) do update set claim_floor = excluded.claim_floor
      where ${pods}.claim_floor < excluded.claim_floor`,
    // Held, so that nobody asks for a cancel between who is woken for it and what is done.
    sql`select task_id from ${tasks} task
      where claimed_by = ${podId} and claim_call = ${call} and status = 'claimed'
      order by task_id ${forUpdateOfTask}`,
    ...wakeDependentsOfCall(podId, call),
    sql`
      update ${tasks}
      set status = case when cancel_requested = 1 and flow_version is null then 'cancelled'
          else 'pending' end,
        claimed_by = null, claim_call = null, claim_token = claim_token + 1, last_update = ${now}
      where claimed_by = ${podId} and claim_call = ${call} and status = 'claimed'`,
  ];
}
