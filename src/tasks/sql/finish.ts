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
import { wakeDependents } from "./dependencies.ts";
import { nextSeq, parked, readyOrLimited } from "./task-state.ts";
import type { RunWrite } from "./runs.ts";

const tasks = table("task");
const events = table("task_event");

/** How an attempt ends in the store. Made by `settle`. */
export type Finish = {
  readonly taskId: string;
  readonly token: number;
  /** `claimed` where a run goes on. */
  readonly status: "pending" | "claimed" | "completed" | "failed" | "cancelled";
  readonly result: string | null;
  readonly error: string | null;
  /** Whether the attempt counts as a failure. */
  readonly counted: 0 | 1;
  /** Whether the handler asked to be run again later, for no fault. */
  readonly snoozed?: 1;
  /** Before it may run again; null where it won't. */
  readonly delayMs: number | null;
  /** What must not have been missed: a row with a newer `wake` isn't parked, but decided again. */
  readonly wake: number | null;
  /** The gate that it went through, where others may wait for room. */
  readonly gate?: { readonly group: string | null };
  /** Whether others are known to wait for it: then those must be woken in the same write. */
  readonly awaited?: boolean;
  /** What a run is from now on. It has its own statements. */
  readonly run?: RunWrite;
  /** What follows where it has failed for good. */
  readonly followUp?: FollowUp;
  readonly event: {
    readonly type: string;
    readonly attempt: number;
    readonly detail: string | null;
  } | null;
};

/**
 * Finishes tasks, unless another pod has claimed them since. What gives a claim back raises the token.
 * Where all of them have simply completed, as they do nearly always, much less has to be sent and set.
 * Unless one of them is known to be awaited, what others have begun to wait for is left as it is.
 */
export function finishTasks(given: readonly Finish[]): Statement {
  const finishes = inOrder(given);
  const { done, changes, unwoken } = finishes.every(({ status }) => status === "completed")
    ? completedRows(finishes)
    : finishRows(finishes);
  const unawaited = unlessHasDependents(finishes);
  return sql`
    update ${tasks}
    set ${changes}, claim_call = null, last_update = ${now}
    from ${done} done
    where ${tasks}.task_id = done.task_id
      and ${tasks}.claim_token = done.token
      and ${tasks}.status in ('claimed', 'pending')
      ${unwoken(sql`${tasks}`)} ${unawaited}
    ${returning(sql`${tasks}.task_id`, {
      // A row that meets the condition stays so while it is held, and one that doesn't never will:
      // tokens, wakes and the count of those who wait only rise.
      before: sql`
        select task.task_id from ${done} done join ${tasks} task on task.task_id = done.task_id
        where task.claim_token = done.token
          and task.status in ('claimed', 'pending')
          ${unwoken(sql`task`)} ${unawaited}
        ${forUpdateOfTask}`,
    })}`;
}

/** A task that somebody waits for mustn't end in a write that wakes nobody. */
function unlessHasDependents(finishes: readonly Finish[]): Statement {
  return wakesDependents(finishes) ? sql`` : sql`and dependents = 0`;
}

/** Whether a write of these must wake those who wait for them. */
export function wakesDependents(finishes: readonly Finish[]): boolean {
  return finishes.some(({ awaited }) => awaited);
}

/** Writes that share rows touch them in the same order, or each could wait for what the other has. */
export function inOrder<Each extends { readonly taskId: string }>(all: readonly Each[]): Each[] {
  return all.toSorted((one, other) => (one.taskId < other.taskId ? -1 : 1));
}

/** A completion asks for no wake: whatever happened to the task meanwhile, it is done. */
function completedRows(finishes: readonly Finish[]) {
  const done = rows(
    { task_id: "text", token: "integer", result: "text" },
    finishes.map((each) => [each.taskId, each.token, each.result]),
  );
  return { done, changes: sql`status = 'completed', result = done.result`, unwoken: () => sql`` };
}

function finishRows(finishes: readonly Finish[]) {
  const done = rows(
    {
      task_id: "text",
      token: "integer",
      status: "text",
      result: "text",
      error: "text",
      counted: "integer",
      snoozed: "integer",
      delay_ms: "integer",
      wake: "integer",
    },
    finishes.map((each) => [
      each.taskId,
      each.token,
      each.status,
      each.result,
      each.error,
      each.counted,
      each.snoozed ?? 0,
      each.delayMs,
      each.wake,
    ]),
  );
  const changes = sql`
    status = done.status, result = done.result, error = coalesce(done.error, ${tasks}.error),
    retry_count = retry_count + done.counted, snoozes = snoozes + done.snoozed,
    claim_token = claim_token + case when done.status = 'pending' then 1 else 0 end,
    claimed_by = case when done.status = 'pending' then null else claimed_by end,
    run_at = case when done.delay_ms is null then run_at else ${now} + done.delay_ms end,
    parked = case when done.delay_ms > 0 then 1 else ${readyOrLimited} end`;
  const unwoken = (task: Statement) => sql`and (done.wake is null or ${task}.wake = done.wake)`;
  return { done, changes, unwoken };
}

/** Notes what happened to tasks, under the same conditions as the finish that it goes with. */
export function noteFinishes(podId: string, finishes: readonly Finish[]): Statement {
  const noted = rows(
    {
      task_id: "text",
      token: "integer",
      wake: "integer",
      type: "text",
      attempt: "integer",
      detail: "text",
    },
    inOrder(finishes)
      .filter((each) => each.event !== null)
      .map((each) => [
        each.taskId,
        each.token,
        each.wake,
        each.event!.type,
        each.event!.attempt,
        each.event!.detail,
      ]),
  );
  return sql`
    insert into ${events} (task_id, seq, type, attempt, pod_id, detail)
    select noted.task_id, ${nextSeq(sql`noted.task_id`)}, noted.type, noted.attempt, ${podId}, noted.detail
    from ${noted} noted join ${tasks} task on task.task_id = noted.task_id
    where task.claim_token = noted.token
      and task.status in ('claimed', 'pending')
      and (noted.wake is null or task.wake = noted.wake) ${unlessHasDependents(finishes)}
    ${forUpdateOfTask}`;
}

/** Stores what follows failures, under the same conditions as the finish that it goes with. */
export function insertFinishFollowUps(finishes: readonly Finish[]): Statement[] {
  const followUps = finishes.flatMap(({ followUp }) => followUp ?? []);
  if (followUps.length === 0) return [];
  const open = sql`task.status in ('claimed', 'pending') ${unlessHasDependents(finishes)} ${forUpdateOfTask}`;
  return [insertFollowUps(followUps, open)];
}

/** Wakes those who wait for what these end. Goes behind them, in the same write. */
export function wakeDependentsAfter(finishes: readonly Finish[]): Statement[] {
  if (!wakesDependents(finishes)) return [];
  const ended = finishes.filter(({ status }) => status !== "pending" && status !== "claimed");
  return ended.length === 0 ? [] : wakeDependents(ended.map(({ taskId }) => taskId));
}

/** How tasks stand that were held, to learn what became of a claim or of a finish. */
export function readTaskStates(taskIds: readonly string[]): Statement {
  const wanted = rows(
    { task_id: "text" },
    taskIds.map((taskId) => [taskId]),
  );
  return sql`
    select task_id, status, claimed_by, claim_token, wake, dependents, cancel_requested, run_seq
    from ${tasks}
    where ${isAmong(sql`select task_id from ${wanted} wanted`, sql`task_id`)}`;
}

/** A run keeps its token from one transition to the next, so that its own count of writes is asked for too. */
export function saveProgress(
  saved: readonly { taskId: string; token: number; runSeq: number; value: string }[],
): Statement {
  const newest = rows(
    { task_id: "text", token: "integer", run_seq: "integer", value: "text" },
    saved.map((each) => [each.taskId, each.token, each.runSeq, each.value]),
  );
  return sql`
    update ${tasks} set progress = newest.value, progress_token = newest.token
    from ${newest} newest
    where ${tasks}.task_id = newest.task_id and ${tasks}.claim_token = newest.token
      and ${tasks}.run_seq = newest.run_seq and ${tasks}.status = 'claimed'`;
}

/**
 * Of snoozes that follow each other only the last is kept, which says how many there were: a task may
 * snooze for months, and its events mustn't grow with every one. Comes after the note of the last.
 */
export function forgetEarlierSnoozes(taskIds: readonly string[]): Statement {
  const snoozed = rows(
    { task_id: "text" },
    taskIds.map((taskId) => [taskId]),
  );
  return sql`
    delete from ${events}
    where task_id in (select task_id from ${snoozed} snoozed) and type = 'snoozed'
      and exists (select 1 from ${events} later where later.task_id = ${events}.task_id
        and later.seq = ${events}.seq + 1 and later.type = 'snoozed')`;
}

/** A task that follows the failure of another, in the same write as that failure. */
export type FollowUp = {
  readonly taskId: string;
  readonly failedId: string;
  /** Of the claim that failed. */
  readonly token: number;
  readonly name: string;
  readonly payload: string;
};

/**
 * Stores what follows failures of `task`, under the condition of the write that fails it, which comes
 * next. Whose task it is, how urgent and of which trace is taken from the one that failed.
 */
export function insertFollowUps(given: readonly FollowUp[], condition: Statement): Statement {
  const failed = rows(
    { id: "text", failed_id: "text", token: "integer", name: "text", payload: "text", key: "text" },
    given.map((each) => {
      const { taskId, failedId, token, name, payload } = each;
      return [taskId, failedId, token, name, payload, `${failedId}/${token}`];
    }),
  );
  return sql`
    insert into ${tasks} (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
      unique_key, parent_id, trace, limited, parked)
    select failed.id, task.tenant, failed.name, failed.payload, task.priority, ${now}, ${now}, ${now},
      failed.key, task.task_id, task.trace, ${ofTenant(1)}, ${ofTenant(parked.limited)}
    from ${failed} failed join ${tasks} task
      on task.task_id = failed.failed_id and task.claim_token = failed.token
    where ${condition}
    on conflict do nothing`;
}

function ofTenant(value: number): Statement {
  return sql`case when task.tenant <> 'default' then cast(${value} as integer) else 0 end`;
}

/** What was saved last of a task, with the token of the attempt that saved it. */
export function readProgress(taskId: string): Statement {
  return sql`select progress, progress_token from ${tasks} where task_id = ${taskId}`;
}
