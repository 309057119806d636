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
import { dependsAs, isOfCall, isPending, parkedAs, readyOrLimited } from "./task-state.ts";

const tasks = table("task");
const dependencies = table("task_dependency");
const { untilDue, untilSignal, forDependencies } = parkedAs;

/**
 * A task and one of its dependencies. The dependency may also be given by its key, in case a task
 * holds that already.
 */
export type Dependency = {
  readonly dependencyId: string;
  readonly dependentId: string;
  /** The index among the dependent's dependencies. */
  readonly place: number;
  readonly holds?: { readonly tenant: string; readonly name: string; readonly key: string };
};

/**
 * Wakes dependents of those of these tasks that have ended, if no other dependency is open. Goes
 * into every write that ends tasks, after the statement that does. If two dependencies end at once,
 * in transactions that cannot see each other, the second waits here for the first and then sees
 * that both have ended. For that the dependent is locked in one statement and judged in the next.
 * It is updated even if it has to keep waiting, so that a caller's transaction on an older snapshot
 * is refused.
 */
export function wakeDependents(endedIds: readonly string[]): Statement[] {
  return wakeAll(sql`
    select distinct wait.dependent_id as id from ${dependencies} wait
    where ${isAmong(sql`select task_id from ${idRows(endedIds)} ended`, sql`wait.dependency_id`)}
      and (select task.status from ${tasks} task where task.task_id = wait.dependency_id)
        not in ('pending', 'claimed')`);
}

/**
 * Like `wakeDependents`, for tasks that a release is about to cancel, which cannot be identified
 * afterwards. Goes before the release, and the tasks of that call must be locked already.
 */
export function wakeDependentsOfCall(podId: string, call: number): Statement[] {
  const leaving = (task: Statement) => sql`${task}.claimed_by = ${podId}
    and ${isOfCall(sql`${task}.`, call)} and ${task}.status = 'claimed' and ${task}.cancel_requested = 1
    and ${task}.flow_version is null`;
  return wakeAll(
    sql`select distinct dependent_id as id from ${dependencies} where dependency_id in (
      select task.task_id from ${tasks} task where ${leaving(sql`task`)})`,
    sql`case when ${leaving(sql`dependency`)} then 'cancelled' else dependency.status end`,
  );
}

/** Like `wakeDependents`, for children of these runs that have just been cancelled. */
export function wakeDependentsOfChildren(parentIds: readonly string[]): Statement[] {
  return wakeAll(sql`
    select distinct wait.dependent_id as id
    from ${dependencies} own join ${dependencies} wait on wait.dependency_id = own.dependency_id
    where ${isAmong(sql`select task_id from ${idRows(parentIds)} parent`, sql`own.dependent_id`)}
      and (select task.status from ${tasks} task
        where task.task_id = own.dependency_id and task.parent_id = own.dependent_id) = 'cancelled'`);
}

/** Wakes these tasks themselves if no dependency is open. No other transaction may see them yet. */
export function wakeIfDependenciesEnded(dependentIds: readonly string[]): Statement {
  return updateDependents(sql`select task_id as id from ${idRows(dependentIds)} fresh`);
}

/** Like `wakeIfDependenciesEnded`, for the children of runs that have dependencies themselves. */
export function wakeChildren(parentIds: readonly string[]): Statement {
  return updateDependents(sql`
    select dependency_id as id from ${dependencies}
    where ${isAmong(sql`select task_id from ${idRows(parentIds)} parent`, sql`dependent_id`)}`);
}

/**
 * Wraps statements that restart tasks, which become open again for their parent runs. A parent that
 * has seen them ended, and is about to continue, must read again. Parents are locked first, because
 * a parent's own write locks the parent before its children. They are locked in any status, because
 * an ended parent may be restarted before the last statement.
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

/** The condition that all dependencies exist, without which nothing is stored. */
export function dependenciesExist(dependencyIds: readonly string[]): Statement {
  return sql`not exists (${missingDependencies(dependencyIds)})`;
}

/** The dependencies that do not exist. */
export function missingDependencies(dependencyIds: readonly string[]): Statement {
  return sql`
    select task_id from ${idRows(dependencyIds)} wanted
    where not exists (select 1 from ${tasks} task where task.task_id = wanted.task_id)`;
}

/**
 * Stores the dependencies of new tasks. The dependencies are locked and count their dependents. So
 * a transaction that ends one of them at the same moment either has ended it already, or finds the
 * dependents. A dependent that has its dependencies stored already keeps them.
 */
export function insertDependencies(added: readonly Dependency[]): Statement[] {
  const wanted = rows(
    {
      dependency_id: "text",
      dependent_id: "text",
      place: "integer",
      tenant: "text",
      name: "text",
      unique_key: "text",
    },
    added.map(({ dependencyId, dependentId, place, holds }) => [
      dependencyId,
      dependentId,
      place,
      holds?.tenant ?? null,
      holds?.name ?? null,
      holds?.key ?? null,
    ]),
  );
  const dependentIds = [...new Set(added.map(({ dependentId }) => dependentId))];
  const dependencyIds = sql`select distinct dependency_id as id from ${dependencies}
    where ${isAmong(sql`select task_id from ${idRows(dependentIds)} fresh`, sql`dependent_id`)}`;
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
    sql`select task_id from ${tasks} task where ${named(dependencyIds)} order by task_id ${forUpdateOfTask}`,
    sql`update ${tasks} set dependents = dependents + 1 where ${named(dependencyIds)}`,
    wakeIfDependenciesEnded(dependentIds),
  ];
}

/** The dependencies of these tasks, open or ended, in the given order. */
export function dependenciesOf(dependentIds: readonly string[]): Statement {
  return sql`
    select dependent_id, dependency_id from ${dependencies}
    where ${isAmong(sql`select task_id from ${idRows(dependentIds)} wanted`, sql`dependent_id`)} order by dependent_id, place`;
}

/** The dependencies of a task as tasks, open or ended. */
export function getParents(dependentId: string): Statement {
  return sql`
    select task.* from ${dependencies} wait join ${tasks} task on task.task_id = wait.dependency_id
    where wait.dependent_id = ${dependentId} order by wait.place`;
}

/**
 * The condition that a task has no open dependents, which may still wait for it or read its
 * outcome.
 */
export const hasNoOpenDependents = sql`(dependents = 0 or not exists (
  select 1 from ${dependencies} wait where wait.dependency_id = ${tasks}.task_id
    and (select waiter.status from ${tasks} waiter where waiter.task_id = wait.dependent_id)
      in ('pending', 'claimed')))`;

/** Deletes the dependencies of deleted tasks. */
export function deleteDependencies(goneIds: Statement): Statement {
  return sql`delete from ${dependencies} where dependent_id in (${goneIds})`;
}

function wakeAll(dependents: Statement, status?: Statement): Statement[] {
  return [
    sql`select task_id from ${tasks} task where ${named(dependents)} order by task_id ${forUpdateOfTask}`,
    updateDependents(dependents, status),
  ];
}

/**
 * How a dependency counts for its dependent. A run that waits for children waits for those of one
 * transition, whose keys begin with its `awaits`: children of an earlier transition, or tasks that
 * the run was enqueued after, may have been restarted since. A restarted run waits for the tasks
 * that it was enqueued after, and for the children of its current transition. A child without a key
 * may be of any transition, so the run waits for it too.
 */
function countedStatus(status: Statement): Statement {
  const begin = sql`coalesce(${tasks}.awaits, ${tasks}.task_id || '/' || ${tasks}.cursor || '/')`;
  return sql`case when dependency.parent_id = ${tasks}.task_id
      then case when coalesce(substr(dependency.unique_key, 1, length(${begin})), ${begin}) = ${begin}
        then ${status} end
    when ${tasks}.awaits is null then ${status} end`;
}

/**
 * Releases dependents without open dependencies, and those that will not run because a dependency
 * failed. A deleted dependency counts as completed. Each dependency is looked up on its own, so
 * that no plan can read the whole table, and only once. The verdict is 2 if the dependent must
 * fail, 1 while a dependency is open. A task that waits for a time or a signal as well as for its
 * children is parked for the former, and its `awaits` begins with its own id.
 */
function updateDependents(dependents: Statement, status = sql`dependency.status`): Statement {
  const dependent = tasks;
  const waitsForMore = sql`${dependent}.parked <> ${forDependencies}`;
  return sql`
    update ${tasks}
    set wake = wake + 1, last_update = ${now}, (depends, parked, run_at) = (
      select case when verdict = 2 then ${dependsAs.failed} else ${dependent}.depends end,
        case when verdict = 1 then ${dependent}.parked when ${waitsForMore} then ${readyOrLimited}
          when ${dependent}.run_at > ${now} then ${untilDue} else ${readyOrLimited} end,
        case when verdict <> 1 and ${waitsForMore} then ${now} else ${dependent}.run_at end
      from (
        select coalesce(max(
          case (select ${countedStatus(status)} from ${tasks} dependency
              where dependency.task_id = wait.dependency_id)
            when 'pending' then 1 when 'claimed' then 1
            when 'failed' then case when ${dependent}.depends = ${dependsAs.completed} then 2 else 0 end
            when 'cancelled' then case when ${dependent}.depends = ${dependsAs.completed} then 2 else 0 end
            else 0 end), 0) as verdict
        from ${dependencies} wait where wait.dependent_id = ${dependent}.task_id) judged)
    where ${named(dependents)} and ${isPending(tasks)} and (parked = ${forDependencies}
      or parked in (${untilDue}, ${untilSignal})
        and substr(awaits, 1, length(task_id) + 1) = task_id || '/')`;
}

/** The tasks that a query names by `id`. Each is looked up on its own, for the same reason. */
function named(ids: Statement) {
  return isAmong(sql`
    select (select ${rowAddress("task")} from ${tasks} task where task.task_id = named.id)
    from (${ids}) named`);
}

function idRows(taskIds: readonly string[]) {
  return rows(
    { task_id: "text" },
    taskIds.map((taskId) => [taskId]),
  );
}
