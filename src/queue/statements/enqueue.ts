import { now, returning, rows, sql, type Statement, table } from "../../store/sql.ts";
import { parked } from "./parked.ts";

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
  /** The limit by key that it falls under, as a scope; null where there is none. */
  readonly group?: string | null;
  /** Whether it has to go through a gate: it has a group, or belongs to a tenant. */
  readonly gated?: boolean;
  /** Whether it waits for others: until all have completed (1) or ended (2). */
  readonly waits?: 0 | 1 | 2;
};

/** Stores new tasks. A task that is there already, by its id or by its key, is left as it is. */
export function insertTasks(given: readonly NewTask[]): Statement {
  const news = inOrder(given);
  const plain = rows(
    plainColumns,
    news.map((each) => plainValues(each)),
  );
  // Most tasks go behind no gate and wait for nobody, so that isn't sent and stored unless one does.
  const { fresh, names, values } = news.some(isGuarded)
    ? { fresh: guardedRows(news), names: guardedNames, values: guardedNames }
    : { fresh: plain, names: sql`parked`, values: delayed };
  return sql`
    insert into ${tasks} (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
      max_attempts, unique_key, trace, ${names})
    select task_id, tenant, name, payload, priority, ${now} + delay_ms, ${now}, ${now},
      max_attempts, unique_key, trace, ${values}
    from ${fresh} fresh where true
    on conflict do nothing
    ${returning(sql`task_id`, {
      // The ids were made for these tasks, so whatever has one of them was stored by us.
      after: sql`select task_id from ${tasks} where task_id in (select task_id from ${plain} fresh)`,
    })}`;
}

const plainColumns = {
  task_id: "text",
  tenant: "text",
  name: "text",
  payload: "text",
  priority: "integer",
  delay_ms: "integer",
  max_attempts: "integer",
  unique_key: "text",
  trace: "text",
} as const;

function plainValues(each: NewTask) {
  const { taskId, tenant, name, payload, priority, delayMs, maxAttempts, key, trace } = each;
  return [taskId, tenant, name, payload, priority, delayMs, maxAttempts, key, trace];
}

const delayed = sql`case when delay_ms > 0 then 1 else 0 end`;
const guardedNames = sql`group_key, gated, waits, parked`;

function isGuarded({ gated = false, waits = 0 }: NewTask): boolean {
  return gated || waits > 0;
}

function guardedRows(news: readonly NewTask[]) {
  return rows(
    { ...plainColumns, group_key: "text", gated: "integer", waits: "integer", parked: "integer" },
    news.map((each) => {
      const { group = null, gated = false, waits = 0 } = each;
      return [...plainValues(each), group, gated ? 1 : 0, waits, parkedAtFirst(each)];
    }),
  );
}

function parkedAtFirst({ gated = false, waits = 0, delayMs }: NewTask): number {
  if (waits > 0) return parked.forOthers;
  if (delayMs > 0) return parked.untilDue;
  return gated ? parked.atGate : parked.no;
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
