import { allNames } from "../../protocol/task-options.ts";
import { type Database, pageReads, type Row } from "../../store/database.ts";
import { type PendingState, pendingStates, type TaskStatus } from "../rows.ts";
import { levelsInUse } from "../sql/claim.ts";
import {
  countClaimed,
  countTasks,
  maxDepthCount,
  maxNamesCounted,
  namesWaiting,
  otherDepths,
  readyDepth,
} from "../sql/inspect.ts";
import { listPauses } from "../sql/limits.ts";
import { countHeld, countNewest } from "../sql/list.ts";

/**
 * The state of a task: ready to claim, delayed, waiting for dependencies, blocked by its key's
 * limit, required to run alone, running, or failed. Other outcomes are not counted: there may be
 * millions.
 */
export type DepthState = PendingState | "running" | "failed";

export type NameDepth = Readonly<Record<DepthState, number>> & {
  /** How long the task that has been due the longest has waited; 0 if none is due. */
  readonly oldestMs: number;
  /** True if no pod claims any, because this name or all names are paused. */
  readonly paused: boolean;
};

/** How many tasks there are of each name. No number is counted beyond `maxDepthCount`. */
export type Depth = ReadonlyMap<string, NameDepth>;

// Few names have tasks of more than one priority.
const maxLevelsCounted = 2 * maxNamesCounted;

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
      : (await database.read(levelsInUse(waiting, maxLevelsCounted))).map((row) => ({
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

/** How long the task of each name that has been due the longest has waited; without names of which none is due. */
export async function readOldestWaits(database: Database): Promise<ReadonlyMap<string, number>> {
  const depth = await readDepth(database);
  const waits = [...depth].map(([name, { oldestMs }]) => [name, oldestMs] as const);
  return new Map(waits.filter(([, oldestMs]) => oldestMs > 0));
}

type Counts = Record<TaskStatus, number>;

/** How many tasks there are of each name and status. */
export type TaskCounts = {
  readonly byStatus: Readonly<Counts>;
  readonly byName: Readonly<Record<string, Readonly<Counts>>>;
  /** The statuses with more tasks than were counted. */
  readonly atLeast: readonly TaskStatus[];
};

/**
 * Counts tasks by name and status. Without `exact`, those that are open or failed are counted as `depth`
 * does, and the others among the newest tasks, up to `maxDepthCount`; a table with fewer tasks is counted
 * whole.
 */
export async function readStats(
  database: Database,
  { exact = false }: { exact?: boolean },
): Promise<TaskCounts> {
  if (exact) return { ...toCounts(await database.read(countTasks())), atLeast: [] };
  const pages = pageReads(database);
  const newest = await pages.read(countNewest(maxDepthCount));
  const counted = newest.reduce((sum, row) => sum + Number(row["tasks"]), 0);
  if (counted < maxDepthCount) return { ...toCounts(newest), atLeast: [] };
  const [depth, held] = await Promise.all([readDepth(pages), pages.read(countHeld(maxDepthCount))]);
  const known = [...depth].flatMap(([name, of]) => [
    { name, status: "pending", tasks: pendingIn(of) },
    { name, status: "claimed", tasks: of.running },
    { name, status: "failed", tasks: of.failed },
  ]);
  const counts = toCounts([
    ...newest.filter((row) => row["status"] === "completed" || row["status"] === "cancelled"),
    ...known.filter(({ tasks }) => tasks > 0),
    ...held.map((row) => ({ ...row, status: "pending" })),
  ]);
  const isFull = (...states: readonly DepthState[]) =>
    states.some(
      (state) => [...depth.values()].reduce((sum, of) => sum + of[state], 0) >= maxDepthCount,
    );
  const isHeld = held.reduce((sum, row) => sum + Number(row["tasks"]), 0) >= maxDepthCount;
  return {
    ...counts,
    atLeast: [
      ...(isFull(...pendingStates) || isHeld ? (["pending"] as const) : []),
      ...(isFull("running") ? (["claimed"] as const) : []),
      "completed",
      ...(isFull("failed") ? (["failed"] as const) : []),
      "cancelled",
    ],
  };
}

function pendingIn(of: NameDepth): number {
  return pendingStates.reduce((sum, state) => sum + of[state], 0);
}

/** Open tasks, no number beyond `maxDepthCount`: the pending by name, the claimed by the pod that holds them. */
export type OpenCounts = {
  readonly pending: readonly { readonly name: string; readonly tasks: number }[];
  readonly claimed: readonly { readonly podId: string; readonly tasks: number }[];
};

export async function readOpenCounts(database: Database): Promise<OpenCounts> {
  const depth = await readDepth(database);
  const claimed = await database.read(countClaimed(maxDepthCount));
  const pending = [...depth].map(([name, of]) => ({ name, tasks: pendingIn(of) }));
  return {
    pending: pending.filter(({ tasks }) => tasks > 0),
    claimed: claimed.map((row) => ({ podId: row["claimed_by"], tasks: Number(row["tasks"]) })),
  };
}

function toCounts(rows: readonly Row[]): Pick<TaskCounts, "byStatus" | "byName"> {
  const none = (): Counts => ({ pending: 0, claimed: 0, completed: 0, failed: 0, cancelled: 0 });
  const byStatus = none();
  const byName: Record<string, Counts> = Object.create(null);
  for (const row of rows) {
    const status = row["status"] as TaskStatus;
    const name = (byName[row["name"]] ??= none());
    name[status] += Number(row["tasks"]);
    byStatus[status] += Number(row["tasks"]);
  }
  return { byStatus, byName };
}
