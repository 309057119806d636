import { holdTask, now, seizePod, sql, type Statement, table } from "../../store/sql.ts";
import { wakeWaitersOfCall } from "./dependencies.ts";

const tasks = table("step_tracker");
const pods = table("pod_health");

/**
 * Gives back whatever a claim call took, and makes sure that it can take nothing any more. Where
 * this pod's row was pruned it is made anew, because a beat that was sent before this may land after
 * it, and would bring the row back with an older floor.
 */
export function releaseCall(podId: string, call: number): Statement[] {
  return [
    // A claim that is under way is waited for, so that what it takes can be seen below.
    sql`select 1 from ${pods} where pod_id = ${podId} ${seizePod}`,
    sql`
      insert into ${pods} (pod_id, claim_floor, pauses) values (${podId}, ${call}, ${now})
      on conflict (pod_id) do update set claim_floor = excluded.claim_floor
      where ${pods}.claim_floor < excluded.claim_floor`,
    // Held, so that nobody asks for a cancel between who is woken for it and what is done.
    sql`select task_id from ${tasks} task
      where claimed_by = ${podId} and claim_call = ${call} and status = 'claimed'
      order by task_id ${holdTask}`,
    ...wakeWaitersOfCall(podId, call),
    sql`
      update ${tasks}
      set status = case when cancel_requested = 1 and flow_version is null then 'cancelled'
          else 'pending' end,
        claimed_by = null, claim_call = null, claim_token = claim_token + 1, last_update = ${now}
      where claimed_by = ${podId} and claim_call = ${call} and status = 'claimed'`,
  ];
}
