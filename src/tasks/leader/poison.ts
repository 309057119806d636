import type { Ids } from "../../base/ids.ts";
import { deathLimit } from "../../base/death-limit.ts";
import { podsKnown } from "../../pods/sql.ts";
import type { Database, Row } from "../../store/database.ts";
import type { Statement } from "../../store/sql.ts";
import { followUpOf } from "../finish/on-failure.ts";
import { getTasks } from "../sql/inspect.ts";
import { followRecovery, type Orphan, poisonError } from "../sql/recover.ts";

/** Which tasks have something that follows their failure, as pods have said of themselves. */
export type FollowedNames = ReadonlyMap<string, readonly string[]>;

/**
 * Whether something follows where this task is failed by recovery. The pod that ran it knew its
 * handler, so its word counts; where that pod is forgotten, any other's does.
 */
export function isFollowed(name: string, podId: string, byPod: FollowedNames): boolean {
  const said = byPod.get(podId);
  if (said) return said.includes(name);
  return [...byPod.values()].some((names) => names.includes(name));
}

/**
 * The statements that store what follows the tasks which this recovery fails, because pods have died
 * under them too often. Hardly ever any: then nothing is asked.
 */
export async function followPoison(
  database: Database,
  orphans: readonly (Orphan & { readonly deaths: number })[],
  ids: Ids,
): Promise<Statement[]> {
  const spent = orphans.filter(({ deaths }) => deaths + 1 >= deathLimit);
  if (spent.length === 0) return [];
  const byPod = followedByPod(await database.read(podsKnown()));
  const holders = new Map(spent.map((orphan) => [orphan.taskId, orphan]));
  const rows = await database.read(getTasks([...holders.keys()]));
  const followUps = rows.flatMap((row) => {
    const { taskId, token, pod } = holders.get(row["task_id"])!;
    const { name, payload } = row as { name: string; payload: string };
    if (!isFollowed(name, pod.podId, byPod)) return [];
    const attempts = Number(row["retry_count"]);
    return [followUpOf({ taskId, name, payload, token, attempts, error: poisonError }, ids)];
  });
  return followUps.length > 0 ? [followRecovery(followUps, spent)] : [];
}

function followedByPod(rows: readonly Row[]): FollowedNames {
  const byPod = new Map<string, readonly string[]>();
  for (const row of rows) {
    const { followUps } = JSON.parse(row["metadata"]) as { followUps?: unknown };
    // A pod of an older release says nothing, and neither does somebody's own that only claims.
    if (Array.isArray(followUps)) byPod.set(row["pod_id"], followUps as string[]);
  }
  return byPod;
}
