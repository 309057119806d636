import { inheritFiles } from "./inherit-files.ts";
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
import { wakeIfDependenciesEnded, wakeDependentsOfChildren } from "./dependencies.ts";
import { insertTasks, linkTasks } from "./enqueue.ts";
import {
  dependsAs,
  eventsPerWrite,
  noDeaths,
  parked,
  parkedAs,
  readyOrLimited,
} from "./task-state.ts";
import { type RunPark, type RunWrite, type Finish, inOrder, wakesDependents } from "./finish.ts";
import { cancelChildren } from "./inspect.ts";
import {
  deleteOtherChildren,
  startOver,
  takeSignals,
  insertChildDependencies,
} from "./run-relations.ts";
import { forgetParts, storeSteps, type TaskStep } from "./steps.ts";

const tasks = table("task");
const events = table("task_event");
const { ready, untilDue, forDependencies } = parkedAs;

export type RunFinish = Finish & { readonly run: RunWrite };

export function isRunFinish(finish: Finish): finish is RunFinish {
  return finish.run !== undefined;
}

/** The statements of a transaction that writes runs, and the indexes of the answers among them. */
type RunStatements = {
  /** Go before all statements that end tasks. */
  readonly statements: readonly Statement[];
  /** The indexes of the statements that return what was stored. */
  readonly answers: readonly number[];
  /** Go after everything is stored. */
  readonly after: readonly Statement[];
  /** Whether there are new tasks to claim. */
  readonly hasNewTasks: boolean;
};

/** One transaction for all writes of a pod's runs: runs that continue, that wait and that end. */
export function storeRuns(podId: string, unordered: readonly RunFinish[]): RunStatements {
  const all = inOrder(unordered);
  const fence = fenceOf(all);
  const kept = all.filter(({ status }) => status === "claimed");
  const left = all.filter(({ status }) => status !== "claimed");
  const children = all.flatMap(({ taskId, run }) =>
    run.children.map((child, place) => ({ ...child, parentId: taskId, place })),
  );
  const cancelling = all.filter(({ run }) => run.cancelsChildren).map(({ taskId }) => taskId);
  const takes = all.flatMap(({ taskId, run }) => run.takes.map((id) => [taskId, id] as const));
  const forgotten = all.flatMap(({ taskId, run }) => run.forgets.map((part) => [taskId, part]));
  const steps = all.flatMap(stepOf);
  const statements: Statement[] = [];
  if (children.length + takes.length + cancelling.length + forgotten.length > 0) {
    // Changes of other rows are valid only if the runs themselves can be written, so the runs are
    // locked first.
    statements.push(
      sql`select task.task_id from ${fence(sql`task`)} order by task.task_id ${forUpdateOfTask}`,
    );
  }
  if (children.length > 0) {
    const parents = sql`select task.task_id from ${fence(sql`task`)}`;
    statements.push(insertTasks(children, sql`${isAmong(parents, sql`fresh.parent_id`)}`));
    statements.push(...linkTasks(children));
    statements.push(...inheritFiles(children));
    statements.push(...startOver(children, fence));
    // Only a run that has stopped before can have started other children.
    const again = new Set(all.filter(hasStopped).map(({ taskId }) => taskId));
    const restarted = children.filter(({ parentId }) => again.has(parentId));
    if (restarted.length > 0) statements.push(deleteOtherChildren(restarted, fence));
  }
  if (takes.length > 0) statements.push(takeSignals(takes, fence));
  if (forgotten.length > 0) statements.push(forgetParts(forgotten, fence));
  if (cancelling.length > 0) statements.push(...cancelChildren(cancelling, fence));
  const answers: number[] = [];
  if (left.length > 0) {
    const wakes = wakesDependents(all);
    if (left.some(hasEvents)) statements.push(noteLeft(podId, left, wakes));
    answers.push(statements.push(leaveRuns(left, wakes)) - 1);
  }
  if (kept.length > 0) {
    answers.push(statements.push(keepRuns(kept)) - 1);
    if (kept.some(hasEvents)) statements.push(noteKept(podId, kept));
    if (steps.length > 0) statements.push(...storeSteps(steps));
  }
  const parents = all.filter(({ run }) => run.park.for === "children").map(({ taskId }) => taskId);
  const after = [
    ...(children.length > 0 ? insertChildDependencies(children) : []),
    // A child may have ended while its parent was claimed, when the parent could not be woken.
    ...(parents.length > 0 ? [wakeIfDependenciesEnded(parents)] : []),
    ...(cancelling.length > 0 ? wakeDependentsOfChildren(cancelling) : []),
  ];
  return { statements, answers, after, hasNewTasks: children.length + cancelling.length > 0 };
}

/** The step of a write, under the conditions that hold once the write is stored. */
function stepOf({ taskId, token, run }: RunFinish): TaskStep[] {
  if (run.step === undefined) return [];
  const { part, write } = run.step;
  return [{ taskId, token, step: write, run: { part, seq: run.seq + 1 } }];
}

function hasStopped({ run }: RunFinish): boolean {
  return run.stoppedAt !== null;
}

function hasEvents({ run }: RunFinish): boolean {
  return run.events.length > 0;
}

/**
 * Writes runs that continue under the same claim. No indexed column changes, which saves most of
 * the cost. If the pod was believed dead meanwhile, its write counts, but the claim is gone.
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
        where ${fenced(sql`task`)} ${forUpdateOfTask}`,
    })}`;
}

/** True if a transition has simply completed, as nearly all do. Then much less is sent and set. */
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
      state: "content",
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
    intent = null, waiting = null, stopped_at = null, retry_count = 0, deaths = ${noDeaths}, progress = null,
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

/** Writes runs that are released or have ended. */
export function leaveRuns(left: readonly RunFinish[], wakes: boolean): Statement {
  const next = rows(
    {
      ...fenceColumns,
      ...writeColumns,
      status: "text",
      result: "content",
      parked: "integer",
      until_at: "integer",
      awaits: "text",
      set_aside: "content",
      set_aside_version: "integer",
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
      parked = case when next.parked <> ${ready} then next.parked when next.until_at > ${now} then ${untilDue}
        else ${readyOrLimited} end,
      depends = case when next.parked = ${forDependencies} then ${dependsAs.ended} else depends end,
      awaits = next.awaits, set_aside = next.set_aside, set_aside_version = next.set_aside_version,
      concurrency_key = coalesce(next.scope, ${tasks}.concurrency_key),
      limited = case when next.scope is null then limited else 1 end
    from ${next} next
    where ${tasks}.task_id = next.task_id and ${isFenced(sql`${tasks}`, sql`next`, wakes)}
    ${returning(prefixed(sql`${tasks}`), {
      before: sql`
        select ${prefixed(sql`task`)} from ${next} next join ${tasks} task on task.task_id = next.task_id
        where ${isFenced(sql`task`, sql`next`, wakes)} ${forUpdateOfTask}`,
    })}`;
}

function prefixed(task: Statement): Statement {
  return sql`${task}.task_id, ${task}.status, ${task}.wake, ${task}.cancel_requested`;
}

const writeColumns = {
  version: "integer",
  cursor: "text",
  state: "content",
  intent: "content",
  waiting: "content",
  stopped_at: "text",
  failures: "integer",
  moved: "integer",
  stepped: "integer",
  error: "content",
  trace: "text",
} as const;

function writeValues({ run, error }: RunFinish) {
  const { version, cursor, state, intent, waiting, stoppedAt, failures, trace } = run;
  return [
    version,
    cursor,
    state,
    intent,
    waiting,
    stoppedAt,
    failures,
    run.moved ? 1 : 0,
    run.stepped ? 1 : 0,
    error,
    trace,
  ];
}

const written = sql`
  flow_version = coalesce(next.version, flow_version), cursor = next.cursor,
  state = coalesce(next.state, ${tasks}.state), intent = next.intent, waiting = next.waiting,
  stopped_at = next.stopped_at, retry_count = next.failures, run_seq = ${tasks}.run_seq + 1,
  deaths = case when next.moved = 1 or next.stepped = 1 then 0 else deaths end,
  progress = case when next.moved = 1 then null else progress end,
  error = case when next.moved = 1 then next.error else coalesce(next.error, ${tasks}.error) end,
  trace = coalesce(next.trace, ${tasks}.trace), advanced_at = ${now}`;

/** If a time is given too, the run continues then without a signal. */
function parkValues(park: RunPark) {
  switch (park.for) {
    case "time":
      return [parked.ready, park.untilMs, null, null, null, null];
    case "signal":
      return [signalOrTime(park.untilMs), park.untilMs, park.name, null, null, null];
    case "children":
      return [parked.forDependencies, null, park.keys, null, null, null];
    case "slot":
      return [parked.limited, null, null, null, null, park.scope];
    case "people":
      return [parked.setAside, null, null, park.why, park.byVersion, null];
  }
}

function signalOrTime(untilMs: number | null): number {
  return untilMs === null ? parked.untilSignal : parked.ready;
}

const fenceColumns = {
  task_id: "text",
  token: "integer",
  run_seq: "integer",
  wake: "integer",
  ends: "integer",
} as const;

function fenceValues({ taskId, token, run, wake, status }: RunFinish) {
  return [taskId, token, run.seq, wake, status === "claimed" || status === "pending" ? 0 : 1];
}

// The state of a run when its write was decided. Tokens, write counts and wakes only grow, so a row
// that does not match never will again.
function isFenced(task: Statement, given: Statement, wakes: boolean): Statement {
  return sql`${task}.claim_token = ${given}.token and ${task}.run_seq = ${given}.run_seq
    and ${task}.status in ('claimed', 'pending')
    and (${given}.wake is null or ${task}.wake = ${given}.wake)
    ${wakes ? sql`` : sql`and (${given}.ends = 0 or ${task}.dependents = 0)`}`;
}

/** A part of a query: the runs whose writes can be stored. */
function fenceOf(all: readonly RunFinish[]): (task: Statement) => Statement {
  const given = rows(fenceColumns, all.map(fenceValues));
  const wakes = wakesDependents(all);
  return (task) => sql`${given} given join ${tasks} ${task} on ${task}.task_id = given.task_id
    where ${isFenced(task, sql`given`, wakes)}`;
}

type Noted = { readonly finish: RunFinish; readonly place: number };

function numberOf({ run }: RunFinish, place: number): number {
  return (run.seq + 1) * eventsPerWrite + place;
}

function eventRows(finishes: readonly RunFinish[]) {
  const all = finishes.flatMap((finish): Noted[] =>
    finish.run.events.map((_, place) => ({ finish, place })),
  );
  return rows(
    { ...fenceColumns, seq: "integer", type: "text", attempt: "integer", detail: "content" },
    all.map(({ finish, place }) => {
      const { type, attempt, detail } = finish.run.events[place]!;
      return [...fenceValues(finish), numberOf(finish, place), type, attempt, detail];
    }),
  );
}

const eventColumns = sql`task_id, seq, type, attempt, pod_id, detail`;

/**
 * Records events of runs that are about to be released or to end. Goes before that write, under the
 * same conditions.
 */
function noteLeft(podId: string, left: readonly RunFinish[], wakes: boolean): Statement {
  return sql`
    insert into ${events} (${eventColumns})
    select noted.task_id, noted.seq, noted.type, noted.attempt, ${podId}, noted.detail
    from ${eventRows(left)} noted join ${tasks} task on task.task_id = noted.task_id
    where ${isFenced(sql`task`, sql`noted`, wakes)}
    ${forUpdateOfTask}`;
}

/**
 * Records events of runs that continue. Goes after that write: during a claim only its own writes
 * are counted, so the count shows which of them was stored, now or by an earlier send.
 */
function noteKept(podId: string, kept: readonly RunFinish[]): Statement {
  return sql`
    insert into ${events} (${eventColumns})
    select noted.task_id, noted.seq, noted.type, noted.attempt, ${podId}, noted.detail
    from ${eventRows(kept)} noted join ${tasks} task on task.task_id = noted.task_id
    where task.claim_token = noted.token and task.run_seq = noted.run_seq + 1
    on conflict do nothing`;
}

/**
 * What these writes have recorded as their last event, if they were stored. The caller compares `detail`:
 * a codec stores the same one differently. This also finds a run
 * that another pod has claimed since, whose row no longer shows the write.
 */
export function findNotedWrites(podId: string, given: readonly RunFinish[]): Statement {
  const wanted = rows(
    { task_id: "text", seq: "integer", type: "text" },
    given.map((finish) => {
      const { taskId, run } = finish;
      return [taskId, numberOf(finish, run.events.length - 1), run.events.at(-1)!.type];
    }),
  );
  return sql`
    select noted.task_id, noted.detail from ${wanted} wanted join ${events} noted
      on noted.task_id = wanted.task_id and noted.seq = wanted.seq
    where noted.pod_id = ${podId} and noted.type = wanted.type`;
}
