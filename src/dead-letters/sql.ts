import { noEntry, type WriteEntry } from "../audit/act.ts";
import {
  forUpdate,
  forUpdateOfTask,
  isAmong,
  limit,
  now,
  rows,
  sql,
  type Statement,
  table,
} from "../store/sql.ts";
import { notifyingParents, wakeIfDependenciesEnded } from "../tasks/sql/dependencies.ts";
import { anyVersion, startedOver } from "../tasks/sql/inspect.ts";
import { countStepsOf, forgetSteps } from "../tasks/sql/steps.ts";
import { nextSeq } from "../tasks/sql/task-state.ts";
import type { DeadLetter } from "./dead-letter.ts";
import type { GroupReturn, GroupState, SeenGroup } from "./groups.ts";
import type { RedriveReason, Selection, StepCounts, StoredRedrive } from "./redrive.ts";

const tasks = table("task");
const events = table("task_event");
const redrives = table("redrive");
const failureGroups = table("failure_group");

/** A secret of the store that no reader of the server gets to see. */
export function readGroupSecret(): Statement {
  return sql`select secret from ${table("bus_secret")} ${limit(1)}`;
}

/** The position of a walk over failed tasks, in the order in which they failed. */
export type FailedCursor = { readonly atMs: number; readonly taskId: string };

export const beforeAll: FailedCursor = { atMs: -1, taskId: "" };

// Only the columns that show whether an index has the row already: errors are long.
const seen = sql`task_id, claim_token, last_update, redrive_id, ${now} as now`;
const inOrder = sql`order by last_update, task_id`;

/** A write of the leader: it counts only if the row is unchanged since it was read. */
type RedriveWrite = {
  readonly redrive: StoredRedrive;
  readonly step: StepCounts;
  readonly writeId: string;
};

const isOpen = sql`state in ('running', 'stopping')`;
export const maxOpenRedrives = 50;

/** The next failed tasks of a walk. */
export function failedAfter({ atMs, taskId }: FailedCursor, count: number): Statement {
  return sql`
    select ${seen} from ${tasks}
    where status = 'failed' and (last_update, task_id) > (${atMs}, ${taskId})
    ${inOrder} ${limit(count)}`;
}

/** Returns a row if at least a thousand tasks have failed. */
export function manyFailed(): Statement {
  return sql`select task_id from ${tasks} where status = 'failed' ${inOrder} limit 1 offset 999`;
}

/**
 * The tasks that failed since a time. It starts earlier by the overlap, because a transaction may
 * commit later than one that began after it; if the store's clock was set back, it starts from the
 * clock.
 */
export function failedSince(sinceMs: number, overlapMs: number, count: number): Statement {
  return sql`
    select ${seen} from ${tasks}
    where status = 'failed'
      and last_update >= (case when ${sinceMs} < ${now} then ${sinceMs} else ${now} end) - ${overlapMs}
    ${inOrder} ${limit(count)}`;
}

/** The columns of failed tasks that an index keeps. */
export function failedTasks(taskIds: readonly string[]): Statement {
  const wanted = rows(
    { task_id: "text" },
    taskIds.map((taskId) => [taskId]),
  );
  return sql`
    select task_id, name, tenant, claim_token, last_update, retry_count, deaths, redrive_id, error
    from ${tasks} task
    where ${isAmong(sql`select task_id from ${wanted} wanted`, sql`task_id`)} and ${hasFailed(sql`task`)}`;
}

/** Stores a redrive, unless too many are open. Its id makes a repeated send harmless. */
export function insertRedrive(
  redriveId: string,
  selection: Selection,
  { maxStep, fromStart }: { readonly maxStep: number; readonly fromStart: boolean },
  entry: WriteEntry = noEntry,
): Statement[] {
  const columns = {
    redrive_id: "text",
    filter: "text",
    step_max: "integer",
    from_start: "integer",
  } as const;
  return [
    sql`
      insert into ${redrives} (redrive_id, filter, step_max, from_start)
      select redrive_id, filter, step_max, from_start
      from ${rows(columns, [
        [redriveId, JSON.stringify(selection), maxStep, fromStart ? 1 : 0],
      ])} fresh
      where (select count(*) from ${redrives} where ${isOpen}) < ${maxOpenRedrives}
      on conflict (redrive_id) do nothing`,
    ...entry({
      when: sql`from ${redrives} where redrive_id = ${redriveId}`,
      // The leader takes them later, as far as the redrive goes well.
      count: sql`null`,
      after: JSON.stringify({ redriveId, maxStep, fromStart }),
    }),
    getRedrive(redriveId),
  ];
}

export function getRedrive(redriveId: string): Statement {
  return sql`select * from ${redrives} where redrive_id = ${redriveId}`;
}

/** Redrives, newest first: those after the cursor, or all. */
export function listRedrives(count: number, cursor?: string): Statement {
  const behind = cursor === undefined ? sql`` : sql`where redrive_id < ${cursor}`;
  return sql`select * from ${redrives} ${behind} order by redrive_id desc ${limit(count)}`;
}

export function openRedrives(): Statement {
  return sql`select * from ${redrives} where ${isOpen} order by created_at, redrive_id ${limit(maxOpenRedrives)}`;
}

/**
 * The tasks of a redrive's current step, with the group that each was taken for if it has failed.
 */
export function stepTasks({
  redriveId,
  step,
}: Pick<StoredRedrive, "redriveId" | "step">): Statement {
  return sql`
    select task_id, name, status,
      case when status = 'failed' then error end as error,
      case when status = 'failed' then (
        select detail from ${events} event
        where event.task_id = task.task_id and event.type = 'redriven'
        order by seq desc limit 1) end as redriven
    from ${tasks} task where redrive_id = ${redriveId} and redrive_step = ${step}
    order by task_id`;
}

/**
 * Ends the current step, adds its counts, and starts the next one with tasks that are still failed.
 */
export function takeStep(
  { redrive, step, writeId }: RedriveWrite,
  deadLetters: readonly DeadLetter[],
  next: { readonly size: number; readonly remaining: number },
): Statement[] {
  const { redriveId } = redrive;
  const number = redrive.step + 1;
  const taskIds = deadLetters.map((each) => each.taskId);
  const wanted = rows(
    { task_id: "text", token: "integer", detail: "text" },
    deadLetters
      .toSorted((one, other) => (one.taskId < other.taskId ? -1 : 1))
      .map(({ taskId, token, group }) => [
        taskId,
        token,
        JSON.stringify({ redriveId, step: number, group }),
      ]),
  );
  // Only the writer that has just changed the redrive's row takes tasks, and only once.
  const ours = sql`redrive_id = ${redriveId} and last_write = ${writeId} and step_taken is null`;
  // A task belongs to one redrive until that has ended.
  const free = (task: Statement) => sql`
    ${hasFailed(task)} and ${task}.claim_token = wanted.token
    and exists (select 1 from ${redrives} where ${ours})
    and not exists (select 1 from ${redrives} holder
      where holder.redrive_id = ${task}.redrive_id and holder.state in ('running', 'stopping'))`;
  const taken = sql`(select count(*) from ${tasks}
    where redrive_id = ${redriveId} and redrive_step = ${number})`;
  const taking = sql`select task.task_id from ${wanted} wanted
    join ${tasks} task on task.task_id = wanted.task_id where ${free(sql`task`)}`;
  const { fromStart } = redrive;
  return [
    sql`
      update ${redrives}
      set ${stepOver(step)}, last_write = ${writeId}, step_size = ${next.size}, step_taken = null,
        remaining = ${next.remaining}
      where redrive_id = ${redriveId} and revision = ${redrive.revision} and state = 'running'`,
    ...notifyingParents(taskIds, [
      sql`
        insert into ${events} (task_id, seq, type, detail)
        select wanted.task_id, ${nextSeq(sql`wanted.task_id`)}, 'redriven', wanted.detail
        from ${wanted} wanted join ${tasks} task on task.task_id = wanted.task_id
        where ${free(sql`task`)} ${forUpdateOfTask}`,
      ...(fromStart
        ? [
            sql`
              update ${redrives} set forgotten_steps = forgotten_steps + (${countStepsOf(taking)})
              where ${ours}`,
          ]
        : []),
      forgetSteps(taking, fromStart ? "all" : "failed"),
      sql`
        update ${tasks}
        set ${startedOver} ${fromStart ? anyVersion : sql``}, redrive_id = ${redriveId},
          redrive_step = ${number}
        from ${wanted} wanted
        where ${tasks}.task_id = wanted.task_id and ${free(sql`${tasks}`)}`,
    ]),
    wakeIfDependenciesEnded(taskIds),
    sql`update ${redrives} set step_taken = ${taken}, taken = taken + ${taken} where ${ours}`,
    getRedrive(redriveId),
  ];
}

/** Stops taking tasks. Tasks that were taken continue. */
export function stopRedrive(
  { redrive, writeId }: Pick<RedriveWrite, "redrive" | "writeId">,
  reason: RedriveReason,
): Statement {
  return sql`
    update ${redrives}
    set state = 'stopping', reason = ${JSON.stringify(reason)}, last_write = ${writeId},
      revision = revision + 1, last_update = ${now}
    where redrive_id = ${redrive.redriveId} and revision = ${redrive.revision} and state = 'running'`;
}

/** Like `stopRedrive`, for callers that have not read the row. */
export function cancelRedrive(
  redriveId: string,
  reason: RedriveReason,
  entry: WriteEntry = noEntry,
): Statement[] {
  return [
    sql`select redrive_id from ${redrives} where redrive_id = ${redriveId} ${forUpdate}`,
    ...entry({
      when: sql`from ${redrives} where redrive_id = ${redriveId} and state = 'running'`,
      before: '{"state":"running"}',
      after: '{"state":"stopping"}',
    }),
    sql`
      update ${redrives}
      set state = 'stopping', reason = ${JSON.stringify(reason)},
        revision = revision + 1, last_update = ${now}
      where redrive_id = ${redriveId} and state = 'running'`,
    getRedrive(redriveId),
  ];
}

export function endRedrive(
  { redrive, step, writeId }: RedriveWrite,
  state: "done" | "stopped" | "cancelled",
): Statement {
  return sql`
    update ${redrives}
    set ${stepOver(step)}, last_write = ${writeId}, state = ${state}, step_size = 0, step_taken = 0,
      remaining = case when ${state} = 'done' then 0 else remaining end
    where redrive_id = ${redrive.redriveId} and revision = ${redrive.revision}
      and state = ${redrive.state}`;
}

/** Deletes redrives that ended long ago. */
export function pruneRedrives(olderThanMs: number): Statement {
  return sql`
    delete from ${redrives} where not (${isOpen}) and last_update < ${now} - ${olderThanMs}`;
}

/**
 * Discards failed tasks: they have ended for good, with their errors kept. No dependent waits for
 * them any more, because dependents were woken when they failed.
 */
export function discardTasks(
  deadLetters: readonly DeadLetter[],
  writeId: string,
  entry: WriteEntry = noEntry,
): Statement[] {
  const wanted = rows(
    { task_id: "text", token: "integer" },
    deadLetters
      .toSorted((one, other) => (one.taskId < other.taskId ? -1 : 1))
      .map(({ taskId, token }) => [taskId, token]),
  );
  const failed = (task: Statement) =>
    sql`${hasFailed(task)} and ${task}.claim_token = wanted.token`;
  // By task, which no planner turns into a join: in a new store it would read all events for each count.
  const discarded = sql`
    select count(*) as discarded from ${wanted} wanted
    where (select max(event.seq) from ${events} event
      where event.task_id = wanted.task_id and event.type = 'discarded'
        and event.detail = ${JSON.stringify({ writeId })}) is not null`;
  return [
    sql`
      insert into ${events} (task_id, seq, type, detail)
      select wanted.task_id, ${nextSeq(sql`wanted.task_id`)}, 'discarded', ${JSON.stringify({ writeId })}
      from ${wanted} wanted join ${tasks} task on task.task_id = wanted.task_id
      where ${failed(sql`task`)} ${forUpdateOfTask}`,
    sql`
      update ${tasks} set status = 'cancelled', last_update = ${now}
      from ${wanted} wanted
      where ${tasks}.task_id = wanted.task_id and ${failed(sql`${tasks}`)}`,
    ...entry({
      when: sql`where (${discarded}) > 0`,
      count: sql`(${discarded})`,
      after: '{"status":"cancelled"}',
      outcome: "begun",
    }),
    discarded,
  ];
}

/** Rows of groups. Groups that no row is stored of are open. */
export function getGroups(groups: readonly string[]): Statement {
  const wanted = rows(
    { group_id: "text" },
    groups.map((group) => [group]),
  );
  return sql`
    select *, ${now} as now from ${failureGroups}
    where ${isAmong(sql`select group_id from ${wanted} wanted`, sql`group_id`)}`;
}

/** The groups that were resolved or ignored. */
export function closedGroups(): Statement {
  return sql`select *, ${now} as now from ${failureGroups} where state <> 'open' ${limit(maxGroups)}`;
}

export const maxGroups = 10_000;

/** Stores groups that are new, unless there are too many: then they are listed all the same. */
export function insertGroups(groups: readonly SeenGroup[]): Statement {
  const fresh = rows(
    { group_id: "text", first_at: "integer" },
    groups.map(({ group, firstAtMs }) => [group, firstAtMs]),
  );
  return sql`
    insert into ${failureGroups} (group_id, first_at)
    select group_id, first_at from ${fresh} fresh
    where (select count(*) from ${failureGroups}) < ${maxGroups}
    on conflict (group_id) do nothing`;
}

/** Opens groups that have failed again, unless an operator has changed them since they were read. */
export function returnGroups(groups: readonly GroupReturn[]): Statement {
  const back = rows(
    { group_id: "text", seen_at: "integer", back_at: "integer" },
    groups.map(({ group, stateAtMs, backAtMs }) => [group, stateAtMs, backAtMs]),
  );
  return sql`
    update ${failureGroups}
    set state = 'open', state_at = ${now}, until_at = null, came_back_at = back.back_at,
      last_update = ${now}
    from ${back} back
    where ${failureGroups}.group_id = back.group_id and ${failureGroups}.state <> 'open'
      and ${failureGroups}.state_at = back.seen_at`;
}

/** Notes that groups still fail, so that they are kept. */
export function keepGroups(groups: readonly string[]): Statement {
  const wanted = rows(
    { group_id: "text" },
    groups.map((group) => [group]),
  );
  return sql`
    update ${failureGroups} set last_update = ${now}
    where ${isAmong(sql`select group_id from ${wanted} wanted`, sql`group_id`)}`;
}

/** Groups of which nothing has been heard for long. */
export function oldGroups(olderThanMs: number, count: number): Statement {
  return sql`
    select group_id from ${failureGroups} where last_update < ${now} - ${olderThanMs}
    order by last_update ${limit(count)}`;
}

export function pruneGroups(groups: readonly string[], olderThanMs: number): Statement {
  const wanted = rows(
    { group_id: "text" },
    groups.map((group) => [group]),
  );
  return sql`
    delete from ${failureGroups}
    where ${isAmong(sql`select group_id from ${wanted} wanted`, sql`group_id`)}
      and last_update < ${now} - ${olderThanMs}`;
}

export type GroupChange = SeenGroup & {
  readonly state: GroupState;
  readonly untilMs: number | null;
};

/** Resolves, ignores or opens a group. Nothing changes if it is so already, and hasn't failed since. */
export function changeGroup(
  { group, firstAtMs, lastAtMs, state, untilMs }: GroupChange,
  entry: WriteEntry = noEntry,
): Statement[] {
  const changes = sql`group_id = ${group} and (state <> ${state}
    or coalesce(until_at, 0) <> ${untilMs ?? 0}
    or (state <> 'open' and until_at is null and state_at < ${lastAtMs}))`;
  const after = { state, ...(untilMs !== null && { untilMs }) };
  return [
    insertGroups([{ group, firstAtMs, lastAtMs }]),
    sql`select group_id from ${failureGroups} where group_id = ${group} ${forUpdate}`,
    ...entry({
      when: sql`from ${failureGroups} where ${changes}`,
      before: sql`'{"state":"' || state || '"}'`,
      after: JSON.stringify(after),
    }),
    sql`
      update ${failureGroups}
      set state = ${state}, state_at = ${now}, until_at = ${untilMs}, came_back_at = null,
        last_update = ${now}
      where ${changes}`,
    getGroups([group]),
  ];
}

/**
 * The condition that a task with a known id has failed. It is written so that no planner uses the
 * index of failed tasks for it, which would scan all of them for every id.
 */
function hasFailed(task: Statement): Statement {
  return sql`coalesce(${task}.status, '') = 'failed'`;
}

function stepOver(step: StepCounts): Statement {
  return sql`
    revision = revision + 1, step = step + 1, last_update = ${now},
    succeeded = succeeded + ${step.succeeded}, failed = failed + ${step.failed},
    failed_otherwise = failed_otherwise + ${step.failedOtherwise}, gone = gone + ${step.gone}`;
}
