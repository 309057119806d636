import { noEntry, type WriteEntry } from "../../audit/act.ts";
import type { Retention } from "../rows.ts";
import { aloneAfterDeaths, deathLimit } from "../../base/death-limit.ts";
import type { PodSeen } from "../../pods/liveness.ts";
import {
  forUpdateOfTask,
  isAmong,
  isLockable,
  limit,
  now,
  returning,
  rowAddress,
  rows,
  sql,
  type Statement,
  table,
  forUpdateSkipLocked,
  forUpdateOfTaskSkipLocked,
} from "../../store/sql.ts";
import { isHeldBack } from "./claim.ts";
import { nextSeq } from "./task-state.ts";
import { deleteLinksTo } from "../../links/sql.ts";
import { deleteAliasesOf } from "./enqueue.ts";
import { deleteReferencesOf } from "../../files/sql/files.ts";
import { type FollowUp, insertFollowUps } from "./finish.ts";
import { deleteDependencies, hasNoOpenDependents } from "./dependencies.ts";
import { forgetSteps, hasStepped } from "./steps.ts";

const tasks = table("task");
const events = table("task_event");
const pods = table("pod");

export type Orphan = {
  readonly taskId: string;
  readonly token: number;
  readonly pod: PodSeen;
  /** What is known of the attempt that its pod died under, as JSON: when it was claimed, and when it began. */
  readonly detail?: string;
};

// An enqueue whose answer was lost is repeated for half a minute. It must find what it has stored,
// or it would store and run the same task again.
const youngMs = 60_000;

/**
 * The claims of silent pods, with the tokens to recover them by. They are picked in the order of
 * the claims' index: to pick them by id, a planner that expects most tasks to be claimed would scan
 * all tasks.
 */
export function claimsOf(podIds: readonly string[], count: number): Statement {
  const silent = rows(
    { pod_id: "text" },
    podIds.map((podId) => [podId]),
  );
  return sql`
    select task_id, claim_token, claimed_by, deaths, last_update from (
      select task_id, claim_token, claimed_by, deaths, last_update from ${tasks}
      where status = 'claimed' and claimed_by in (select pod_id from ${silent} silent)
      order by claimed_by, claim_call ${limit(count)}) held
    order by task_id`;
}

/**
 * Recovers orphans: tasks still claimed by the silent pod, with the token that was read, if that
 * pod has sent no heartbeat since. A death is counted unless the task only waited for a slot. The
 * attempt is not counted, and the token stays, so that the pod
 * may still store its outcome if no other pod has claimed the task. A locked row is left for the
 * next pass, because one idle transaction must not keep all the others from being recovered.
 */
export function recoverTasks(orphans: readonly Orphan[]): Statement {
  const silent = orphanRows(orphans);
  const { cancelled, spent, status, token, deaths, failures } = afterRecovery(tasks);
  const recovered = afterRecovery(sql`task`);
  return sql`
    update ${tasks}
    set status = ${status},
      error = case when ${cancelled} then error when ${spent} then ${poisonError} else error end,
      claim_token = ${token},
      deaths = ${deaths}, retry_count = ${failures}, claimed_by = null, claim_call = null, last_update = ${now}
    from ${silent} orphan
    where ${isOrphan(tasks)} and ${isLockable(
      sql`
      select ${rowAddress("task")} from ${tasks}
      where ${isAmong(sql`select task_id from ${orphanRows(orphans)} wanted`, sql`task_id`)} ${forUpdateSkipLocked}`,
      // The rows of orphans have a column of the same name.
      rowAddress("task", tasks),
    )}
    ${returning(sql`${tasks}.task_id, ${tasks}.name, ${tasks}.status, ${tasks}.claim_token`, {
      before: sql`
        select task.task_id, task.name, ${recovered.status} as status,
          ${recovered.token} as claim_token
        from ${silent} orphan join ${tasks} task on ${isOrphan(sql`task`)} ${forUpdateOfTask}`,
    })}`;
}

/** What becomes of an orphan. */
function afterRecovery(task: typeof tasks | Statement) {
  // A run has finalizers. The next driver runs them.
  const isTask = sql`flow_version is null`;
  const deaths = deathsAfter(task);
  const spent = sql`${deaths} >= ${deathLimit} and ${isTask}`;
  const cancelled = sql`cancel_requested = 1 and ${isTask}`;
  const status = sql`case when ${cancelled} then 'cancelled' when ${spent} then 'failed'
    else 'pending' end`;
  const token = sql`claim_token + case when ${cancelled} or ${spent} then 1 else 0 end`;
  const failures = sql`case when ${hasStepped(sql`${task}`)} then 0 else retry_count end`;
  return { cancelled, spent, status, token, deaths, failures };
}

export function noteRecovery(orphans: readonly Orphan[]): Statement {
  const noted = rows(
    { ...orphanColumns, detail: "content" },
    orphans.map((orphan) => [...orphanValues(orphan), orphan.detail ?? null]),
  );
  return sql`
    insert into ${events} (task_id, seq, type, attempt, pod_id, detail)
    select orphan.task_id, ${nextSeq(sql`orphan.task_id`)}, 'pod_died', task.retry_count + 1,
      orphan.pod_id, orphan.detail
    from ${noted} orphan join ${tasks} task on ${isOrphan(sql`task`)}
    where not ${isHeldBack(sql`task`)} ${forUpdateOfTaskSkipLocked}`;
}

/** Deaths count from the last stored step, so that a task that gets on survives any number of them. */
function deathsAfter(task: typeof tasks | Statement): Statement {
  const before = sql`case when ${hasStepped(sql`${task}`)} then 0 else ${task}.deaths end`;
  return sql`${before} + case when ${isHeldBack(task)} then 0 else 1 end`;
}

/**
 * Stores the follow-ups of tasks that recovery is about to fail. Goes between `noteRecovery` and
 * `recoverTasks`.
 */
export function insertRecoveryFollowUps(
  followUps: readonly FollowUp[],
  orphans: readonly Orphan[],
): Statement {
  return insertFollowUps(
    followUps,
    sql`${deathsAfter(sql`task`)} >= ${deathLimit} and task.cancel_requested = 0 and task.flow_version is null
      and exists (select 1 from ${orphanRows(orphans)} orphan where ${isOrphan(sql`task`)})
    ${forUpdateOfTaskSkipLocked}`,
  );
}

export const poisonError = JSON.stringify({
  code: "pod_died",
  message: `${deathLimit} pods died while they ran this task, ${deathLimit - aloneAfterDeaths} of them with nothing else to run`,
});

/**
 * Walks over `count` tasks in the order of their ids. Returns the finished and old ones and, unless
 * the walk is at its end, the id to continue after. One statement for any number of tasks. With
 * `upToYoung` the walk ends at a page of tasks that are all younger than any is kept: ids sort by
 * age, so the rest is younger still.
 */
export function sweep(
  after: string,
  count: number,
  kept: Retention,
  { upToYoung = false } = {},
): Statement {
  const { completed, failed, cancelled } = kept;
  const shortestMs = Math.min(completed, failed, cancelled);
  const goesOn = upToYoung
    ? sql`count(*) = ${count} and min(created_at) < ${now} - ${shortestMs}`
    : sql`count(*) = ${count}`;
  return sql`
    with page as (
      select task_id, status, created_at, last_update from ${tasks}
      where task_id > ${after} order by task_id ${limit(count)})
    select task_id, 1 as old from page where ${isOld(kept)}
    union all
    select max(task_id), 0 from page having ${goesOn}`;
}

/** Deletes expired tasks without open dependents, and then all rows that belong to deleted ones. */
export function deleteFinished(
  taskIds: readonly string[],
  kept: Retention,
  entry: WriteEntry = noEntry,
): Statement[] {
  const old = rows(
    { task_id: "text" },
    taskIds.map((taskId) => [taskId]),
  );
  const gone = sql`select task_id from ${old} old
    where not exists (select 1 from ${tasks} task where task.task_id = old.task_id)`;
  return [
    sql`delete from ${tasks} where ${isAmong(sql`
      select ${rowAddress("task")} from ${tasks}
      where ${isAmong(sql`select task_id from ${old} old`, sql`task_id`)}
        and ${isOld(kept)} and ${hasNoOpenDependents} ${forUpdateSkipLocked}`)}`,
    ...entry({
      when: sql`where exists (${gone})`,
      count: sql`(select count(*) from (${gone}) deleted)`,
      outcome: "begun",
    }),
    ...deleteBelongings(gone),
  ];
}

/** Deletes all rows that belong to deleted tasks. */
export function deleteBelongings(gone: Statement): Statement[] {
  return [
    sql`delete from ${events} where task_id in (${gone})`,
    deleteDependencies(gone),
    sql`delete from ${table("task_signal")} where task_id in (${gone})`,
    forgetSteps(gone, "all"),
    deleteLinksTo(gone),
    deleteAliasesOf(gone),
    ...deleteReferencesOf("task", gone),
  ];
}

/** The condition that a task ended so long ago that no caller is about to read how. */
export const isSettled = sql`created_at < ${now} - ${youngMs} and last_update < ${now} - ${youngMs}`;

const orphanColumns = {
  task_id: "text",
  token: "integer",
  pod_id: "text",
  beat: "integer",
} as const;

function orphanValues({ taskId, token, pod }: Orphan) {
  return [taskId, token, pod.podId, pod.beat];
}

function orphanRows(orphans: readonly Orphan[]) {
  return rows(orphanColumns, orphans.map(orphanValues));
}

// A pod without a row has the beat -1. A pod that was seen with another beat has lost its row
// since, and is watched from the start.
function isOrphan(from: typeof tasks | Statement): Statement {
  return sql`${from}.task_id = orphan.task_id and ${from}.claim_token = orphan.token
    and ${from}.status = 'claimed' and ${from}.claimed_by = orphan.pod_id
    and coalesce((select pod.beat from ${pods} pod where pod.pod_id = orphan.pod_id), -1) = orphan.beat`;
}

/** The condition that a task ended long enough ago to be deleted. */
function isOld({ completed, failed, cancelled }: Retention): Statement {
  return sql`created_at < ${now} - ${youngMs}
    and (status = 'completed' and last_update < ${now} - ${completed}
      or status = 'failed' and last_update < ${now} - ${failed}
      or status = 'cancelled' and last_update < ${now} - ${cancelled})`;
}
