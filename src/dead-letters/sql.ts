import { isAmong, limit, now, rows, sql, type Statement, table } from "../store/sql.ts";

const tasks = table("step_tracker");

/** Where a walk over failed tasks is: they are gone through in the order in which they failed. */
export type Place = { readonly atMs: number; readonly taskId: string };

export const beforeAll: Place = { atMs: -1, taskId: "" };

// Only what tells whether a view has the row already: errors are long.
const seen = sql`task_id, claim_token, last_update, redrive_id, ${now} as now`;
const inOrder = sql`order by last_update, task_id`;

/** The next failed tasks of a walk. */
export function failedAfter({ atMs, taskId }: Place, count: number): Statement {
  return sql`
    select ${seen} from ${tasks}
    where status = 'failed' and (last_update, task_id) > (${atMs}, ${taskId})
    ${inOrder} ${limit(count)}`;
}

/** A row where a thousand tasks have failed. */
export function manyFailed(): Statement {
  return sql`select task_id from ${tasks} where status = 'failed' ${inOrder} limit 1 offset 999`;
}

/**
 * The tasks that have failed since. It looks back further by the overlap, because a transaction may
 * commit later than one that began after it; and if the store's clock was set back, it begins there.
 */
export function failedSince(sinceMs: number, overlapMs: number, count: number): Statement {
  return sql`
    select ${seen} from ${tasks}
    where status = 'failed'
      and last_update >= (case when ${sinceMs} < ${now} then ${sinceMs} else ${now} end) - ${overlapMs}
    ${inOrder} ${limit(count)}`;
}

/**
 * The condition that a task which is named has failed. It is said so that no planner takes the index of
 * failed tasks for a way to it: that leads by all of them, for every name.
 */
export function hasFailed(task: Statement): Statement {
  return sql`coalesce(${task}.status, '') = 'failed'`;
}

/** What a view keeps of failed tasks. */
export function failedTasks(taskIds: readonly string[]): Statement {
  const wanted = rows(
    { task_id: "text" },
    taskIds.map((taskId) => [taskId]),
  );
  return sql`
    select task_id, name, tenant, claim_token, last_update, retry_count, deaths, redrive_id, error
    from ${tasks} task
    where ${isAmong(sql`select task_id from ${wanted} wanted`, sql`task_id`)} and ${hasFailed(sql`task`)}`;
}
