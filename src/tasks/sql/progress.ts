import { sql, type Statement, table } from "../../store/sql.ts";

const tasks = table("step_tracker");

/** What was saved last of a task, with the token of the attempt that saved it. */
export function readProgress(taskId: string): Statement {
  return sql`select progress, progress_token from ${tasks} where task_id = ${taskId}`;
}
