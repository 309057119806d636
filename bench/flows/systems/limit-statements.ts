import { limit, now, rows, sql, type Statement, table } from "../../../src/store/sql.ts";

/**
 * What a loop written by hand would store of runs, on our tables: a run's row, its next cursor and
 * state where the claim and the count of writes are still as they were, and an event for each.
 */
export type LimitRun = {
  readonly taskId: string;
  readonly number: number;
  /** How many steps are stored as done. */
  readonly step: number;
  readonly startedAtMs: number;
};

const runs = table("task");
const events = table("task_event");
export const podId = "limit";
const token = 1;

export function cursorAt(step: number): string {
  return `step-${step}`;
}

/** New runs, claimed by whoever starts them, with the first event of each. */
export function insertRuns(given: readonly (LimitRun & { payload: string })[]): Statement[] {
  const fresh = rows(
    { task_id: "text", payload: "text" },
    given.map(({ taskId, payload }) => [taskId, payload]),
  );
  const detail = JSON.stringify({ version: 1, next: cursorAt(0) });
  return [
    sql`insert into ${runs} (task_id, name, payload, status, claimed_by, claim_token, flow_version,
        cursor, state, run_at, created_at, last_update)
      select task_id, 'bench', payload, 'claimed', ${podId}, ${token}, 1, ${cursorAt(0)}, '{}',
        ${now}, ${now}, ${now}
      from ${fresh} fresh`,
    sql`insert into ${events} (task_id, seq, type, pod_id, detail)
      select task_id, 1, 'start', ${podId}, ${detail} from ${fresh} fresh`,
  ];
}

/** One more step of each run is done. */
export function advanceRuns(given: readonly LimitRun[]): Statement[] {
  const done = rows(
    { task_id: "text", token: "integer", run_seq: "integer", next: "text", state: "text" },
    given.map(({ taskId, step }) => [taskId, token, step, cursorAt(step + 1), "{}"]),
  );
  return [
    sql`update ${runs} set cursor = done.next, state = done.state, flow_version = 1,
        retry_count = 0, deaths = 0, waiting = null, run_seq = ${runs}.run_seq + 1,
        advanced_at = ${now}
      from ${done} done
      where ${runs}.task_id = done.task_id and ${runs}.claim_token = done.token
        and ${runs}.run_seq = done.run_seq
      returning ${runs}.task_id`,
    noteSteps(given),
  ];
}

/** The last step of each is done, and with it the run. */
export function finishRuns(given: readonly LimitRun[]): Statement[] {
  const done = rows(
    { task_id: "text", token: "integer", run_seq: "integer", result: "text" },
    given.map(({ taskId, step }) => [taskId, token, step, "{}"]),
  );
  const finished = rows(
    { task_id: "text", seq: "integer", detail: "text" },
    given.map(({ taskId, step }) => [
      taskId,
      step + 3,
      JSON.stringify({ version: 1, status: "completed" }),
    ]),
  );
  return [
    sql`update ${runs} set status = 'completed', cursor = null, result = done.result,
        run_seq = ${runs}.run_seq + 1, claim_call = null, last_update = ${now}
      from ${done} done
      where ${runs}.task_id = done.task_id and ${runs}.claim_token = done.token
        and ${runs}.run_seq = done.run_seq
      returning ${runs}.task_id`,
    noteSteps(given),
    sql`insert into ${events} (task_id, seq, type, pod_id, detail)
      select task_id, seq, 'finish', ${podId}, detail from ${finished} finished`,
  ];
}

function noteSteps(given: readonly LimitRun[]): Statement {
  const noted = rows(
    { task_id: "text", seq: "integer", detail: "text" },
    given.map(({ taskId, step, startedAtMs }) => [
      taskId,
      step + 2,
      JSON.stringify({
        version: 1,
        set: null,
        next: cursorAt(step + 1),
        transition: cursorAt(step),
        startedAtMs,
      }),
    ]),
  );
  return sql`insert into ${events} (task_id, seq, type, attempt, pod_id, detail)
    select task_id, seq, 'complete', 1, ${podId}, detail from ${noted} noted`;
}

/** Claims what another process left open; the token stays, since a limit has no second owner. */
export function claimOpenRuns(count: number): Statement {
  return sql`update ${runs} set claimed_by = ${podId}, claim_call = 1, last_update = ${now}
    where task_id in (select task_id from ${runs}
      where status = 'claimed' and claimed_by = ${podId} and claim_call is null ${limit(count)})
    returning task_id, payload, cursor`;
}
