import {
  forUpdateOfTask,
  isAmong,
  now,
  rows,
  sql,
  type Statement,
  table,
} from "../../store/sql.ts";
import type { NewTask } from "./enqueue.ts";

const tasks = table("task");

/** A task that the transaction of a log stores. */
export type LoggedTask = NewTask & { readonly logId: number };

/** The condition that the record of a task is stored now, for rows of `fresh`. */
export function whenLogged(
  newTasks: readonly LoggedTask[],
  isStored: (logId: Statement) => Statement,
): Statement {
  const logged = rows(
    { task_id: "text", log_id: "integer" },
    newTasks.map(({ taskId, logId }) => [taskId, logId]),
  );
  const found = sql`select logged.task_id from ${logged} logged where ${isStored(sql`logged.log_id`)}`;
  return sql`${isAmong(found, sql`fresh.task_id`)}`;
}

/**
 * Lets outdated tasks run at once, which find nothing to do and end: those of times to come would be kept
 * until then, however many there are.
 */
export function runOutdated(
  newTasks: readonly LoggedTask[],
  isStored: (logId: Statement) => Statement,
): Statement[] {
  const named = newTasks.flatMap(({ outdates = [], logId }) =>
    outdates.map((taskId) => [taskId, logId]),
  );
  if (named.length === 0) return [];
  const outdated = rows({ task_id: "text", log_id: "integer" }, named);
  const waits = sql`task.status = 'pending' and task.run_at > ${now}`;
  const found = sql`
    select task.task_id from ${outdated} outdated
    join ${tasks} task on task.task_id = outdated.task_id
    where ${waits} and ${isStored(sql`outdated.log_id`)}`;
  return [
    sql`
      select task.task_id from ${outdated} outdated
      join ${tasks} task on task.task_id = outdated.task_id
      where ${waits} order by task.task_id ${forUpdateOfTask}`,
    sql`
      update ${tasks} set run_at = ${now}, last_update = ${now}
      where ${isAmong(found, sql`task_id`)} and status = 'pending'`,
  ];
}
