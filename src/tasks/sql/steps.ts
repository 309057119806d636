import { innerRanges } from "../../steps/key.ts";
import type { StepWrite } from "../../steps/model.ts";
import { columnBytes } from "../../store/page.ts";
import {
  forUpdateOfTask,
  isAmong,
  limit,
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

/** A step of a task or of a run's transition, with the token of the claim that ran it. */
export type TaskStep = {
  readonly taskId: string;
  readonly token: number;
  readonly step: StepWrite;
  /** Present for a run: the part of its journal, and how often the run was written before. */
  readonly run?: { readonly part: string; readonly seq: number };
  /** The tasks and runs that it starts. */
  readonly children?: StepChildren;
  /** Present if it is the first of a higher version of the task's code. */
  readonly raises?: { readonly version: number; readonly begunBy: number };
};

/** The part of a task's journal. Those of a run have the names of its transitions. */
export const taskPart = "";
const part = sql`''`;
// The parts of sessions are numbers, and the names of transitions begin with a letter.
const isOfTask = sql`(part = ${part} or part >= 'A')`;

/**
 * Stores steps of tasks and runs, unless another pod has claimed them since. A run keeps its token from
 * one transition to the next, so `run_seq` is compared too. The tasks' rows are held until the commit, so
 * that no claim comes in between, but they are not changed. A step that was
 * stored by an earlier send is left as it is: its key, token and number are those of this write.
 * Then deletes the steps within these, which their value stands for.
 */
export function storeSteps(unordered: readonly TaskStep[]): Statement[] {
  const steps = inOrder(unordered);
  const given = rows(
    {
      task_id: "text",
      part: "text",
      token: "integer",
      run_seq: "integer",
      key: "text",
      seq: "integer",
      kind: "text",
      input_hash: "text",
      value: "content",
      took_ms: "integer",
    },
    steps.map(({ taskId, token, step, run }) => [
      taskId,
      run?.part ?? taskPart,
      token,
      run?.seq ?? 0,
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
    select given.task_id, given.part, given.key, given.seq, given.token, given.kind,
      given.input_hash, given.value, ${now} - given.took_ms, ${now}
    from ${given} given join ${tasks} task on task.task_id = given.task_id
    where task.claim_token = given.token and task.run_seq = given.run_seq
      and task.status in ('claimed', 'pending')
    ${forUpdateOfTask}
    on conflict (owner_id, part, key) do update set seq = excluded.seq, token = excluded.token,
      kind = excluded.kind, input_hash = excluded.input_hash, value = excluded.value,
      started_at = excluded.started_at, at = excluded.at
    where stored.seq < excluded.seq
    ${returning(sql`owner_id, part, key`, { after: selectStored(unordered) })}`;
  const outer = steps.filter(({ step }) => step.forgets);
  const taking = steps.filter(({ step }) => step.takes !== undefined);
  const raising = steps.filter(({ raises }) => raises !== undefined);
  return [
    insert,
    ...(outer.length > 0 ? [deleteWithin(outer)] : []),
    ...(taking.length > 0 ? [takeSignalsOf(taking)] : []),
    ...(raising.length > 0 ? [raiseVersions(raising)] : []),
  ];
}

/** The steps of these that are stored, by this send or an earlier one. */
export function selectStored(steps: readonly TaskStep[]): Statement {
  const given = rows(writeColumns, steps.map(writeValues));
  return sql`
    select stored.owner_id, stored.part, stored.key from ${given} given join ${journal} stored
      on stored.owner_id = given.task_id and stored.part = given.part and stored.key = given.key
    where stored.token = given.token and stored.seq = given.seq`;
}

/**
 * Forgets steps of tasks that are started over: those that have failed for good, which would only
 * fail the task again, or all of them.
 */
export function forgetSteps(taskIds: Statement, which: "failed" | "all"): Statement {
  const kind = which === "failed" ? sql`and kind = 'failed'` : sql``;
  return sql`delete from ${journal} where owner_id in (${taskIds}) and ${isOfTask} ${kind}`;
}

/** A page of the journals of a task or run for people, in the order in which their rows were stored. */
export function listSteps(
  taskId: string,
  { after = 0, limit: count }: { readonly after?: number; readonly limit?: number },
): Statement {
  return sql`
    select part, key, seq, token, kind, started_at, at, ${columnBytes(sql`value`)} as bytes
    from ${journal} where owner_id = ${taskId} and ${isOfTask} and seq > ${after}
    order by seq, part ${count === undefined ? sql`` : limit(count)}`;
}

/** The event of a completed task that names stored steps which its last attempt did not ask for. */
export const unaskedEvent = "steps_unasked";

/** The last such event of a task, with the token that it counts for. */
export function readUnasked(taskId: string): Statement {
  return sql`
    select noted.detail, task.claim_token from ${table("task_event")} noted
    join ${tasks} task on task.task_id = noted.task_id
    where noted.task_id = ${taskId} and noted.type = ${unaskedEvent}
    order by noted.seq desc limit 1`;
}

/** How many steps of a task or run are stored. */
export function countSteps(taskId: string): Statement {
  return sql`
    select count(*) as steps from ${journal} where owner_id = ${taskId} and ${isOfTask}`;
}

/** How many steps of these tasks are stored. */
export function countStepsOf(taskIds: Statement): Statement {
  return sql`select count(*) from ${journal} where owner_id in (${taskIds}) and ${isOfTask}`;
}

/** Forgets the journals of transitions that are over. */
export function forgetParts(
  parts: readonly (readonly string[])[],
  fence: (task: Statement) => Statement,
): Statement {
  const over = rows({ task_id: "text", part: "text" }, parts);
  return sql`
    delete from ${journal} where ${isAmong(
      sql`
      select ${rowAddress("step_journal", sql`stored`)} from ${over} over_part
      join ${journal} stored on stored.owner_id = over_part.task_id and stored.part = over_part.part
      where over_part.task_id in (select task.task_id from ${fence(sql`task`)})`,
      sql`${rowAddress("step_journal")}`,
    )}`;
}

/** Forgets single steps of a task, by their keys, and what is stored within them. */
export function forgetStepsByKey(taskIds: Statement, keys: readonly string[]): Statement {
  const wanted = rows(
    { low: "text", high: "text" },
    keys.flatMap((key) => [[key, `${key}\u0001`], ...innerRanges(key)]),
  );
  return sql`
    delete from ${journal} where owner_id in (${taskIds}) and ${isOfTask}
      and exists (select 1 from ${wanted} wanted
        where ${journal}.key >= wanted.low and ${journal}.key < wanted.high)`;
}

/** 1 if a task has stored steps, else 0. */
export function hasSteps(task: Statement | ReturnType<typeof table>): Statement {
  return sql`case when exists (select 1 from ${journal} stored
    where stored.owner_id = ${task}.task_id and stored.part = ${part}) then 1 else 0 end`;
}

/** True if the claim that holds a task has stored a step of it. */
export function hasStepped(task: Statement): Statement {
  return sql`exists (
    select 1 from ${journal} stored
    where stored.owner_id = ${task}.task_id and stored.part = ${part}
      and stored.token = ${task}.claim_token)`;
}

/** What finds the row of a write again. */
export const writeColumns = {
  task_id: "text",
  part: "text",
  token: "integer",
  key: "text",
  seq: "integer",
} as const;

export function writeValues({ taskId, token, step, run }: TaskStep) {
  return [taskId, run?.part ?? taskPart, token, step.key, step.seq];
}

/** A signal is taken by the step that is stored with it, and by no other. */
function takeSignalsOf(steps: readonly TaskStep[]): Statement {
  const used = rows(
    { ...writeColumns, signal_id: "text" },
    steps.map((each) => [...writeValues(each), each.step.takes!]),
  );
  return sql`
    update ${signals} set taken = 1 from ${used} used
    where ${signals}.task_id = used.task_id and ${signals}.signal_id = used.signal_id
      and ${isStoredBy(sql`used`)}`;
}

/** The condition that a write's row is stored, by this send or an earlier one. */
export function isStoredBy(given: Statement): Statement {
  return sql`exists (select 1 from ${journal} stored
        where stored.owner_id = ${given}.task_id and stored.part = ${given}.part
          and stored.key = ${given}.key
          and stored.token = ${given}.token and stored.seq = ${given}.seq)`;
}

/** Keeps pods of lower versions from tasks whose steps these are. */
function raiseVersions(steps: readonly TaskStep[]): Statement {
  const raised = rows(
    { ...writeColumns, version: "integer", begun_by: "integer" },
    steps.map((each) => [...writeValues(each), each.raises!.version, each.raises!.begunBy]),
  );
  return sql`
    update ${tasks} set task_version = raised.version,
      begun_version = coalesce(${tasks}.begun_version, raised.begun_by)
    from ${raised} raised
    where ${tasks}.task_id = raised.task_id and ${tasks}.claim_token = raised.token
      and coalesce(${tasks}.task_version, 0) < raised.version and ${isStoredBy(sql`raised`)}`;
}

function deleteWithin(outer: readonly TaskStep[]): Statement {
  const ranges = rows(
    { ...writeColumns, low: "text", high: "text" },
    outer.flatMap((each) =>
      innerRanges(each.step.key).map(([low, high]) => [...writeValues(each), low, high]),
    ),
  );
  return sql`
    delete from ${journal} where ${isAmong(
      sql`
      select ${rowAddress("step_journal", sql`inner_step`)} from ${ranges} given
      join ${journal} stored on stored.owner_id = given.task_id and stored.part = given.part
        and stored.key = given.key and stored.token = given.token and stored.seq = given.seq
      join ${journal} inner_step on inner_step.owner_id = given.task_id
        and inner_step.part = given.part
        and inner_step.key >= given.low and inner_step.key < given.high`,
      sql`${rowAddress("step_journal")}`,
    )}`;
}
