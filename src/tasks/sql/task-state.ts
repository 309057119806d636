import { sql, type Statement, type table } from "../../store/sql.ts";

/**
 * What keeps a pending task from being claimed, as the column `parked` says it. Statements spell the
 * number out, because an index on some of the rows is found by it.
 */
export const parked = {
  /** Nothing does. */
  no: 0,
  /** Its time hasn't come. */
  untilDue: 1,
  /** Tasks that it waits for haven't ended. */
  forOthers: 2,
  /** As many as may are running of what it counts among; `blocked_by` says of what. */
  forRoom: 3,
  /** Nothing but the gate: whether there is room is looked at when it is claimed. */
  atGate: 4,
  /** A run that goes on when somebody says something to it. */
  untilTold: 5,
  /** A run that nobody can read; people have to look at it. */
  aside: 6,
} as const;

/** What `parked` becomes when nothing holds a task up any more but, maybe, its gate. */
export const ungated = sql`case when gated = 1 then 4 else 0 end`;

/**
 * The condition that a task which is named is pending. It is said so that no planner takes an index of
 * some of the pending ones for a way to it: that leads by all of them.
 */
export function isPending(task: Statement | ReturnType<typeof table>): Statement {
  return sql`coalesce(${task}.status, '') = 'pending'`;
}
