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

const byAge = sql`created_at, task_id`;

/** The kinds of tasks that could be claimed, each with the order of its index. */
const claimable: readonly { readonly which: Statement; readonly order: Statement }[] = [
  { which: sql`${isReady} and ${isDue}`, order: sql`priority desc, ${byAge}` },
  {
    which: sql`status = 'pending' and parked = 4 and deaths < 2`,
    order: sql`tenant, priority desc, ${byAge}`,
  },
  { which: sql`status = 'pending' and parked = 0 and deaths >= 2`, order: byAge },
  { which: sql`status = 'pending' and parked = 4 and deaths >= 2`, order: byAge },
];

/** Names whose tasks wait for the same permits. Those with the lower rank go first. */
export type RankedName = { readonly name: string; readonly rank: number };

/**
 * The tasks that wait for the same permits, in the order in which they get them. Each kind of each name is
 * read no further than to `most`. Tasks that can't be claimed now aren't among them.
 */
export function tasksInLine(names: readonly RankedName[], most: number): Statement {
  const all = names.flatMap(({ name, rank }) =>
    claimable.map(
      ({ which, order }) => sql`select * from (
        select cast(${rank} as integer) as urgency, priority, created_at, task_id from ${tasks}
        where name = ${name} and ${which} order by ${order} ${limit(most)}) of_name`,
    ),
  );
  return sql`
    select task_id from (${join(all, " union all ")}) ready
    order by urgency, priority desc, created_at, task_id`;
}

/**
 * How many tasks of each name could be claimed, counted no further than to `most`. Each kind is looked
 * for in the order of its index, which leaves the planner no other way.
 */
export function countReady(names: readonly string[], most: number): Statement {
  const counts = names.map((name) => {
    const kinds = claimable.map(
      ({ which, order }) => sql`(select count(*) from (
      select 1 from ${tasks} where name = ${name} and ${which} order by ${order} ${limit(most)}) first)`,
    );
    return sql`select ${name} as name, ${join(kinds, " + ")} as ready`;
  });
  return sql`
    select name, ready from (${join(counts, " union all ")}) counted
    where not exists (
      select 1 from ${pauses} pause
      where pause.paused = 1 and pause.name in (counted.name, ${everything}))`;
}
