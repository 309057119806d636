import { pageBytes } from "../../base/page.ts";
import { bytesOf, pageOf } from "../../store/page.ts";
import { isAmong, sql, type Statement, table } from "../../store/sql.ts";

const events = table("step_event");

/** The number of a task's next event. */
export function nextSeq(taskId: Statement): Statement {
  return sql`(select coalesce(max(seq), 0) + 1 from ${events} past where past.task_id = ${taskId})`;
}

/**
 * The mark that a cancel or a resume leaves in what it notes, so that sending the request again does nothing.
 * Whatever a request changes, it also raises the row's `wake`: a mark with the next number is of this
 * transaction, one with another number is of an earlier send. A `case` keeps the store from reading the
 * details of all other events, which may be large.
 */
export function requestMark(taskId: string, requestId: string) {
  const mark = `"request":"${requestId}","wake":`;
  const noted = (isMeant: Statement) => sql`exists (
    select 1 from ${events} past
    where past.task_id = ${taskId}
      and case when past.type in ('cancel_requested', 'given_up', 'resume')
        then past.detail like ${`%${mark}%`} and ${isMeant} else false end)`;
  return {
    /** Ends the JSON of an event's detail, in a query on the task as it is before its change. */
    mark: sql`${mark} || cast(wake + 1 as text) || '}'`,
    /** The condition on the task that no earlier send was stored. */
    isFirst: sql`not ${noted(sql`past.detail not like ${`%${mark}`} || cast(wake + 1 as text) || '}'`)}`,
    /** The condition that this send or an earlier one has done something. */
    isNoted: noted(sql`true`),
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

/** What happened to a task, in order: all of it, or with a limit a page. */
export function getEvents(taskId: string, { after = 0, limit }: EventPage = {}): Statement {
  const from = sql`from ${events} where task_id = ${taskId} and seq > ${after}`;
  if (limit === undefined) return sql`select * ${from} order by seq`;
  const bytes = sql`200 + ${bytesOf(sql`detail`)}`;
  const page = { key: sql`seq`, order: "asc", from, bytes, limit, maxBytes: pageBytes } as const;
  const { begin, keys, found } = pageOf(page);
  return sql`${begin}
    select *, ${found} from ${events} where task_id = ${taskId} and ${isAmong(keys, sql`seq`)}
    order by seq`;
}
