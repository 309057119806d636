import { allNames } from "../../protocol/task-options.ts";
import type { Database } from "../../store/database.ts";
import { levelsInUse } from "../sql/claim.ts";
import {
  countClaimed,
  countPending,
  maxDepthCount,
  namesWaiting,
  otherDepths,
  readyDepth,
} from "../sql/inspect.ts";
import { listPauses } from "../sql/limits.ts";

/**
 * The state of a task: ready to claim, delayed, waiting for dependencies, blocked by its key's
 * limit, required to run alone, running, or failed. Other outcomes are not counted: there may be
 * millions.
 */
export type DepthState =
  | "ready"
  | "delayed"
  | "waiting"
  | "blocked"
  | "alone"
  | "running"
  | "failed";

export type NameDepth = Readonly<Record<DepthState, number>> & {
  /** How long the task that has been due the longest has waited; 0 if none is due. */
  readonly oldestMs: number;
  /** True if no pod claims any, because this name or all names are paused. */
  readonly paused: boolean;
};

/** How many tasks there are of each name. No number is counted beyond `maxDepthCount`. */
export type Depth = ReadonlyMap<string, NameDepth>;

/** Reads only the ends of indexes, so the cost does not depend on the table's size. */
export async function readDepth(database: Database): Promise<Depth> {
  const [names, others, pauses] = await Promise.all([
    database.read(namesWaiting()),
    database.read(otherDepths()),
    database.read(listPauses()),
  ]);
  const paused = new Set(pauses.map((row) => row["name"] as string));
  const waiting = names.map((row) => row["name"] as string);
  const levels =
    waiting.length === 0
      ? []
      : (await database.read(levelsInUse(waiting))).map((row) => ({
          name: row["name"] as string,
          priority: Number(row["priority"]),
        }));
  const ready = levels.length === 0 ? [] : await database.read(readyDepth(levels));
  const depth = new Map<string, { -readonly [Key in keyof NameDepth]: NameDepth[Key] }>();
  const none = (name: string) => ({
    ready: 0,
    delayed: 0,
    waiting: 0,
    blocked: 0,
    alone: 0,
    running: 0,
    failed: 0,
    oldestMs: 0,
    paused: paused.has(name) || paused.has(allNames),
  });
  for (const name of paused) if (name !== allNames) depth.set(name, none(name));
  for (const row of [...ready, ...others]) {
    const name = row["name"] as string;
    const state = (row["state"] ?? "ready") as DepthState;
    const of = depth.get(name) ?? none(name);
    of[state] = Math.min(maxDepthCount, of[state] + Number(row["tasks"]));
    of.oldestMs = Math.max(of.oldestMs, Number(row["age_ms"] ?? 0));
    depth.set(name, of);
  }
  return depth;
}

/** All open tasks: the pending ones by name, the claimed ones by the pod that holds them. */
export type OpenCounts = {
  readonly pending: readonly { readonly name: string; readonly tasks: number }[];
  readonly claimed: readonly { readonly podId: string; readonly tasks: number }[];
};

/** Counts every open task, whatever that costs. */
export async function readOpenCounts(database: Pick<Database, "read">): Promise<OpenCounts> {
  const pending = await database.read(countPending());
  const claimed = await database.read(countClaimed());
  return {
    pending: pending.map((row) => ({ name: row["name"], tasks: Number(row["tasks"]) })),
    claimed: claimed.map((row) => ({ podId: row["claimed_by"], tasks: Number(row["tasks"]) })),
  };
}
