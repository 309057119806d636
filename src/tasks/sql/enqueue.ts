import {
  forUpdateOfTask,
  isAmong,
  now,
  returning,
  rows,
  sql,
  type Statement,
  table,
} from "../../store/sql.ts";
import { type FileLink, haveSources, replaceFiles } from "../../files/sql/task-links.ts";
import { insertLinks, type LinkKind } from "../../links/sql.ts";
import { depends, dependsAs, nextSeq, noDeaths, parkedAs } from "./task-state.ts";

const tasks = table("task");
const events = table("task_event");
const aliases = table("task_alias");
const { ready, untilDue, forDependencies, limited } = parkedAs;

export type NewTask = {
  readonly taskId: string;
  readonly tenant: string;
  readonly name: string;
  readonly payload: string;
  readonly priority: number;
  readonly delayMs: number;
  /** When it may run, if given as a time; `delayMs` is 0 then. */
  readonly runAtMs?: number;
  /** The schedule's time that it is created for. */
  readonly scheduledAtMs?: number;
  readonly maxAttempts: number | null;
  readonly key: string | null;
  /**
   * The policy of its key; undefined for the default: the first task is returned while it is kept.
   */
  readonly policy?: KeyPolicy;
  readonly trace: string | null;
  /** The scope of its limit by key; null if it has none. */
  readonly scope?: string | null;
  /** True if the task is limited: it has a key scope, or belongs to a tenant. */
  readonly limited?: boolean;
  /** What it asks of its dependencies, if it has any. */
  readonly depends?: (typeof depends)["completed" | "ended"];
  /** Its dependencies. */
  readonly after?: readonly string[];
  /** True for a run of a flow. */
  readonly isRun?: boolean;
  /** The run that started it. */
  readonly parentId?: string;
  /** The task, run or session whose code enqueues it, or the schedule that it is made for. */
  readonly origin?: LinkOrigin;
  /** The files that its payload refers to. */
  readonly files?: readonly FileLink[];
  /** Tasks that have nothing to do any more: they run when this one is stored, and not at their times. */
  readonly outdates?: readonly string[];
};

export type LinkOrigin = { readonly id: string; readonly what: LinkKind };

export type KeyPolicy = {
  readonly onDuplicate: "existing" | "reject" | "replace";
  /** True if a task releases its key when it ends. */
  readonly whileUnfinished: boolean;
  /** The longest time after its creation that a task holds its key. */
  readonly forMs: number | null;
};

const always = sql`true`;
const maxNotes = 100;

/**
 * Stores new tasks. A task that exists already, by id or by key, is left unchanged. `when` is a
 * condition on a row of `fresh`, for tasks that depend on earlier statements of the transaction.
 */
export function insertTasks(given: readonly NewTask[], when: Statement = always): Statement {
  const newTasks = inOrder(given);
  const plain = rows(
    plainColumns,
    newTasks.map((each) => plainValues(each)),
  );
  // Most tasks have no limit, no dependencies and no start time, so these columns are sent only if
  // a task needs them.
  const { fresh, start, names, values } = newTasks.some(isSpecial)
    ? {
        fresh: specialRows(newTasks),
        start: startAt(sql`fresh`),
        names: specialNames,
        values: special,
      }
    : { fresh: plain, start: sql`${now} + delay_ms`, names: sql`parked`, values: delayed };
  return sql`
    insert into ${tasks} (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
      max_attempts, unique_key, trace, ${names})
    select task_id, tenant, name, payload, priority, ${start}, ${now}, ${now},
      max_attempts, unique_key, trace, ${values}
    from ${fresh} fresh where ${when}${ifFilesAreThere(given)}
    on conflict do nothing
    ${returning(sql`task_id`, {
      // The ids were made for these tasks, so a row with one of them was stored by this call.
      after: sql`select task_id from ${tasks} where task_id in (select task_id from ${plain} fresh)`,
    })}`;
}

/** The files that tasks refer to. */
export function filesOf(newTasks: readonly NewTask[]): FileLink[] {
  return newTasks.flatMap(({ files = [] }) => files);
}

/** None is stored where a file of one is gone. */
function ifFilesAreThere(newTasks: readonly NewTask[]): Statement {
  const links = filesOf(newTasks);
  return links.length === 0 ? sql`` : sql` and ${haveSources(links)}`;
}

/**
 * Has the tasks that these have just replaced refer to the new files. The last note of a task names what has
 * replaced it last, until a pod claims it.
 */
export function replaceTaskFiles(newTasks: readonly NewTask[]): Statement[] {
  const replacing = newTasks.filter(
    ({ files, policy }) => files && policy?.onDuplicate === "replace",
  );
  if (replacing.length === 0) return [];
  const wanted = rows(
    { ...keyColumns, mark: "text" },
    replacing.map((each) => [...keyValues(each), markOf(each)]),
  );
  const replaced = sql`
    select task.task_id, wanted.task_id as new_id
    from ${wanted} wanted join ${tasks} task on ${isHolder(sql`task`)}
    where exists (select 1 from ${events} past
      where past.task_id = task.task_id and past.type = 'replaced'
        and past.detail = wanted.mark || cast(task.claim_token as text) || '}')`;
  return replaceFiles(filesOf(replacing), replaced);
}

/**
 * Links stored tasks to what started them. Goes after the insert. Most tasks are enqueued from outside,
 * and then there is nothing to send.
 */
export function linkTasks(newTasks: readonly NewTask[]): Statement[] {
  const fresh = newTasks.flatMap(({ taskId, origin }) =>
    origin === undefined ? [] : [{ fromId: origin.id, toId: taskId, what: origin.what }],
  );
  return fresh.length === 0 ? [] : [insertLinks(fresh)];
}

const plainColumns = {
  task_id: "text",
  tenant: "text",
  name: "text",
  payload: "content",
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

const delayed = sql`case when delay_ms > 0 then ${untilDue} else ${ready} end`;
const specialNames = sql`concurrency_key, limited, depends, scheduled_at, flow_version, parent_id, parked`;

/** When a task may run: after its delay, or at its start time, which may be in the past. */
function startAt(given: Statement): Statement {
  return sql`case when ${given}.start_at is null then ${now} + ${given}.delay_ms
    when ${given}.start_at > ${now} then ${given}.start_at else ${now} end`;
}

const special = sql`concurrency_key, limited, depends, scheduled_at, flow_version, parent_id,
  case when depends > ${dependsAs.none} then ${forDependencies} when delay_ms > 0 or start_at > ${now} then ${untilDue}
    when limited = 1 then ${limited} else ${ready} end`;

function isSpecial(given: NewTask): boolean {
  const { isRun = false, runAtMs, scheduledAtMs, parentId } = given;
  const isTimed = runAtMs !== undefined || scheduledAtMs !== undefined;
  const isHeld = given.limited === true || given.depends !== undefined;
  return isHeld || isRun || isTimed || parentId !== undefined;
}

function specialRows(newTasks: readonly NewTask[]) {
  return rows(
    {
      ...plainColumns,
      start_at: "integer",
      concurrency_key: "text",
      limited: "integer",
      depends: "integer",
      scheduled_at: "integer",
      flow_version: "integer",
      parent_id: "text",
    },
    newTasks.map((each) => {
      const { runAtMs = null, scope = null } = each;
      const { scheduledAtMs = null, parentId = null } = each;
      const version = each.isRun ? 0 : null;
      const held = [scope, each.limited ? 1 : 0, each.depends ?? depends.none];
      return [...plainValues(each), runAtMs, ...held, scheduledAtMs, version, parentId];
    }),
  );
}

/**
 * An insert of a key waits for other transactions that insert the same one, so all insert keys in
 * one order. Tasks without keys never wait.
 */
function inOrder(newTasks: readonly NewTask[]): readonly NewTask[] {
  if (newTasks.every(({ key }) => key === null)) return newTasks;
  return newTasks.toSorted(
    (one, other) =>
      byText(one.key ?? "", other.key ?? "") ||
      byText(one.name, other.name) ||
      byText(one.tenant, other.tenant),
  );
}

function byText(one: string, other: string): number {
  return one === other ? 0 : one < other ? -1 : 1;
}

const keyColumns = { tenant: "text", name: "text", unique_key: "text", task_id: "text" } as const;

function keysOf(newTasks: readonly NewTask[]) {
  return rows(
    keyColumns,
    newTasks.map((each) => keyValues(each)),
  );
}

function keyValues({ tenant, name, key, taskId }: NewTask) {
  return [tenant, name, key, taskId];
}

const isHolder = (
  task: Statement,
) => sql`${task}.tenant = wanted.tenant and ${task}.name = wanted.name
  and ${task}.unique_key = wanted.unique_key`;

/** The tasks that hold these keys. */
export function findKeys(newTasks: readonly NewTask[]): Statement {
  return sql`
    select task.task_id, task.tenant, task.name, task.unique_key
    from ${keysOf(newTasks)} wanted join ${tasks} task on ${isHolder(sql`task`)}`;
}

/** The tasks that an earlier send stored, regardless of who holds their keys now. */
export function findOwn(newTasks: readonly NewTask[]): Statement {
  return sql`
    select task_id from ${tasks} where task_id in (select task_id from ${keysOf(newTasks)} wanted)`;
}

/**
 * Locks the tasks that hold these keys, in the order in which all writes lock tasks, so that the
 * following statements decide by their current state.
 */
export function lockHolders(newTasks: readonly NewTask[]): Statement {
  return sql`
    select task.task_id from ${keysOf(newTasks)} wanted join ${tasks} task on ${isHolder(sql`task`)}
    order by task.task_id ${forUpdateOfTask}`;
}

/**
 * Takes the keys from tasks that no longer hold them: they have ended, or were created long enough
 * ago. Never from the new task itself, which an earlier send may have stored, and never from a
 * run's child, which its parent finds by its key.
 */
export function releaseKeys(newTasks: readonly NewTask[]): Statement {
  const wanted = rows(
    { ...keyColumns, while_unfinished: "integer", for_ms: "integer" },
    newTasks.map((each) => [
      ...keyValues(each),
      each.policy?.whileUnfinished ? 1 : 0,
      each.policy?.forMs ?? null,
    ]),
  );
  return sql`
    update ${tasks} set unique_key = null
    from ${wanted} wanted
    where ${isHolder(sql`${tasks}`)} and ${tasks}.task_id <> wanted.task_id
      and parent_id is null
      and ((wanted.while_unfinished = 1 and status in ('completed', 'failed', 'cancelled'))
        or created_at <= ${now} - wanted.for_ms)`;
}

/** A replacement is identified by the id that was made for the new task. */
function markOf({ taskId }: NewTask): string {
  return `{"request":"${taskId}","token":`;
}

const isMarked = (task: Statement) => sql`exists (
  select 1 from ${events} past
  where past.task_id = ${task}.task_id and past.type = 'replaced'
    and past.detail like wanted.mark || '%')`;

type ReplaceOptions = {
  /**
   * True if it was sent before. Then a newer task is left alone: the task that should have been
   * replaced may have been replaced, and have ended.
   */
  readonly again: boolean;
  /** Tasks that must be stored together with the replacements, or nothing is replaced. */
  readonly needed: readonly NewTask[];
};

/** The condition that all of these are stored. */
function areStored(newTasks: readonly NewTask[]): Statement {
  if (newTasks.length === 0) return sql`true`;
  return sql`(select count(*) from ${tasks} stored
    where stored.task_id in (select task_id from ${keysOf(newTasks)} wanted)) = ${newTasks.length}`;
}

/**
 * Records replacements before they happen: of tasks that no pod runs and that this request has not
 * replaced before. Runs are not replaced, because a run that has advanced would continue with its
 * state; neither are a run's children, because the parent continues with what it started.
 */
export function noteReplaced(
  newTasks: readonly NewTask[],
  { again, needed }: ReplaceOptions,
): Statement {
  const wanted = rows(
    { ...keyColumns, mark: "text" },
    newTasks.map((each) => [...keyValues(each), markOf(each)]),
  );
  return sql`
    insert into ${events} (task_id, seq, type, detail)
    select task.task_id, ${nextSeq(sql`task.task_id`)}, 'replaced',
      wanted.mark || cast(task.claim_token + 1 as text) || '}'
    from ${wanted} wanted join ${tasks} task on ${isHolder(sql`task`)}
    where task.status = 'pending' and task.flow_version is null and task.parent_id is null
      and not ${isMarked(sql`task`)}
      and ${again ? sql`task.task_id < wanted.task_id` : sql`task.task_id <> wanted.task_id`}
      and ${areStored(needed)}${ifFilesAreThere(newTasks)}
    ${forUpdateOfTask}`;
}

/**
 * Replaces tasks for which `noteReplaced` has recorded a replacement. It raises the token, so that
 * the record is in the past from then on, and a pod that was believed dead cannot finish its old
 * attempt.
 */
export function replaceHolders(newTasks: readonly NewTask[]): Statement {
  const wanted = rows(
    {
      ...keyColumns,
      mark: "text",
      payload: "content",
      priority: "integer",
      delay_ms: "integer",
      start_at: "integer",
      max_attempts: "integer",
      trace: "text",
      concurrency_key: "text",
      limited: "integer",
    },
    newTasks.map((each) => [
      ...keyValues(each),
      markOf(each),
      each.payload,
      each.priority,
      each.delayMs,
      each.runAtMs ?? null,
      each.maxAttempts,
      each.trace,
      each.scope ?? null,
      each.limited ? 1 : 0,
    ]),
  );
  const start = startAt(sql`wanted`);
  return sql`
    update ${tasks}
    set payload = wanted.payload, priority = wanted.priority, max_attempts = wanted.max_attempts,
      trace = wanted.trace, concurrency_key = wanted.concurrency_key, limited = wanted.limited, blocked_by = null,
      scheduled_at = null,
      run_at = ${start}, last_update = ${now}, claim_token = claim_token + 1, claimed_by = null,
      retry_count = 0, snoozes = 0, deaths = ${noDeaths}, state = null, progress = null, error = null,
      progress_token = claim_token + 1,
      parked = case when parked = ${forDependencies} then ${forDependencies} when ${start} > ${now} then ${untilDue}
        when wanted.limited = 1 then ${limited} else ${ready} end
    from ${wanted} wanted
    where ${isHolder(sql`${tasks}`)} and status = 'pending' and exists (
      select 1 from ${events} past
      where past.task_id = ${tasks}.task_id and past.type = 'replaced'
        and past.detail = wanted.mark || cast(${tasks}.claim_token + 1 as text) || '}')`;
}

/** A task may be replaced every second for days. Its last replacements are enough. */
export function trimReplaced(newTasks: readonly NewTask[]): Statement {
  return sql`
    delete from ${events}
    where type = 'replaced'
      and task_id in (
        select task.task_id from ${keysOf(newTasks)} wanted join ${tasks} task on ${isHolder(sql`task`)})
      and seq < ${nextSeq(sql`${events}.task_id`)} - ${maxNotes}`;
}

/** The tasks that replaced the holder of their key, now or with an earlier send. */
export function findReplaced(newTasks: readonly NewTask[]): Statement {
  const wanted = rows(
    { ...keyColumns, mark: "text" },
    newTasks.map((each) => [...keyValues(each), markOf(each)]),
  );
  return sql`
    select wanted.task_id from ${wanted} wanted join ${tasks} task on ${isHolder(sql`task`)}
    where ${isMarked(sql`task`)}`;
}

/** Deletes tasks that were to be stored all or none, if one of the needed ones was not stored. */
export function undoUnlessStored(
  newTasks: readonly NewTask[],
  needed: readonly NewTask[],
): Statement {
  return sql`
    delete from ${tasks}
    where task_id in (select task_id from ${keysOf(newTasks)} wanted) and not ${areStored(needed)}`;
}

/**
 * Keeps the ids of tasks that were not stored, because others hold their keys, as names of the holders. Goes
 * after the insert.
 */
export function insertAliases(newTasks: readonly NewTask[], when: Statement): Statement {
  return sql`
    insert into ${aliases} (alias_id, task_id)
    select fresh.task_id, holder.task_id
    from ${keysOf(newTasks)} fresh join ${tasks} holder on holder.tenant = fresh.tenant
      and holder.name = fresh.name and holder.unique_key = fresh.unique_key
    where holder.task_id <> fresh.task_id and ${when}
      and not exists (select 1 from ${tasks} own where own.task_id = fresh.task_id)
    on conflict do nothing`;
}

/** The tasks that these ids are other names of. */
export function findAliases(aliasIds: readonly string[]): Statement {
  const wanted = rows(
    { alias_id: "text" },
    aliasIds.map((id) => [id]),
  );
  return sql`
    select alias.alias_id, alias.task_id from ${wanted} wanted
    join ${aliases} alias on alias.alias_id = wanted.alias_id`;
}

/** Deletes the other names of tasks that are deleted. */
export function deleteAliasesOf(gone: Statement): Statement {
  return sql`delete from ${aliases} as alias where ${isAmong(gone, sql`task_id`)}`;
}

/** Reads the values of a task as the database has them, without storing it. */
export function probeTask(newTask: NewTask): Statement {
  const { taskId, tenant, name, payload, key, trace, scope = null, origin } = newTask;
  const probe = rows(
    {
      task_id: "text",
      tenant: "text",
      name: "text",
      payload: "content",
      unique_key: "text",
      trace: "text",
      concurrency_key: "text",
      from_id: "text",
    },
    [[taskId, tenant, name, payload, key, trace, scope, origin?.id ?? null]],
  );
  return sql`
    select task_id, tenant, name, unique_key, trace, concurrency_key, from_id,
      length(payload) as chars
    from ${probe} probe`;
}
