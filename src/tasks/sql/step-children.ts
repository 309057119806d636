import { inheritFiles } from "./inherit-files.ts";
import { isAmong, rows, sql, type Statement, table } from "../../store/sql.ts";
import { insertTasks } from "./enqueue.ts";
import { deleteOtherChildren, insertChildDependencies, startTasksOver } from "./run-relations.ts";
import { isStoredBy, type TaskStep, writeColumns, writeValues } from "./steps.ts";

/** What the steps of tasks do to their children. */
const tasks = table("task");
const dependencies = table("task_dependency");

/**
 * Starts the children of steps that are stored by the same write. A child exists once by its key, so
 * that sending the write again starts nothing. One that had ended is started over only with the token
 * that was read, which that raises.
 */
export function startStepChildren(steps: readonly TaskStep[]): Statement[] {
  const starting = steps.filter(({ children }) => children !== undefined);
  if (starting.length === 0) return [];
  const fence = storedWith(starting);
  const children = starting.flatMap(({ taskId, children: started }) =>
    started!.rows.map((row, place) => ({ ...row, parentId: taskId, place })),
  );
  const again = starting.flatMap(({ taskId, children: started }) =>
    started!.again.map((child) => [taskId, child.taskId, child.token]),
  );
  const isStored = isAmong(sql`select task.task_id from ${fence(sql`task`)}`, sql`fresh.parent_id`);
  return [
    insertTasks(children, sql`${isStored}`),
    ...inheritFiles(children),
    ...(again.length > 0 ? startAgain(again, fence) : []),
    deleteOtherChildren(children, fence),
    ...insertChildDependencies(children),
  ];
}

/** The tenant of a task, with the children of a step that an earlier generation of it has started. */
export function readStartedChildren(taskId: string, prefix: string): Statement {
  return sql`
    select task.tenant, child.task_id, child.status, child.claim_token
    from ${tasks} task
    left join ${dependencies} wait on wait.dependent_id = task.task_id
    left join ${tasks} child on child.task_id = wait.dependency_id and child.parent_id = task.task_id
      and substr(child.unique_key, 1, ${prefix.length}) = ${prefix}
    where task.task_id = ${taskId}`;
}

/** The children of a step, with their numbers. */
export function readStepChildren(taskId: string, prefix: string): Statement {
  return sql`
    select wait.place, child.task_id, child.name, child.status, child.result, child.error
    from ${dependencies} wait join ${tasks} child on child.task_id = wait.dependency_id
    where wait.dependent_id = ${taskId} and child.parent_id = ${taskId}
      and substr(child.unique_key, 1, ${prefix.length}) = ${prefix}
    order by wait.place`;
}

function startAgain(
  again: readonly (string | number)[][],
  fence: (task: Statement) => Statement,
): Statement[] {
  const wanted = rows({ parent_id: "text", task_id: "text", token: "integer" }, again);
  const ended = sql`
    select child.task_id from ${wanted} wanted
    join ${tasks} child on child.task_id = wanted.task_id
    where child.parent_id = wanted.parent_id and child.claim_token = wanted.token
      and child.status in ('failed', 'cancelled')
      and wanted.parent_id in (select task.task_id from ${fence(sql`task`)})`;
  return startTasksOver(ended);
}

/** A part of a query: the tasks whose steps are stored by these writes. */
function storedWith(steps: readonly TaskStep[]): (task: Statement) => Statement {
  const given = rows(writeColumns, steps.map(writeValues));
  return (task) => sql`${given} given join ${tasks} ${task} on ${task}.task_id = given.task_id
    where ${isStoredBy(sql`given`)}`;
}
