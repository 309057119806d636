import { rows, sql, type Statement, table } from "../../store/sql.ts";
import { wakesOthers } from "./finish.ts";
import type { RunFinish } from "./runs.ts";

const tasks = table("step_tracker");

export const fenceColumns = {
  task_id: "text",
  token: "integer",
  run_seq: "integer",
  wake: "integer",
  ends: "integer",
} as const;

export function fenceValues({ taskId, token, run, wake, status }: RunFinish) {
  return [taskId, token, run.seq, wake, status === "claimed" || status === "pending" ? 0 : 1];
}

// What a run was when its write was decided on. Tokens, counts of writes and wakes only rise, so that a
// row which doesn't meet it never will again.
export function isFenced(task: Statement, given: Statement, wakes: boolean): Statement {
  return sql`${task}.claim_token = ${given}.token and ${task}.run_seq = ${given}.run_seq
    and ${task}.status in ('claimed', 'pending')
    and (${given}.wake is null or ${task}.wake = ${given}.wake)
    ${wakes ? sql`` : sql`and (${given}.ends = 0 or ${task}.awaited = 0)`}`;
}

/** A part of a query: those runs that their writes can be stored of. */
export function fenceOf(all: readonly RunFinish[]): (task: Statement) => Statement {
  const given = rows(fenceColumns, all.map(fenceValues));
  const wakes = wakesOthers(all);
  return (task) => sql`${given} given join ${tasks} ${task} on ${task}.task_id = given.task_id
    where ${isFenced(task, sql`given`, wakes)}`;
}
