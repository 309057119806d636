import { holdTask, now, rows, sql, type Statement, table } from "../../store/sql.ts";
import { type NewTask, startAt } from "./enqueue.ts";
import { nextSeq } from "./events.ts";

const tasks = table("step_tracker");
const events = table("step_event");

const keyColumns = { tenant: "text", name: "text", unique_key: "text", task_id: "text" } as const;

function keysOf(news: readonly NewTask[]) {
  return rows(
    keyColumns,
    news.map((each) => keyValues(each)),
  );
}

function keyValues({ tenant, name, key, taskId }: NewTask) {
  return [tenant, name, key, taskId];
}

const holds = (task: Statement) => sql`${task}.tenant = wanted.tenant and ${task}.name = wanted.name
  and ${task}.unique_key = wanted.unique_key`;

/** The tasks that hold these keys. */
export function findKeys(news: readonly NewTask[]): Statement {
  return sql`
    select task.task_id, task.tenant, task.name, task.unique_key
    from ${keysOf(news)} wanted join ${tasks} task on ${holds(sql`task`)}`;
}

/** Which of these were stored by an earlier send, whoever holds their keys by now. */
export function findOwn(news: readonly NewTask[]): Statement {
  return sql`
    select task_id from ${tasks} where task_id in (select task_id from ${keysOf(news)} wanted)`;
}

/**
 * Locks the tasks that hold these keys, in the order in which everybody locks tasks, so that the
 * statements after it decide by how they really stand.
 */
export function holdHolders(news: readonly NewTask[]): Statement {
  return sql`
    select task.task_id from ${keysOf(news)} wanted join ${tasks} task on ${holds(sql`task`)}
    order by task.task_id ${holdTask}`;
}

/**
 * Takes the keys from tasks that hold them no longer: they have ended, or were created long enough
 * ago. Never from the very task that is to be stored, which an earlier send may have stored, and never
 * from a run's child, which its parent knows by its key.
 */
export function releaseKeys(news: readonly NewTask[]): Statement {
  const wanted = rows(
    { ...keyColumns, while_unfinished: "integer", for_ms: "integer" },
    news.map((each) => [
      ...keyValues(each),
      each.policy?.whileUnfinished ? 1 : 0,
      each.policy?.forMs ?? null,
    ]),
  );
  return sql`
    update ${tasks} set unique_key = null
    from ${wanted} wanted
    where ${holds(sql`${tasks}`)} and ${tasks}.task_id <> wanted.task_id
      and parent_id is null
      and ((wanted.while_unfinished = 1 and status in ('completed', 'failed', 'cancelled'))
        or created_at <= ${now} - wanted.for_ms)`;
}

/** A replacement is known by the id that was made for the task that would have been stored. */
function markOf({ taskId }: NewTask): string {
  return `{"request":"${taskId}","token":`;
}

const isMarked = (task: Statement) => sql`exists (
  select 1 from ${events} past
  where past.task_id = ${task}.task_id and past.type = 'replaced'
    and past.detail like wanted.mark || '%')`;

export type ReplaceOptions = {
  /**
   * Whether it was sent before. Then a task that came later is left alone: what it should have
   * replaced may have been replaced, and have ended.
   */
  readonly again: boolean;
  /** Tasks that must be stored with the replacements, or nothing is replaced. */
  readonly needed: readonly NewTask[];
};

/** The condition that all of these are stored. */
function areStored(news: readonly NewTask[]): Statement {
  if (news.length === 0) return sql`true`;
  return sql`(select count(*) from ${tasks} stored
    where stored.task_id in (select task_id from ${keysOf(news)} wanted)) = ${news.length}`;
}

/**
 * Notes what is about to be replaced: what nobody runs, and what this hasn't replaced before. A run that
 * has done something would go on with what it has come to so far, so none is; nor is a run's child, whose
 * parent goes on with what it has asked for.
 */
export function noteReplaced(
  news: readonly NewTask[],
  { again, needed }: ReplaceOptions,
): Statement {
  const wanted = rows(
    { ...keyColumns, mark: "text" },
    news.map((each) => [...keyValues(each), markOf(each)]),
  );
  return sql`
    insert into ${events} (task_id, seq, type, detail)
    select task.task_id, ${nextSeq(sql`task.task_id`)}, 'replaced',
      wanted.mark || cast(task.claim_token + 1 as text) || '}'
    from ${wanted} wanted join ${tasks} task on ${holds(sql`task`)}
    where task.status = 'pending' and task.flow_version is null and task.parent_id is null
      and not ${isMarked(sql`task`)}
      and ${again ? sql`task.task_id < wanted.task_id` : sql`task.task_id <> wanted.task_id`}
      and ${areStored(needed)}
    ${holdTask}`;
}

/**
 * Makes tasks do something else, where the note says that it is about to happen. It raises the token,
 * so that the note speaks of the past from then on, and a pod that was taken for dead can't finish
 * what it has been doing.
 */
export function replaceHolders(news: readonly NewTask[]): Statement {
  const wanted = rows(
    {
      ...keyColumns,
      mark: "text",
      payload: "text",
      priority: "integer",
      delay_ms: "integer",
      start_at: "integer",
      max_attempts: "integer",
      trace: "text",
      group_key: "text",
      gated: "integer",
    },
    news.map((each) => [
      ...keyValues(each),
      markOf(each),
      each.payload,
      each.priority,
      each.delayMs,
      each.runAtMs ?? null,
      each.maxAttempts,
      each.trace,
      each.group ?? null,
      each.gated ? 1 : 0,
    ]),
  );
  const start = startAt(sql`wanted`);
  return sql`
    update ${tasks}
    set payload = wanted.payload, priority = wanted.priority, max_attempts = wanted.max_attempts,
      trace = wanted.trace, group_key = wanted.group_key, gated = wanted.gated, blocked_by = null,
      scheduled_at = null,
      run_at = ${start}, last_update = ${now}, claim_token = claim_token + 1, claimed_by = null,
      retry_count = 0, snoozes = 0, deaths = 0, state = null, progress = null, error = null,
      progress_token = claim_token + 1,
      parked = case when parked = 2 then 2 when ${start} > ${now} then 1
        when wanted.gated = 1 then 4 else 0 end
    from ${wanted} wanted
    where ${holds(sql`${tasks}`)} and status = 'pending' and exists (
      select 1 from ${events} past
      where past.task_id = ${tasks}.task_id and past.type = 'replaced'
        and past.detail = wanted.mark || cast(${tasks}.claim_token + 1 as text) || '}')`;
}

const notesKept = 100;

/** A task may be replaced every second for days. Its last replacements say enough. */
export function trimReplaced(news: readonly NewTask[]): Statement {
  return sql`
    delete from ${events}
    where type = 'replaced'
      and task_id in (
        select task.task_id from ${keysOf(news)} wanted join ${tasks} task on ${holds(sql`task`)})
      and seq < ${nextSeq(sql`${events}.task_id`)} - ${notesKept}`;
}

/** Which of these have replaced the task that holds their key, now or with an earlier send. */
export function findReplaced(news: readonly NewTask[]): Statement {
  const wanted = rows(
    { ...keyColumns, mark: "text" },
    news.map((each) => [...keyValues(each), markOf(each)]),
  );
  return sql`
    select wanted.task_id from ${wanted} wanted join ${tasks} task on ${holds(sql`task`)}
    where ${isMarked(sql`task`)}`;
}

/** Takes back tasks that were to be stored together or not at all, where one that must be stored wasn't. */
export function undoUnlessStored(news: readonly NewTask[], needed: readonly NewTask[]): Statement {
  return sql`
    delete from ${tasks}
    where task_id in (select task_id from ${keysOf(news)} wanted) and not ${areStored(needed)}`;
}
