import { sql, type Statement, table } from "../../store/sql.ts";

const events = table("step_event");

/** The number of a task's next event. */
export function nextSeq(taskId: Statement): Statement {
  return sql`(select coalesce(max(seq), 0) + 1 from ${events} past where past.task_id = ${taskId})`;
}

export function getEvents(taskId: string): Statement {
  return sql`select * from ${events} where task_id = ${taskId} order by seq`;
}
