import { join, limit, now, sql, type Statement, table } from "../../store/sql.ts";
import { isDue, isReady } from "./claim.ts";
import { everything } from "./pause.ts";

const tasks = table("step_tracker");
const pauses = table("step_pause");

/** How long until something that waits for its time is due. */
export function nextDue(): Statement {
  return sql`
    select run_at - ${now} as wait_ms from ${tasks}
    where status = 'pending' and parked = 1 order by run_at ${limit(1)}`;
}

/**
 * How many tasks of each name could be claimed, counted no further than to `most`. Each kind is looked
 * for in the order of its index, which leaves the planner no other way.
 */
export function countReady(names: readonly string[], most: number): Statement {
  const counts = names.map((name) => {
    const first = (which: Statement, order: Statement) => sql`(select count(*) from (
      select 1 from ${tasks} where name = ${name} and ${which} order by ${order} ${limit(most)}) first)`;
    const byAge = sql`created_at, task_id`;
    return sql`select ${name} as name,
      ${first(sql`${isReady} and ${isDue}`, sql`priority desc, ${byAge}`)}
      + ${first(
        sql`status = 'pending' and parked = 4 and deaths < 2`,
        sql`tenant, priority desc, ${byAge}`,
      )}
      + ${first(sql`status = 'pending' and parked = 0 and deaths >= 2`, byAge)}
      + ${first(sql`status = 'pending' and parked = 4 and deaths >= 2`, byAge)} as ready`;
  });
  return sql`
    select name, ready from (${join(counts, " union all ")}) counted
    where not exists (
      select 1 from ${pauses} pause
      where pause.paused = 1 and pause.name in (counted.name, ${everything}))`;
}
