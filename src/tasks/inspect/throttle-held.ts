import type { Clock } from "../../base/clock.ts";
import type { Database } from "../../store/database.ts";
import { readThrottle, readThrottles, type ThrottleView } from "../../throttles/shares/admin.ts";
import { priorities, type Priority } from "../../throttles/limiter/wait-queue.ts";
import type { Task } from "../rows.ts";
import { depthLimit } from "../sql/depth.ts";
import { type RankedName, tasksInLine } from "../sql/throttle.ts";
import type { TaskHandler } from "../task.ts";

/** The throttle that a pending task waits for, as the whole fleet sees it. */
export type HeldByThrottle = {
  readonly name: string;
  /** Null where the task's input says which: then the rest is of all keys together. */
  readonly key: string | null;
  /** How many calls all pods may have in flight at once, and have. */
  readonly limit: number;
  readonly inFlight: number;
  /**
   * How many wait for a permit: calls that pods have waiting, and tasks that could be claimed if there
   * were one. Tasks of a name aren't counted beyond 10,000.
   */
  readonly waiting: number;
  /** How many of those come before the task. */
  readonly ahead: number;
  /** About how long it will wait for them, at the rate that was learned; null where that isn't known. */
  readonly aboutMs: number | null;
};

/** Which throttle tasks of a name wait for, and with which priority where it isn't the usual one. */
export type ThrottleOfName = {
  readonly name: string;
  readonly key: string | null;
  readonly priority?: Priority;
};

/** What a pod says of its handlers' throttles, for whoever looks at their tasks. */
export function throttlesOf(handlers: Iterable<TaskHandler>): Record<string, ThrottleOfName> {
  const found: Record<string, ThrottleOfName> = {};
  for (const { name, throttle } of handlers) {
    // What pods don't share is known to each of them alone.
    if (!throttle || throttle.declared.settings.mode === "local") continue;
    const { declared, key, priority } = throttle;
    found[name] = {
      name: declared.name,
      key: typeof key === "string" ? key : null,
      ...(priority && { priority }),
    };
  }
  return found;
}

// What is shown is about right anyway, and all who ask meanwhile share one look at a long line.
const lineMs = 2_000;
const linesMost = 1_000;

/** The tasks of a line that could be claimed, each with its place from 1 on. */
type Places = ReadonlyMap<string, number>;

/**
 * What holds these tasks up, by their ids. Those whose throttle has permits aren't among them. Where tasks
 * stand in a line is looked at every two seconds at most, however many ask.
 */
export function createHeld({ database, clock }: { database: Database; clock: Clock }) {
  const known = new Map<string, { atMs: number; places: Promise<Places> }>();

  const placesOf = (names: readonly RankedName[]): Promise<Places> => {
    const nowMs = clock.monotonic();
    for (const [line, { atMs }] of known) {
      if (nowMs - atMs < lineMs && known.size <= linesMost) break;
      known.delete(line);
    }
    const line = JSON.stringify(names);
    const found = known.get(line);
    if (found) return found.places;
    const places = readPlaces(database, names);
    known.set(line, { atMs: nowMs, places });
    // The next who asks looks anew.
    places.catch(() => known.delete(line));
    return places;
  };

  return async (
    tasks: readonly Task[],
    { throttles, isPaused }: LinesOfNames,
  ): Promise<ReadonlyMap<string, HeldByThrottle>> => {
    const lines = new Map<string, { of: ThrottleOfName; taskIds: string[] }>();
    for (const { name, taskId } of tasks) {
      const of = throttles.get(name);
      if (!of) continue;
      const at = lineKey(of);
      const line = lines.get(at) ?? { of, taskIds: [] };
      line.taskIds.push(taskId);
      lines.set(at, line);
    }
    const held = new Map<string, HeldByThrottle>();
    for (const [at, { of, taskIds }] of lines) {
      const names = [...throttles].flatMap(([name, each]) =>
        lineKey(each) === at && !isPaused(name) ? [{ name, rank: rankOf(each) }] : [],
      );
      const line = await readLine(database, of);
      if (!line) continue;
      const places = await placesOf(names);
      for (const taskId of taskIds) {
        // One that isn't found can't be claimed yet, or stands behind all that were counted.
        const ahead = line.before + (places.get(taskId) ?? places.size + 1) - 1;
        const { before, perMs, holdMs, ...view } = line;
        held.set(taskId, {
          ...view,
          waiting: before + places.size,
          ahead,
          aboutMs: perMs > 0 ? Math.ceil(holdMs + (ahead + 1) / perMs) : null,
        });
      }
    }
    return held;
  };
}

async function readPlaces(database: Database, names: readonly RankedName[]): Promise<Places> {
  if (names.length === 0) return new Map();
  const found = await database.read(tasksInLine(names, depthLimit));
  return new Map(found.map((row, at) => [row["task_id"] as string, at + 1]));
}

export type LinesOfNames = {
  /** The throttles of all names that pods work on. */
  readonly throttles: ReadonlyMap<string, ThrottleOfName>;
  /** Tasks of paused names stand before no others. */
  readonly isPaused: (name: string) => boolean;
};

const lineKey = ({ name, key }: ThrottleOfName): string => JSON.stringify([name, key]);

const rankOf = ({ priority = "batch" }: ThrottleOfName): number => priorities.indexOf(priority);

type Line = Pick<HeldByThrottle, "name" | "key" | "limit" | "inFlight"> & {
  /** What waits and isn't found among the tasks that could be claimed. It goes before those. */
  readonly before: number;
  /** How many are let through; 0 where that isn't known. */
  readonly perMs: number;
  readonly holdMs: number;
};

async function readLine(
  database: Database,
  { name, key }: ThrottleOfName,
): Promise<Line | undefined> {
  const views =
    key === null
      ? await readThrottles(database, { after: { name, key: "" }, name })
      : [await readThrottle(database, { name, key })].filter((each) => each !== undefined);
  if (sumOf(views, (each) => each.waiting) === 0) return undefined;
  const used = views.filter(({ inFlight, waiting }) => inFlight + waiting > 0);
  return {
    name,
    key,
    limit: sumOf(views, (each) => each.bound),
    inFlight: sumOf(views, (each) => each.inFlight),
    // With keys of the input, tasks that wait were claimed and put off, by one pod each.
    before: sumOf(views, (each) => (key === null ? each.waiting : each.callsWaiting)),
    perMs: sumOf(used, perMs),
    holdMs: used.length === 0 ? 0 : Math.min(...used.map((each) => each.holdMs)),
  };
}

/** How many calls go through in a millisecond while all permits are used; 0 where no call has ended yet. */
function perMs({ bound, meanMs, meanCost, refillPerS }: ThrottleView): number {
  if (meanMs === undefined || bound < 1) return 0;
  const byLimit = bound / Math.max(1, meanMs);
  const byBucket = refillPerS && meanCost ? refillPerS / 1_000 / meanCost : Infinity;
  return Math.min(byLimit, byBucket);
}

function sumOf(views: readonly ThrottleView[], of: (view: ThrottleView) => number): number {
  return views.reduce((sum, view) => sum + of(view), 0);
}
