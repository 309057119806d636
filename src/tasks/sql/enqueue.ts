import { now, returning, rows, sql, type Statement, table } from "../../store/sql.ts";

const tasks = table("step_tracker");

export type NewTask = {
  readonly taskId: string;
  readonly tenant: string;
  readonly name: string;
  readonly payload: string;
  readonly priority: number;
  readonly delayMs: number;
  /** When it may run, where that was said as a time; `delayMs` is 0 then. */
  readonly runAtMs?: number;
  /** The time of its schedule that it is made for. */
  readonly scheduledAtMs?: number;
  readonly maxAttempts: number | null;
  readonly key: string | null;
  /** What was asked of the key; undefined where the first task is to be given while it is kept. */
  readonly policy?: KeyPolicy;
  readonly trace: string | null;
  /** The limit by key that it falls under, as a scope; null where there is none. */
  readonly group?: string | null;
  /** Whether it has to go through a gate: it has a group, or belongs to a tenant. */
  readonly gated?: boolean;
  /** Whether it waits for others: until all have completed (1) or ended (2). */
  readonly waits?: 0 | 1 | 2;
  /** The tasks that it waits for. */
  readonly after?: readonly string[];
  /** Whether it is a run of a flow. */
  readonly isRun?: boolean;
  /** The run that has started it. */
  readonly parentId?: string;
};

export type KeyPolicy = {
  readonly onDuplicate: "existing" | "reject" | "replace";
  /** Whether a task that has ended holds its key no longer. */
  readonly whileUnfinished: boolean;
  /** How long after its creation a task holds its key at most. */
  readonly forMs: number | null;
};

const always = sql`true`;

/**
 * Stores new tasks. A task that is there already, by its id or by its key, is left as it is. `when` is
 * a condition on a row of `fresh`, for tasks that depend on what the same transaction did before.
 */
export function insertTasks(given: readonly NewTask[], when: Statement = always): Statement {
  const news = inOrder(given);
  const plain = rows(
    plainColumns,
    news.map((each) => plainValues(each)),
  );
  // Most tasks go behind no gate, wait for nobody and have no hour, so that isn't sent unless one does.
  const { fresh, start, names, values } = news.some(isSpecial)
    ? { fresh: specialRows(news), start: startAt(sql`fresh`), names: specialNames, values: special }
    : { fresh: plain, start: sql`${now} + delay_ms`, names: sql`parked`, values: delayed };
  return sql`
    insert into ${tasks} (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
      max_attempts, unique_key, trace, ${names})
    select task_id, tenant, name, payload, priority, ${start}, ${now}, ${now},
      max_attempts, unique_key, trace, ${values}
    from ${fresh} fresh where ${when}
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
const specialNames = sql`group_key, gated, waits, scheduled_at, flow_version, parent_id, parked`;

/** When a task may run: after its delay, or at its hour, which may have passed. */
export function startAt(given: Statement): Statement {
  return sql`case when ${given}.start_at is null then ${now} + ${given}.delay_ms
    when ${given}.start_at > ${now} then ${given}.start_at else ${now} end`;
}

const special = sql`group_key, gated, waits, scheduled_at, flow_version, parent_id,
  case when waits > 0 then 2 when delay_ms > 0 or start_at > ${now} then 1
    when gated = 1 then 4 else 0 end`;

function isSpecial(given: NewTask): boolean {
  const { gated = false, waits = 0, isRun = false, runAtMs, scheduledAtMs, parentId } = given;
  const isSaid = runAtMs !== undefined || scheduledAtMs !== undefined || parentId !== undefined;
  return gated || waits > 0 || isRun || isSaid;
}

function specialRows(news: readonly NewTask[]) {
  return rows(
    {
      ...plainColumns,
      start_at: "integer",
      group_key: "text",
      gated: "integer",
      waits: "integer",
      scheduled_at: "integer",
      flow_version: "integer",
      parent_id: "text",
    },
    news.map((each) => {
      const { runAtMs = null, group = null, gated = false, waits = 0 } = each;
      const { scheduledAtMs = null, parentId = null } = each;
      const version = each.isRun ? 0 : null;
      const gate = [group, gated ? 1 : 0];
      return [...plainValues(each), runAtMs, ...gate, waits, scheduledAtMs, version, parentId];
    }),
  );
}

/**
 * Whoever stores a key waits for others who are storing the same, so all store theirs in one order.
 * Without keys nobody waits.
 */
function inOrder(news: readonly NewTask[]): readonly NewTask[] {
  if (news.every(({ key }) => key === null)) return news;
  return news.toSorted(
    (one, other) =>
      byText(one.key ?? "", other.key ?? "") ||
      byText(one.name, other.name) ||
      byText(one.tenant, other.tenant),
  );
}

function byText(one: string, other: string): number {
  return one === other ? 0 : one < other ? -1 : 1;
}
