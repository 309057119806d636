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
import { readPulses } from "../../pods/pods.ts";
import { finishPass, markDown, knownPods, prunePods } from "../../pods/sql.ts";
import type { Database, Row } from "../../store/database.ts";
import type { Statement } from "../../store/sql.ts";
import { createUnblocker } from "../concurrency/unblock.ts";
import { followUpOf } from "../finish/outcome.ts";
import { linkFollowUps } from "../sql/finish.ts";
import { wakeDependents } from "../sql/dependencies.ts";
import { cancelChildrenOf, getTasks } from "../sql/inspect.ts";
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
import type { Retention } from "../rows.ts";
import { retentionOf, shortestMs } from "./prune.ts";

export type LeaderOptions = {
  podId: string;
  database: Database;
  limits: LivenessLimits;
  /** Makes the ids of tasks that follow failures. */
  ids: Ids;
  /** How long finished tasks are kept, by outcome. Default 7 days. */
  retentionMs?: number | Partial<Retention>;
  /**
   * Called with the number of recovered tasks, and how long each newly silent pod had been silent.
   */
  onRecovered?: (tasks: number, silencesMs: readonly number[]) => void;
  /** Called when blocked tasks were unblocked. */
  onFreed?: () => void;
  log?: Logger;
};

type Dying = Orphan & { readonly deaths: number };

const recoverLimit = 500;
// A pass scans ten thousand tasks and deletes in several writes. With one write per pass, a busy
// store would grow forever.
const sweepLimit = 10_000;
// Pause between two walks: tasks that are kept for hours need not be scanned every second.
const restPasses = 60;
const restPerMs = 60_000;
// Walks end where tasks are too young to be deleted. A task with an id of its own, inserted by hand,
// may be behind that, and is found by a whole walk, about once an hour.
const wholeWalkEvery = 60;
const deleteLimit = 500;
const downPodsKeptMs = 24 * 60 * 60_000;
// Ids sort by age, so one page per pass walks the whole table repeatedly at little cost.
const beforeAll = "";

/**
 * The leader's work, once per heartbeat: mark silent pods down, recover their tasks, unblock,
 * prune. It never assigns tasks. Each write carries its own condition, so two leaders do no harm.
 */
export function createLeader(options: LeaderOptions) {
  const { podId, database, limits, ids, onRecovered = () => {}, log = silentLogger } = options;
  const { onFreed = () => {} } = options;
  const kept = retentionOf(options.retentionMs);
  let sweptTo = beforeAll;
  const unblocker = createUnblocker({ database });
  /** Passes until the next walk begins. */
  let resting = 0;
  /** The first walk of a leader is not a whole one, because leaders may change often. */
  let walks = 1;
  // Other pods must not take a leader that rests for one that is stuck.
  const mayRest = limits.deadAfterMs >= limits.heartbeatMs * 4;
  /** The last pass found nothing to do, or rested. */
  let last: "busy" | "idle" | "rested" = "busy";

  const giveBackTogether = async (orphans: readonly Dying[]): Promise<readonly Row[]> => {
    const following = await followUpPoisoned(database, orphans, ids);
    // A task that was to be cancelled ends here, with the next token.
    const ended = orphans.map(({ taskId, token }) => ({ taskId, token: token + 1 }));
    const waking = [
      ...cancelChildrenOf(ended),
      ...wakeDependents(orphans.map(({ taskId }) => taskId)),
    ];
    const statements = [noteRecovery(orphans), ...following, recoverTasks(orphans), ...waking];
    const tables = await database.write(statements, { notify: true });
    return tables[1 + following.length]!;
  };

  /** If another transaction holds a dependent of one task, the others are recovered one by one. */
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
    let starts: ReadonlyMap<string, number> | undefined;
    for (;;) {
      const claims = await database.read(claimsOf([...byId.keys()], recoverLimit));
      if (claims.length === 0) return;
      const started = (starts ??= await lastStarts(database, [...byId.keys()]));
      const orphans = claims.map((row) => ({
        taskId: row["task_id"],
        token: Number(row["claim_token"]),
        deaths: Number(row["deaths"]),
        pod: byId.get(row["claimed_by"])!,
        detail: JSON.stringify({
          claimedAtMs: Number(row["last_update"]),
          startedAtMs: started.get(row["task_id"]),
        }),
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

  /** Deletes expired tasks on the next page of the walk. */
  const prune = async (): Promise<void> => {
    if (resting > 0) {
      resting--;
      return;
    }
    const upToYoung = walks % wholeWalkEvery !== 0;
    const rows = await database.read(sweep(sweptTo, sweepLimit, kept, { upToYoung }));
    const old = rows.filter((row) => row["old"] === 1).map((row) => row["task_id"] as string);
    for (let at = 0; at < old.length; at += deleteLimit) {
      await database.write(deleteFinished(old.slice(at, at + deleteLimit), kept));
    }
    const last = rows.find((row) => row["old"] === 0);
    sweptTo = last?.["task_id"] ?? beforeAll;
    if (last) return;
    walks++;
    resting = Math.min(restPasses, Math.floor(shortestMs(kept) / restPerMs));
    await database.write([prunePods(downPodsKeptMs)]);
  };

  /**
   * The end of a pass, which is stored with the read of what is blocked. Another transaction may hold a
   * limit's row, and that must not stop this pod's leadership. Where the last pass found nothing, one
   * is left out.
   */
  const unblock = async (idle: boolean): Promise<void> => {
    if (mayRest && idle && last === "idle") {
      last = "rested";
      return;
    }
    last = "busy";
    try {
      const { blocked, freed } = await unblocker.pass(finishPass(podId));
      if (blocked === 0) last = "idle";
      if (freed > 0) onFreed();
    } catch (error) {
      if (!hasCode(error, "store_busy")) throw error;
      log.warn({ pod: podId, error: messageOf(error) }, "unblocking tasks failed");
    }
  };

  return {
    /** Runs one pass if this pod leads. Returns whether it did. */
    async pass(liveness: Liveness): Promise<boolean> {
      if (leaderOf(liveness, limits, podId) !== podId) return false;
      try {
        const silent = silentPods(liveness, limits);
        if (silent.length > 0) {
          await database.write([markDown(silent)]);
          await recover(silent);
        }
        await prune();
        await unblock(silent.length === 0);
        return true;
      } catch (error) {
        // The next heartbeat starts the next pass, and nothing here is left half done.
        log.warn({ pod: podId, error: messageOf(error) }, "recovery pass failed");
        return false;
      }
    },
  };
}

/** When tasks began that pods ran for long, by what these said last. */
async function lastStarts(
  database: Database,
  podIds: readonly string[],
): Promise<ReadonlyMap<string, number>> {
  const pulses = await readPulses(database, podIds);
  return new Map(
    pulses.flatMap(({ running }) => running.map((each) => [each.taskId, each.startedAtMs])),
  );
}

/** The names with follow-ups, by pod, from the pods' metadata. */
type FollowUpNames = ReadonlyMap<string, readonly string[]>;

/**
 * True if a task that recovery fails has a follow-up. The pod that ran it knew its handler, so its
 * metadata decides; if that pod is forgotten, any other pod's does.
 */
function hasFollowUp(name: string, podId: string, byPod: FollowUpNames): boolean {
  const names = byPod.get(podId);
  if (names) return names.includes(name);
  return [...byPod.values()].some((names) => names.includes(name));
}

/**
 * The statements that store the follow-ups of tasks that this recovery fails, because too many pods
 * died under them. Usually there are none, and then nothing is read.
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
  if (followUps.length === 0) return [];
  return [insertRecoveryFollowUps(followUps, spent), ...linkFollowUps(followUps)];
}

function followUpsByPod(rows: readonly Row[]): FollowUpNames {
  const byPod = new Map<string, readonly string[]>();
  for (const row of rows) {
    const { followUps } = JSON.parse(row["metadata"]) as { followUps?: unknown };
    // Pods of an older release and claimers have no such metadata.
    if (Array.isArray(followUps)) byPod.set(row["pod_id"], followUps as string[]);
  }
  return byPod;
}
