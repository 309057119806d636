import { limit, now, rows, sql, type Statement, table } from "../../store/sql.ts";
import { isReady, type Level } from "./claim.ts";

const tasks = table("step_tracker");

/** Nothing is counted further than this, so that a look costs the same however long the queue is. */
export const depthLimit = 10_000;
const namesLimit = 200;
// A retry keeps its place by age but has waited since it was due, so the oldest few are looked at.
const oldestLimit = 100;

/** The names of tasks that can be claimed, found by stepping along the index. */
export function namesWaiting(): Statement {
  return sql`
    with recursive step (name) as (
      select (select min(name) from ${tasks} where ${isReady})
      union all
      select (select min(task.name) from ${tasks} task
        where task.name > step.name and task.status = 'pending' and task.parked = 0 and task.deaths < 2)
      from step where step.name is not null)
    select name from step where name is not null ${limit(namesLimit)}`;
}

/**
 * How many can be claimed of each name and priority, and how long one has been due at most. Counting
 * asks for an order, because a planner that takes everything for waiting would read the table else.
 */
export function readyDepth(levels: readonly Level[]): Statement {
  const wanted = rows(
    { name: "text", priority: "integer" },
    levels.map(({ name, priority }) => [name, priority]),
  );
  return sql`
    select level.name,
      (select count(*) from (
        select 1 from ${tasks} task
        where task.name = level.name and task.priority = level.priority
          and task.status = 'pending' and task.parked = 0 and task.deaths < 2
        order by task.created_at, task.task_id ${limit(depthLimit)}) counted) as tasks,
      (select ${now} - min(run_at) from (
        select task.run_at from ${tasks} task
        where task.name = level.name and task.priority = level.priority
          and task.status = 'pending' and task.parked = 0 and task.deaths < 2
        order by task.created_at, task.task_id ${limit(oldestLimit)}) first) as age_ms
    from ${wanted} level`;
}

/**
 * How many wait for their time, for others or for room, are at a gate, wait to run alone, run, or have
 * failed, by name.
 */
export function otherDepths(): Statement {
  const bounded = limit(depthLimit);
  return sql`
    select 'delayed' as state, name, count(*) as tasks, ${now} - min(run_at) as age_ms from (
      select name, run_at from ${tasks} where status = 'pending' and parked = 1
      order by run_at ${bounded}) delayed group by name
    union all
    select 'waiting', name, count(*), null from (
      select name from ${tasks} where status = 'pending' and parked = 2
      order by task_id ${bounded}) waiting group by name
    union all
    select 'blocked', name, count(*), null from (
      select name from ${tasks} where status = 'pending' and parked = 3
      order by blocked_by, priority desc, created_at, task_id ${bounded}) blocked group by name
    union all
    select 'ready', name, count(*), ${now} - min(run_at) from (
      select name, run_at from ${tasks} where status = 'pending' and parked = 4 and deaths < 2
      order by name, tenant, priority desc, created_at, task_id ${bounded}) ready group by name
    union all
    select 'alone', name, count(*), ${now} - min(run_at) from (
      select name, run_at from ${tasks} where status = 'pending' and parked = 0 and deaths >= 2
      order by name, created_at, task_id ${bounded}) alone group by name
    union all
    select 'alone', name, count(*), ${now} - min(run_at) from (
      select name, run_at from ${tasks} where status = 'pending' and parked = 4 and deaths >= 2
      order by name, created_at, task_id ${bounded}) alone group by name
    union all
    select 'running', name, count(*), null from (
      select name from ${tasks} where status = 'claimed'
      order by claimed_by, claim_call ${bounded}) running group by name
    union all
    select 'failed', name, count(*), null from (
      select name from ${tasks} where status = 'failed'
      order by task_id desc ${bounded}) failed group by name`;
}
