import {
  forUpdateOfTask,
  isAmong,
  now,
  rowAddress,
  rows,
  sql,
  type Statement,
  table,
} from "../../store/sql.ts";
import { isPending, readyOrLimited } from "./task-state.ts";

const tasks = table("task");
const dependencies = table("task_dependency");

/** One task that waits for another, which may be named by its key where a task may hold that already. */
export type Dependency = {
  readonly dependencyId: string;
  readonly dependentId: string;
  /** Which of those that the waiter was given it is. */
  readonly place: number;
  readonly holds?: { readonly tenant: string; readonly name: string; readonly key: string };
};

/**
 * Wakes whoever waits for these tasks, as far as they have ended, and for nothing else that is open:
 * goes into every write that ends tasks, after the statement that does. Where two of them end at
 * once, each in a transaction that can't see the other, the second waits here for the first, and
 * then sees that both have ended. For that the waiter is held in one statement and judged in the
 * next; and it is changed even where it has to wait on, so that a transaction of a caller's that
 * looks at the past is refused.
 */
export function wakeDependents(endedIds: readonly string[]): Statement[] {
  return wakeAll(sql`
    select distinct wait.dependent_id as id from ${dependencies} wait
    where ${isAmong(sql`select task_id from ${idRows(endedIds)} ended`, sql`wait.dependency_id`)}
      and (select task.status from ${tasks} task where task.task_id = wait.dependency_id)
        not in ('pending', 'claimed')`);
}

/**
 * The same for what a release is about to cancel, which nobody can name afterwards. Goes before it,
 * and the tasks of that call must be held already.
 */
export function wakeDependentsOfCall(podId: string, call: number): Statement[] {
  const leaving = (task: Statement) => sql`${task}.claimed_by = ${podId}
    and ${task}.claim_call = ${call} and ${task}.status = 'claimed' and ${task}.cancel_requested = 1
    and ${task}.flow_version is null`;
  return wakeAll(
    sql`select distinct dependent_id as id from ${dependencies} where dependency_id in (
      select task.task_id from ${tasks} task where ${leaving(sql`task`)})`,
    sql`case when ${leaving(sql`dependency`)} then 'cancelled' else dependency.status end`,
  );
}

/** The same for those children of these runs that have just been cancelled. */
export function wakeDependentsOfChildren(parentIds: readonly string[]): Statement[] {
  return wakeAll(sql`
    select distinct wait.dependent_id as id
    from ${dependencies} own join ${dependencies} wait on wait.dependency_id = own.dependency_id
    where ${isAmong(sql`select task_id from ${idRows(parentIds)} parent`, sql`own.dependent_id`)}
      and (select task.status from ${tasks} task
        where task.task_id = own.dependency_id and task.parent_id = own.dependent_id) = 'cancelled'`);
}

/** Wakes these tasks themselves if nothing that they wait for is open. Nobody else may see them yet. */
export function wakeIfDependenciesEnded(waiterIds: readonly string[]): Statement {
  return updateDependents(sql`select task_id as id from ${idRows(waiterIds)} fresh`);
}

/** The same for the children of runs, as far as those wait themselves. */
export function wakeChildren(parentIds: readonly string[]): Statement {
  return updateDependents(sql`
    select dependency_id as id from ${dependencies}
    where ${isAmong(sql`select task_id from ${idRows(parentIds)} parent`, sql`dependent_id`)}`);
}

/**
 * Goes around what starts tasks over, which makes them open again for the runs that have started them: one
 * that has seen them ended, and is about to go on with that, looks once more. The parents are held first,
 * because a parent's own write holds it before its children; and whatever their status, because one that
 * has ended may be started over before the last statement.
 */
export function notifyingParents(startedIds: readonly string[], starting: readonly Statement[]) {
  const parents = (isStarted: Statement) => sql`
    select distinct child.parent_id as id from ${tasks} child
    where ${isAmong(sql`select task_id from ${idRows(startedIds)} started`, sql`child.task_id`)}
      and child.parent_id is not null ${isStarted}`;
  return [
    sql`select task_id from ${tasks} task where ${named(parents(sql``))}
      order by task_id ${forUpdateOfTask}`,
    ...starting,
    sql`update ${tasks} set wake = wake + 1
      where ${named(parents(sql`and child.status in ('pending', 'claimed')`))}
        and status in ('pending', 'claimed')`,
  ];
}

function wakeAll(waiters: Statement, status?: Statement): Statement[] {
  return [
    sql`select task_id from ${tasks} task where ${named(waiters)} order by task_id ${forUpdateOfTask}`,
    updateDependents(waiters, status),
  ];
}

/**
 * How an awaited task counts for its waiter. A run that waits for children waits for those of one
 * transition, whose keys begin with what `awaits` says: one of an earlier transition, or a task that the run
 * was to run after, may have been started over since. A run that is started over itself waits for the
 * latter, and for the children of the transition at which it stands. A child without a key may be of any
 * transition, so the run waits for it too.
 */
function countedStatus(status: Statement): Statement {
  const begin = sql`coalesce(${tasks}.awaits, ${tasks}.task_id || '/' || ${tasks}.cursor || '/')`;
  return sql`case when dependency.parent_id = ${tasks}.task_id
      then case when coalesce(substr(dependency.unique_key, 1, length(${begin})), ${begin}) = ${begin}
        then ${status} end
    when ${tasks}.awaits is null then ${status} end`;
}

/**
 * Lets go those for which nothing is open, and those that won't run because something has failed. What
 * is gone counts as ended well. Each awaited task is looked up on its own, so that no plan can read
 * the whole table, and once, however many there are: 2 where the waiter is doomed by it, 1 while it is
 * open.
 */
function updateDependents(waiters: Statement, status = sql`dependency.status`): Statement {
  const waiter = tasks;
  return sql`
    update ${tasks}
    set wake = wake + 1, last_update = ${now}, (depends, parked) = (
      select case when verdict = 2 then 3 else ${waiter}.depends end,
        case when verdict = 1 then 2 when ${waiter}.run_at > ${now} then 1 else ${readyOrLimited} end
      from (
        select coalesce(max(
          case (select ${countedStatus(status)} from ${tasks} dependency
              where dependency.task_id = wait.dependency_id)
            when 'pending' then 1 when 'claimed' then 1
            when 'failed' then case when ${waiter}.depends = 1 then 2 else 0 end
            when 'cancelled' then case when ${waiter}.depends = 1 then 2 else 0 end
            else 0 end), 0) as verdict
        from ${dependencies} wait where wait.dependent_id = ${waiter}.task_id) judged)
    where ${named(waiters)} and ${isPending(tasks)} and parked = 2`;
}

/** The tasks that a query names by `id`. Each is looked up on its own, for the same reason. */
function named(ids: Statement) {
  return isAmong(sql`
    select (select ${rowAddress} from ${tasks} task where task.task_id = named.id)
    from (${ids}) named`);
}

/** The condition that every task that is to be waited for is there, so that nothing is stored else. */
export function dependenciesExist(awaitedIds: readonly string[]): Statement {
  return sql`not exists (${missingDependencies(awaitedIds)})`;
}

/** Those that are to be waited for and aren't there. */
export function missingDependencies(awaitedIds: readonly string[]): Statement {
  return sql`
    select task_id from ${idRows(awaitedIds)} wanted
    where not exists (select 1 from ${tasks} task where task.task_id = wanted.task_id)`;
}

/**
 * Notes who waits for whom, once the waiters are stored. What they wait for is held and counts them, so
 * that whoever ends it at the same moment either has ended it already, or finds them. A waiter that
 * has its notes already keeps them.
 */
export function insertDependencies(given: readonly Dependency[]): Statement[] {
  const wanted = rows(
    {
      dependency_id: "text",
      dependent_id: "text",
      place: "integer",
      tenant: "text",
      name: "text",
      unique_key: "text",
    },
    given.map(({ dependencyId: awaitedId, dependentId: waiterId, place, holds }) => [
      awaitedId,
      waiterId,
      place,
      holds?.tenant ?? null,
      holds?.name ?? null,
      holds?.key ?? null,
    ]),
  );
  const waiterIds = [...new Set(given.map(({ dependentId: waiterId }) => waiterId))];
  const awaited = sql`select distinct dependency_id as id from ${dependencies}
    where ${isAmong(sql`select task_id from ${idRows(waiterIds)} fresh`, sql`dependent_id`)}`;
  return [
    sql`
      insert into ${dependencies} (dependency_id, dependent_id, place)
      select coalesce(holder.task_id, wanted.dependency_id), wanted.dependent_id, wanted.place
      from ${wanted} wanted left join ${tasks} holder
        on holder.tenant = wanted.tenant and holder.name = wanted.name
        and holder.unique_key = wanted.unique_key
      where exists (select 1 from ${tasks} task where task.task_id = wanted.dependent_id)
        and not exists (select 1 from ${dependencies} wait where wait.dependent_id = wanted.dependent_id)
      on conflict do nothing`,
    sql`select task_id from ${tasks} task where ${named(awaited)} order by task_id ${forUpdateOfTask}`,
    sql`update ${tasks} set dependents = dependents + 1 where ${named(awaited)}`,
    wakeIfDependenciesEnded(waiterIds),
  ];
}

/** What these tasks wait for, or have waited for, in the order that was given. */
export function dependenciesOf(waiterIds: readonly string[]): Statement {
  return sql`
    select dependent_id, dependency_id from ${dependencies}
    where ${isAmong(sql`select task_id from ${idRows(waiterIds)} wanted`, sql`dependent_id`)} order by dependent_id, place`;
}

/** The tasks that one waits for, or has waited for. */
export function getParents(waiterId: string): Statement {
  return sql`
    select task.* from ${dependencies} wait join ${tasks} task on task.task_id = wait.dependency_id
    where wait.dependent_id = ${waiterId} order by wait.place`;
}

/** The condition that nobody who hasn't ended waits for a task or may still read how it ended. */
export const hasNoOpenDependents = sql`(dependents = 0 or not exists (
  select 1 from ${dependencies} wait where wait.dependency_id = ${tasks}.task_id
    and (select waiter.status from ${tasks} waiter where waiter.task_id = wait.dependent_id)
      in ('pending', 'claimed')))`;

/** Forgets what tasks have waited for that are gone. */
export function deleteDependencies(goneIds: Statement): Statement {
  return sql`delete from ${dependencies} where dependent_id in (${goneIds})`;
}

function idRows(taskIds: readonly string[]) {
  return rows(
    { task_id: "text" },
    taskIds.map((taskId) => [taskId]),
  );
}
