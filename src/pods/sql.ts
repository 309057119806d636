import type { Row } from "../store/database.ts";
import { now, rows, sql, type Statement, table, forUpdateSkipLocked } from "../store/sql.ts";
import type { PodSeen } from "./liveness.ts";

const podHealth = table("pod");

/**
 * One heartbeat, the `count`-th of its process. An upsert, so that a live pod that was marked down or
 * pruned comes back; then with the floor it had, so that a claim it has given up still can't land,
 * and with a beat and a number of its pauses that it never had before, so that neither is taken for
 * unchanged.
 */
export function beat(podId: string, metadata: string, abandonedUpTo: number, count = 1): Statement {
  return sql`
    insert into ${podHealth} (pod_id, beat, claim_floor, metadata, pauses)
    values (${podId}, ${count}, ${abandonedUpTo}, ${metadata}, ${now})
    on conflict (pod_id) do update
    set beat = ${podHealth}.beat + 1, last_heartbeat = ${now}, status = 'up'`;
}

/**
 * Every pod that is up or still holds claims, also those whose row is gone. Who holds some is found by
 * stepping along the index from one pod to the next: a planner that takes everything for claimed would
 * read the table else, with every beat. Backwards, because a pod's last claims come last, and what it
 * claimed before is in the way until it is cleaned up. With them comes whether pods have anything to say
 * about throttles, so that whoever leads needn't ask, and whether there were ever sessions.
 */
export function readPods(): Statement {
  const tasks = table("task");
  return sql`
    with recursive holder (pod_id) as (
      select (select max(claimed_by) from ${tasks} where status = 'claimed')
      union all
      select (select max(task.claimed_by) from ${tasks} task
        where task.status = 'claimed' and task.claimed_by < holder.pod_id)
      from holder where holder.pod_id is not null)
    select pod_id, started_at, status, beat, passes,
      exists (select 1 from ${table("throttle_report")}) as throttled,
      exists (select 1 from ${table("session_log")}) as talked
    from ${podHealth}
    where status = 'up' or pod_id in (select pod_id from holder where pod_id is not null)
    union all
    select pod_id, 0, 'down', cast(${unknownBeat} as bigint), 0, false, false from holder
    where pod_id is not null and pod_id not in (select pod_id from ${podHealth})`;
}

// No pod has this beat, so one that comes back is seen to have moved.
const unknownBeat = -1;

export function toPodSeen(row: Row): PodSeen {
  return {
    podId: row["pod_id"],
    birthMs: Number(row["started_at"]),
    status: row["status"],
    beat: Number(row["beat"]),
    passes: Number(row["passes"]),
  };
}

/**
 * Marks pods down, unless they have beaten since. A row that somebody holds is left for the next
 * pass, because recovery must not wait for whoever that is.
 */
export function markDown(pods: readonly PodSeen[]): Statement {
  const silent = rows(
    { pod_id: "text", beat: "integer" },
    pods.map((pod) => [pod.podId, pod.beat]),
  );
  return sql`
    update ${podHealth} set status = 'down'
    where pod_id in (
      select pod_id from ${podHealth} pod
      where status = 'up' and exists (
        select 1 from ${silent} silent where silent.pod_id = pod.pod_id and silent.beat = pod.beat)
      ${forUpdateSkipLocked})`;
}

/** Whether a pod waits for work. Those who bring some call out only if one does. */
export function updateIdle(podId: string, idle: boolean): Statement {
  return sql`update ${podHealth} set waiting = ${idle ? 1 : 0} where pod_id = ${podId}`;
}

/** What a pod says of itself: how much it takes on, and why no more. */
export function updatePodState(podId: string, state: string): Statement {
  return sql`update ${podHealth} set state = ${state} where pod_id = ${podId}`;
}

/** A pod that leaves says so itself. */
export function markLeft(podId: string): Statement {
  return sql`update ${podHealth} set status = 'down', last_heartbeat = ${now} where pod_id = ${podId}`;
}

/** Tells the others that this leader has finished a pass. */
export function finishPass(podId: string): Statement {
  return sql`update ${podHealth} set passes = passes + 1 where pod_id = ${podId}`;
}

/** Forgets pods that have been down for long. Their claims, if any, are those of an unknown pod. */
export function prunePods(olderThanMs: number): Statement {
  return sql`
    delete from ${podHealth} where pod_id in (
      select pod_id from ${podHealth}
      where status = 'down' and last_heartbeat < ${now} - ${olderThanMs} ${forUpdateSkipLocked})`;
}

/** What every pod has said of itself. */
export function knownPods(): Statement {
  return sql`select pod_id, metadata from ${podHealth}`;
}

/** What pods that are up say of themselves. */
export function livePods(): Statement {
  return sql`select pod_id, metadata from ${podHealth} where status = 'up'`;
}

export function listPods(): Statement {
  return sql`select * from ${podHealth} order by started_at, pod_id`;
}
