import { limit as atMost, sql, type Statement, table } from "../../store/sql.ts";

const events = table("step_event");

/** The number of a task's next event. */
export function nextSeq(taskId: Statement): Statement {
  return sql`(select coalesce(max(seq), 0) + 1 from ${events} past where past.task_id = ${taskId})`;
}

export type EventPage = { readonly after?: number; readonly limit?: number };

/** What happened to a task, in order: all of it, or a page. */
export function getEvents(taskId: string, { after = 0, limit }: EventPage = {}): Statement {
  return sql`
    select * from ${events} where task_id = ${taskId} and seq > ${after} order by seq
    ${limit === undefined ? sql`` : atMost(limit)}`;
}
