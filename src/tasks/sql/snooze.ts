import { rows, sql, type Statement, table } from "../../store/sql.ts";

const events = table("step_event");

/**
 * Of snoozes that follow each other only the last is kept, which says how many there were: a task may
 * snooze for months, and its events mustn't grow with every one. Comes after the note of the last.
 */
export function forgetEarlierSnoozes(taskIds: readonly string[]): Statement {
  const snoozed = rows(
    { task_id: "text" },
    taskIds.map((taskId) => [taskId]),
  );
  return sql`
    delete from ${events}
    where task_id in (select task_id from ${snoozed} snoozed) and type = 'snoozed'
      and exists (select 1 from ${events} later where later.task_id = ${events}.task_id
        and later.seq = ${events}.seq + 1 and later.type = 'snoozed')`;
}
