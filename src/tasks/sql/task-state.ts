import { maxPageBytes } from "../../base/page.ts";
import { columnBytes, pageQuery } from "../../store/page.ts";
import { isAmong, rows, sql, type Statement, table } from "../../store/sql.ts";

/**
 * What keeps a pending task from being claimed, as the column `parked` says it. Statements spell the
 * number out, because an index on some of the rows is found by it.
 */
export const parked = {
  /** Nothing does. */
  ready: 0,
  /** Its time hasn't come. */
  untilDue: 1,
  /** Tasks that it waits for haven't ended. */
  forDependencies: 2,
  /** As many as may are running of what it counts among; `blocked_by` says of what. */
  blocked: 3,
  /** Nothing but the gate: whether there is room is looked at when it is claimed. */
  limited: 4,
  /** A run that goes on when somebody says something to it. */
  untilSignal: 5,
  /** A run that nobody can read; people have to look at it. */
  setAside: 6,
} as const;

/** What `parked` becomes when nothing holds a task up any more but, maybe, its gate. */
export const readyOrLimited = sql`case when limited = 1 then 4 else 0 end`;

/**
 * The condition that a task which is named is pending. It is said so that no planner takes an index of
 * some of the pending ones for a way to it: that leads by all of them.
 */
export function isPending(task: Statement | ReturnType<typeof table>): Statement {
  return sql`coalesce(${task}.status, '') = 'pending'`;
}

const events = table("task_event");

/** The number of a task's next event. */
export function nextSeq(taskId: Statement): Statement {
  return sql`(select coalesce(max(seq), 0) + 1 from ${events} past where past.task_id = ${taskId})`;
}

/**
 * The mark that a cancel or a resume leaves in what it notes, so that sending the request again does nothing.
 * Whatever a request changes, it also raises the row's `wake`: a mark with the next number is of this
 * transaction, one with another number is of an earlier send. A `case` keeps the store from reading the
 * details of all other events, which may be large.
 */
export function requestMark(taskId: string, requestId: string) {
  const mark = `"request":"${requestId}","wake":`;
  const noted = (isMeant: Statement) => sql`exists (
    select 1 from ${events} past
    where past.task_id = ${taskId}
      and case when past.type in ('cancel_requested', 'given_up', 'resume')
        then past.detail like ${`%${mark}%`} and ${isMeant} else false end)`;
  return {
    /** Ends the JSON of an event's detail, in a query on the task as it is before its change. */
    mark: sql`${mark} || cast(wake + 1 as text) || '}'`,
    /** The condition on the task that no earlier send was stored. */
    isFirst: sql`not ${noted(sql`past.detail not like ${`%${mark}`} || cast(wake + 1 as text) || '}'`)}`,
    /** The condition that this send or an earlier one has done something. */
    isNoted: noted(sql`true`),
  };
}

/**
 * The number of an event of a run follows from the write that notes it, with room between two writes for
 * what others note: so nobody has to look for the last one, and what is sent again is known by its number.
 */
export const eventsPerWrite = 100;

/** How many writes of a run its first one has to come after, for the numbers of what was noted before. */
export function writesBefore(taskId: Statement): Statement {
  return sql`(${nextSeq(taskId)} - 1) / cast(${eventsPerWrite} as integer)`;
}

type EventPage = { readonly after?: number; readonly limit?: number };

/** What happened to a task, in order: all of it, or with a limit a page. */
export function getEvents(taskId: string, { after = 0, limit }: EventPage = {}): Statement {
  const from = sql`from ${events} where task_id = ${taskId} and seq > ${after}`;
  if (limit === undefined) return sql`select * ${from} order by seq`;
  const bytes = sql`200 + ${columnBytes(sql`detail`)}`;
  const page = { key: sql`seq`, order: "asc", from, bytes, limit, maxBytes: maxPageBytes } as const;
  const { begin, keys, found } = pageQuery(page);
  return sql`${begin}
    select *, ${found} from ${events} where task_id = ${taskId} and ${isAmong(keys, sql`seq`)}
    order by seq`;
}

const tasks = table("task");
const limits = table("task_limit");

/** What a limit counts: the tasks of one key, those of one queue, or those of one tenant. */
export function keyScope(name: string, key: string): string {
  return `key/${name}/${key}`;
}

/** The runs of all flows that share a queue. */
export function queueScope(queue: string): string {
  return `queue/${queue}`;
}

export function tenantScope(tenant: string): string {
  return `tenant/${tenant}`;
}

/** The tenant that a scope names; undefined where it names something else. */
export function tenantOf(scope: string): string | undefined {
  return scope.startsWith("tenant/") ? scope.slice("tenant/".length) : undefined;
}

/** How many of a key run, given the expression that names its scope. */
export function runningOfKey(scope: Statement): Statement {
  return sql`(select count(*) from ${tasks} held
    where held.status = 'claimed' and ${isAbout(sql`held.concurrency_key`, scope)})`;
}

/** How many of a tenant run. Those that go through no gate aren't counted: they are nobody's. */
export function runningOfTenant(tenant: Statement): Statement {
  return sql`(select count(*) from ${tasks} held
    where held.status = 'claimed' and held.limited = 1 and ${isAbout(sql`held.tenant`, tenant)})`;
}

/**
 * Equality, said so that a planner takes few for equal: it would read the whole table where nearly all
 * tasks ran under one key or tenant when it last looked.
 */
function isAbout(column: Statement, value: Statement): Statement {
  return sql`${column} between ${value} and ${value}`;
}

/**
 * Begins a query with `room (scope, room)`: how many more may run of each scope that has a limit. It
 * is exact for as long as this transaction holds the scopes, if it has them since an earlier statement.
 */
export function withFreeSlots(scopes: readonly string[]): Statement {
  const wanted = rows(
    { scope: "text", tenant: "text" },
    [...new Set(scopes)].map((scope) => [scope, tenantOf(scope) ?? null]),
  );
  return sql`with room as (
    select given.scope, given.max_running - case when wanted.tenant is null
      then ${runningOfKey(sql`given.scope`)} else ${runningOfTenant(sql`wanted.tenant`)} end as room
    from ${wanted} wanted join ${limits} given on given.scope = wanted.scope)`;
}

/** Whether neither limit of a `task` is reached, as far as this statement can see. */
export const hasFreeSlots = sql`not exists (select 1 from ${limits} given
    where given.scope = task.concurrency_key and given.max_running <= ${runningOfKey(sql`given.scope`)})
  and not exists (select 1 from ${limits} given
    where given.scope = 'tenant/' || task.tenant
      and given.max_running <= ${runningOfTenant(sql`task.tenant`)})`;
