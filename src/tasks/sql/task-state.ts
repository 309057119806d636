import { aloneAfterDeaths } from "../../base/death-limit.ts";
import { maxPageBytes } from "../../base/page.ts";
import { columnBytes, pageQuery } from "../../store/page.ts";
import { isAmong, literal, rows, sql, type Statement, table } from "../../store/sql.ts";

const events = table("task_event");
const tasks = table("task");
const limits = table("task_limit");

/** Why a pending task cannot be claimed: the values of the column `parked`. */
export const parked = {
  /** It can be claimed. */
  ready: 0,
  /** Its time has not come. */
  untilDue: 1,
  /** Its dependencies have not ended. */
  forDependencies: 2,
  /** Its concurrency limit is reached; `blocked_by` names the scope. */
  blocked: 3,
  /** It is limited: free slots are checked when it is claimed. */
  limited: 4,
  /** A run that waits for a signal. */
  untilSignal: 5,
  /** A run that no pod can read; an operator has to inspect it. */
  setAside: 6,
} as const;

/** The same in the text of statements, so that the planner can use partial indexes. */
export const parkedAs = {
  ready: literal(parked.ready),
  untilDue: literal(parked.untilDue),
  forDependencies: literal(parked.forDependencies),
  blocked: literal(parked.blocked),
  limited: literal(parked.limited),
  untilSignal: literal(parked.untilSignal),
  setAside: literal(parked.setAside),
} as const;

/** Whether a task has dependencies, and what it asks of them: the values of the column `depends`. */
export const depends = {
  none: 0,
  /** All must have completed. */
  completed: 1,
  /** All must have ended, in whatever way. */
  ended: 2,
  /** One that had to complete failed or was cancelled, so the task must not run. */
  failed: 3,
} as const;

/** The same in the text of statements. */
export const dependsAs = {
  none: literal(depends.none),
  completed: literal(depends.completed),
  ended: literal(depends.ended),
  failed: literal(depends.failed),
} as const;

/** The value of the column `deaths` of a task that no pod has died with. */
export const noDeaths = literal(0);

/**
 * Pending tasks by what they wait for. Each is the condition of a partial index, word for word. A
 * task runs alone if pods have died while they ran it, because it may be the reason.
 */
export const {
  isReady,
  isReadyAlone,
  isDelayed,
  waitsForTasks,
  isBlocked,
  isLimited,
  isLimitedAlone,
  waitsForSignal,
  isSetAside,
  runsBesideOthers,
  runsAlone,
} = conditionsOn(sql``);

/** The same on a table with the alias `task`. */
export const ofTask = conditionsOn(sql`task.`);

/** Tasks that wait for a signal, with a limit in time and without: conditions of partial indexes too. */
export const awaitsSignal = {
  until: sql`status = 'pending' and parked = ${parkedAs.untilDue} and awaits is not null`,
  since: sql`status = 'pending' and parked = ${parkedAs.untilSignal} and awaits is not null`,
} as const;

function conditionsOn(row: Statement) {
  const isParked = (as: Statement) => sql`${row}status = 'pending' and ${row}parked = ${as}`;
  const runsBesideOthers = sql`${row}deaths < ${literal(aloneAfterDeaths)}`;
  const runsAlone = sql`${row}deaths >= ${literal(aloneAfterDeaths)}`;
  return {
    isReady: sql`${isParked(parkedAs.ready)} and ${runsBesideOthers}`,
    isReadyAlone: sql`${isParked(parkedAs.ready)} and ${runsAlone}`,
    isDelayed: isParked(parkedAs.untilDue),
    waitsForTasks: isParked(parkedAs.forDependencies),
    isBlocked: isParked(parkedAs.blocked),
    isLimited: sql`${isParked(parkedAs.limited)} and ${runsBesideOthers}`,
    isLimitedAlone: sql`${isParked(parkedAs.limited)} and ${runsAlone}`,
    waitsForSignal: isParked(parkedAs.untilSignal),
    isSetAside: isParked(parkedAs.setAside),
    runsBesideOthers,
    runsAlone,
  };
}

/**
 * The new `parked` of a task that nothing holds back any more except, maybe, its concurrency limit.
 */
export const readyOrLimited = sql`case when limited = 1 then ${parkedAs.limited} else ${parkedAs.ready} end`;

/**
 * The condition that a task with a known id is pending. It is written so that no planner uses a
 * partial index of pending tasks for it, which would scan all of them.
 */
export function isPending(task: Statement | ReturnType<typeof table>): Statement {
  return sql`coalesce(${task}.status, '') = 'pending'`;
}

/** The condition that a call has claimed a task, ahead of a free slot or not. */
export function isOfCall(row: Statement, call: number): Statement {
  return sql`${row}claim_call in (${call}, ${-call})`;
}

/** The number of a task's next event. */
export function nextSeq(taskId: Statement): Statement {
  return sql`(select coalesce(max(seq), 0) + 1 from ${events} past where past.task_id = ${taskId})`;
}

/**
 * The mark that a cancel or a resume leaves in its event, so that sending the request again does
 * nothing. Every request that changes the row also raises its `wake`: a mark with the next number
 * is of this transaction, one with another number is of an earlier send. The `case` keeps the store
 * from reading the details of all other events, which may be large.
 */
export function requestMark(taskId: string, requestId: string) {
  const mark = `"request":"${requestId}","wake":`;
  const noted = (isMeant: Statement) => sql`exists (
    select 1 from ${events} past
    where past.task_id = ${taskId}
      and case when past.type in ('cancel_requested', 'given_up', 'resume')
        then past.detail like ${`%${mark}%`} and ${isMeant} else false end)`;
  return {
    /** The end of the JSON of an event's detail, in a query on the task before its change. */
    mark: sql`${mark} || cast(wake + 1 as text) || '}'`,
    /** The condition on the task that no earlier send was stored. */
    isFirst: sql`not ${noted(sql`past.detail not like ${`%${mark}`} || cast(wake + 1 as text) || '}'`)}`,
    /** The condition that this send or an earlier one was stored. */
    isNoted: noted(sql`true`),
  };
}

/**
 * The number of a run's event follows from the write that records it, with a gap between two writes
 * for other events. So no query has to find the last one, and a repeated send is recognised by its
 * number.
 */
export const eventsPerWrite = 100;

/**
 * The write count that a run's first write starts from, so that its events come after the existing
 * ones.
 */
export function writesBefore(taskId: Statement): Statement {
  return sql`(${nextSeq(taskId)} - 1) / cast(${eventsPerWrite} as integer)`;
}

type EventPage = {
  readonly after?: number;
  readonly before?: number;
  readonly limit?: number;
};

/** The events of a task in order: all of them, or a page with a limit, the last ones before a number. */
export function getEvents(taskId: string, { after = 0, before, limit }: EventPage = {}): Statement {
  const upTo = before === undefined ? sql`` : sql`and seq < ${before}`;
  const from = sql`from ${events} where task_id = ${taskId} and seq > ${after} ${upTo}`;
  if (limit === undefined) return sql`select * ${from} order by seq`;
  const bytes = sql`200 + ${columnBytes(sql`detail`)}`;
  const order = before === undefined ? "asc" : "desc";
  const page = { key: sql`seq`, order, from, bytes, limit, maxBytes: maxPageBytes } as const;
  const { begin, keys, found } = pageQuery(page);
  return sql`${begin}
    select *, ${found} from ${events} where task_id = ${taskId} and ${isAmong(keys, sql`seq`)}
    order by seq`;
}

/** How tasks stand, without what users put in, which may be much. */
export function selectStates(taskIds: readonly string[]): Statement {
  const wanted = rows(
    { task_id: "text" },
    taskIds.map((taskId) => [taskId]),
  );
  return sql`
    select task_id, name, tenant, status, claimed_by, retry_count, deaths, cancel_requested, run_at,
      last_update
    from ${tasks} where ${isAmong(sql`select task_id from ${wanted} wanted`, sql`task_id`)}`;
}

/** What a limit counts: the tasks of one key, of one queue, or of one tenant. */
export function keyScope(name: string, key: string): string {
  return `key/${name}/${key}`;
}

/** The runs of all flows that share a queue. */
export function queueScope(queue: string): string {
  return `queue/${queue}`;
}

/** The key that a scope of this task name is for; undefined for other scopes. */
export function keyOf(name: string, scope: string): string | undefined {
  const prefix = keyScope(name, "");
  return scope.startsWith(prefix) ? scope.slice(prefix.length) : undefined;
}

/** The tenant that a scope names; undefined for other scopes. */
export function tenantOf(scope: string): string | undefined {
  return scope.startsWith("tenant/") ? scope.slice("tenant/".length) : undefined;
}

/**
 * The condition that a task with a limit runs, word for word as in the indexes of those. With a plain
 * comparison, the planner would take the index of all claims for as short, if few tasks ran at the
 * last analyze, and read each of them for every key.
 */
export function isRunning(row: Statement): Statement {
  return sql`coalesce(${row}status, '') = 'claimed'`;
}

/** How many tasks of a key run, given the expression of its scope. */
export function runningOfKey(scope: Statement): Statement {
  return sql`(select count(*) from ${tasks} held
    where ${isRunning(sql`held.`)} and ${isAbout(sql`held.concurrency_key`, scope)})`;
}

/**
 * How many tasks of a tenant run. Unlimited tasks are not counted, because they belong to no
 * tenant, and neither are those of the default tenant, which can have no limit.
 */
export function runningOfTenant(tenant: Statement): Statement {
  return sql`(select count(*) from ${tasks} held
    where ${isRunning(sql`held.`)} and held.limited = 1 and held.tenant <> 'default'
      and ${isAbout(sql`held.tenant`, tenant)})`;
}

/**
 * Equality, written so that the planner expects few matches. With `=` it would read the whole table
 * if nearly all tasks ran under one key or tenant at the last analyze.
 */
function isAbout(column: Statement, value: Statement): Statement {
  return sql`${column} between ${value} and ${value}`;
}

/**
 * The free slots of a key, or of a tenant; null if it has no limit. Exact if an earlier statement of
 * this transaction has locked the limit.
 */
export function freeSlotsOfKey(scope: Statement): Statement {
  return sql`(select given.max_running - ${runningOfKey(sql`given.scope`)} from ${limits} given
    where given.scope = ${scope})`;
}

export function freeSlotsOfTenant(tenant: Statement): Statement {
  return sql`(select given.max_running - ${runningOfTenant(tenant)} from ${limits} given
    where given.scope = 'tenant/' || ${tenant})`;
}

/** The condition that neither limit of a `task` is reached, as far as this statement can see. */
export const hasFreeSlots = sql`not exists (select 1 from ${limits} given
    where given.scope = task.concurrency_key and given.max_running <= ${runningOfKey(sql`given.scope`)})
  and not exists (select 1 from ${limits} given
    where given.scope = 'tenant/' || task.tenant
      and given.max_running <= ${runningOfTenant(sql`task.tenant`)})`;
