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
import { copyTaskFiles } from "../../files/sql/task-links.ts";
import { insertLinks } from "../../links/sql.ts";
import { filePrefix } from "../../protocol/file.ts";
import type { StepWrite } from "../../steps/model.ts";
import { dependsAs, nextSeq, noDeaths, parked, parkedAs, readyOrLimited } from "./task-state.ts";
import type { NewTask } from "./enqueue.ts";

const tasks = table("task");
const events = table("task_event");

/** The write that ends an attempt. Made by `decideFinish`. */
export type Finish = {
  readonly taskId: string;
  readonly token: number;
  /** When the handler was called, by the store's clock; undefined if it wasn't. */
  readonly startedAtMs?: number | undefined;
  /** `claimed` if a run continues. */
  readonly status: "pending" | "claimed" | "completed" | "failed" | "cancelled";
  readonly result: string | null;
  readonly error: string | null;
  /** Whether the attempt counts as a failure. */
  readonly counted: 0 | 1;
  /** Whether the handler snoozed, which is not a failure. */
  readonly snoozed?: 1;
  /** True if the attempt has stored steps: failures and deaths before them count no more. */
  readonly stepped?: boolean;
  /** The delay before it may run again; null if it will not, or not before a signal. */
  readonly delayMs: number | null;
  /**
   * The name of a signal that it waits for, or what the keys of children begin with that it waits for.
   * With a delay, until then at the latest.
   */
  readonly awaits?: string;
  /** Present if it waits for children: for nothing else, or for a time or a signal too. */
  readonly children?: "only" | "among";
  /** Why no pod may claim it until it is resumed, as JSON. */
  readonly setAside?: string;
  /**
   * The `wake` that the decision is based on: if the row has a newer one, the finish is refused and
   * decided again.
   */
  readonly wake: number | null;
  /** Present if the task is limited, so that other tasks may be blocked by it. */
  readonly limited?: { readonly scope: string | null };
  /** True if it is known to have dependents, which must be woken in the same write. */
  readonly hasDependents?: boolean;
  /** The new state of a run, which has its own statements. */
  readonly run?: RunWrite;
  /** The follow-up of a task that has failed for good. */
  readonly followUp?: FollowUp;
  readonly event: {
    readonly type: string;
    readonly attempt: number;
    readonly detail: string | null;
  } | null;
};

/** The row of a run after one write of its driver. */
export type RunWrite = {
  /** How many such writes there were before; the fence of this write. */
  readonly seq: number;
  readonly version: number | null;
  readonly cursor: string | null;
  /** Null if it is unchanged. */
  readonly state: string | null;
  readonly intent: string | null;
  readonly waiting: string | null;
  readonly stoppedAt: string | null;
  readonly failures: number;
  /**
   * True if the cursor points to another transition than before, which has no deaths and no
   * progress yet.
   */
  readonly moved: boolean;
  /** True if a step of its transition is stored: deaths before it count no more. */
  readonly stepped: boolean;
  /** The step that is stored with it, if it isn't stored already, and the part of its journal. */
  readonly step?: { readonly part: string; readonly write: StepWrite } | undefined;
  /** The parts of its journal that are over. */
  readonly forgets: readonly string[];
  /** The trace that it belongs to from now on; null if it is stored already. */
  readonly trace: string | null;
  /** Only used if the run is released. */
  readonly park: RunPark;
  readonly events: readonly {
    readonly type: string;
    readonly attempt: number | null;
    readonly detail: string | null;
  }[];
  /** Runs that it starts and waits for. */
  readonly children: readonly NewTask[];
  /** Whether its children are to be cancelled. */
  readonly cancelsChildren: boolean;
  /** The signals that it has consumed. */
  readonly takes: readonly string[];
};

/** What a released run waits for before it can be claimed. */
export type RunPark =
  /** Nothing, or a time in the future. */
  | { readonly for: "time"; readonly untilMs: number | null }
  /** A signal of this name, with or without a time limit. */
  | { readonly for: "signal"; readonly name: string; readonly untilMs: number | null }
  /** All children whose keys begin with this prefix. */
  | { readonly for: "children"; readonly keys: string }
  /** A free slot of a limit that the starter of the run did not know of. */
  | { readonly for: "slot"; readonly scope: string }
  /** An operator: the run cannot be read. */
  | { readonly for: "people"; readonly why: string; readonly byVersion: number };

/** A task that follows the failure of another, stored in the same write as that failure. */
export type FollowUp = {
  readonly taskId: string;
  readonly failedId: string;
  /** The token of the failed claim. */
  readonly token: number;
  readonly name: string;
  readonly payload: string;
};

/**
 * Finishes tasks, unless another pod has claimed them since. A finish that releases the claim
 * raises the token. If all tasks have completed, as they nearly always have, much less is sent and
 * set. Unless one of them is known to have dependents, tasks that got dependents since their claim
 * are left unchanged.
 */
export function finishTasks(unordered: readonly Finish[]): Statement {
  const finishes = inOrder(unordered);
  const { done, changes, unwoken } = finishes.every(({ status }) => status === "completed")
    ? completedRows(finishes)
    : finishRows(finishes);
  const withoutDependents = unlessHasDependents(finishes);
  return sql`
    update ${tasks}
    set ${changes}, claim_call = null, last_update = ${now}
    from ${done} done
    where ${tasks}.task_id = done.task_id
      and ${tasks}.claim_token = done.token
      and ${tasks}.status in ('claimed', 'pending')
      ${unwoken(sql`${tasks}`)} ${withoutDependents}
    ${returning(sql`${tasks}.task_id`, {
      // A row that meets the condition keeps meeting it while it is locked, and one that does not
      // never will: tokens, wakes and the count of dependents only grow.
      before: sql`
        select task.task_id from ${done} done join ${tasks} task on task.task_id = done.task_id
        where task.claim_token = done.token
          and task.status in ('claimed', 'pending')
          ${unwoken(sql`task`)} ${withoutDependents}
        ${forUpdateOfTask}`,
    })}`;
}

/** True if a write of these must wake dependents. */
export function wakesDependents(finishes: readonly Finish[]): boolean {
  return finishes.some(({ hasDependents }) => hasDependents);
}

/** Writes that share rows touch them in the same order. Otherwise they could deadlock. */
export function inOrder<Each extends { readonly taskId: string }>(all: readonly Each[]): Each[] {
  return all.toSorted((one, other) => (one.taskId < other.taskId ? -1 : 1));
}

/** Records events of tasks, under the same conditions as the finish in the same write. */
export function noteFinishes(podId: string, finishes: readonly Finish[]): Statement {
  const noted = rows(
    {
      task_id: "text",
      token: "integer",
      wake: "integer",
      type: "text",
      attempt: "integer",
      detail: "content",
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

/** Stores follow-ups of failures, under the same conditions as the finish in the same write. */
export function insertFinishFollowUps(finishes: readonly Finish[]): Statement[] {
  const followUps = finishes.flatMap(({ followUp }) => followUp ?? []);
  if (followUps.length === 0) return [];
  const open = sql`task.status in ('claimed', 'pending') ${unlessHasDependents(finishes)} ${forUpdateOfTask}`;
  return [insertFollowUps(followUps, open), ...linkFollowUps(followUps)];
}

/** Wakes the dependents of tasks that these finishes end. Goes after them, in the same write. */
export function wakeDependentsAfter(finishes: readonly Finish[]): Statement[] {
  if (!wakesDependents(finishes)) return [];
  const ended = finishes.filter(({ status }) => status !== "pending" && status !== "claimed");
  return ended.length === 0 ? [] : wakeDependents(ended.map(({ taskId }) => taskId));
}

/** The current state of tasks, to find out what became of a claim or of a finish. */
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

/** A run keeps its token from one transition to the next, so `run_seq` is compared too. */
export function saveProgress(
  saved: readonly { taskId: string; token: number; runSeq: number; value: string }[],
): Statement {
  const newest = rows(
    { task_id: "text", token: "integer", run_seq: "integer", value: "content" },
    saved.map((each) => [each.taskId, each.token, each.runSeq, each.value]),
  );
  return sql`
    update ${tasks} set progress = newest.value, progress_token = newest.token
    from ${newest} newest
    where ${tasks}.task_id = newest.task_id and ${tasks}.claim_token = newest.token
      and ${tasks}.run_seq = newest.run_seq and ${tasks}.status = 'claimed'`;
}

/**
 * Of consecutive snoozes only the last event is kept, which holds their number: a task may snooze
 * for months, and its events must not grow with every snooze. Goes after the last event is
 * recorded.
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

/**
 * Stores follow-ups of failures of `task`, under the condition of the write that fails it, which
 * comes next. Tenant, priority and trace are those of the failed task.
 */
export function insertFollowUps(given: readonly FollowUp[], condition: Statement): Statement {
  const failed = rows(
    {
      id: "text",
      failed_id: "text",
      token: "integer",
      name: "text",
      payload: "content",
      key: "text",
    },
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

/** Links stored follow-ups to the tasks that failed, and to the files of those. Goes after their insert. */
export function linkFollowUps(given: readonly FollowUp[]): Statement[] {
  const withFiles = given.filter(({ payload }) => payload.includes(filePrefix));
  return [
    insertLinks(
      given.map(({ taskId, failedId }) => ({ fromId: failedId, toId: taskId, what: "follow_up" })),
    ),
    ...(withFiles.length === 0
      ? []
      : [copyTaskFiles(withFiles.map(({ taskId, failedId }) => ({ from: failedId, to: taskId })))]),
  ];
}

/** The last saved progress of a task, with the token of the attempt that saved it. */
export function readProgress(taskId: string): Statement {
  return sql`select progress, progress_token from ${tasks} where task_id = ${taskId}`;
}

/** A task with dependents must not end in a write that does not wake them. */
function unlessHasDependents(finishes: readonly Finish[]): Statement {
  return wakesDependents(finishes) ? sql`` : sql`and dependents = 0`;
}

/** A completion ignores wakes: whatever happened to the task meanwhile, it is done. */
function completedRows(finishes: readonly Finish[]) {
  const done = rows(
    { task_id: "text", token: "integer", result: "content", started_at: "integer" },
    finishes.map((each) => [each.taskId, each.token, each.result, each.startedAtMs ?? null]),
  );
  const changes = sql`status = 'completed', result = done.result, started_at = done.started_at`;
  return { done, changes, unwoken: () => sql`` };
}

function finishRows(finishes: readonly Finish[]) {
  const done = rows(
    {
      task_id: "text",
      token: "integer",
      status: "text",
      result: "content",
      error: "content",
      counted: "integer",
      snoozed: "integer",
      stepped: "integer",
      delay_ms: "integer",
      awaits: "text",
      children: "integer",
      set_aside: "content",
      wake: "integer",
      started_at: "integer",
    },
    finishes.map((each) => [
      each.taskId,
      each.token,
      each.status,
      each.result,
      each.error,
      each.counted,
      each.snoozed ?? 0,
      each.stepped ? 1 : 0,
      each.delayMs,
      each.awaits ?? null,
      childrenColumn(each),
      each.setAside ?? null,
      each.wake,
      each.startedAtMs ?? null,
    ]),
  );
  const changes = sql`
    status = done.status, result = done.result, error = coalesce(done.error, ${tasks}.error),
    started_at = coalesce(done.started_at, ${tasks}.started_at),
    retry_count = case when done.stepped = 1 then 0 else retry_count end + done.counted,
    deaths = case when done.stepped = 1 then ${noDeaths} else deaths end, snoozes = snoozes + done.snoozed,
    claim_token = claim_token + case when done.status = 'pending' then 1 else 0 end,
    claimed_by = case when done.status = 'pending' then null else claimed_by end,
    run_at = case when done.delay_ms is null then run_at else ${now} + done.delay_ms end,
    awaits = done.awaits,
    depends = case when done.children > 0 then ${dependsAs.ended} else depends end,
    set_aside = done.set_aside,
    parked = case when done.set_aside is not null then ${parkedAs.setAside}
      when done.delay_ms > 0 then ${parkedAs.untilDue}
      when done.children = 2 then ${parkedAs.forDependencies}
      when done.awaits is not null then ${parkedAs.untilSignal} else ${readyOrLimited} end`;
  const unwoken = (task: Statement) => sql`and (done.wake is null or ${task}.wake = done.wake)`;
  return { done, changes, unwoken };
}

function childrenColumn({ children }: Finish): number {
  return children === undefined ? 0 : children === "only" ? 2 : 1;
}

function ofTenant(value: number): Statement {
  return sql`case when task.tenant <> 'default' then cast(${value} as integer) else 0 end`;
}
