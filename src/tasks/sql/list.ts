import {
  isAmong,
  isJsonAt,
  join,
  type JsonScalar,
  limit,
  rows,
  sql,
  type Statement,
  table,
} from "../../store/sql.ts";
import { afterAllIds, type WalkSpan } from "../../store/walk.ts";
import type { PendingState } from "../rows.ts";
import { taskPage } from "./inspect.ts";
import {
  isBlocked,
  isDelayed,
  isLimited,
  isLimitedAlone,
  isReady,
  isReadyAlone,
  isSetAside,
  waitsForSignal,
  waitsForTasks,
  isRunning,
} from "./task-state.ts";

const tasks = table("task");
/** Tenants are found one by one. Where there are more, a key is searched for among all tasks. */
export const maxTenants = 200;

/** The condition of the index that has failed tasks in the order of their ids. */
export const isFailed = sql`status = 'failed'`;

/** The condition of the index that has the runs of one name in the order of their ids. */
export function isRunNamed(name: string): Statement {
  return sql`flow_version is not null and name = ${name}`;
}

/** What tasks are listed by. All of it is checked on rows; some of it has an index as well. */
export type TaskConditions = {
  readonly name?: string | undefined;
  readonly status?: string | undefined;
  /** How it stands, where it is pending. */
  readonly state?: PendingState | undefined;
  readonly tenant?: string | undefined;
  /** The unique key. */
  readonly key?: string | undefined;
  /** The scope of its concurrency limit by key. */
  readonly scope?: string | undefined;
  /** The pod that runs it. */
  readonly pod?: string | undefined;
  /** The transition or finalizer that a run is at. */
  readonly at?: string | undefined;
  /** The version that has advanced a run last. */
  readonly version?: number | undefined;
  /** It was set aside. */
  readonly setAside?: boolean | undefined;
  readonly ids?: readonly string[] | undefined;
  /** Values of the payload, by paths of names. */
  readonly payload?: readonly { readonly path: readonly string[]; readonly value: JsonScalar }[];
};

/** The conditions on a row. */
export function taskConditions(filter: TaskConditions): Statement[] {
  const {
    name,
    status,
    state,
    tenant,
    key,
    scope,
    pod,
    at,
    version,
    setAside,
    ids,
    payload = [],
  } = filter;
  return [
    ...(name === undefined ? [] : [sql`name = ${name}`]),
    ...(status === undefined ? [] : [sql`status = ${status}`]),
    ...(state === undefined ? [] : [standsAs(state)]),
    ...(tenant === undefined ? [] : [sql`tenant = ${tenant}`]),
    ...(key === undefined ? [] : [sql`unique_key = ${key}`]),
    ...(scope === undefined ? [] : [sql`concurrency_key = ${scope}`]),
    ...(pod === undefined ? [] : [sql`claimed_by = ${pod} and status = 'claimed'`]),
    ...(at === undefined ? [] : [sql`cursor = ${at}`]),
    ...(version === undefined ? [] : [sql`flow_version = ${version}`]),
    ...(setAside ? [isSetAside] : []),
    ...(ids === undefined ? [] : [isAmongIds(ids)]),
    ...payload.map(({ path, value }) => sql`${isJsonAt(sql`payload`, path, value)}`),
  ];
}

/** A piece of a walk along an index of tasks whose last column is the id. */
export type TaskPiece = WalkSpan & {
  /** The conditions of a row that is listed. */
  readonly fits: readonly Statement[];
  /** The condition of the index. Without it: all tasks. */
  readonly among?: Statement | undefined;
  /** How many that fit are needed. */
  readonly wanted: number;
};

/**
 * Reads `count` tasks below an id, newest first, and returns those that fit, and the last that was
 * read with the number of them (`walked`). The limit is within, so that no filter reads more.
 */
export function walkTasks({ before, from, count, fits, among, wanted }: TaskPiece): Statement {
  const only = among === undefined ? sql`` : sql`${among} and`;
  return sql`
    with walked as materialized (
      select task_id, created_at, case when ${allOf(fits)} then ${taskPage.bytes} end as bytes
      from ${tasks} where ${only} task_id < ${before} and task_id >= ${from}
      order by task_id desc ${limit(count)})
    select task_id, created_at, bytes, null as walked from (
      select task_id, created_at, bytes from walked where bytes is not null
      order by task_id desc ${limit(wanted)}) found
    union all
    select task_id, created_at, null, (select count(*) from walked) from (
      select task_id, created_at from walked order by task_id ${limit(1)}) last`;
}

/** Of these tasks, newest first, those that fit, and the last of them with the number of all. */
export function checkTasks(
  taskIds: readonly string[],
  { fits, wanted }: Pick<TaskPiece, "fits" | "wanted">,
): Statement {
  return sql`
    select task_id, created_at, bytes, null as walked from (
      select task_id, created_at, ${taskPage.bytes} as bytes from ${tasks}
      where ${isAmongIds(taskIds)} and ${allOf(fits)}
      order by task_id desc ${limit(wanted)}) found
    union all
    select task_id, created_at, null, cast(${taskIds.length} as integer) from ${tasks}
    where task_id = ${taskIds.at(-1) ?? ""}`;
}

/** The rows of a page, newest first, of which those are left out that fit no more. */
export function readListed(taskIds: readonly string[], fits: readonly Statement[]): Statement {
  return sql`
    select * from ${tasks} where ${isAmongIds(taskIds)} and ${allOf(fits)} order by task_id desc`;
}

/** Of these ids, those that are tasks. */
export function tasksOfIds(ids: readonly string[]): Statement {
  return sql`select task_id from ${tasks} where ${isAmongIds(ids)}`;
}

/** The ids of running tasks: of a pod, of a scope, or all, up to `max`. */
export function runningTasks(
  { pod, scope }: Pick<TaskConditions, "pod" | "scope">,
  max: number,
): Statement {
  if (pod !== undefined) {
    return sql`
      select task_id from ${tasks} where status = 'claimed' and claimed_by = ${pod}
      order by claimed_by, claim_call ${limit(max)}`;
  }
  if (scope === undefined) {
    return sql`
      select task_id from ${tasks} where status = 'claimed'
      order by claimed_by, claim_call ${limit(max)}`;
  }
  // Written as a range for the reason that `runningOfKey` is.
  return sql`
    select task_id from ${tasks}
    where ${isRunning(sql``)} and concurrency_key is not null
      and concurrency_key >= ${scope} and concurrency_key <= ${scope}
    order by concurrency_key ${limit(max)}`;
}

type PendingKind = {
  /** Undefined for those that `depth` doesn't count. */
  readonly state?: PendingState;
  readonly as: Statement;
  readonly which: Statement;
  /** The order of its index, after the name if this begins with one. */
  readonly order: Statement;
  readonly byName: boolean;
};

const byAge = sql`created_at, task_id`;
const byPriority = sql`priority desc, ${byAge}`;

/** The kinds of pending tasks. Each has an index, and no task is in two of them. */
const pendingKinds: readonly PendingKind[] = [
  { state: "ready", as: sql`ready`, which: isReady, order: byPriority, byName: true },
  { state: "alone", as: sql`alone`, which: isReadyAlone, order: byAge, byName: true },
  {
    state: "ready",
    as: sql`limited`,
    which: isLimited,
    order: sql`tenant, ${byPriority}`,
    byName: true,
  },
  { state: "alone", as: sql`limited_alone`, which: isLimitedAlone, order: byAge, byName: true },
  { as: sql`for_signal`, which: waitsForSignal, order: sql`name`, byName: true },
  { as: sql`set_aside`, which: isSetAside, order: sql`name`, byName: true },
  { state: "delayed", as: sql`delayed`, which: isDelayed, order: sql`run_at`, byName: false },
  {
    state: "waiting",
    as: sql`for_tasks`,
    which: waitsForTasks,
    order: sql`task_id`,
    byName: false,
  },
  {
    state: "blocked",
    as: sql`blocked`,
    which: isBlocked,
    order: sql`blocked_by, ${byPriority}`,
    byName: false,
  },
];

/** The condition of a row that stands so. */
function standsAs(state: PendingState): Statement {
  const kinds = pendingKinds.filter((each) => each.state === state);
  return sql`(${join(
    kinds.map(({ which }) => sql`${which}`),
    " or ",
  )})`;
}

/**
 * The ids of pending tasks, or of those that stand so, up to `max`. With a name, tasks of other names are
 * among them where an index isn't by name.
 */
export function pendingTasks(
  { name, state }: Pick<TaskConditions, "name" | "state">,
  max: number,
): Statement {
  const wanted = pendingKinds.filter((each) => state === undefined || each.state === state);
  const kinds = wanted.map(({ as, which, order, byName }) => {
    const isNamed = name !== undefined && byName;
    const ofName = isNamed ? sql`name = ${name} and` : sql``;
    const inOrder = byName && !isNamed ? sql`name, ${order}` : order;
    return sql`select task_id from (
      select task_id from ${tasks} where ${ofName} ${which}
      order by ${inOrder} ${limit(max)}) ${as}`;
  });
  return sql`select task_id from (${join(kinds, " union all ")}) pending ${limit(max)}`;
}

/** The ids of tasks and runs that were set aside, up to `max`. */
export function tasksSetAside({ name }: Pick<TaskConditions, "name">, max: number): Statement {
  const ofName = name === undefined ? sql`` : sql`name = ${name} and`;
  return sql`select task_id from ${tasks} where ${ofName} ${isSetAside} order by name ${limit(max)}`;
}

/** The ids of tasks that haven't ended, up to `max`, as in `pendingTasks`. */
export function openTasks(filter: Pick<TaskConditions, "name">, max: number): Statement {
  return sql`
    select task_id from (
      select task_id from (${runningTasks({}, max)}) running
      union all
      select task_id from (${pendingTasks(filter, max)}) pending) open ${limit(max)}`;
}

/**
 * The ids of the tasks with a unique key: one for each tenant, or null. Tenants are found by stepping
 * along the index, at most `maxTenants` and one more.
 */
export function tasksOfKey({ name, key, tenant }: KeyedTask): Statement {
  const isKeyed = sql`name = ${name} and unique_key = ${key} and unique_key is not null`;
  if (tenant !== undefined)
    return sql`select task_id from ${tasks} where tenant = ${tenant} and ${isKeyed}`;
  return sql`
    with recursive step (tenant) as (
      select (select min(tenant) from ${tasks} where unique_key is not null)
      union all
      select (select min(task.tenant) from ${tasks} task
        where task.tenant > step.tenant and task.unique_key is not null)
      from step where step.tenant is not null),
    found as (select tenant from step where tenant is not null ${limit(maxTenants + 1)})
    select (select task_id from ${tasks} where tenant = found.tenant and ${isKeyed}) as task_id
    from found`;
}

export type KeyedTask = {
  readonly name: string;
  readonly key: string;
  readonly tenant?: string | undefined;
};

/** How many tasks there are of each name and status, among the newest `count`. */
export function countNewest(count: number): Statement {
  return sql`
    select name, status, count(*) as tasks from (
      select name, status from ${tasks} where task_id < ${afterAllIds} and task_id >= ${""}
      order by task_id desc ${limit(count)}) newest
    group by name, status order by name, status`;
}

/** How many tasks of each name wait for a signal or were set aside, up to `max` of either. */
export function countHeld(max: number): Statement {
  return sql`
    select name, count(*) as tasks from (
      select name from ${tasks} where ${waitsForSignal} order by name ${limit(max)}) for_signal
    group by name
    union all
    select name, count(*) from (
      select name from ${tasks} where ${isSetAside} order by name ${limit(max)}) set_aside
    group by name`;
}

function allOf(conditions: readonly Statement[]): Statement {
  return conditions.length === 0 ? sql`true` : join(conditions, " and ");
}

/** The condition that a task is one of these. */
export function isAmongIds(taskIds: readonly string[]): Statement {
  const given = rows(
    { task_id: "text" },
    taskIds.map((taskId) => [taskId]),
  );
  return sql`${isAmong(sql`select given.task_id from ${given} given`, sql`task_id`)}`;
}
