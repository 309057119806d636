import { noEntry, type WriteEntry } from "../../audit/act.ts";
import { maxPageBytes } from "../../base/page.ts";
import { allNames } from "../../protocol/task-options.ts";
import { columnBytes } from "../../store/page.ts";
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
} from "../../store/sql.ts";
import { isDue, type Level } from "./claim.ts";
import {
  notifyingParents,
  wakeIfDependenciesEnded,
  wakeDependents,
  wakeDependentsOfChildren,
} from "./dependencies.ts";
import {
  dependsAs,
  isBlocked,
  isDelayed,
  isLimited,
  isLimitedAlone,
  isReady,
  isReadyAlone,
  nextSeq,
  noDeaths,
  ofTask,
  parkedAs,
  readyOrLimited,
  requestMark,
  waitsForTasks,
} from "./task-state.ts";
import { forgetSteps, forgetStepsByKey } from "./steps.ts";

const tasks = table("task");
const events = table("task_event");
const dependencies = table("task_dependency");
const pauses = table("task_pause");

/** Counts stop here, so that a read costs the same for a queue of any length. */
export const maxDepthCount = 10_000;
/** The names whose ready tasks are counted. A fleet with more of them is counted up to here. */
export const maxNamesCounted = 2_000;
// A retry keeps its place by age but has waited only since it was due, so the oldest few are
// compared.
const maxOldest = 100;
const idBytes = 40;
export const isPendingTask = sql`status = 'pending' and flow_version is null`;
const isWaiting = sql`parked in (${parkedAs.untilDue}, ${parkedAs.forDependencies}, ${parkedAs.untilSignal})`;
// A run that cannot be read has no finalizers that a pod could run, so an operator may give it up.
export const isUnreadable = sql`status = 'pending' and flow_version is not null and parked = ${parkedAs.setAside}`;

/**
 * Sets an open task to be cancelled: a pending task ends at once, a claimed one is asked to. A run
 * no longer waits for what it is parked for; one that was set aside is cancelled when a pod claims
 * it.
 */
const cancelRequested = requestCancel(isPendingTask);

export function requestCancel(endsAtOnce: Statement): Statement {
  return sql`
  cancel_requested = 1, wake = wake + 1, last_update = ${now},
  claim_token = claim_token + case when ${endsAtOnce} then 1 else 0 end,
  status = case when ${endsAtOnce} then 'cancelled' else status end,
  run_at = case when flow_version is not null and status = 'pending' and run_at > ${now}
    then ${now} else run_at end,
  parked = case when flow_version is not null and status = 'pending' and ${isWaiting}
    then ${readyOrLimited} else parked end`;
}

/** Does what `cancelTask` does, for all open children. */
export function cancelChildren(
  parentIds: readonly string[],
  fence: (task: Statement) => Statement,
): Statement[] {
  const parents = rows(
    { task_id: "text" },
    parentIds.map((taskId) => [taskId]),
  );
  const open = sql`
    select child.task_id from ${parents} parent
    join ${dependencies} wait on wait.dependent_id = parent.task_id
    join ${tasks} child on child.task_id = wait.dependency_id
    where child.parent_id = parent.task_id and child.status in ('pending', 'claimed')
      and child.cancel_requested = 0
      and parent.task_id in (select task.task_id from ${fence(sql`task`)})`;
  const among = isAmong(open, sql`task_id`);
  return [
    sql`select task_id from ${tasks} task where ${among} order by task_id ${forUpdateOfTask}`,
    sql`
      insert into ${events} (task_id, seq, type)
      select task_id, ${nextSeq(sql`task.task_id`)}, 'cancel_requested' from ${tasks} task
      where ${among}`,
    sql`
      update ${tasks}
      set ${cancelRequested}
      where ${among}`,
  ];
}

/**
 * Cancels the open children of tasks that these writes have cancelled, and wakes what waits for them.
 * Goes after the statement that ends the tasks.
 */
export function cancelChildrenOf(
  parents: readonly { readonly taskId: string; readonly token: number }[],
): Statement[] {
  const given = rows(
    { task_id: "text", token: "integer" },
    parents.map(({ taskId, token }) => [taskId, token]),
  );
  const parentIds = parents.map(({ taskId }) => taskId);
  const fence = (task: Statement) => sql`${given} given
    join ${tasks} ${task} on ${task}.task_id = given.task_id
    where ${task}.status = 'cancelled' and ${task}.claim_token = given.token`;
  return [...cancelChildren(parentIds, fence), ...wakeDependentsOfChildren(parentIds)];
}

/**
 * Cancels a task: at once if no pod runs it, otherwise by asking the pod that does. A run has
 * finalizers, so it is only asked: one that waits for a time, for children or for a signal
 * continues to them. A run that no pod can read is given up without finalizers, also if it was asked
 * before. What ends at once takes its children with it. The event names the request, so that sending it again does
 * nothing, though the task may have been restarted, or the run set aside, meanwhile.
 */
export function cancelTask(
  taskId: string,
  requestId: string,
  entry: WriteEntry = noEntry,
): Statement[] {
  const { mark, isFirst } = requestMark(taskId, requestId);
  const isOpen = sql`task_id = ${taskId} and status in ('pending', 'claimed')`;
  const unasked = sql`${isOpen} and cancel_requested = 0 and ${isFirst}`;
  const givenUp = sql`${isOpen} and ${isUnreadable} and ${isFirst}`;
  return [
    sql`select task_id from ${tasks} task where ${isOpen} ${forUpdateOfTask}`,
    ...entry({
      when: sql`from ${tasks} where ${unasked} or ${givenUp}`,
      action: actionOn("cancel"),
      before: statusBefore,
      after: sql`case when ${isPendingTask} or ${isUnreadable}
        then '{"status":"cancelled"}' else '{"status":"cancelling"}' end`,
    }),
    ...cancelChildren(
      [taskId],
      (task) => sql`${tasks} ${task}
      where ${task}.task_id in (
        select task_id from ${tasks} where ${givenUp} or (${unasked} and ${isPendingTask}))`,
    ),
    sql`
      insert into ${events} (task_id, seq, type, detail)
      select task_id, ${nextSeq(sql`task.task_id`)}, 'cancel_requested', '{' || ${mark}
      from ${tasks} task where ${unasked}`,
    sql`
      insert into ${events} (task_id, seq, type, detail)
      select task_id, ${nextSeq(sql`task.task_id`)}, 'given_up', '{' || ${mark}
      from ${tasks} task where ${givenUp}`,
    sql`
      update ${tasks}
      set ${requestCancel(sql`(${isPendingTask} or ${isUnreadable})`)}
      where ${unasked} or ${givenUp}`,
    ...wakeDependentsOfChildren([taskId]),
    ...wakeDependents([taskId]),
    sql`select status, cancel_requested, concurrency_key from ${tasks} where task_id = ${taskId}`,
  ];
}

/**
 * Where a restarted run continues: where it stopped, or where it was when it was cancelled while no
 * pod could read it. It may have stopped elsewhere before that.
 */
const restartedAt = sql`case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
  then cursor else coalesce(stopped_at, cursor) end`;

/**
 * Restarts an ended task: a new generation, with all its attempts. A task with dependencies waits
 * again, so `wakeIfDependenciesEnded` must follow.
 */
export const startedOver = sql`
  status = 'pending', retry_count = 0, snoozes = 0, deaths = ${noDeaths}, cancel_requested = 0,
  parked = case when depends > ${dependsAs.none} then ${parkedAs.forDependencies} else ${readyOrLimited} end,
  depends = case when depends = ${dependsAs.failed} then ${dependsAs.completed} else depends end,
  claim_token = claim_token + 1, claimed_by = null, run_at = ${now}, last_update = ${now},
  cursor = ${restartedAt}, intent = null, waiting = null,
  error = null, progress = null, progress_token = claim_token + 1`;

/** What a task without steps is set to: any version of its code may begin it. */
export const anyVersion = sql`, task_version = null, begun_version = null`;

/**
 * Restarts an ended task: a new generation, with an event. Its dependencies are checked again. The
 * event names the request and the token that it leads to, so that sending it again does nothing,
 * though the task may have failed again meanwhile. Steps that have failed for good are forgotten,
 * because they would only fail the task again; all of them if it is to run from its start, or those
 * with these keys as well.
 */
export function retryTask(
  taskId: string,
  requestId: string,
  steps: "failed" | "all" | readonly string[] = "failed",
  entry: WriteEntry = noEntry,
): Statement[] {
  const ended = sql`task_id = ${taskId} and status in ('failed', 'cancelled')`;
  const mark = `{"request":"${requestId}","token":`;
  const noted = sql`exists (
    select 1 from ${events} past
    where past.task_id = ${taskId} and past.type = 'retried' and past.detail like ${`${mark}%`})`;
  const toStart = sql`${ended} and exists (
    select 1 from ${events} past
    where past.task_id = ${tasks}.task_id and past.type = 'retried'
      and past.detail = ${mark} || cast(${tasks}.claim_token + 1 as text) || '}')`;
  const starting = sql`select task_id from ${tasks} where ${toStart}`;
  return [
    ...notifyingParents(
      [taskId],
      [
        sql`
          insert into ${events} (task_id, seq, type, detail)
          select task_id, ${nextSeq(sql`task.task_id`)}, 'retried',
            ${mark} || cast(task.claim_token + 1 as text) || '}'
          from ${tasks} task where ${ended} and not ${noted} ${forUpdateOfTask}`,
        ...entry({
          when: sql`from ${tasks} where ${toStart}`,
          // What a run was told to go on from is no retry of it.
          action: actionOn(typeof steps === "string" ? "retry" : "resume"),
          before: statusBefore,
        }),
        forgetSteps(starting, steps === "all" ? "all" : "failed"),
        ...(typeof steps === "string" ? [] : [forgetStepsByKey(starting, steps)]),
        sql`update ${tasks} set ${startedOver} ${steps === "all" ? anyVersion : sql``}
          where ${toStart}`,
      ],
    ),
    wakeIfDependenciesEnded([taskId]),
    sql`select status, case when ${noted} then 1 else 0 end as retried
      from ${tasks} where task_id = ${taskId}`,
  ];
}

/**
 * Lets pods claim a task that was set aside, without the steps of these keys. The event names the
 * request, so that sending it again does nothing, even if the task has been set aside again meanwhile.
 * The last statement returns whether it was done.
 */
export function resumeTask(
  taskId: string,
  requestId: string,
  forget: readonly string[],
  entry: WriteEntry = noEntry,
): Statement[] {
  const { mark, isFirst, isNoted } = requestMark(taskId, requestId);
  const held = sql`task_id = ${taskId} and status = 'pending' and flow_version is null
    and parked = ${parkedAs.setAside} and ${isFirst}`;
  const facts = `{"forget":${JSON.stringify(forget)},`;
  return [
    sql`
      insert into ${events} (task_id, seq, type, detail)
      select task_id, ${nextSeq(sql`task.task_id`)}, 'resume', ${facts} || ${mark}
      from ${tasks} task where ${held} ${forUpdateOfTask}`,
    ...entry({ when: sql`from ${tasks} where ${held}`, before: setAsideBefore }),
    ...(forget.length > 0
      ? [forgetStepsByKey(sql`select task_id from ${tasks} where ${held}`, forget)]
      : []),
    sql`
      update ${tasks} set parked = ${readyOrLimited}, set_aside = null, last_update = ${now},
        wake = wake + 1
      where ${held}`,
    sql`select status, parked, flow_version, case when ${isNoted} then 1 else 0 end as resumed
      from ${tasks} where task_id = ${taskId}`,
  ];
}

/** What the audit says of a row that is about to change. */
const statusBefore = sql`'{"status":"' || status || '"}'`;

export const setAsideBefore = '{"status":"set_aside"}';

/** The action on a row, which is a task or a run. */
function actionOn(verb: "cancel" | "retry" | "resume"): Statement {
  return sql`case when flow_version is null then ${`tasks.${verb}`} else ${`runs.${verb}`} end`;
}

export function getTask(taskId: string): Statement {
  return sql`select * from ${tasks} where task_id = ${taskId}`;
}

export function getTasks(taskIds: readonly string[]): Statement {
  const wanted = rows(
    { task_id: "text" },
    taskIds.map((taskId) => [taskId]),
  );
  return sql`select * from ${tasks} where ${isAmong(sql`select task_id from ${wanted} wanted`, sql`task_id`)}`;
}

/** The order of pages of tasks and runs, and the size of a row in its public form. */
export const taskPage = {
  key: sql`task_id`,
  order: "desc",
  bytes: sql`500 + ${columnBytes(sql`payload`)} + ${columnBytes(sql`state`)} + ${columnBytes(sql`progress`)}
    + ${columnBytes(sql`result`)} + ${columnBytes(sql`error`)} + ${columnBytes(sql`waiting`)}
    + ${columnBytes(sql`intent`)} + ${columnBytes(sql`set_aside`)}
    + case when depends = ${dependsAs.none} then 0 else
      (select count(*) from ${dependencies} wait where wait.dependent_id = task_id) * ${idBytes} end`,
  maxBytes: maxPageBytes,
} as const;

/** Counts every task, whatever that costs: for callers that ask for exact numbers. */
export function countTasks(): Statement {
  return sql`
    select name, status, count(*) as tasks from ${tasks} group by name, status order by name, status`;
}

/** The number of claimed tasks of each pod, up to `max` of all. */
export function countClaimed(max: number): Statement {
  return sql`
    select claimed_by, count(*) as tasks from (
      select claimed_by from ${tasks} where status = 'claimed'
      order by claimed_by, claim_call ${limit(max)}) held
    group by claimed_by`;
}

/** The names of tasks that can be claimed, found by stepping along the index. */
export function namesWaiting(): Statement {
  return sql`
    with recursive step (name) as (
      select (select min(name) from ${tasks} where ${isReady})
      union all
      select (select min(task.name) from ${tasks} task
        where task.name > step.name and ${ofTask.isReady})
      from step where step.name is not null)
    select name from step where name is not null ${limit(maxNamesCounted)}`;
}

/**
 * How many tasks of each name and priority can be claimed, and how long the first has been due. The
 * counts have an order, because a planner that expects most tasks to be pending would otherwise
 * read the table.
 */
export function readyDepth(levels: readonly Level[]): Statement {
  const wanted = rows(
    { name: "text", priority: "integer" },
    levels.map(({ name, priority }) => [name, priority]),
  );
  return sql`
    select level.name,
      (select count(*) from (
        select 1 from ${tasks} task
        where task.name = level.name and task.priority = level.priority
          and ${ofTask.isReady}
        order by task.created_at, task.task_id ${limit(maxDepthCount)}) counted) as tasks,
      (select ${now} - min(run_at) from (
        select task.run_at from ${tasks} task
        where task.name = level.name and task.priority = level.priority
          and ${ofTask.isReady}
        order by task.created_at, task.task_id ${limit(maxOldest)}) first) as age_ms
    from ${wanted} level`;
}

/**
 * How many tasks are delayed, waiting for dependencies, blocked, limited, required to run alone,
 * running or failed, by name.
 */
export function otherDepths(): Statement {
  const bounded = limit(maxDepthCount);
  return sql`
    select 'delayed' as state, name, count(*) as tasks, ${now} - min(run_at) as age_ms from (
      select name, run_at from ${tasks} where ${isDelayed}
      order by run_at ${bounded}) delayed group by name
    union all
    select 'waiting', name, count(*), null from (
      select name from ${tasks} where ${waitsForTasks}
      order by task_id ${bounded}) waiting group by name
    union all
    select 'blocked', name, count(*), null from (
      select name from ${tasks} where ${isBlocked}
      order by blocked_by, priority desc, created_at, task_id ${bounded}) blocked group by name
    union all
    select 'ready', name, count(*), ${now} - min(run_at) from (
      select name, run_at from ${tasks} where ${isLimited}
      order by name, tenant, priority desc, created_at, task_id ${bounded}) ready group by name
    union all
    select 'alone', name, count(*), ${now} - min(run_at) from (
      select name, run_at from ${tasks} where ${isReadyAlone}
      order by name, created_at, task_id ${bounded}) alone group by name
    union all
    select 'alone', name, count(*), ${now} - min(run_at) from (
      select name, run_at from ${tasks} where ${isLimitedAlone}
      order by name, created_at, task_id ${bounded}) alone group by name
    union all
    select 'running', name, count(*), null from (
      select name from ${tasks} where status = 'claimed'
      order by claimed_by, claim_call ${bounded}) running group by name
    union all
    select 'failed', name, count(*), null from (
      select name from ${tasks} where status = 'failed'
      order by task_id desc ${bounded}) failed group by name`;
}

/** How long until the next delayed task is due. */
export function nextDue(): Statement {
  return sql`
    select run_at - ${now} as wait_ms from ${tasks}
    where ${isDelayed} order by run_at ${limit(1)}`;
}

const byAge = sql`created_at, task_id`;

/** The kinds of tasks that can be claimed, each with the order of its index. */
const claimable: readonly { readonly which: Statement; readonly order: Statement }[] = [
  { which: sql`${isReady} and ${isDue}`, order: sql`priority desc, ${byAge}` },
  {
    which: isLimited,
    order: sql`tenant, priority desc, ${byAge}`,
  },
  { which: isReadyAlone, order: byAge },
  { which: isLimitedAlone, order: byAge },
];

/** Names whose tasks need the same permits. A lower rank goes first. */
export type RankedName = { readonly name: string; readonly rank: number };

/**
 * The tasks that wait for the same permits, in the order in which they get them. At most `maxCount`
 * of each kind and name are read. Tasks that cannot be claimed now are left out.
 */
export function tasksInClaimOrder(names: readonly RankedName[], maxCount: number): Statement {
  const all = names.flatMap(({ name, rank }) =>
    claimable.map(
      ({ which, order }) => sql`select * from (
        select cast(${rank} as integer) as urgency, priority, created_at, task_id from ${tasks}
        where name = ${name} and ${which} order by ${order} ${limit(maxCount)}) of_name`,
    ),
  );
  return sql`
    select task_id from (${join(all, " union all ")}) ready
    order by urgency, priority desc, created_at, task_id`;
}

/**
 * How many tasks of each name can be claimed, counted up to `maxCount`. Each kind is read in the
 * order of its index, which leaves the planner no other way.
 */
export function countReady(names: readonly string[], maxCount: number): Statement {
  const counts = names.map((name) => {
    const kinds = claimable.map(
      ({ which, order }) => sql`(select count(*) from (
      select 1 from ${tasks} where name = ${name} and ${which} order by ${order} ${limit(maxCount)}) first)`,
    );
    return sql`select ${name} as name, ${join(kinds, " + ")} as ready`;
  });
  return sql`
    select name, ready from (${join(counts, " union all ")}) counted
    where not exists (
      select 1 from ${pauses} pause
      where pause.paused = 1 and pause.name in (counted.name, ${allNames}))`;
}

/** Whose a task is. */
export function readTenant(taskId: string): Statement {
  return sql`select tenant from ${tasks} where task_id = ${taskId}`;
}
