import { limit as atMost, sql, type Statement, table } from "../../store/sql.ts";

const events = table("step_event");

/** The number of a task's next event. */
export function nextSeq(taskId: Statement): Statement {
  return sql`(select coalesce(max(seq), 0) + 1 from ${events} past where past.task_id = ${taskId})`;
}

/**
 * How the events of one request are known, so that sending it again does nothing. Whatever a request changes,
 * it also raises the row's `wake`: an event with the next number is of this transaction, one with another
 * number is of an earlier send.
 */
export function eventsOf(taskId: string, requestId: string) {
  const mark = `"request":"${requestId}","wake":`;
  const noted = sql`select 1 from ${events} past
    where past.task_id = ${taskId} and past.detail like ${`%${mark}%`}`;
  return {
    /** Ends the JSON of an event's detail, in a query on the task as it is before its change. */
    mark: sql`${mark} || cast(wake + 1 as text) || '}'`,
    /** The condition on the task that no earlier send was stored. */
    isFirst: sql`not exists (${noted}
      and past.detail not like ${`%${mark}`} || cast(wake + 1 as text) || '}')`,
    /** The condition that this send or an earlier one has done something. */
    isNoted: sql`exists (${noted})`,
  };
}

/**
 * The number of an event of a run follows from the write that notes it, with room between two writes for
 * what others note: so nobody has to look for the last one, and what is sent again is known by its number.
 */
export const numbersPerWrite = 100;

/** How many writes of a run its first one has to come after, for the numbers of what was noted before. */
export function writesBefore(taskId: Statement): Statement {
  return sql`(${nextSeq(taskId)} - 1) / cast(${numbersPerWrite} as integer)`;
}

export type EventPage = { readonly after?: number; readonly limit?: number };

/** What happened to a task, in order: all of it, or a page. */
export function getEvents(taskId: string, { after = 0, limit }: EventPage = {}): Statement {
  return sql`
    select * from ${events} where task_id = ${taskId} and seq > ${after} order by seq
    ${limit === undefined ? sql`` : atMost(limit)}`;
}
