import type { Clock } from "../../base/clock.ts";
import type { Database } from "../../store/database.ts";
import { priorities } from "../../throttles/limiter/priority.ts";
import { readThrottle, readThrottles, type ThrottleView } from "../../throttles/shares/admin.ts";
import type { HeldByThrottle, Task } from "../rows.ts";
import type { ThrottleOfName } from "../run/pod-status.ts";
import { maxDepthCount, type RankedName, tasksInClaimOrder } from "../sql/inspect.ts";

type ThrottlesByName = {
  /** The throttles of all names that pods handle. */
  readonly throttles: ReadonlyMap<string, ThrottleOfName>;
  /** Tasks of paused names are ahead of no others. */
  readonly isPaused: (name: string) => boolean;
};

// The numbers are approximate anyway, so all callers within this time share one read of a long
// queue.
const positionsKeptMs = 2_000;
const maxQueues = 1_000;

/**
 * The throttle that blocks each task, by task id. Tasks whose throttle has permits are left out.
 * Positions are read every two seconds at most, for any number of callers.
 */
export function createThrottledBy({ database, clock }: { database: Database; clock: Clock }) {
  const known = new Map<string, { atMs: number; places: Promise<QueuePositions> }>();

  const positionsOf = (names: readonly RankedName[]): Promise<QueuePositions> => {
    const nowMs = clock.monotonic();
    for (const [line, { atMs }] of known) {
      if (nowMs - atMs < positionsKeptMs && known.size <= maxQueues) break;
      known.delete(line);
    }
    const line = JSON.stringify(names);
    const found = known.get(line);
    if (found) return found.places;
    const places = readPositions(database, names);
    known.set(line, { atMs: nowMs, places });
    // The next caller reads again.
    places.catch(() => known.delete(line));
    return places;
  };

  return async (
    tasks: readonly Task[],
    { throttles, isPaused }: ThrottlesByName,
  ): Promise<ReadonlyMap<string, HeldByThrottle>> => {
    const lines = new Map<string, { of: ThrottleOfName; taskIds: string[] }>();
    for (const { name, taskId } of tasks) {
      const of = throttles.get(name);
      if (!of) continue;
      const at = queueKey(of);
      const line = lines.get(at) ?? { of, taskIds: [] };
      line.taskIds.push(taskId);
      lines.set(at, line);
    }
    const throttled = new Map<string, HeldByThrottle>();
    for (const [at, { of, taskIds }] of lines) {
      const names = [...throttles].flatMap(([name, each]) =>
        queueKey(each) === at && !isPaused(name) ? [{ name, rank: rankOf(each) }] : [],
      );
      const line = await readThrottleQueue(database, of);
      if (!line) continue;
      const places = await positionsOf(names);
      for (const taskId of taskIds) {
        // A task that is not found cannot be claimed yet, or is behind all that were counted.
        const ahead = line.before + (places.get(taskId) ?? places.size + 1) - 1;
        const { before, perMs, holdMs, ...view } = line;
        throttled.set(taskId, {
          ...view,
          waiting: before + places.size,
          ahead,
          aboutMs: perMs > 0 ? Math.ceil(holdMs + (ahead + 1) / perMs) : null,
        });
      }
    }
    return throttled;
  };
}

/** The claimable tasks of a queue, each with its position from 1 on. */
type QueuePositions = ReadonlyMap<string, number>;

async function readPositions(
  database: Database,
  names: readonly RankedName[],
): Promise<QueuePositions> {
  if (names.length === 0) return new Map();
  const found = await database.read(tasksInClaimOrder(names, maxDepthCount));
  return new Map(found.map((row, at) => [row["task_id"] as string, at + 1]));
}

const queueKey = ({ name, key }: ThrottleOfName): string => JSON.stringify([name, key]);

const rankOf = ({ priority = "batch" }: ThrottleOfName): number => priorities.indexOf(priority);

type ThrottleQueue = Pick<HeldByThrottle, "name" | "key" | "limit" | "inFlight"> & {
  /** What waits but is not among the claimable tasks. It is ahead of those. */
  readonly before: number;
  /** How many calls pass per millisecond; 0 if that is unknown. */
  readonly perMs: number;
  readonly holdMs: number;
};

async function readThrottleQueue(
  database: Database,
  { name, key }: ThrottleOfName,
): Promise<ThrottleQueue | undefined> {
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
    // If the key depends on the input, waiting tasks were claimed and deferred, each by one pod.
    before: sumOf(views, (each) => (key === null ? each.waiting : each.callsWaiting)),
    perMs: sumOf(used, perMs),
    holdMs: used.length === 0 ? 0 : Math.min(...used.map((each) => each.holdMs)),
  };
}

/** How many calls pass per millisecond while all permits are used; 0 if no call has ended yet. */
function perMs({ bound, meanMs, meanCost, refillPerS }: ThrottleView): number {
  if (meanMs === undefined || bound < 1) return 0;
  const byLimit = bound / Math.max(1, meanMs);
  const byBucket = refillPerS && meanCost ? refillPerS / 1_000 / meanCost : Infinity;
  return Math.min(byLimit, byBucket);
}

function sumOf(views: readonly ThrottleView[], of: (view: ThrottleView) => number): number {
  return views.reduce((sum, view) => sum + of(view), 0);
}
