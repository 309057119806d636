import { innerRanges } from "../../steps/key.ts";
import type { StepWrite } from "../../steps/model.ts";
import {
  forUpdateOfTask,
  isAmong,
  now,
  returning,
  rowAddress,
  rows,
  sql,
  type Statement,
  table,
} from "../../store/sql.ts";
import { inOrder } from "./finish.ts";
import type { NewTask } from "./enqueue.ts";

const tasks = table("task");
const journal = table("step_journal");
const signals = table("task_signal");

/** The children that a step starts, in their order. */
export type StepChildren = {
  readonly rows: readonly NewTask[];
  /** Those of an earlier generation of the task that have failed or were cancelled, as they were read. */
  readonly again: readonly { readonly taskId: string; readonly token: number }[];
};

/** A step of a task, with the token of the claim that ran it. */
export type TaskStep = {
  readonly taskId: string;
  readonly token: number;
  readonly step: StepWrite;
  /** The tasks and runs that it starts. */
  readonly children?: StepChildren;
};

/** The part of a task's journal. Owners with several journals name theirs otherwise. */
export const taskPart = "";
const part = sql`''`;

/**
 * Stores steps of tasks, unless another pod has claimed their tasks since. The tasks' rows are held
 * until the commit, so that no claim comes in between, but they are not changed. A step that was
 * stored by an earlier send is left as it is: its key, token and number are those of this write.
 * Then deletes the steps within these, which their value stands for.
 */
export function storeSteps(unordered: readonly TaskStep[]): Statement[] {
  const steps = inOrder(unordered);
  const given = rows(
    {
      task_id: "text",
      token: "integer",
      key: "text",
      seq: "integer",
      kind: "text",
      input_hash: "text",
      value: "text",
      took_ms: "integer",
    },
    steps.map(({ taskId, token, step }) => [
      taskId,
      token,
      step.key,
      step.seq,
      step.kind,
      step.inputHash,
      step.value,
      step.tookMs,
    ]),
  );
  const insert = sql`
    insert into ${journal} as stored (owner_id, part, key, seq, token, kind, input_hash, value, started_at, at)
    select given.task_id, ${part}, given.key, given.seq, given.token, given.kind,
      given.input_hash, given.value, ${now} - given.took_ms, ${now}
    from ${given} given join ${tasks} task on task.task_id = given.task_id
    where task.claim_token = given.token and task.status in ('claimed', 'pending')
    ${forUpdateOfTask}
    on conflict (owner_id, part, key) do update set seq = excluded.seq, token = excluded.token,
      kind = excluded.kind, input_hash = excluded.input_hash, value = excluded.value,
      started_at = excluded.started_at, at = excluded.at
    where stored.seq < excluded.seq
    ${returning(sql`owner_id, key`, { after: selectStored(unordered) })}`;
  const outer = steps.filter(({ step }) => step.forgets);
  const taking = steps.filter(({ step }) => step.takes !== undefined);
  return [
    insert,
    ...(outer.length > 0 ? [deleteWithin(outer)] : []),
    ...(taking.length > 0 ? [takeSignalsOf(taking)] : []),
  ];
}

/** The steps of these that are stored, by this send or an earlier one. */
export function selectStored(steps: readonly TaskStep[]): Statement {
  const given = rows(
    { task_id: "text", token: "integer", key: "text", seq: "integer" },
    steps.map(({ taskId, token, step }) => [taskId, token, step.key, step.seq]),
  );
  return sql`
    select stored.owner_id, stored.key from ${given} given join ${journal} stored
      on stored.owner_id = given.task_id and stored.part = ${part} and stored.key = given.key
    where stored.token = given.token and stored.seq = given.seq`;
}

/**
 * Forgets steps of tasks that are started over: those that have failed for good, which would only
 * fail the task again, or all of them.
 */
export function forgetSteps(taskIds: Statement, which: "failed" | "all"): Statement {
  const kind = which === "failed" ? sql`and kind = 'failed'` : sql``;
  return sql`delete from ${journal} where owner_id in (${taskIds}) and part = ${part} ${kind}`;
}

/** Forgets single steps of a task, by their keys, and what is stored within them. */
export function forgetStepsByKey(taskIds: Statement, keys: readonly string[]): Statement {
  const wanted = rows(
    { low: "text", high: "text" },
    keys.flatMap((key) => [[key, `${key}\u0001`], ...innerRanges(key)]),
  );
  return sql`
    delete from ${journal} where owner_id in (${taskIds}) and part = ${part}
      and exists (select 1 from ${wanted} wanted
        where ${journal}.key >= wanted.low and ${journal}.key < wanted.high)`;
}

/** True if the claim that holds a task has stored a step of it. */
export function hasStepped(task: Statement): Statement {
  return sql`exists (
    select 1 from ${journal} stored
    where stored.owner_id = ${task}.task_id and stored.part = ${part}
      and stored.token = ${task}.claim_token)`;
}

/** A signal is taken by the step that is stored with it, and by no other. */
function takeSignalsOf(steps: readonly TaskStep[]): Statement {
  const used = rows(
    { task_id: "text", token: "integer", key: "text", seq: "integer", signal_id: "text" },
    steps.map(({ taskId, token, step }) => [taskId, token, step.key, step.seq, step.takes!]),
  );
  return sql`
    update ${signals} set taken = 1 from ${used} used
    where ${signals}.task_id = used.task_id and ${signals}.signal_id = used.signal_id
      and ${isStoredBy(sql`used`)}`;
}

/** The condition that a write's row is stored, by this send or an earlier one. */
export function isStoredBy(given: Statement): Statement {
  return sql`exists (select 1 from ${journal} stored
        where stored.owner_id = ${given}.task_id and stored.part = ${part} and stored.key = ${given}.key
          and stored.token = ${given}.token and stored.seq = ${given}.seq)`;
}

function deleteWithin(outer: readonly TaskStep[]): Statement {
  const ranges = rows(
    { task_id: "text", token: "integer", key: "text", seq: "integer", low: "text", high: "text" },
    outer.flatMap(({ taskId, token, step }) =>
      innerRanges(step.key).map(([low, high]) => [taskId, token, step.key, step.seq, low, high]),
    ),
  );
  return sql`
    delete from ${journal} where ${isAmong(sql`
      select inner_step.${rowAddress} from ${ranges} given
      join ${journal} stored on stored.owner_id = given.task_id and stored.part = ${part}
        and stored.key = given.key and stored.token = given.token and stored.seq = given.seq
      join ${journal} inner_step on inner_step.owner_id = given.task_id
        and inner_step.part = ${part}
        and inner_step.key >= given.low and inner_step.key < given.high`)}`;
}
