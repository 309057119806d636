import { noEntry, type WriteEntry } from "../audit/act.ts";
import { maxPageBytes } from "../base/page.ts";
import { insertTasks, linkTasks, type NewTask } from "../tasks/sql/enqueue.ts";
import { columnBytes, pageQuery } from "../store/page.ts";
import {
  contentValue,
  forUpdate,
  isAmong,
  limit,
  now,
  returning,
  rowAddress,
  rows,
  sql,
  type Statement,
  table,
  forUpdateSkipLocked,
} from "../store/sql.ts";

const schedules = table("schedule");
const tasks = table("task");
const links = table("link");

/**
 * Moves a schedule on from the state that was read, and creates the tasks of the times that passed.
 */
export type ScheduleMove = {
  readonly scheduleId: string;
  readonly seen: { readonly nextAtMs: number; readonly revision: number };
  /** Unique for every move. */
  readonly mark: string;
  readonly afterMs: number;
  readonly nextAtMs: number | null;
  readonly lastAtMs: number | null;
  readonly error: string | null;
  /** The tasks, oldest time first. */
  readonly tasks: readonly NewTask[];
};

/** The stored definition of a schedule. */
export type Definition = {
  readonly scheduleId: string;
  readonly name: string;
  readonly pattern: string;
  readonly zone: string;
  readonly payload: string;
  readonly options: string;
  readonly missed: string;
};

/** A schedule as it was read, so that a repeated send does not overwrite a later change. */
export type SeenSchedule = {
  readonly scheduleId: string;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
};

/** One with its payload, which only the program can compare: a codec stores the same one differently. */
export type SeenDefinition = SeenSchedule & { readonly payload: string };

/**
 * When a row was changed: it grows with each change, even within a millisecond, so that two changes
 * differ.
 */
const changedAt = sql`case when ${schedules}.last_update < ${now} then ${now}
  else ${schedules}.last_update + 1 end`;

/** The schedules that are due now or within `aheadMs`, with the store's time. Uses an index. */
export function readDue(aheadMs: number, count: number): Statement {
  return sql`
    select schedule_id, name, pattern, zone, payload, options, missed, revision, after_at, next_at,
      ${now} as now_at
    from ${schedules} where paused = 0 and next_at <= ${now} + ${aheadMs}
    order by next_at ${limit(count)}`;
}

/**
 * A compare-and-set: only rows that are unchanged since the read are moved. A second or late writer
 * changes nothing. A locked row is left for the next pass, because one idle transaction must not
 * keep all other schedules from being fired.
 */
export function moveSchedules(moves: readonly ScheduleMove[]): Statement {
  const moved = rows(
    {
      schedule_id: "text",
      seen_at: "integer",
      seen_revision: "integer",
      mark: "text",
      after_at: "integer",
      next_at: "integer",
      last_at: "integer",
      last_task_id: "text",
      error: "content",
    },
    moves.map((move) => [
      move.scheduleId,
      move.seen.nextAtMs,
      move.seen.revision,
      move.mark,
      move.afterMs,
      move.nextAtMs,
      move.lastAtMs,
      move.tasks.at(-1)?.taskId ?? null,
      move.error,
    ]),
  );
  const ids = rows(
    { schedule_id: "text" },
    moves.map(({ scheduleId }) => [scheduleId]),
  );
  return sql`
    update ${schedules}
    set mark = moved.mark, after_at = moved.after_at, next_at = moved.next_at, error = moved.error,
      last_at = coalesce(moved.last_at, ${schedules}.last_at),
      last_task_id = coalesce(moved.last_task_id, ${schedules}.last_task_id)
    from ${moved} moved
    where ${schedules}.schedule_id = moved.schedule_id and ${schedules}.paused = 0
      and ${schedules}.next_at = moved.seen_at and ${schedules}.revision = moved.seen_revision
      and ${isAmong(
        sql`
      select ${rowAddress("schedule")} from ${schedules}
      where schedule_id in (select schedule_id from ${ids} wanted) ${forUpdateSkipLocked}`,
        sql`${rowAddress("schedule", schedules)}`,
      )}
    ${returning(sql`${schedules}.schedule_id`, {
      after: sql`select schedule_id from ${schedules} where mark in (select mark from ${moved} moved)`,
    })}`;
}

/** Inserts the tasks of those moves that this transaction has made. */
export function insertFired(moves: readonly ScheduleMove[]): Statement {
  const marks = rows(
    { task_id: "text", schedule_id: "text", mark: "text" },
    moves.flatMap(({ scheduleId, mark, tasks }) =>
      tasks.map(({ taskId }) => [taskId, scheduleId, mark]),
    ),
  );
  const when = sql`task_id in (
    select made.task_id from ${marks} made join ${schedules} schedule
      on schedule.schedule_id = made.schedule_id and schedule.mark = made.mark)`;
  return insertTasks(firedBy(moves), when);
}

/** Links the tasks of those moves to their schedules. Goes after `insertFired`. */
export function linkFired(moves: readonly ScheduleMove[]): Statement[] {
  return linkTasks(firedBy(moves));
}

function firedBy(moves: readonly ScheduleMove[]): NewTask[] {
  return moves.flatMap(({ tasks: made }) => made);
}

/**
 * Stores a definition in place of the one that was read, unless the row is equal already: then
 * nothing changes, however often it is sent. A different pattern or zone starts over, from now; a
 * paused schedule stays paused.
 */
export function putSchedule(
  given: Definition,
  seen: SeenDefinition | undefined,
  mark: string | null = null,
): Statement {
  const { scheduleId, name, pattern, zone, payload, options, missed } = given;
  if (!seen) {
    return sql`
      insert into ${schedules} (schedule_id, name, pattern, zone, payload, options, missed, mark)
      values (${scheduleId}, ${name}, ${pattern}, ${zone}, ${contentValue(payload)}, ${options}, ${missed}, ${mark})
      on conflict (schedule_id) do nothing`;
  }
  const anew = sql`(pattern <> ${pattern} or zone <> ${zone} or error is not null)`;
  return sql`
    update ${schedules}
    set name = ${name}, pattern = ${pattern}, zone = ${zone}, payload = ${contentValue(payload)},
      options = ${options}, missed = ${missed},
      revision = revision + 1, error = null, last_update = ${changedAt}, mark = coalesce(${mark}, mark),
      after_at = case when ${anew} then ${now} else after_at end, next_at = 0
    where ${isUnchanged(seen)} and (${anew} or name <> ${name} or ${seen.payload === payload ? 0 : 1} = 1
      or options <> ${options} or missed <> ${missed})`;
}

export function getSchedules(scheduleIds: readonly string[]): Statement {
  const wanted = rows(
    { schedule_id: "text" },
    scheduleIds.map((scheduleId) => [scheduleId]),
  );
  return sql`
    select *, ${now} as now_at from ${schedules}
    where schedule_id in (select schedule_id from ${wanted} wanted)`;
}

export function listSchedules(after: string, count: number): Statement {
  const { begin, keys, found } = pageQuery({
    key: sql`schedule_id`,
    order: "asc",
    from: sql`from ${schedules} where schedule_id > ${after}`,
    bytes: sql`500 + ${columnBytes(sql`payload`)} + ${columnBytes(sql`options`)} + ${columnBytes(sql`error`)}`,
    limit: count,
    maxBytes: maxPageBytes,
  });
  return sql`${begin}
    select *, ${found} from ${schedules} where ${isAmong(keys, sql`schedule_id`)}
    order by schedule_id`;
}

export function pauseSchedule(seen: SeenSchedule, mark: string): Statement {
  return sql`
    update ${schedules} set paused = 1, last_update = ${changedAt}, mark = ${mark}
    where ${isUnchanged(seen)} and paused = 0`;
}

/** Times during the pause are skipped: it continues from now. */
export function resumeSchedule(seen: SeenSchedule, mark: string): Statement {
  return sql`
    update ${schedules} set paused = 0, after_at = ${now}, next_at = 0, last_update = ${changedAt},
      mark = ${mark}
    where ${isUnchanged(seen)} and paused = 1`;
}

/** The entry of a change that has left this mark in its transaction. */
export function entryOfChange(
  scheduleId: string,
  mark: string,
  { before, after }: { before?: string; after: string },
  entry: WriteEntry,
): readonly Statement[] {
  return entry({
    when: sql`from ${schedules} where schedule_id = ${scheduleId} and mark = ${mark}`,
    ...(before !== undefined && { before }),
    after,
  });
}

/**
 * The tasks that a schedule has made and that are kept, newest first. Their ids are in the order in which
 * they were made.
 */
export function listFirings(
  scheduleId: string,
  { before, count }: { before: string | undefined; count: number },
): Statement {
  const below = before === undefined ? sql`` : sql`and link.to_id < ${before}`;
  return sql`
    select made.to_id as task_id, task.name, task.tenant, task.status, task.scheduled_at,
      task.created_at, task.last_update, task.retry_count
    from (select link.to_id from ${links} link
      where link.from_id = ${scheduleId} and link.what = 'schedule' ${below}
      order by link.to_id desc ${limit(count)}) made
    left join ${tasks} task on task.task_id = made.to_id
    order by made.to_id desc`;
}

/** The first answer has the row if it existed. */
export function removeSchedule(
  seen: SeenSchedule,
  before: string,
  entry: WriteEntry = noEntry,
): Statement[] {
  return [
    sql`select schedule_id from ${schedules} where ${isSame(seen)} ${forUpdate}`,
    ...entry({ when: sql`from ${schedules} where ${isSame(seen)}`, before }),
    sql`delete from ${schedules} where ${isSame(seen)}`,
  ];
}

/**
 * Creates a task from a schedule, if the schedule is unchanged. The last answer has the task's row
 * if it is stored.
 */
export function fireSchedule(
  seen: SeenSchedule,
  task: NewTask,
  entry: WriteEntry = noEntry,
): Statement[] {
  return [
    sql`select schedule_id from ${schedules} where ${isUnchanged(seen)} ${forUpdate}`,
    ...entry({
      when: sql`from ${schedules} where ${isUnchanged(seen)}`,
      after: JSON.stringify({ taskId: task.taskId }),
    }),
    insertTasks([task], sql`exists (select 1 from ${schedules} where ${isUnchanged(seen)})`),
    ...linkTasks([task]),
    sql`select task_id from ${tasks} where task_id = ${task.taskId}`,
  ];
}

/** The condition that it is the same schedule, whatever its definition is by now. */
function isSame({ scheduleId, createdAtMs }: SeenSchedule): Statement {
  return sql`schedule_id = ${scheduleId} and created_at = ${createdAtMs}`;
}

/**
 * The condition that it is the same schedule and unchanged since the read, except for having been
 * fired.
 */
function isUnchanged(seen: SeenSchedule): Statement {
  return sql`${isSame(seen)} and last_update = ${seen.updatedAtMs}`;
}
