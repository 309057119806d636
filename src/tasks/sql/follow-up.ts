import { now, rows, sql, type Statement, table } from "../../store/sql.ts";
import { parked } from "./task-state.ts";

const tasks = table("step_tracker");

/** A task that follows the failure of another, in the same write as that failure. */
export type FollowUp = {
  readonly taskId: string;
  readonly failedId: string;
  /** Of the claim that failed. */
  readonly token: number;
  readonly name: string;
  readonly payload: string;
};

/**
 * Stores what follows failures of `task`, under the condition of the write that fails it, which comes
 * next. Whose task it is, how urgent and of which trace is taken from the one that failed.
 */
export function insertFollowUps(given: readonly FollowUp[], condition: Statement): Statement {
  const failed = rows(
    { id: "text", failed_id: "text", token: "integer", name: "text", payload: "text", key: "text" },
    given.map((each) => {
      const { taskId, failedId, token, name, payload } = each;
      return [taskId, failedId, token, name, payload, `${failedId}/${token}`];
    }),
  );
  return sql`
    insert into ${tasks} (task_id, tenant, name, payload, priority, run_at, created_at, last_update,
      unique_key, parent_id, trace, gated, parked)
    select failed.id, task.tenant, failed.name, failed.payload, task.priority, ${now}, ${now}, ${now},
      failed.key, task.task_id, task.trace, ${ofTenant(1)}, ${ofTenant(parked.atGate)}
    from ${failed} failed join ${tasks} task
      on task.task_id = failed.failed_id and task.claim_token = failed.token
    where ${condition}
    on conflict do nothing`;
}

function ofTenant(value: number): Statement {
  return sql`case when task.tenant <> 'default' then cast(${value} as integer) else 0 end`;
}
