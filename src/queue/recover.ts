import { messageOf } from "../base/errors.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import {
  leaderOf,
  type Liveness,
  type LivenessLimits,
  type PodSeen,
  silentPods,
} from "../pods/liveness.ts";
import { finishPass, markDown, prunePods } from "../pods/statements.ts";
import type { Database } from "../store/database.ts";
import {
  claimsOf,
  deleteFinished,
  noteRecovery,
  type Orphan,
  recoverTasks,
  sweepPage,
} from "./statements/recover.ts";

export type LeaderOptions = {
  podId: string;
  database: Database;
  limits: LivenessLimits;
  /** Finished tasks are deleted after this long. */
  retentionMs: number;
  onRecovered?: (tasks: number) => void;
  log?: Logger;
};

const recoverLimit = 500;
const sweepLimit = 500;
// A pass may visit ten thousand tasks. With one page it could delete no more than 500 a beat, and a
// busier store than that would grow for ever.
const sweepPages = 20;
const downPodsKeptMs = 24 * 60 * 60_000;
// Ids sort by age, so a few pages a pass walk the whole table again and again at little cost.
const beforeAll = "";

/**
 * The leader's work, once per beat: mark silent pods down, give their tasks back, prune. It never
 * assigns work. Each write carries its own condition, so two leaders do what one would.
 */
export function createLeader(options: LeaderOptions) {
  const {
    podId,
    database,
    limits,
    retentionMs,
    onRecovered = () => {},
    log = silentLogger,
  } = options;
  let sweptTo = beforeAll;

  const recover = async (silent: readonly PodSeen[]): Promise<void> => {
    const byId = new Map(silent.map((pod) => [pod.podId, pod]));
    for (;;) {
      const claims = await database.read(claimsOf([...byId.keys()], recoverLimit));
      if (claims.length === 0) return;
      const orphans = claims.map((row): Orphan => ({
        taskId: row["task_id"],
        token: Number(row["claim_token"]),
        pod: byId.get(row["claimed_by"])!,
      }));
      const [, recovered] = await database.write([noteRecovery(orphans), recoverTasks(orphans)], {
        hint: true,
      });
      for (const row of recovered!) {
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
      onRecovered(recovered!.length);
      if (claims.length < recoverLimit || recovered!.length === 0) return;
    }
  };

  /** Deletes what is old among the next tasks of the walk. Gives whether it came to the end. */
  const prunePage = async (): Promise<boolean> => {
    const page = await database.read(sweepPage(sweptTo, sweepLimit));
    const old = page.filter(
      (row) =>
        !["pending", "claimed"].includes(row["status"]) && Number(row["age_ms"]) > retentionMs,
    );
    if (old.length > 0) {
      await database.write(
        deleteFinished(
          old.map((row) => row["task_id"]),
          retentionMs,
        ),
      );
    }
    const atEnd = page.length < sweepLimit;
    sweptTo = atEnd ? beforeAll : page.at(-1)!["task_id"];
    return atEnd;
  };

  const prune = async (): Promise<void> => {
    for (let page = 0; page < sweepPages; page++) {
      if (!(await prunePage())) continue;
      await database.write([prunePods(downPodsKeptMs)]);
      return;
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
