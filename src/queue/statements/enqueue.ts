import { now, returning, rows, sql, type Statement, table } from "../../store/sql.ts";

const tasks = table("step_tracker");

export type NewTask = {
  readonly taskId: string;
  readonly tenant: string;
  readonly name: string;
  readonly payload: string;
  readonly priority: number;
  readonly delayMs: number;
  readonly maxAttempts: number | null;
  readonly key: string | null;
  readonly trace: string | null;
};

/** Stores new tasks. A task that is there already, by its id or by its key, is left as it is. */
export function insertTasks(news: readonly NewTask[]): Statement {
  const fresh = rows(
    {
      task_id: "text",
      tenant: "text",
      name: "text",
      payload: "text",
      priority: "integer",
      delay_ms: "integer",
      max_attempts: "integer",
      unique_key: "text",
      trace: "text",
    },
    inOrder(news).map((each) => [
      each.taskId,
      each.tenant,
      each.name,
      each.payload,
      each.priority,
      each.delayMs,
      each.maxAttempts,
      each.key,
      each.trace,
    ]),
  );
  return sql`
    insert into ${tasks} (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
      parked, max_attempts, unique_key, trace)
    select task_id, tenant, name, payload, priority, ${now} + delay_ms, ${now}, ${now},
      case when delay_ms > 0 then 1 else 0 end, max_attempts, unique_key, trace
    from ${fresh} fresh where true
    on conflict do nothing
    ${returning(sql`task_id`, {
      // The ids were made for these tasks, so whatever has one of them was stored by us.
      after: sql`select task_id from ${tasks} where task_id in (select task_id from ${fresh} fresh)`,
    })}`;
}

/**
 * Whoever stores a key waits for others who are storing the same, so all store theirs in one order.
 * Without keys nobody waits.
 */
function inOrder(news: readonly NewTask[]): readonly NewTask[] {
  if (news.every(({ key }) => key === null)) return news;
  return news.toSorted((one, other) => {
    const [mine, theirs] = [one.key ?? "", other.key ?? ""];
    return mine === theirs ? 0 : mine < theirs ? -1 : 1;
  });
}

/** The tasks that hold these keys. */
export function findKeys(news: readonly NewTask[]): Statement {
  const wanted = rows(
    { tenant: "text", name: "text", unique_key: "text" },
    news.map((each) => [each.tenant, each.name, each.key]),
  );
  return sql`
    select task.task_id, task.tenant, task.name, task.unique_key
    from ${wanted} wanted join ${tasks} task
      on task.tenant = wanted.tenant and task.name = wanted.name
      and task.unique_key = wanted.unique_key`;
}
