import type { WriteEntry } from "../../audit/act.ts";
import {
  limit,
  now,
  rows,
  forUpdate,
  sql,
  type Statement,
  table,
  forUpdateSkipLocked,
} from "../../store/sql.ts";
import {
  isBlocked,
  isLimited,
  ofTask,
  runningOfKey,
  runningOfTenant,
  tenantOf,
  isRunning,
} from "./task-state.ts";

const tasks = table("task");
const limits = table("task_limit");
const pauses = table("task_pause");
const pods = table("pod");
const audit = table("audit");

/** Counts stop here. */
const maxCounted = 10_000;
const maxListed = 1_000;

/** The entry of a limit that is set by hand, or no more if it is null. Goes after `lockLimits`. */
export function entryOfLimit(
  scope: string,
  maxRunning: number | null,
  entry: WriteEntry,
): readonly Statement[] {
  const before = sql`(select max_running from ${limits} where scope = ${scope} and by_hand = 1)`;
  return entry({
    // No limit is 0.
    when: sql`where coalesce(${before}, 0) <> ${maxRunning ?? 0}`,
    before: sql`'{"limit":' || coalesce(cast(${before} as text), 'null') || '}'`,
    after: JSON.stringify({ limit: maxRunning }),
  });
}

export function putLimit(scope: string, maxRunning: number): Statement {
  return sql`
    insert into ${limits} (scope, max_running, by_hand) values (${scope}, ${maxRunning}, 1)
    on conflict (scope) do update set max_running = excluded.max_running, by_hand = 1`;
}

/**
 * A tenant's limit exists only when set with `limits`. A key falls back to the limit declared in
 * code, which the next claim stores.
 */
export function dropLimit(scope: string): Statement {
  if (tenantOf(scope) !== undefined) return sql`delete from ${limits} where scope = ${scope}`;
  // The row stays, because a transaction that frees or takes a slot must have a row to lock.
  return sql`update ${limits} set by_hand = 0, max_running = 1 where scope = ${scope}`;
}

/** The current use of scopes; each is given with its tenant if it names one. */
export function readScopes(scopes: readonly { scope: string; tenant: string | null }[]): Statement {
  const wanted = rows(
    { scope: "text", tenant: "text" },
    scopes.map(({ scope, tenant }) => [scope, tenant]),
  );
  return sql`
    select wanted.scope,
      (select max_running from ${limits} given where given.scope = wanted.scope) as max_running,
      (select by_hand from ${limits} given where given.scope = wanted.scope) as by_hand,
      case when wanted.tenant is null
        then ${runningOfKey(sql`wanted.scope`)} else ${runningOfTenant(sql`wanted.tenant`)} end as running,
      (select count(*) from (select 1 from ${tasks} task
        where task.blocked_by = wanted.scope and ${ofTask.isBlocked}
        order by task.priority desc, task.created_at, task.task_id ${limit(maxCounted)}) counted
      ) as blocked
    from ${wanted} wanted`;
}

/** The limits that were set with `limits`, and those with blocked tasks. */
export function notableScopes(): Statement {
  return sql`
    select scope from ${limits} where by_hand = 1
    union
    select scope from (${blockedFrom("", maxListed)}) blocked where scope is not null
    order by scope ${limit(maxListed)}`;
}

/**
 * The next scopes with blocked tasks, and their free slots, which should be none. A scope without a
 * limit has a null.
 */
export function blockedScopes(after: string, count: number): Statement {
  return sql`
    select scope, (select max_running from ${limits} given where given.scope = blocked.scope)
      - ${runningOfKey(sql`blocked.scope`)} as free_slots
    from (${blockedFrom(after, count)}) blocked where scope is not null`;
}

/** The next limits declared in code, and whether no running or blocked task needs them. */
export function unneededLimits(after: string, count: number): Statement {
  return sql`
    select scope, ${isUnneeded(sql`page.scope`)} as unneeded
    from (select scope from ${limits} where scope > ${after} and by_hand = 0
      order by scope ${limit(count)}) page`;
}

/** Deletes limits. A claim that needs one stores it again, so an early deletion does no harm. */
export function dropUnneeded(scopes: readonly string[]): Statement {
  const old = rows(
    { scope: "text" },
    scopes.map((scope) => [scope]),
  );
  return sql`
    delete from ${limits} where scope in (
      select scope from ${limits} given
      where given.by_hand = 0 and given.scope in (select scope from ${old} old)
        and ${isUnneeded(sql`given.scope`)} ${forUpdateSkipLocked})`;
}

/** The running, ready and blocked tasks of each tenant, up to `maxCounted`. */
export function tenantCounts(): Statement {
  const bounded = limit(maxCounted);
  return sql`
    select 'running' as state, tenant, count(*) as tasks from (
      select tenant from ${tasks} where ${isRunning(sql``)} and limited = 1 and tenant <> 'default'
      order by tenant ${bounded}) running group by tenant
    union all
    select 'running', tenant, count(*) from (
      select tenant from ${tasks}
      where ${isRunning(sql``)} and concurrency_key is not null and tenant = 'default'
      order by concurrency_key ${bounded}) running group by tenant
    union all
    select 'ready', tenant, count(*) from (
      select tenant from ${tasks} where ${isLimited}
      order by name, tenant, priority desc, created_at, task_id ${bounded}) ready group by tenant
    union all
    select 'blocked', tenant, count(*) from (
      select tenant from ${tasks} where ${isBlocked}
      order by blocked_by, priority desc, created_at, task_id ${bounded}) blocked group by tenant
    union all
    select 'limit', scope, max_running from ${limits} where scope >= 'tenant/' and scope < 'tenant0'`;
}

/**
 * Issues a number for a pause of a name. It is higher than all earlier ones, so a write with an
 * earlier number that lands late never undoes a write with this one.
 */
export function numberToPause(name: string): Statement[] {
  return [
    sql`
      insert into ${pauses} (name, paused, given) values (${name}, 0, 1)
      on conflict (name) do update set given = ${pauses}.given + 1`,
    givenOf(name),
  ];
}

/**
 * Like `numberToPause`, for a resume; returns no row if the name was never paused and no pause is
 * in progress.
 */
export function numberToResume(name: string): Statement[] {
  return [sql`update ${pauses} set given = given + 1 where name = ${name}`, givenOf(name)];
}

/**
 * Stores a pause. Each pod's row has a number that changes with every pause, and a claim must carry
 * the current one: a claim that does not know of a pause takes nothing. So a claim need not read
 * the pauses, and asks only for names that are not paused.
 */
export function putPause(name: string, reason: string | null, number: number): Statement {
  return sql`
    update ${pauses}
    set at = case when paused = 1 then at else ${now} end,
      reason = case when paused = 1 then reason else ${reason} end,
      paused = 1, done = ${number}
    where name = ${name} and done < ${number}`;
}

export function dropPause(name: string, number: number): Statement {
  return sql`
    update ${pauses} set paused = 0, reason = null, done = ${number}
    where name = ${name} and done < ${number}`;
}

/** The entry of a pause or a resume that changes something, with the lock that keeps this true. */
export function entryOfPause(
  { name, number, paused }: { name: string; number: number; paused: 0 | 1 },
  entry: WriteEntry,
): Statement[] {
  const stated = entry({
    when: sql`from ${pauses} where name = ${name} and done < ${number} and paused <> ${paused}`,
    before: JSON.stringify({ paused: paused === 0 }),
    after: JSON.stringify({ paused: paused === 1 }),
  });
  if (stated.length === 0) return [];
  return [sql`select name from ${pauses} where name = ${name} ${forUpdate}`, ...stated];
}

export function listPauses(): Statement {
  return sql`select name, at, reason from ${pauses} where paused = 1 order by name`;
}

// An entry is written in the transaction of its pause, a moment before it.
const entryLeadMs = 10_000;

/**
 * The pauses, each with the actor of its entry. A pause that a handler has made has none, and an entry of
 * an earlier pause isn't taken for its own.
 */
export function listPausesWithActors(): Statement {
  return sql`
    select pause.name, pause.at, pause.reason, (
      select entry.actor from ${audit} entry
      where entry.subject = pause.name and coalesce(entry.action, '') = 'names.pause'
        and entry.at >= pause.at - ${entryLeadMs}
      order by entry.at desc, entry.id desc ${limit(1)}) as actor
    from ${pauses} pause where pause.paused = 1 order by pause.name`;
}

/** Changes the number of every pod, so that their next claims read the pauses. */
export function notifyPods(): Statement {
  return sql`update ${pods} set pauses = pauses + 1`;
}

export function podIds(): Statement {
  return sql`select pod_id from ${pods} order by pod_id`;
}

/**
 * Waits for a claim of this pod in progress, and fences off claims that began before the pause:
 * they wait for this write and then find another number. One pod per transaction, because a
 * transaction that waits for one pod's claim must not lock the rows of other pods, which their
 * heartbeats update.
 */
export function notifyPod(podId: string): Statement[] {
  return [
    sql`select 1 from ${pods} where pod_id = ${podId} ${forUpdate}`,
    sql`update ${pods} set pauses = pauses + 1 where pod_id = ${podId}`,
  ];
}

/** The paused names, with the number that this pod's claims must carry. */
export function selectPauses(podId: string): Statement {
  return sql`
    select pod.pauses, pause.name from ${pods} pod left join ${pauses} pause on pause.paused = 1
    where pod.pod_id = ${podId}`;
}

/** The next scopes with blocked tasks, found by stepping along the index. */
function blockedFrom(after: string, count: number): Statement {
  return sql`
    with recursive step (scope, nth) as (
      select (select min(task.blocked_by) from ${tasks} task
        where ${ofTask.isBlocked} and task.blocked_by > ${after}), 1
      union all
      select (select min(task.blocked_by) from ${tasks} task
        where ${ofTask.isBlocked} and task.blocked_by > step.scope), step.nth + 1
      from step where step.scope is not null and step.nth < ${count})
    select scope from step`;
}

function isUnneeded(scope: Statement): Statement {
  return sql`${runningOfKey(scope)} = 0
    and not exists (select 1 from ${tasks} task
      where ${ofTask.isBlocked} and task.blocked_by = ${scope})`;
}

function givenOf(name: string): Statement {
  return sql`select given from ${pauses} where name = ${name}`;
}
