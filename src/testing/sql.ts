import { sql, type Statement, table } from "../store/sql.ts";

const tasks = table("task");
const schedules = table("schedule");
const redrives = table("redrive");
const bulks = table("bulk");
const sessions = table("session");

/**
 * What is in progress, and when the next task and the next schedule are due. It reads the tables of five
 * rooms in one statement, so that the clock never leaps over work that moves from one to another.
 */
export function readNextDue(nowMs: number): Statement {
  return sql`
    select
      (select count(*) from ${tasks} where status = 'claimed')
        + (select count(*) from ${sessions} where state <> 'idle')
        + (select count(*) from ${redrives} where state in ('running', 'stopping'))
        + (select count(*) from ${bulks} where state = 'running')
        + (select count(*) from ${schedules} where paused = 0 and next_at = 0) as busy,
      (select min(run_at) from ${tasks} where status = 'pending' and run_at > ${nowMs}) as task_at,
      (select min(next_at) from ${schedules} where paused = 0 and next_at > ${nowMs}) as schedule_at`;
}
