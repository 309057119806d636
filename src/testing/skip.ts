import type { Database } from "../store/database.ts";
import { sql, table } from "../store/sql.ts";

const tasks = table("step_tracker");
const schedules = table("schedule");
const redrives = table("redrive");
const sessions = table("session");

/**
 * When something is due next by the store, in milliseconds since 1970: `Infinity` if nothing is, and 0 if
 * something is under way, such as a task that runs, one that a dead pod holds, or an answer. Nobody knows what that
 * waits for, so time must not leap over it.
 */
export async function nextDueMs(database: Database, nowMs: number): Promise<number> {
  const [row] = await database.read(sql`
    select
      (select count(*) from ${tasks} where status = 'claimed')
        + (select count(*) from ${sessions} where state <> 'idle')
        + (select count(*) from ${redrives} where state in ('running', 'stopping'))
        + (select count(*) from ${schedules} where paused = 0 and next_at = 0) as busy,
      (select min(run_at) from ${tasks} where status = 'pending' and run_at > ${nowMs}) as task_at,
      (select min(next_at) from ${schedules} where paused = 0 and next_at > ${nowMs}) as schedule_at`);
  if (Number(row!["busy"]) > 0) return 0;
  return Math.min(Number(row!["task_at"] ?? Infinity), Number(row!["schedule_at"] ?? Infinity));
}
