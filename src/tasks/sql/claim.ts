import { unknownBegun } from "../../pods/sql.ts";
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
import { hasSteps } from "./steps.ts";
import {
  hasFreeSlots,
  isDelayed,
  isOfCall,
  isReady,
  noDeaths,
  parkedAs,
  readyOrLimited,
  runsAlone,
  runsBesideOthers,
  writesBefore,
} from "./task-state.ts";

const tasks = table("task");
const pods = table("pod");
const maxUnparked = 500;

// The most parts that a statement can join. The lowest priorities come first, because `claimOldest`
// exists for them.
const maxLevels = 400;
const maxHeldListed = 64;

// A task that was due when it was written stays due. So a clock that is set back delays only tasks
// that wait for a time.
export const isDue = sql`(run_at <= ${now} or run_at <= last_update)`;

export type ClaimCall = {
  readonly podId: string;
  /** Grows with every call of this pod, so that an abandoned call can be undone by its number. */
  readonly call: number;
  readonly names: readonly string[];
  /** The names that are flows, with the version that this pod has. */
  readonly flows?: NameVersions;
  /** The tasks with a version, and this pod's. */
  readonly versions?: NameVersions;
  readonly limit: number;
  /** The most tasks of each name to claim. */
  readonly maxByName?: ReadonlyMap<string, number>;
  /** The most tasks of several names together to claim. No name is in two of them. */
  readonly together?: readonly SharedNameLimit[];
  /** Where the last claim ended, if this one continues from there. */
  readonly from?: Frontier;
  /** Tasks that this pod still runs, though recovery may have released them while it was silent. */
  readonly held?: readonly string[];
  /** The number of the pauses that `names` leaves out, if there may be any. */
  readonly pauses?: number;
  /** True if the same call has claimed limited tasks before, under the same `limit`. */
  readonly shared?: boolean;
  /** True if the tasks will wait for a slot. Such a call takes nothing while another pod is idle. */
  readonly ahead?: boolean;
};

export type NameVersions = ReadonlyMap<string, number>;

type Versions = {
  readonly flows?: NameVersions | undefined;
  readonly versions?: NameVersions | undefined;
};

export type SharedNameLimit = { readonly names: readonly string[]; readonly max: number };

/** A position in the order of claiming. */
export type Frontier = { readonly priority: number; readonly createdAt: number };

/** A name and a priority of ready tasks. */
export type Level = { readonly name: string; readonly priority: number };

/** Makes delayed tasks ready once they are due, so that claims never scan tasks that are not. */
export function unparkDue(): Statement {
  return sql`
    update ${tasks} set parked = ${readyOrLimited}, last_update = ${now}
    where ${isAmong(sql`
      select ${rowAddress("task")} from ${tasks}
      where ${isDelayed} and run_at <= ${now}
      order by run_at ${limit(maxUnparked)} ${forUpdateSkipLocked}`)}`;
}

/**
 * What a later claim has to take care of: how long until the next delayed task is due, whether any
 * task is limited or must run alone, and the number of the pauses. One read is cheaper than trying
 * all of it with every claim.
 */
export function readAhead(names: readonly string[], podId = ""): Statement {
  const wanted = rows(
    { name: "text" },
    names.map((name) => [name]),
  );
  // The order forces the planner to use the index. If it expected most tasks to match, it would
  // scan all of them for the first.
  const any = (which: Statement, order: Statement) => sql`exists (
        select 1 from ${wanted} wanted where (select task_id from ${tasks} task
          where task.name = wanted.name and task.status = 'pending' and ${which}
          order by ${order} limit 1) is not null)`;
  const byAge = sql`created_at, task_id`;
  return sql`
    select
      (select run_at - ${now} from ${tasks}
        where ${isDelayed} order by run_at limit 1) as wait_ms,
      ${any(sql`parked = ${parkedAs.limited} and ${runsBesideOthers}`, sql`tenant, priority desc, ${byAge}`)} as limited,
      ${any(sql`parked = ${parkedAs.ready} and ${runsAlone}`, byAge)}
      or ${any(sql`parked = ${parkedAs.limited} and ${runsAlone}`, byAge)} as alone,
      (select pauses from ${pods} where pod_id = ${podId}) as pauses, ${now} as now`;
}

/**
 * Claims up to `limit` tasks by priority, then age. Each name is looked up on its own, so a long
 * backlog of another name costs nothing.
 */
export function claimTasks(claim: ClaimCall): Statement {
  const perName = claim.names.flatMap((name) =>
    partsFrom(claim.maxByName?.has(name) ? undefined : claim.from).map((part) => ({
      name,
      statement: sql`select * from (
      select ${rowAddress("task")} as address, task_id, priority, created_at from ${tasks}
      where name = ${name} and ${isReady} and ${isDue}
        ${part} ${notNewer(claim, [name])} ${notHeld(claim)}
      order by priority desc, created_at, task_id ${limitOfName(claim, name)} ${forUpdateSkipLocked}) of_name`,
    })),
  );
  const order = sql`order by priority desc, created_at, task_id`;
  const first = sql`
    select address from (${join(limitedTogether(claim, perName, order), " union all ")}) ready
    ${order} ${claimLimitOf(claim)}`;
  return claimWhere(claim, sql`${isAmong(first)}`);
}

/** Where a full claim has ended. */
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

/**
 * The priorities in use, found by stepping along the index, because reading every row of a backlog
 * would take too long.
 */
export function levelsInUse(names: readonly string[], max = maxLevels): Statement {
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
    order by priority, name ${limit(max)}`;
}

/** Like `claimTasks`, but oldest first regardless of priority, so that nothing starves. */
export function claimOldest(claim: ClaimCall, levels: readonly Level[]): Statement {
  const ofLevel = ({ name, priority }: Level) => sql`select * from (
      select ${rowAddress("task")} as address, task_id, created_at from ${tasks}
      where name = ${name} and ${isReady}
        and priority = ${priority} and ${isDue} ${notNewer(claim, [name])} ${notHeld(claim)}
      order by created_at, task_id ${limit(claim.limit)} ${forUpdateSkipLocked}) of_level`;
  const isLimited = ({ name }: Level) => claim.maxByName?.has(name) === true;
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
 * Excludes runs that a later version of their flow has advanced, and tasks of which a later version has
 * stored a step; also all runs of names that are tasks on this pod, because it could not run their
 * finalizers.
 */
export function notNewer({ flows, versions }: Versions, names: readonly string[]): Statement {
  const conditions = [
    ...upTo(sql`flow_version`, flows, names),
    ...upTo(sql`task_version`, versions, names),
  ];
  return sql`and ${join(conditions, " and ")}`;
}

/** The conditions that a version is no higher than this pod's, or null for names that have none. */
function upTo(
  version: Statement,
  known: NameVersions | undefined,
  names: readonly string[],
): Statement[] {
  const own = names.filter((name) => known?.has(name));
  if (own.length === 0) return [sql`${version} is null`];
  const conditions = own.map(
    (name) => sql`(name <> ${name} or coalesce(${version}, 0) <= ${known!.get(name)!})`,
  );
  if (own.length < names.length) {
    conditions.push(sql`(${version} is null or name in (${list(own)}))`);
  }
  return conditions;
}

/**
 * Claims the task that this pod has drained for. The reservation is not checked: it only keeps
 * other pods from draining in vain, and the first empty pod may have the task.
 */
export function claimReserved(claim: ClaimCall, taskId: string): Statement {
  return claimWhere(
    claim,
    sql`task_id = ${taskId} and parked = ${parkedAs.ready} and name in (${list(claim.names)}) and ${isDue}
      ${notNewer(claim, claim.names)}`,
  );
}

// `claim_floor` is the fence of claims whose answer was lost: once a call has been released, it
// cannot land any more. The number of the pauses is the fence of claims that do not know of a pause
// yet.
export function claimWhere(claim: ClaimCall, which: Statement): Statement {
  const { flows } = claim;
  // A row that was inserted by hand, or enqueued by name, becomes a run when it is claimed as one.
  const becomesRun =
    flows && sql`case when flow_version is null and name in (${list([...flows.keys()])})`;
  const asRun = becomesRun
    ? sql`, flow_version = ${becomesRun} then 0 else flow_version end,
        run_seq = ${becomesRun} then ${writesBefore(sql`${tasks}.task_id`)} else run_seq end`
    : sql``;
  const ofTasks = claim.versions ? sql`${claimColumns}, ${versionColumns}` : claimColumns;
  const columns = flows ? sql`${ofTasks}, ${runColumns}` : ofTasks;
  // Below zero if claimed ahead, so that recovery sees which tasks may never have begun.
  const storedCall = claim.ahead === true ? -claim.call : claim.call;
  return sql`
    update ${tasks}
    set status = 'claimed', claimed_by = ${claim.podId}, claim_token = claim_token + 1,
      claim_call = ${storedCall}, last_update = ${now} ${asRun}
    where ${which} and status = 'pending'
      and exists (select 1 from ${pods} where pod_id = ${claim.podId} and claim_floor < ${claim.call}
        ${claim.pauses === undefined ? sql`` : sql`and pauses = ${claim.pauses}`} ${forKeyShare})
      ${claim.ahead === true ? nonIdle(claim) : sql``}
    ${returning(columns, {
      after: sql`select ${columns} from ${tasks}
        where claimed_by = ${claim.podId} and claim_call = ${storedCall} and status = 'claimed'`,
    })}`;
}

/** The condition that no other pod waits for tasks of these names. */
function nonIdle({ podId, names }: ClaimCall): Statement {
  const handled = names.map(
    (name) => sql`replace(other.metadata, ${JSON.stringify(name)}, '') <> other.metadata`,
  );
  return sql`and not exists (select 1 from ${pods} other
    where other.waiting = 1 and other.status = 'up' and other.pod_id <> ${podId}
      and (${join(handled, " or ")}))`;
}

/**
 * Stores that the tasks of a call that were claimed ahead begin, up to this one in the order of ids,
 * and all tasks of earlier calls. Returns no row if they must not: the pod counts as dead, or does
 * not know of a pause.
 */
export function markBegun(
  podId: string,
  { call, taskId, pauses }: { call: number; taskId: string; pauses: number },
): Statement {
  const isAllowed = sql`pod_id = ${podId} and status = 'up' and pauses = ${pauses}`;
  // A mark whose answer was lost may land after a later one.
  const isPassed = sql`begun_call > ${call} or begun_call = ${call} and begun_task > ${taskId}`;
  return sql`
    update ${pods} set begun_task = case when ${isPassed} then begun_task else ${taskId} end,
      begun_call = case when begun_call > ${call} then begun_call else ${call} end
    where ${isAllowed}
    ${returning(sql`pod_id`, { after: sql`select pod_id from ${pods} where ${isAllowed}` })}`;
}

/** The condition that a claimed task still waits for a slot of its pod. */
export function isHeldBack(task: ReturnType<typeof table> | Statement): Statement {
  return sql`exists (select 1 from ${pods} holder
    where holder.pod_id = ${task}.claimed_by and ${task}.claim_call < 0 and holder.begun_call >= 0
      and (-${task}.claim_call > holder.begun_call
        or -${task}.claim_call = holder.begun_call and ${task}.task_id > holder.begun_task))`;
}

// Columns that are 0 for nearly every task are sent as null, which costs nothing to send or to
// read.
const claimColumns = sql`task_id, name, payload, claim_token, created_at, max_attempts, concurrency_key,
  trace, scheduled_at, nullif(run_at - created_at, 0) as due_after,
  nullif(priority, 0) as priority, nullif(wake, 0) as wake,
  nullif(retry_count, 0) as retry_count, nullif(snoozes, 0) as snoozes,
  nullif(deaths, 0) as deaths, nullif(depends, 0) as depends, nullif(dependents, 0) as dependents,
  nullif(limited, 0) as limited`;

// The columns if tasks with a version may be among them. Steps without a version were stored by code that
// had none.
const versionColumns = sql`task_version, begun_version, ${hasSteps(tasks)} as has_steps`;

// The columns if runs may be among the tasks. Runs measure time from the time of the claim.
const runColumns = sql`tenant, flow_version, cursor, state, intent, waiting, stopped_at,
  run_seq, cancel_requested, last_update`;

/**
 * Reserves one task that must run alone for this pod, which then drains before it claims the task.
 * A reservation of a pod that is no longer up, or takes no more work, does not count; neither does any
 * reservation if this pod holds nothing and need not drain.
 */
export function reserveAlone(
  podId: string,
  names: readonly string[],
  known: Versions = {},
): Statement {
  const free = sql`(claimed_by is null or claimed_by = ${podId}
    or claimed_by not in (select pod_id from ${pods} where status = 'up' and drain = 0)
    or ${holdsNothing(podId)}) ${notNewer(known, names)}`;
  return sql`
    update ${tasks} set claimed_by = ${podId}
    where status = 'pending' and ${isAmong(sql`
      select address from (${firstAlone(names, free, forUpdateSkipLocked)}) alone
      order by created_at, task_id limit 1`)}
    ${returning(sql`task_id, name, tenant, concurrency_key, limited`, {
      // A reservation of an earlier call is as good: that task is meant for this pod too.
      after: sql`select task_id, name, tenant, concurrency_key, limited
        from (${firstAlone(names, sql`claimed_by = ${podId}`, sql``)}) alone
        order by created_at, task_id limit 1`,
    })}`;
}

/**
 * Releases everything that a claim call took, and makes sure that it can take nothing any more. If
 * this pod's row was pruned it is inserted again, because a heartbeat that was sent before may land
 * later and would bring the row back with an older floor.
 */
export function releaseCall(podId: string, call: number): Statement[] {
  return [
    // Wait for a claim in progress, so that the statements below see what it takes.
    sql`select 1 from ${pods} where pod_id = ${podId} ${forUpdate}`,
    sql`
      insert into ${pods} (pod_id, claim_floor, pauses, begun_call)
      values (${podId}, ${call}, ${now}, ${unknownBegun})
      on conflict (pod_id) do update set claim_floor = excluded.claim_floor
      where ${pods}.claim_floor < excluded.claim_floor`,
    // Locked, so that no cancel comes between waking the dependents and the release.
    sql`select task_id from ${tasks} task
      where claimed_by = ${podId} and ${isOfCall(sql``, call)} and status = 'claimed'
      order by task_id ${forUpdateOfTask}`,
    ...wakeDependentsOfCall(podId, call),
    sql`
      update ${tasks}
      set status = case when cancel_requested = 1 and flow_version is null then 'cancelled'
          else 'pending' end,
        claimed_by = null, claim_call = null, claim_token = claim_token + 1, last_update = ${now}
      where claimed_by = ${podId} and ${isOfCall(sql``, call)} and status = 'claimed'`,
  ];
}

function claimLimitOf(claim: ClaimCall): Statement {
  if (claim.shared !== true) return limit(claim.limit);
  return sql`${limit(claim.limit)} - (select count(*) from ${tasks}
    where claimed_by = ${claim.podId} and claim_call = ${claim.call} and status = 'claimed')`;
}

/**
 * The limit of one name. A name with a limit starts at the head each time, because the tasks that
 * were over the limit are still there.
 */
function limitOfName(claim: ClaimCall, name: string): Statement {
  const max = claim.maxByName?.get(name);
  if (max === undefined) return limit(claim.limit);
  const ofName = limit(Math.max(0, Math.min(max, claim.limit)));
  return claim.shared === true ? sql`${ofName} - ${claimedBefore(claim, [name])}` : ofName;
}

/** How many tasks of these names the same call has claimed as limited ones. */
function claimedBefore(claim: ClaimCall, names: readonly string[]): Statement {
  return sql`(select count(*) from ${tasks}
    where claimed_by = ${claim.podId} and claim_call = ${claim.call} and status = 'claimed'
      and name in (${list(names)}))`;
}

type NamePart = { readonly name: string; readonly statement: Statement };

/** The parts of the names, with the limits that several of them share. */
function limitedTogether(
  claim: ClaimCall,
  all: readonly NamePart[],
  order: Statement,
): Statement[] {
  const { together = [] } = claim;
  const parts = all
    .filter(({ name }) => !together.some(({ names }) => names.includes(name)))
    .map(({ statement }) => statement);
  for (const { names, max } of together) {
    const own = all.filter(({ name }) => names.includes(name));
    if (own.length === 0) continue;
    const count = limit(Math.max(0, Math.min(max, claim.limit)));
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
 * The conditions for tasks from a position on, in parts that an index can start at. An index keeps
 * claimed entries until it is vacuumed, so a claim that started at its head would step over all of
 * them.
 */
function partsFrom(from: Frontier | undefined): Statement[] {
  if (from === undefined) return [sql``];
  const { priority, createdAt } = from;
  return [
    sql`and priority > ${priority}`,
    sql`and priority = ${priority} and created_at >= ${createdAt}`,
  ];
}

// A pod that was believed dead may still finish a task that no other pod has claimed, so it does
// not claim it again. Only tasks with deaths can be among them, and only those are compared.
function notHeld({ held = [], from }: ClaimCall): Statement {
  if (held.length === 0) return sql``;
  // A long list in every claim of a long backlog costs more than the rest of the claim. Tasks with
  // deaths are left to the claims that start at the head, as every 16th does.
  if (from !== undefined && held.length > maxHeldListed) return sql`and deaths = ${noDeaths}`;
  const ids = rows(
    { task_id: "text" },
    held.map((taskId) => [taskId]),
  );
  return sql`and (deaths = ${noDeaths} or task_id not in (select task_id from ${ids} held))`;
}

/** The first task that must run alone, and the first limited one with free slots. */
function firstAlone(
  names: readonly string[],
  which: Statement,
  ending: Statement | typeof forUpdateSkipLocked,
): Statement {
  const part = (parked: Statement) => sql`select * from (
    select ${rowAddress("task")} as address, task_id, name, tenant, concurrency_key, limited, created_at
    from ${tasks} task
    where name in (${list(names)}) and status = 'pending' and ${parked} and ${runsAlone}
      and ${isDue} and ${which}
    order by created_at, task_id limit 1 ${ending}) of_kind`;
  return sql`${part(sql`parked = ${parkedAs.ready}`)} union all
    ${part(sql`parked = ${parkedAs.limited} and ${hasFreeSlots}`)}`;
}

// The order forces the planner to use the index. If it expected most tasks to be claimed, it would
// scan all of them for the first.
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
