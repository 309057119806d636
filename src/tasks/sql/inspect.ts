import { maxPageBytes } from "../../base/page.ts";
import { columnBytes, pageQuery } from "../../store/page.ts";
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
import { isDue, isReady, type Level } from "./claim.ts";
import {
  notifyingParents,
  wakeIfDependenciesEnded,
  wakeDependents,
  wakeDependentsOfChildren,
} from "./dependencies.ts";
import { nextSeq, requestMark, readyOrLimited } from "./task-state.ts";
import { allNames } from "./limits.ts";

const tasks = table("task");
const events = table("task_event");
const dependencies = table("task_dependency");

const isPendingTask = sql`status = 'pending' and flow_version is null`;
// What can't be read has no finalizers that anybody could run, as far as the person knows who gives it up.
const isSetAside = sql`status = 'pending' and flow_version is not null and parked = 6`;

/**
 * What a task that hasn't ended is set to when it is to be cancelled: it ends at once, or is asked. A run
 * mustn't wait any longer for whatever it is parked for; one that was set aside is cancelled when somebody
 * takes it up.
 */
const cancelRequested = requestCancel(isPendingTask);

function requestCancel(endsAtOnce: Statement): Statement {
  return sql`
  cancel_requested = 1, wake = wake + 1, last_update = ${now},
  claim_token = claim_token + case when ${endsAtOnce} then 1 else 0 end,
  status = case when ${endsAtOnce} then 'cancelled' else status end,
  run_at = case when flow_version is not null and status = 'pending' and run_at > ${now}
    then ${now} else run_at end,
  parked = case when flow_version is not null and status = 'pending' and parked in (1, 2, 5)
    then ${readyOrLimited} else parked end`;
}

/** What `cancel` does, for all children that haven't ended. */
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
 * Cancels: at once where nobody runs it, otherwise by asking the pod that does. A run has finalizers, so
 * it is only asked: one that waits for a time, for others or for a word goes on to them. One that nobody
 * can read is given up without, together with its children, also where it was asked before. What is noted
 * names the request, so that sending it again does nothing, though the task may have been started over, or
 * the run set aside, meanwhile.
 */
export function cancelTask(taskId: string, requestId: string): Statement[] {
  const { mark, isFirst } = requestMark(taskId, requestId);
  const isOpen = sql`task_id = ${taskId} and status in ('pending', 'claimed')`;
  const unasked = sql`${isOpen} and cancel_requested = 0 and ${isFirst}`;
  const givenUp = sql`${isOpen} and ${isSetAside} and ${isFirst}`;
  return [
    sql`select task_id from ${tasks} task where ${isOpen} ${forUpdateOfTask}`,
    ...cancelChildren(
      [taskId],
      (task) => sql`${tasks} ${task}
      where ${task}.task_id in (select task_id from ${tasks} where ${givenUp})`,
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
      set ${requestCancel(sql`(${isPendingTask} or ${isSetAside})`)}
      where ${unasked} or ${givenUp}`,
    ...wakeDependentsOfChildren([taskId]),
    ...wakeDependents([taskId]),
    sql`select status, cancel_requested, concurrency_key from ${tasks} where task_id = ${taskId}`,
  ];
}

/**
 * Where a run goes on that is started over: where it stopped, or where it stood when it was cancelled while
 * nobody could read it. It may have stopped elsewhere before that.
 */
const restartedAt = sql`case when coalesce(flow_version, 0) = 0 or (intent is null and cursor is not null)
  then cursor else coalesce(stopped_at, cursor) end`;

/**
 * What a task that has ended is set to when it starts over: a new generation, with all its attempts. One
 * that waits for others waits anew, so `wakeIfNothingIsOpen` must follow.
 */
export const startedOver = sql`
  status = 'pending', retry_count = 0, snoozes = 0, deaths = 0, cancel_requested = 0,
  parked = case when depends > 0 then 2 else ${readyOrLimited} end,
  depends = case when depends = 3 then 1 else depends end,
  claim_token = claim_token + 1, claimed_by = null, run_at = ${now}, last_update = ${now},
  cursor = ${restartedAt}, intent = null, waiting = null,
  error = null, progress = null, progress_token = claim_token + 1`;

/**
 * Starts a finished task over: a new generation, noted as such. What it waits for is looked at anew. The
 * note names the request and the token that it leads to, so that sending it again does nothing, though
 * the task may have failed again meanwhile.
 */
export function retryTask(taskId: string, requestId: string): Statement[] {
  const ended = sql`task_id = ${taskId} and status in ('failed', 'cancelled')`;
  const mark = `{"request":"${requestId}","token":`;
  const noted = sql`exists (
    select 1 from ${events} past
    where past.task_id = ${taskId} and past.type = 'retried' and past.detail like ${`${mark}%`})`;
  return [
    ...notifyingParents(
      [taskId],
      [
        sql`
          insert into ${events} (task_id, seq, type, detail)
          select task_id, ${nextSeq(sql`task.task_id`)}, 'retried',
            ${mark} || cast(task.claim_token + 1 as text) || '}'
          from ${tasks} task where ${ended} and not ${noted} ${forUpdateOfTask}`,
        sql`
          update ${tasks}
          set ${startedOver}
          where ${ended} and exists (
            select 1 from ${events} past
            where past.task_id = ${tasks}.task_id and past.type = 'retried'
              and past.detail = ${mark} || cast(${tasks}.claim_token + 1 as text) || '}')`,
      ],
    ),
    wakeIfDependenciesEnded([taskId]),
    sql`select status, case when ${noted} then 1 else 0 end as retried
      from ${tasks} where task_id = ${taskId}`,
  ];
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

type ListFilter = {
  readonly name?: string;
  readonly status?: string;
  readonly tenant?: string;
  /** Only tasks with a lower id: the last of the page before. */
  readonly before?: string;
  readonly limit: number;
};

/** A page of tasks, newest first. */
export function listTasks(filter: ListFilter): Statement {
  const conditions = [
    ...(filter.name === undefined ? [] : [sql`name = ${filter.name}`]),
    ...(filter.status === undefined ? [] : [sql`status = ${filter.status}`]),
    ...(filter.tenant === undefined ? [] : [sql`tenant = ${filter.tenant}`]),
    ...(filter.before === undefined ? [] : [sql`task_id < ${filter.before}`]),
  ];
  const where = conditions.length > 0 ? sql`where ${join(conditions, " and ")}` : sql``;
  const from = sql`from ${tasks} ${where}`;
  const { begin, keys, found } = pageQuery({ ...taskPage, from, limit: filter.limit });
  return sql`${begin}
    select *, ${found} from ${tasks} where ${isAmong(keys, sql`task_id`)} order by task_id desc`;
}

const idBytes = 40;

/** How pages of tasks and runs are ordered, and what a row of them takes as it is shown. */
export const taskPage = {
  key: sql`task_id`,
  order: "desc",
  bytes: sql`500 + ${columnBytes(sql`payload`)} + ${columnBytes(sql`state`)} + ${columnBytes(sql`progress`)}
    + ${columnBytes(sql`result`)} + ${columnBytes(sql`error`)} + ${columnBytes(sql`waiting`)}
    + ${columnBytes(sql`intent`)} + ${columnBytes(sql`set_aside`)}
    + case when depends = 0 then 0 else
      (select count(*) from ${dependencies} wait where wait.dependent_id = task_id) * ${idBytes} end`,
  maxBytes: maxPageBytes,
} as const;

export function countTasks(): Statement {
  return sql`
    select name, status, count(*) as tasks from ${tasks} group by name, status order by name, status`;
}

/** Nothing is counted further than this, so that a look costs the same however long the queue is. */
export const maxDepthCount = 10_000;
const maxNames = 200;
// A retry keeps its place by age but has waited since it was due, so the oldest few are looked at.
const maxOldest = 100;

/** The names of tasks that can be claimed, found by stepping along the index. */
export function namesWaiting(): Statement {
  return sql`
    with recursive step (name) as (
      select (select min(name) from ${tasks} where ${isReady})
      union all
      select (select min(task.name) from ${tasks} task
        where task.name > step.name and task.status = 'pending' and task.parked = 0 and task.deaths < 2)
      from step where step.name is not null)
    select name from step where name is not null ${limit(maxNames)}`;
}

/**
 * How many can be claimed of each name and priority, and how long one has been due at most. Counting
 * asks for an order, because a planner that takes everything for waiting would read the table else.
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
          and task.status = 'pending' and task.parked = 0 and task.deaths < 2
        order by task.created_at, task.task_id ${limit(maxDepthCount)}) counted) as tasks,
      (select ${now} - min(run_at) from (
        select task.run_at from ${tasks} task
        where task.name = level.name and task.priority = level.priority
          and task.status = 'pending' and task.parked = 0 and task.deaths < 2
        order by task.created_at, task.task_id ${limit(maxOldest)}) first) as age_ms
    from ${wanted} level`;
}

/**
 * How many wait for their time, for others or for room, are at a gate, wait to run alone, run, or have
 * failed, by name.
 */
export function otherDepths(): Statement {
  const bounded = limit(maxDepthCount);
  return sql`
    select 'delayed' as state, name, count(*) as tasks, ${now} - min(run_at) as age_ms from (
      select name, run_at from ${tasks} where status = 'pending' and parked = 1
      order by run_at ${bounded}) delayed group by name
    union all
    select 'waiting', name, count(*), null from (
      select name from ${tasks} where status = 'pending' and parked = 2
      order by task_id ${bounded}) waiting group by name
    union all
    select 'blocked', name, count(*), null from (
      select name from ${tasks} where status = 'pending' and parked = 3
      order by blocked_by, priority desc, created_at, task_id ${bounded}) blocked group by name
    union all
    select 'ready', name, count(*), ${now} - min(run_at) from (
      select name, run_at from ${tasks} where status = 'pending' and parked = 4 and deaths < 2
      order by name, tenant, priority desc, created_at, task_id ${bounded}) ready group by name
    union all
    select 'alone', name, count(*), ${now} - min(run_at) from (
      select name, run_at from ${tasks} where status = 'pending' and parked = 0 and deaths >= 2
      order by name, created_at, task_id ${bounded}) alone group by name
    union all
    select 'alone', name, count(*), ${now} - min(run_at) from (
      select name, run_at from ${tasks} where status = 'pending' and parked = 4 and deaths >= 2
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

const pauses = table("task_pause");

/** How long until something that waits for its time is due. */
export function nextDue(): Statement {
  return sql`
    select run_at - ${now} as wait_ms from ${tasks}
    where status = 'pending' and parked = 1 order by run_at ${limit(1)}`;
}

const byAge = sql`created_at, task_id`;

/** The kinds of tasks that could be claimed, each with the order of its index. */
const claimable: readonly { readonly which: Statement; readonly order: Statement }[] = [
  { which: sql`${isReady} and ${isDue}`, order: sql`priority desc, ${byAge}` },
  {
    which: sql`status = 'pending' and parked = 4 and deaths < 2`,
    order: sql`tenant, priority desc, ${byAge}`,
  },
  { which: sql`status = 'pending' and parked = 0 and deaths >= 2`, order: byAge },
  { which: sql`status = 'pending' and parked = 4 and deaths >= 2`, order: byAge },
];

/** Names whose tasks wait for the same permits. Those with the lower rank go first. */
export type RankedName = { readonly name: string; readonly rank: number };

/**
 * The tasks that wait for the same permits, in the order in which they get them. Each kind of each name is
 * read no further than to `most`. Tasks that can't be claimed now aren't among them.
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
 * How many tasks of each name could be claimed, counted no further than to `most`. Each kind is looked
 * for in the order of its index, which leaves the planner no other way.
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
