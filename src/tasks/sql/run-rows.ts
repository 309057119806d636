import { holdTask, now, returning, rows, sql, type Statement, table } from "../../store/sql.ts";
import { ungated } from "./task-state.ts";
import { fenceColumns, fenceValues, isFenced } from "./run-fence.ts";
import type { RunFinish, RunPark } from "./runs.ts";

const tasks = table("step_tracker");

/**
 * Runs that go on under the same claim. Nothing that is in an index changes, which is most of what it
 * would cost. Where the pod was taken for dead meanwhile, what it did counts, but the claim is gone.
 */
export function keepRuns(kept: readonly RunFinish[]): Statement {
  const { next, changes, unwoken } = kept.every(isPlain) ? plainWrites(kept) : anyWrites(kept);
  const fenced = (task: Statement) => sql`${task}.claim_token = next.token
    and ${task}.run_seq = next.run_seq and ${task}.status in ('claimed', 'pending')
    ${unwoken(task)}`;
  return sql`
    update ${tasks} set ${changes}
    from ${next} next
    where ${tasks}.task_id = next.task_id and ${fenced(sql`${tasks}`)}
    ${returning(prefixed(sql`${tasks}`), {
      before: sql`
        select ${prefixed(sql`task`)} from ${next} next join ${tasks} task on task.task_id = next.task_id
        where ${fenced(sql`task`)} ${holdTask}`,
    })}`;
}

/** Whether a transition has simply completed, as nearly all do: then much less has to be sent and set. */
function isPlain({ run, error, wake }: RunFinish): boolean {
  const { intent, waiting, stoppedAt, trace, failures, moved, version } = run;
  const hasNothing = intent === null && waiting === null && stoppedAt === null && trace === null;
  const isFree = error === null && wake === null;
  return hasNothing && moved && failures === 0 && isFree && version !== null;
}

function plainWrites(kept: readonly RunFinish[]) {
  const next = rows(
    {
      task_id: "text",
      token: "integer",
      run_seq: "integer",
      version: "integer",
      cursor: "text",
      state: "text",
    },
    kept.map(({ taskId, token, run }) => [
      taskId,
      token,
      run.seq,
      run.version,
      run.cursor,
      run.state,
    ]),
  );
  const changes = sql`
    flow_version = next.version, cursor = next.cursor, state = coalesce(next.state, ${tasks}.state),
    intent = null, waiting = null, stopped_at = null, retry_count = 0, deaths = 0, progress = null,
    error = null, run_seq = ${tasks}.run_seq + 1, advanced_at = ${now}`;
  return { next, changes, unwoken: () => sql`` };
}

function anyWrites(kept: readonly RunFinish[]) {
  const next = rows(
    { ...fenceColumns, ...writeColumns },
    kept.map((finish) => [...fenceValues(finish), ...writeValues(finish)]),
  );
  const unwoken = (task: Statement) => sql`and (next.wake is null or ${task}.wake = next.wake)`;
  return { next, changes: written, unwoken };
}

/** Runs that are given back, or have ended. */
export function leaveRuns(left: readonly RunFinish[], wakes: boolean): Statement {
  const next = rows(
    {
      ...fenceColumns,
      ...writeColumns,
      status: "text",
      result: "text",
      parked: "integer",
      until_at: "integer",
      awaits: "text",
      aside: "text",
      aside_version: "integer",
      scope: "text",
    },
    left.map((finish) => [
      ...fenceValues(finish),
      ...writeValues(finish),
      finish.status,
      finish.result,
      ...parkValues(finish.run.park),
    ]),
  );
  return sql`
    update ${tasks} set ${written}, status = next.status, result = next.result,
      claim_token = claim_token + case when next.status = 'pending' then 1 else 0 end,
      claimed_by = case when next.status = 'pending' then null else claimed_by end,
      claim_call = null, last_update = ${now},
      run_at = case when next.status = 'pending' then coalesce(next.until_at, ${now}) else run_at end,
      parked = case when next.parked <> 0 then next.parked when next.until_at > ${now} then 1
        else ${ungated} end,
      waits = case when next.parked = 2 then 2 else waits end,
      awaits = next.awaits, aside = next.aside, aside_version = next.aside_version,
      group_key = coalesce(next.scope, ${tasks}.group_key),
      gated = case when next.scope is null then gated else 1 end
    from ${next} next
    where ${tasks}.task_id = next.task_id and ${isFenced(sql`${tasks}`, sql`next`, wakes)}
    ${returning(prefixed(sql`${tasks}`), {
      before: sql`
        select ${prefixed(sql`task`)} from ${next} next join ${tasks} task on task.task_id = next.task_id
        where ${isFenced(sql`task`, sql`next`, wakes)} ${holdTask}`,
    })}`;
}

function prefixed(task: Statement): Statement {
  return sql`${task}.task_id, ${task}.status, ${task}.wake, ${task}.cancel_requested`;
}

const writeColumns = {
  version: "integer",
  cursor: "text",
  state: "text",
  intent: "text",
  waiting: "text",
  stopped_at: "text",
  failures: "integer",
  moved: "integer",
  error: "text",
  trace: "text",
} as const;

function writeValues({ run, error }: RunFinish) {
  const { version, cursor, state, intent, waiting, stoppedAt, failures, moved, trace } = run;
  return [
    version,
    cursor,
    state,
    intent,
    waiting,
    stoppedAt,
    failures,
    moved ? 1 : 0,
    error,
    trace,
  ];
}

const written = sql`
  flow_version = coalesce(next.version, flow_version), cursor = next.cursor,
  state = coalesce(next.state, ${tasks}.state), intent = next.intent, waiting = next.waiting,
  stopped_at = next.stopped_at, retry_count = next.failures, run_seq = ${tasks}.run_seq + 1,
  deaths = case when next.moved = 1 then 0 else deaths end,
  progress = case when next.moved = 1 then null else progress end,
  error = case when next.moved = 1 then next.error else coalesce(next.error, ${tasks}.error) end,
  trace = coalesce(next.trace, ${tasks}.trace), advanced_at = ${now}`;

/** Where a time is given as well, the run goes on then if nobody has said anything. */
function parkValues(park: RunPark) {
  switch (park.for) {
    case "time":
      return [0, park.untilMs, null, null, null, null];
    case "signal":
      return [park.untilMs === null ? 5 : 0, park.untilMs, park.name, null, null, null];
    case "children":
      return [2, null, park.keys, null, null, null];
    case "room":
      return [4, null, null, null, null, park.scope];
    case "people":
      return [6, null, null, park.why, park.byVersion, null];
  }
}
