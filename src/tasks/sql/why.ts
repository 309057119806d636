import { aloneAfterDeaths } from "../../base/death-limit.ts";
import { columnBytes } from "../../store/page.ts";
import { limit, now, rows, sql, type Statement, table } from "../../store/sql.ts";
import { isHeldBack } from "./claim.ts";
import {
  isBlocked,
  isLimited,
  isLimitedAlone,
  isReady,
  isReadyAlone,
  parked,
  tenantOf,
  isRunning,
} from "./task-state.ts";

const tasks = table("task");
const events = table("task_event");
const dependencies = table("task_dependency");
const journal = table("step_journal");

// No event that is read here is longer, unless its error is.
const maxDetailBytes = 20_000;
// A limit is at most ten times this, and the longest holders of the first are found well enough.
const maxHoldersRead = 1_000;

/** What a task's row says of why it waits or where it runs, with the store's time. */
export function readStanding(taskId: string): Statement {
  return sql`
    select task_id, tenant, name, status, priority, parked, depends, limited, run_at, created_at,
      last_update, advanced_at, scheduled_at, retry_count, max_attempts, snoozes, deaths,
      claimed_by, cancel_requested, concurrency_key, blocked_by, awaits, waiting, set_aside,
      set_aside_version, flow_version, task_version, claim_token, ${now} as now_at,
      case when exists (select 1 from ${journal} step
        where step.owner_id = ${tasks}.task_id and step.kind = 'wait') then 1 else 0 end as has_wait,
      case when status = 'claimed' and ${isHeldBack(tasks)} then 1 else 0 end as held_back
    from ${tasks} where task_id = ${taskId}`;
}

/**
 * The newest events of a task that say why it is to be tried later. Details that are long are left out: no
 * event of these kinds needs them.
 */
export function readLateness(taskId: string): Statement {
  return sql`
    select type, at, attempt, pod_id,
      case when type in ('retry', 'snoozed', 'error', 'park') and ${columnBytes(sql`detail`)} <= ${maxDetailBytes}
        then detail end as detail
    from ${events} where task_id = ${taskId} order by seq desc ${limit(5)}`;
}

/**
 * The tasks that a task comes after and the children that it waits for: first those that have failed, then
 * those that are open, each row with how many there are of each. One whose row was deleted has no status.
 * All of them are counted: a task has a thousand of `after` at most, and as many children of each step.
 */
export function readDependencyStates(taskId: string, count: number): Statement {
  const rank = sql`case when status in ('failed', 'cancelled') then 0
    when status in ('pending', 'claimed') then 1 when status is null then 2 else 3 end`;
  return sql`
    select task_id, name, status, tenant, is_child, claimed_by, count(*) over () as all_tasks,
      sum(case when ${rank} = 0 then 1 else 0 end) over () as failed_tasks,
      sum(case when ${rank} = 1 then 1 else 0 end) over () as open_tasks
    from (
      select wait.dependency_id as task_id, wait.place, dependency.name, dependency.status,
        dependency.tenant, dependency.claimed_by,
        case when dependency.parent_id = ${taskId} then 1 else 0 end as is_child
      from ${dependencies} wait
      left join ${tasks} dependency on dependency.task_id = wait.dependency_id
      where wait.dependent_id = ${taskId}) known
    order by ${rank}, place, task_id ${limit(count)}`;
}

/** The tasks that use the slots of a scope, the longest first. */
export function readSlotHolders(scope: string, count: number): Statement {
  const tenant = tenantOf(scope);
  // Written as a range for the reason that `runningOfKey` is.
  const held =
    tenant === undefined
      ? sql`${isRunning(sql``)} and concurrency_key between ${scope} and ${scope}`
      : sql`${isRunning(sql``)} and limited = 1 and tenant <> 'default'
          and tenant between ${tenant} and ${tenant}`;
  return sql`
    select task_id, name, tenant, claimed_by, since_at from (
      select task_id, name, tenant, claimed_by, last_update as since_at
      from ${tasks} where ${held} ${limit(maxHoldersRead)}) held
    order by since_at, task_id ${limit(count)}`;
}

/** How many tasks each of these pods holds, counted up to `maxCount`. */
export function countHeldBy(podIds: readonly string[], maxCount: number): Statement {
  const wanted = rows(
    { pod_id: "text" },
    podIds.map((podId) => [podId]),
  );
  return sql`
    select pod.pod_id, (select count(*) from (
      select 1 from ${tasks} task
      where task.status = 'claimed' and task.claimed_by = pod.pod_id
      order by task.claim_call ${limit(maxCount)}) held) as held
    from ${wanted} pod`;
}

/** Where a pending task stands among those of its name, or of its limit's scope. */
export type QueuePlace = {
  readonly taskId: string;
  readonly name: string;
  readonly tenant: string;
  readonly priority: number;
  readonly createdAtMs: number;
  readonly deaths: number;
  /** A value of `parked`. */
  readonly parked: number;
  readonly blockedBy: string | null;
};

/**
 * How many tasks are claimed before this one, of those that are read for a claim together with it, counted
 * up to `maxCount` on each of two sides: higher priorities, and the same one but older. Undefined for a
 * task that no claim would take now. Each side is one range of an index.
 */
export function countAhead(place: QueuePlace, maxCount: number): Statement | undefined {
  const line = lineOf(place);
  if (!line) return undefined;
  const { within, order, byPriority } = line;
  const bounded = limit(maxCount);
  const older = sql`(created_at, task_id) < (${place.createdAtMs}, ${place.taskId})`;
  const higher = sql`(select count(*) from (
    select 1 from ${tasks} where ${within} and priority > ${place.priority}
    order by ${order} ${bounded}) higher)`;
  const same = byPriority ? sql`${older} and priority = ${place.priority}` : older;
  return sql`
    select ${byPriority ? sql`${higher} +` : sql``} (select count(*) from (
      select 1 from ${tasks} where ${within} and ${same}
      order by ${order} ${bounded}) earlier) as ahead`;
}

/** The tasks in whose order a task is claimed: one partial index, from its first column on. */
function lineOf(place: QueuePlace) {
  const { name, tenant, blockedBy, deaths } = place;
  const byAge = sql`created_at, task_id`;
  const byPriority = sql`priority desc, ${byAge}`;
  const isAlone = deaths >= aloneAfterDeaths;
  switch (place.parked) {
    case parked.ready:
      return isAlone
        ? { within: sql`name = ${name} and ${isReadyAlone}`, order: byAge, byPriority: false }
        : { within: sql`name = ${name} and ${isReady}`, order: byPriority, byPriority: true };
    case parked.limited:
      return isAlone
        ? { within: sql`name = ${name} and ${isLimitedAlone}`, order: byAge, byPriority: false }
        : {
            within: sql`name = ${name} and tenant = ${tenant} and ${isLimited}`,
            order: byPriority,
            byPriority: true,
          };
    case parked.blocked:
      return {
        within: sql`blocked_by = ${blockedBy ?? ""} and ${isBlocked}`,
        order: byPriority,
        byPriority: true,
      };
    default:
      return undefined;
  }
}
