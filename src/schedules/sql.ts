import { maxPageBytes } from "../base/page.ts";
import { insertTasks, type NewTask } from "../tasks/sql/enqueue.ts";
import { columnBytes, pageQuery } from "../store/page.ts";
import {
  lockForUpdate,
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

/** When a row was changed: later with each change, also within a millisecond, so that it tells two apart. */
const changedAt = sql`case when ${schedules}.last_update < ${now} then ${now}
  else ${schedules}.last_update + 1 end`;

/** What is due, and what will be within a moment, with the store's time. Found by an index. */
export function readDue(aheadMs: number, count: number): Statement {
  return sql`
    select schedule_id, name, pattern, zone, payload, options, missed, revision, after_at, next_at,
      ${now} as now_at
    from ${schedules} where paused = 0 and next_at <= ${now} + ${aheadMs}
    order by next_at ${limit(count)}`;
}

/** Moves a schedule on from where it was seen, and makes the tasks of the times that were passed. */
export type ScheduleMove = {
  readonly scheduleId: string;
  readonly seen: { readonly nextAtMs: number; readonly revision: number };
  /** No other move's, ever. */
  readonly mark: string;
  readonly afterMs: number;
  readonly nextAtMs: number | null;
  readonly lastAtMs: number | null;
  readonly error: string | null;
  /** The tasks, oldest time first. */
  readonly tasks: readonly NewTask[];
};

/**
 * A compare-and-set: moved is what still is as it was seen. Whoever comes second, or late, changes
 * nothing. A row that somebody else holds is left for the next pass, because one transaction that
 * idles must not keep all other schedules from being fired.
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
      error: "text",
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
      and ${isAmong(sql`
      select ${rowAddress} from ${schedules}
      where schedule_id in (select schedule_id from ${ids} wanted) ${forUpdateSkipLocked}`)}
    ${returning(sql`${schedules}.schedule_id`, {
      after: sql`select schedule_id from ${schedules} where mark in (select mark from ${moved} moved)`,
    })}`;
}

/** The tasks of those moves that were made in this transaction. */
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
  return insertTasks(
    moves.flatMap(({ tasks }) => tasks),
    when,
  );
}

/** What a schedule says, as it is stored. */
export type Definition = {
  readonly scheduleId: string;
  readonly name: string;
  readonly pattern: string;
  readonly zone: string;
  readonly payload: string;
  readonly options: string;
  readonly missed: string;
};

/**
 * Stores what a schedule says in place of what was seen, unless the row says so already: then nothing
 * changes, however many send it and however often. Another pattern or zone begins anew, from now; a
 * schedule that was paused stays so.
 */
export function putSchedule(given: Definition, seen: SeenSchedule | undefined): Statement {
  const { scheduleId, name, pattern, zone, payload, options, missed } = given;
  if (!seen) {
    return sql`
      insert into ${schedules} (schedule_id, name, pattern, zone, payload, options, missed)
      values (${scheduleId}, ${name}, ${pattern}, ${zone}, ${payload}, ${options}, ${missed})
      on conflict (schedule_id) do nothing`;
  }
  const anew = sql`(pattern <> ${pattern} or zone <> ${zone} or error is not null)`;
  return sql`
    update ${schedules}
    set name = ${name}, pattern = ${pattern}, zone = ${zone}, payload = ${payload},
      options = ${options}, missed = ${missed},
      revision = revision + 1, error = null, last_update = ${changedAt},
      after_at = case when ${anew} then ${now} else after_at end, next_at = 0
    where ${isUnchanged(seen)} and (${anew} or name <> ${name} or payload <> ${payload}
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

/** A schedule as it was read, so that what is sent again doesn't change what is there by then. */
export type SeenSchedule = {
  readonly scheduleId: string;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
};

/** It is the same schedule, whatever it says by now. */
function isSame({ scheduleId, createdAtMs }: SeenSchedule): Statement {
  return sql`schedule_id = ${scheduleId} and created_at = ${createdAtMs}`;
}

/** It is the same, and is as it was seen, but for having been fired. */
function isUnchanged(seen: SeenSchedule): Statement {
  return sql`${isSame(seen)} and last_update = ${seen.updatedAtMs}`;
}

export function pauseSchedule(seen: SeenSchedule): Statement {
  return sql`
    update ${schedules} set paused = 1, last_update = ${changedAt}
    where ${isUnchanged(seen)} and paused = 0`;
}

/** What came while it was paused is passed over: it goes on from now. */
export function resumeSchedule(seen: SeenSchedule): Statement {
  return sql`
    update ${schedules} set paused = 0, after_at = ${now}, next_at = 0, last_update = ${changedAt}
    where ${isUnchanged(seen)} and paused = 1`;
}

/** The first answer has the row if it was there to be removed. */
export function removeSchedule(seen: SeenSchedule): Statement[] {
  return [
    sql`select schedule_id from ${schedules} where ${isSame(seen)} ${lockForUpdate}`,
    sql`delete from ${schedules} where ${isSame(seen)}`,
  ];
}

/** Makes a task of what a schedule says, while it says so. The last answer has its row if it is there. */
export function fireSchedule(seen: SeenSchedule, task: NewTask): Statement[] {
  return [
    sql`select schedule_id from ${schedules} where ${isUnchanged(seen)} ${lockForUpdate}`,
    insertTasks([task], sql`exists (select 1 from ${schedules} where ${isUnchanged(seen)})`),
    sql`select task_id from ${tasks} where task_id = ${task.taskId}`,
  ];
}
