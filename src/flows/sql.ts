import { noEntry, type WriteEntry } from "../audit/act.ts";
import { maxDepthCount, setAsideBefore, taskPage } from "../tasks/sql/inspect.ts";
import {
  isBlocked,
  isDelayed,
  isLimited,
  isLimitedAlone,
  isReady,
  isReadyAlone,
  isSetAside,
  nextSeq,
  ofTask,
  parkedAs,
  readyOrLimited,
  requestMark,
  waitsForSignal,
  waitsForTasks,
} from "../tasks/sql/task-state.ts";
import { isRunNamed, type TaskPiece } from "../tasks/sql/list.ts";
import { forgetStepsByKey } from "../tasks/sql/steps.ts";
import { maxOpenSignals } from "../tasks/sql/signals.ts";
import {
  forUpdateOfTask,
  isAmong,
  join,
  limit,
  now,
  rows,
  sql,
  type Statement,
  table,
} from "../store/sql.ts";
import { afterAllIds } from "../store/walk.ts";
import { childKeyPrefix } from "./decide/event.ts";

const tasks = table("task");
const events = table("task_event");
const signals = table("task_signal");
const dependencies = table("task_dependency");
const bounded = limit(maxDepthCount);

/** The children of a transition, in their order. One whose row was deleted is still listed. */
export function childrenOf(runId: string, transition: string): Statement {
  const prefix = childKeyPrefix(runId, transition);
  return sql`
    select wait.dependency_id, child.name, child.status, child.result, child.error
    from ${dependencies} wait left join ${tasks} child on child.task_id = wait.dependency_id
    where wait.dependent_id = ${runId}
      and (child.task_id is null or child.parent_id = ${runId}
        and substr(child.unique_key, 1, ${prefix.length}) = ${prefix})
    order by wait.place`;
}

/** Lets a later version of a flow retry the runs that an earlier one couldn't read. */
export function retrySetAside(name: string, version: number): Statement {
  return sql`
    update ${tasks} set parked = ${readyOrLimited}, set_aside = null, set_aside_version = null
    where name = ${name} and ${isSetAside} and set_aside_version < ${version}`;
}

export type SetAsideResume = {
  readonly runId: string;
  readonly version: number | null;
  readonly requestId: string;
  /** The keys of stored steps that run again. */
  readonly forget: readonly string[];
};

/**
 * Lets pods claim a run that was set aside, or one that only a later version may advance. The event
 * contains the request's id, so that sending it again does nothing, even if the run has been set aside
 * again meanwhile. The last statement returns whether it was done.
 */
export function resumeSetAside(resume: SetAsideResume, entry: WriteEntry = noEntry): Statement[] {
  const { runId, version, requestId, forget } = resume;
  const { mark, isFirst, isNoted } = requestMark(runId, requestId);
  const lower = version === null ? sql`false` : sql`task.flow_version > ${version}`;
  const held = sql`task.task_id = ${runId} and task.status = 'pending'
    and (task.parked = ${parkedAs.setAside} or ${lower}) and ${isFirst}`;
  const as = version === null ? sql`task.flow_version` : sql`cast(${version} as integer)`;
  return [
    sql`
      insert into ${events} (task_id, seq, type, detail)
      select task.task_id, ${nextSeq(sql`task.task_id`)}, 'resume',
        '{"version":' || cast(${as} as text) || ',' || ${mark}
      from ${tasks} task where ${held} ${forUpdateOfTask}`,
    ...entry({
      when: sql`from ${tasks} task where ${held}`,
      before: sql`case when task.parked = ${parkedAs.setAside} then ${setAsideBefore}
        else '{"version":' || cast(task.flow_version as text) || '}' end`,
      ...(version !== null && { after: JSON.stringify({ version }) }),
    }),
    ...(forget.length > 0
      ? [forgetStepsByKey(sql`select task.task_id from ${tasks} task where ${held}`, forget)]
      : []),
    sql`
      update ${tasks}
      set parked = case when parked = ${parkedAs.setAside} then ${readyOrLimited} else parked end, set_aside = null,
        set_aside_version = null, last_update = ${now}, wake = wake + 1
        ${version === null ? sql`` : sql`, flow_version = ${version}`}
      where ${isAmong(sql`select task.task_id from ${tasks} task where ${held}`, sql`task_id`)}`,
    sql`select status, case when ${isNoted} then 1 else 0 end as resumed
      from ${tasks} where task_id = ${runId}`,
  ];
}

/** What runs are listed by, besides what tasks are. */
export type RunConditions = {
  /** `open` is pending or claimed. */
  readonly status?: string | undefined;
  /** The transition or finalizer that is next. */
  readonly at?: string | undefined;
  readonly parent?: string | undefined;
  readonly setAside?: boolean | undefined;
  /** The version that advanced it last. */
  readonly version?: number | undefined;
};

/** The conditions on a row. */
export function runConditions(wanted: RunConditions): Statement[] {
  const { status, at, parent, setAside, version } = wanted;
  return [
    version === undefined ? sql`flow_version is not null` : sql`flow_version = ${version}`,
    ...(status === undefined ? [] : [statusIs(status)]),
    ...(setAside ? [isSetAside] : []),
    ...(at === undefined ? [] : [sql`cursor = ${at}`]),
    ...(parent === undefined ? [] : [sql`parent_id = ${parent}`]),
  ];
}

/** The ids of what a run waits for or has waited for, its children among them, up to `max`. */
export function dependenciesOfRun(runId: string, max: number): Statement {
  return sql`
    select dependency_id as task_id from ${dependencies} where dependent_id = ${runId}
    order by dependent_id ${limit(max)}`;
}

/** The names of flows with runs, up to `max`, found by stepping along their index. */
export function flowNames(max: number): Statement {
  return sql`
    with recursive step (name) as (
      select (select min(name) from ${tasks} where flow_version is not null)
      union all
      select (select min(task.name) from ${tasks} task
        where task.name > step.name and task.flow_version is not null)
      from step where step.name is not null)
    select name from step where name is not null ${limit(max)}`;
}

/**
 * Reads the next `count` runs of each of these flows below an id, newest first, and returns those that fit,
 * and the last of each flow that was read with the number of them (`walked`). In one statement, because
 * to send thousands of ids here and back takes longer than to read their rows.
 */
export function walkRuns(
  flows: readonly string[],
  { before, from, count, fits, wanted }: Omit<TaskPiece, "among">,
): Statement {
  const each = flows.map(
    (flow) => sql`select * from (
      select name, task_id, created_at,
        case when ${join(fits, " and ")} then ${taskPage.bytes} end as bytes
      from ${tasks}
      where ${isRunNamed(flow)} and task_id < ${before} and task_id >= ${from}
      order by task_id desc ${limit(count)}) of_flow`,
  );
  return sql`
    with walked as materialized (${join(each, " union all ")})
    select name, task_id, created_at, bytes, null as walked from (
      select name, task_id, created_at, bytes from walked where bytes is not null
      order by task_id desc ${limit(wanted)}) found
    union all
    select last.name, last.task_id, walked.created_at, null, last.walked from (
      select name, min(task_id) as task_id, count(*) as walked from walked group by name) last
      join walked on walked.task_id = last.task_id`;
}

function statusIs(status: string): Statement {
  return status === "open" ? sql`status in ('pending', 'claimed')` : sql`status = ${status}`;
}

export function getRun(runId: string): Statement {
  return sql`select * from ${tasks} where task_id = ${runId} and flow_version is not null`;
}

/** The signals of a run that it hasn't used yet. */
export function openSignals(
  runId: string,
  { after = 0, limit: max = maxOpenSignals }: { after?: number; limit?: number },
): Statement {
  return sql`
    select seq, signal_id, name, at from ${signals}
    where task_id = ${runId} and taken = 0 and seq > ${after}
    order by seq ${limit(max)}`;
}

type OpenKind = { readonly which: Statement; readonly order: Statement };

const byAge = sql`created_at, task_id`;
const byPriority = sql`priority desc, ${byAge}`;

const isDelayedRun = sql`${isDelayed} and flow_version is not null`;

/** Open runs that have an index of their own kind. Tasks are in it too, and are read with them. */
const openKinds: readonly OpenKind[] = [
  { which: sql`status = 'claimed'`, order: sql`claimed_by, claim_call` },
  { which: waitsForTasks, order: sql`task_id` },
  { which: isBlocked, order: sql`blocked_by, ${byPriority}` },
  { which: isLimited, order: sql`name, tenant, ${byPriority}` },
  { which: isLimitedAlone, order: sql`name, ${byAge}` },
  { which: waitsForSignal, order: sql`name` },
  { which: isSetAside, order: sql`name` },
];

/** Those that are read for each flow: they can be claimed, or are due later. */
const kindsOfFlow: readonly OpenKind[] = [
  { which: isReady, order: byPriority },
  { which: isReadyAlone, order: byAge },
  { which: isDelayedRun, order: sql`run_at` },
];

/**
 * Open runs of flows, up to `maxDepthCount` of each kind, in the order of its index: a planner that
 * expects most rows to be open would otherwise read the whole table. `kind` is a number for each.
 */
function openRuns(flows: readonly string[]): Statement {
  const ofFlows = flows.flatMap((flow) =>
    kindsOfFlow.map(({ which, order }) => ({ which: sql`name = ${flow} and ${which}`, order })),
  );
  const kinds = [...openKinds, ...ofFlows].map(
    ({ which, order }, kind) => sql`
    select cast(${kind} as integer) as kind, open_kind.* from (
      select task_id, name, status, cursor, parked, retry_count, awaits, run_at, created_at, advanced_at,
        flow_version, case when waiting is null then 0 else 1 end as is_waiting
      from ${tasks} where ${which} order by ${order} ${bounded}) open_kind`,
  );
  return join(kinds, " union all ");
}

/**
 * Counts the open runs of flows by kind, cursor and what they do. Rows without a version are tasks, which
 * count for the bound of their kind.
 */
export function countOpenRuns(flows: readonly string[]): Statement {
  return sql`
    select kind, case when flow_version is null then '' else name end as name, status, cursor, parked,
      case when retry_count > 0 then 1 else 0 end as retrying, is_waiting as waiting, flow_version,
      count(*) as runs
    from (${openRuns(flows)}) open group by 1, 2, 3, 4, 5, 6, 7, 8`;
}

/** Counts the ended runs of flows among the newest `count` of each. */
export function countEndedRuns(flows: readonly string[], count: number): Statement {
  const each = flows.map(
    (flow) => sql`
    select name, status, count(*) as runs from (
      select name, status from ${tasks}
      where ${isRunNamed(flow)} and task_id < ${afterAllIds} and task_id >= ${""}
      order by task_id desc ${limit(count)}) newest
    group by name, status`,
  );
  return join(each, " union all ");
}

/**
 * Counts pending runs by cursor and by what may be wrong with them: `''` where the row shows no problem.
 * A run that fails again and again may be claimed for nearly all of its time, so those count while they
 * are claimed too. A sleep and a delayed start end at a known time, and don't count as waiting.
 */
export function countStuck(
  flows: readonly string[],
  { failures, waitingMs }: { readonly failures: number; readonly waitingMs: number },
): Statement {
  const storedAt = sql`coalesce(advanced_at, created_at)`;
  // `run_at` is a time to come for runs that wait until they are due; for all others, when they began to wait.
  const since = sql`case when parked <> ${parkedAs.untilDue} and run_at > ${storedAt} then run_at else ${storedAt} end`;
  const waits = sql`(parked <> ${parkedAs.untilDue} or awaits is not null) and ${since} < ${now} - ${waitingMs}`;
  return sql`
    select name, cursor, flow_version,
      case when parked = ${parkedAs.setAside} then 'set_aside' when retry_count >= ${failures} then 'retrying'
        when ${waits} then 'waiting' else '' end as why,
      count(*) as runs, min(task_id) as oldest, min(${since}) as since_at
    from (${openRuns(flows)}) open where flow_version is not null
      and (status = 'pending' or (status = 'claimed' and retry_count >= ${failures}))
    group by 1, 2, 3, 4 order by name, flow_version, coalesce(cursor, ''), 4`;
}

/**
 * Counts the runs of flows that can be claimed. It orders by an index, because a planner that expects most
 * rows to be pending would otherwise read the whole table.
 */
export function countReadyRuns(flows: readonly string[]): Statement {
  const wanted = rows(
    { name: "text" },
    flows.map((name) => [name]),
  );
  return sql`
    select 'ready' as doing, flow.name,
      (select count(*) from (
        select 1 from ${tasks} task
        where task.name = flow.name and ${ofTask.isReady}
        order by task.priority desc, task.created_at, task.task_id ${bounded}) open) +
      (select count(*) from (
        select 1 from ${tasks} task
        where task.name = flow.name and ${ofTask.isReadyAlone}
        order by task.created_at, task.task_id ${bounded}) alone) as runs
    from ${wanted} flow`;
}

/** Counts the other open runs by flow and by what they do, each kind in the order of its index. */
export function countOtherRuns(): Statement {
  return sql`
    select 'running' as doing, name, count(*) as runs from (
      select name, flow_version from ${tasks} where status = 'claimed'
      order by claimed_by, claim_call ${bounded}) running
    where flow_version is not null group by name
    union all
    select case when awaits is not null then 'waiting_for_signal' when waiting is not null then 'sleeping'
        when run_seq = 0 then 'delayed' else 'retrying' end, name, count(*) from (
      select name, awaits, waiting, run_seq from ${tasks}
      where ${isDelayedRun} order by name, run_at ${bounded}) later
    group by 1, 2
    union all
    select case when waiting is null then 'waiting_for_others' else 'waiting_for_children' end, name,
      count(*) from (
      select name, flow_version, waiting from ${tasks} where ${waitsForTasks}
      order by task_id ${bounded}) waiting
    where flow_version is not null group by 1, 2
    union all
    select 'waiting_for_room', name, count(*) from (
      select name, flow_version from ${tasks} where ${isBlocked}
      order by blocked_by, priority desc, created_at, task_id ${bounded}) blocked
    where flow_version is not null group by name
    union all
    select 'ready', name, count(*) from (
      select name, flow_version from ${tasks}
      where ${isLimited}
      order by name, tenant, priority desc, created_at, task_id ${bounded}) limited
    where flow_version is not null group by name
    union all
    select 'ready', name, count(*) from (
      select name, flow_version from ${tasks}
      where ${isLimitedAlone}
      order by name, created_at, task_id ${bounded}) alone
    where flow_version is not null group by name
    union all
    select 'waiting_for_signal', name, count(*) from (
      select name from ${tasks} where ${waitsForSignal}
      order by name ${bounded}) told group by name
    union all
    select 'set_aside', name, count(*) from (
      select name from ${tasks} where ${isSetAside}
      order by name ${bounded}) set_aside group by name`;
}
