import type { Database } from "../store/database.ts";
import { levelsInUse } from "./statements/claim.ts";
import { depthLimit, namesWaiting, otherDepths, readyDepth } from "./statements/depth.ts";

/**
 * Where a task stands: it can be claimed, waits for its time, waits for other tasks, must run alone, runs,
 * or has failed.
 * What has ended otherwise isn't counted: there may be millions of them.
 */
export type DepthState = "ready" | "delayed" | "waiting" | "alone" | "running" | "failed";

export type NameDepth = Readonly<Record<DepthState, number>> & {
  /** How long the task that has been due for longest has waited; 0 where none is due. */
  readonly oldestMs: number;
};

/** How many tasks there are of each name. No number is counted beyond `depthLimit`. */
export type Depth = ReadonlyMap<string, NameDepth>;

/** Looks at the ends of indexes only, so that it costs the same in a table of any size. */
export async function readDepth(database: Database): Promise<Depth> {
  const [names, others] = await Promise.all([
    database.read(namesWaiting()),
    database.read(otherDepths()),
  ]);
  const waiting = names.map((row) => row["name"] as string);
  const levels =
    waiting.length === 0
      ? []
      : (await database.read(levelsInUse(waiting))).map((row) => ({
          name: row["name"] as string,
          priority: Number(row["priority"]),
        }));
  const ready = levels.length === 0 ? [] : await database.read(readyDepth(levels));
  const depth = new Map<string, Record<DepthState, number> & { oldestMs: number }>();
  for (const row of [...ready, ...others]) {
    const name = row["name"] as string;
    const state = (row["state"] ?? "ready") as DepthState;
    const of = depth.get(name) ?? {
      ready: 0,
      delayed: 0,
      waiting: 0,
      alone: 0,
      running: 0,
      failed: 0,
      oldestMs: 0,
    };
    of[state] = Math.min(depthLimit, of[state] + Number(row["tasks"]));
    of.oldestMs = Math.max(of.oldestMs, Number(row["age_ms"] ?? 0));
    depth.set(name, of);
  }
  return depth;
}
