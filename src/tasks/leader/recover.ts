import { deathLimit } from "../../base/death-limit.ts";
import { hasCode, messageOf } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import { type Logger, silentLogger } from "../../base/log.ts";
import {
  leaderOf,
  type Liveness,
  type LivenessLimits,
  silentPods,
  type WatchedPod,
} from "../../pods/liveness.ts";
import { finishPass, markDown, knownPods, prunePods } from "../../pods/sql.ts";
import type { Database, Row } from "../../store/database.ts";
import type { Statement } from "../../store/sql.ts";
import { createUnblocker } from "../concurrency/unblock.ts";
import { followUpOf } from "../finish/outcome.ts";
import { wakeDependents } from "../sql/dependencies.ts";
import { getTasks } from "../sql/inspect.ts";
import {
  claimsOf,
  deleteFinished,
  insertRecoveryFollowUps,
  noteRecovery,
  type Orphan,
  poisonError,
  recoverTasks,
  sweep,
} from "../sql/recover.ts";
import { type Retention, retentionOf, shortestMs } from "./prune.ts";

export type LeaderOptions = {
  podId: string;
  database: Database;
  limits: LivenessLimits;
  /** Makes the ids of what follows failures. */
  ids: Ids;
  /** Finished tasks are deleted after this long, by how they ended. Default 7 days. */
  retentionMs?: number | Partial<Retention>;
  /** Told how many tasks were given back, and how long the pods of the first ones had been silent. */
  onRecovered?: (tasks: number, silencesMs: readonly number[]) => void;
  /** Told where tasks that waited for room can go on. */
  onFreed?: () => void;
  log?: Logger;
};

type Dying = Orphan & { readonly deaths: number };

const recoverLimit = 500;
// A pass visits ten thousand tasks. If it could delete only as many as one write should, a store that
// is busier than that would grow for ever.
const sweepLimit = 10_000;
// Between two walks it rests: what is kept for hours needn't be looked for every second.
const restPasses = 60;
const restPerMs = 60_000;
const deleteLimit = 500;
const downPodsKeptMs = 24 * 60 * 60_000;
// Ids sort by age, so a page a pass walks the whole table again and again at little cost.
const beforeAll = "";

/**
 * The leader's work, once per beat: mark silent pods down, give their tasks back, prune. It never
 * assigns work. Each write carries its own condition, so two leaders do what one would.
 */
export function createLeader(options: LeaderOptions) {
  const { podId, database, limits, ids, onRecovered = () => {}, log = silentLogger } = options;
  const { onFreed = () => {} } = options;
  const kept = retentionOf(options.retentionMs);
  let sweptTo = beforeAll;
  const unblocker = createUnblocker({ database });
  /** Passes until the next walk begins. */
  let resting = 0;

  const giveBackTogether = async (orphans: readonly Dying[]): Promise<readonly Row[]> => {
    const following = await followUpPoisoned(database, orphans, ids);
    const waking = wakeDependents(orphans.map(({ taskId }) => taskId));
    const statements = [noteRecovery(orphans), ...following, recoverTasks(orphans), ...waking];
    const tables = await database.write(statements, { hint: true });
    return tables[1 + following.length]!;
  };

  /** Somebody may hold a task that waits for one of them: then the others needn't wait for that one. */
  const giveBack = async (orphans: readonly Dying[]): Promise<readonly Row[]> => {
    try {
      return await giveBackTogether(orphans);
    } catch (error) {
      if (orphans.length === 1 || !hasCode(error, "store_busy")) throw error;
    }
    const recovered: Row[] = [];
    for (const orphan of orphans) {
      try {
        recovered.push(...(await giveBackTogether([orphan])));
      } catch (error) {
        if (!hasCode(error, "store_busy")) throw error;
      }
    }
    return recovered;
  };

  const recover = async (silent: readonly WatchedPod[]): Promise<void> => {
    const byId = new Map(silent.map((pod) => [pod.podId, pod]));
    const reported = new Set<string>();
    for (;;) {
      const claims = await database.read(claimsOf([...byId.keys()], recoverLimit));
      if (claims.length === 0) return;
      const orphans = claims.map((row) => ({
        taskId: row["task_id"],
        token: Number(row["claim_token"]),
        deaths: Number(row["deaths"]),
        pod: byId.get(row["claimed_by"])!,
      }));
      const recovered = await giveBack(orphans);
      for (const row of recovered) {
        log.warn(
          {
            task: row["task_id"],
            name: row["name"],
            pod: podId,
            status: row["status"],
            token: Number(row["claim_token"]),
          },
          "recovered a task whose pod fell silent",
        );
      }
      const holders = new Map(orphans.map(({ taskId, pod }) => [taskId, pod.podId]));
      const pods = new Set(recovered.map((row) => holders.get(row["task_id"])!));
      const newlySilent = [...pods].filter((each) => !reported.has(each));
      for (const each of newlySilent) reported.add(each);
      onRecovered(
        recovered.length,
        newlySilent.map((each) => byId.get(each)!.silentMs),
      );
      if (claims.length < recoverLimit || recovered.length === 0) return;
    }
  };

  /** Deletes what is old among the next tasks of the walk. */
  const prune = async (): Promise<void> => {
    if (resting > 0) {
      resting--;
      return;
    }
    const rows = await database.read(sweep(sweptTo, sweepLimit, kept));
    const old = rows.filter((row) => row["old"] === 1).map((row) => row["task_id"] as string);
    for (let at = 0; at < old.length; at += deleteLimit) {
      await database.write(deleteFinished(old.slice(at, at + deleteLimit), kept));
    }
    const last = rows.find((row) => row["old"] === 0);
    sweptTo = last?.["task_id"] ?? beforeAll;
    if (last) return;
    resting = Math.min(restPasses, Math.floor(shortestMs(kept) / restPerMs));
    await database.write([prunePods(downPodsKeptMs)]);
  };

  /** Somebody may hold a limit: that keeps neither old tasks nor this pod's leading. */
  const unblock = async (): Promise<void> => {
    try {
      if ((await unblocker.pass()) > 0) onFreed();
    } catch (error) {
      if (!hasCode(error, "store_busy")) throw error;
      log.warn({ pod: podId, error: messageOf(error) }, "looking for room didn't come to its end");
    }
  };

  return {
    /** Does one pass if this pod leads. Gives whether it did. */
    async pass(liveness: Liveness): Promise<boolean> {
      if (leaderOf(liveness, limits, podId) !== podId) return false;
      try {
        const silent = silentPods(liveness, limits);
        if (silent.length > 0) {
          await database.write([markDown(silent)]);
          await recover(silent);
        }
        await unblock();
        await prune();
        await database.write([finishPass(podId)]);
        return true;
      } catch (error) {
        // The next beat brings the next pass, and nothing here is left half done.
        log.warn({ pod: podId, error: messageOf(error) }, "a recovery pass failed");
        return false;
      }
    },
  };
}

/** Which tasks have something that follows their failure, as pods have said of themselves. */
type FollowUpNames = ReadonlyMap<string, readonly string[]>;

/**
 * Whether something follows where this task is failed by recovery. The pod that ran it knew its
 * handler, so its word counts; where that pod is forgotten, any other's does.
 */
function hasFollowUp(name: string, podId: string, byPod: FollowUpNames): boolean {
  const names = byPod.get(podId);
  if (names) return names.includes(name);
  return [...byPod.values()].some((names) => names.includes(name));
}

/**
 * The statements that store what follows the tasks which this recovery fails, because pods have died
 * under them too often. Hardly ever any: then nothing is asked.
 */
async function followUpPoisoned(
  database: Database,
  orphans: readonly (Orphan & { readonly deaths: number })[],
  ids: Ids,
): Promise<Statement[]> {
  const spent = orphans.filter(({ deaths }) => deaths + 1 >= deathLimit);
  if (spent.length === 0) return [];
  const byPod = followUpsByPod(await database.read(knownPods()));
  const holders = new Map(spent.map((orphan) => [orphan.taskId, orphan]));
  const rows = await database.read(getTasks([...holders.keys()]));
  const followUps = rows.flatMap((row) => {
    const { taskId, token, pod } = holders.get(row["task_id"])!;
    const { name, payload } = row as { name: string; payload: string };
    if (!hasFollowUp(name, pod.podId, byPod)) return [];
    const attempts = Number(row["retry_count"]);
    return [followUpOf({ taskId, name, payload, token, attempts, error: poisonError }, ids)];
  });
  return followUps.length > 0 ? [insertRecoveryFollowUps(followUps, spent)] : [];
}

function followUpsByPod(rows: readonly Row[]): FollowUpNames {
  const byPod = new Map<string, readonly string[]>();
  for (const row of rows) {
    const { followUps } = JSON.parse(row["metadata"]) as { followUps?: unknown };
    // A pod of an older release says nothing, and neither does somebody's own that only claims.
    if (Array.isArray(followUps)) byPod.set(row["pod_id"], followUps as string[]);
  }
  return byPod;
}
