import type { Row } from "../store/database.ts";
import {
  forUpdate,
  forUpdateSkipLocked,
  join,
  limit,
  now,
  liveConnections,
  ownConnection,
  rows,
  sql,
  type Statement,
  table,
  type TableName,
} from "../store/sql.ts";
import type { PodSeen } from "./liveness.ts";

const podTable = table("pod");

// No pod has this beat, so a pod that returns is seen to have changed.
const unknownBeat = -1;
// Where it isn't known how far a pod has begun what it claimed ahead, all of it counts as begun.
export const unknownBegun = -1;

/**
 * One heartbeat, the `count`-th of its process. An upsert, so that a live pod that was marked down
 * or pruned comes back. It then keeps its floor, so that an abandoned claim still cannot land, and
 * gets a beat and a pause number that it never had before, so that neither looks unchanged.
 * `hadRow` says that it had one before, in which its marks were, and `drains` what that said last.
 */
export function beat(
  podId: string,
  metadata: string,
  abandonedUpTo: number,
  {
    count = 1,
    host = null,
    hadRow = false,
    pulse = null,
    drains = false,
  }: {
    count?: number;
    host?: string | null;
    hadRow?: boolean;
    pulse?: string | null;
    drains?: boolean;
  } = {},
): Statement {
  return sql`
    insert into ${podTable}
      (pod_id, beat, claim_floor, metadata, pauses, host, connection, begun_call, pulse, drain)
    values (${podId}, ${count}, ${abandonedUpTo}, ${metadata}, ${now}, ${host}, ${ownConnection},
      ${hadRow ? unknownBegun : 0}, ${pulse}, ${drains ? 1 : 0})
    on conflict (pod_id) do update
    set beat = ${podTable}.beat + 1, last_heartbeat = ${now}, status = 'up',
      host = excluded.host, connection = excluded.connection, pulse = excluded.pulse`;
}

/**
 * All pods that are up or still hold claims, including those without a row. Holders are found by
 * stepping along the index from one pod to the next: a planner that expects most tasks to be
 * claimed would otherwise read the table with every beat. Backwards, because a pod's newest claims
 * come last, and its older entries are in the way until they are vacuumed.
 *
 * It reads `task`, the table of another room, because recovery has to know of every holder. Of the
 * watched tables, whatever they are for, `filled` names those with rows, so that no part of a pod has
 * to poll for its first.
 */
export function readPods(watched: readonly TableName[] = []): Statement {
  const tasks = table("task");
  const filled = watched.map(
    (name) => sql`case when exists (select 1 from ${table(name)}) then ${`${name} `} else '' end`,
  );
  return sql`
    with recursive holder (pod_id) as (
      select (select max(claimed_by) from ${tasks} where status = 'claimed')
      union all
      select (select max(task.claimed_by) from ${tasks} task
        where task.status = 'claimed' and task.claimed_by < holder.pod_id)
      from holder where holder.pod_id is not null)
    select pod_id, started_at, status, beat, passes, host, connection, drain,
      case when connection in (${liveConnections}) then 1 else 0 end as connected,
      ${join([sql`''`, ...filled], " || ")} as filled, ${now} as at
    from ${podTable}
    where status = 'up' or pod_id in (select pod_id from holder where pod_id is not null)
    union all
    select pod_id, 0, 'down', cast(${unknownBeat} as bigint), 0, null, null, 0, 0, '', ${now}
    from holder
    where pod_id is not null and pod_id not in (select pod_id from ${podTable})`;
}

/** The watched tables that have rows. Every row of a pod names all of them. */
export function toFilledTables(pods: readonly Row[]): TableName[] {
  const names = new Set(pods.flatMap((row) => (row["filled"] as string).split(" ")));
  names.delete("");
  return [...names] as TableName[];
}

export function toPodSeen(row: Row): PodSeen {
  return {
    podId: row["pod_id"],
    birthMs: Number(row["started_at"]),
    status: row["status"],
    beat: Number(row["beat"]),
    passes: Number(row["passes"]),
    ...(row["host"] !== null && { host: row["host"] as string }),
    ...(row["connection"] !== null && {
      connection: { id: Number(row["connection"]), isOpen: row["connected"] === 1 },
    }),
    ...(Number(row["drain"]) === 1 && { drains: true }),
  };
}

/**
 * Marks pods down, unless they have sent a beat since. A locked row is left for the next pass,
 * because recovery must not wait for another transaction.
 */
export function markDown(pods: readonly PodSeen[]): Statement {
  const silent = rows(
    { pod_id: "text", beat: "integer" },
    pods.map((pod) => [pod.podId, pod.beat]),
  );
  return sql`
    update ${podTable} set status = 'down'
    where pod_id in (
      select pod_id from ${podTable} pod
      where status = 'up' and exists (
        select 1 from ${silent} silent where silent.pod_id = pod.pod_id and silent.beat = pod.beat)
      ${forUpdateSkipLocked})`;
}

/** Sets whether a pod is idle. Commits notify only if a pod is. */
export function updateIdle(podId: string, idle: boolean): Statement {
  return sql`update ${podTable} set waiting = ${idle ? 1 : 0} where pod_id = ${podId}`;
}

/** Stores a pod's state: its capacity, and why it claims no more. */
export function updatePodState(podId: string, state: string): Statement {
  return sql`update ${podTable} set state = ${state} where pod_id = ${podId}`;
}

/** Marks a pod down that leaves by itself. */
export function markLeft(podId: string): Statement {
  return sql`update ${podTable} set status = 'down', last_heartbeat = ${now} where pod_id = ${podId}`;
}

/** Records that this leader has finished a pass. */
export function finishPass(podId: string): Statement {
  return sql`update ${podTable} set passes = passes + 1 where pod_id = ${podId}`;
}

/**
 * Deletes pods that have been down for long. Their claims, if any, then belong to an unknown pod.
 */
export function prunePods(olderThanMs: number): Statement {
  return sql`
    delete from ${podTable} where pod_id in (
      select pod_id from ${podTable}
      where status = 'down' and last_heartbeat < ${now} - ${olderThanMs} ${forUpdateSkipLocked})`;
}

/** The metadata of all pods. */
export function knownPods(): Statement {
  return sql`select pod_id, metadata from ${podTable}`;
}

/** What these pods stored with their last heartbeats. */
export function pulsesOf(podIds: readonly string[]): Statement {
  const wanted = rows(
    { pod_id: "text" },
    podIds.map((podId) => [podId]),
  );
  return sql`
    select pod_id, pulse from ${podTable}
    where pulse is not null and pod_id in (select pod_id from ${wanted} wanted)`;
}

/** The metadata of live pods, and which of them take no more work. */
export function livePods(): Statement {
  return sql`select pod_id, metadata, drain from ${podTable} where status = 'up'`;
}

/** Makes the entry of an act in the audit. */
type DrainEntry = (facts: {
  readonly when: Statement;
  readonly before: string;
  readonly after: string;
}) => readonly Statement[];

/** Says whether a live pod is to take no more work. Returns its row, live or not. */
export function changeDrain(podId: string, drains: boolean, entry: DrainEntry): Statement[] {
  const isOther = sql`pod_id = ${podId} and status = 'up' and drain = ${drains ? 0 : 1}`;
  return [
    sql`select pod_id from ${podTable} where pod_id = ${podId} ${forUpdate}`,
    ...entry({
      when: sql`from ${podTable} where ${isOther}`,
      before: JSON.stringify({ drain: !drains }),
      after: JSON.stringify({ drain: drains }),
    }),
    sql`update ${podTable} set drain = ${drains ? 1 : 0} where ${isOther}`,
    sql`select * from ${podTable} where pod_id = ${podId}`,
  ];
}

/** The time since the last heartbeat of each live pod, by the database's clock. */
export function podAges(): Statement {
  return sql`
    select pod_id, ${now} - last_heartbeat as age_ms, beat, host, metadata
    from ${podTable} where status = 'up'`;
}

/** The pods that are up, then those that were seen last. */
export function latestPods(count: number): Statement {
  return sql`
    select pod_id, status, last_heartbeat, state, metadata from ${podTable}
    order by case when status = 'up' then 0 else 1 end, last_heartbeat desc, pod_id ${limit(count)}`;
}

/** All pods without their metadata, which may be long and stays as a pod has written it first. */
export function listBriefPods(): Statement {
  return sql`
    select pod_id, status, started_at, last_heartbeat, beat, drain, state, pulse from ${podTable}
    order by started_at, pod_id`;
}

/** The metadata of these pods. */
export function metadataOf(podIds: readonly string[]): Statement {
  const wanted = rows(
    { pod_id: "text" },
    podIds.map((podId) => [podId]),
  );
  return sql`
    select pod_id, metadata from ${podTable}
    where pod_id in (select pod_id from ${wanted} wanted)`;
}

/** What counts of all pods are made of. */
export function readPulsesOfAll(): Statement {
  return sql`select status, pulse from ${podTable}`;
}

export function listPods(): Statement {
  return sql`select * from ${podTable} order by started_at, pod_id`;
}
