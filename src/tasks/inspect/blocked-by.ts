import type { Clock } from "../../base/clock.ts";
import { settledWithin } from "../../base/timeout.ts";
import { livePods } from "../../pods/sql.ts";
import type { Database, Row } from "../../store/database.ts";
import { priorities, type Priority } from "../../throttles/limiter/wait-queue.ts";
import { readThrottle, readThrottles, type ThrottleView } from "../../throttles/shares/admin.ts";
import { toTasks } from "../dependencies.ts";
import type { Task } from "../rows.ts";
import { maxDepthCount, getTask, type RankedName, tasksInClaimOrder } from "../sql/inspect.ts";
import { allNames, listPauses } from "../sql/limits.ts";
import type { TaskHandler } from "../task.ts";

type WorkerCoverage = {
  /**
   * The names that pods which are up work on, of flows with the highest version that one has; undefined
   * where a pod doesn't say which.
   */
  readonly names: ReadonlyMap<string, number> | undefined;
  /** The throttles that tasks of some of them wait for. */
  readonly throttles: ReadonlyMap<string, ThrottleOfName>;
};

async function readCoverage(database: Database): Promise<WorkerCoverage> {
  const names = new Map<string, number>();
  const throttles = new Map<string, ThrottleOfName>();
  let allSay = true;
  for (const row of await database.read(livePods())) {
    const metadata = parse(row["metadata"]);
    const versions = (metadata["flows"] ?? {}) as Readonly<Record<string, unknown>>;
    if (!Array.isArray(metadata["names"])) allSay = false;
    else for (const name of metadata["names"].map(String)) raise(names, name, versions[name]);
    const of = (metadata["throttles"] ?? {}) as Readonly<Record<string, ThrottleOfName>>;
    for (const [name, throttle] of Object.entries(of)) throttles.set(name, throttle);
  }
  return { names: allSay ? names : undefined, throttles };
}

/** Who doesn't say a version takes whatever has the name. */
function raise(names: Map<string, number>, name: string, declared: unknown): void {
  const version = typeof declared === "number" ? declared : Number.POSITIVE_INFINITY;
  names.set(name, Math.max(names.get(name) ?? 0, version));
}

/** What versions pods have of the flows they work on, for whoever looks at their runs. */
export function flowsOf(handlers: Iterable<TaskHandler>): Record<string, number> {
  const found: Record<string, number> = {};
  for (const { name, flow } of handlers) if (flow) found[name] = flow.version;
  return found;
}

/** Whether a pod may take it: a run goes to its version or a later one. */
function isCovered({ names }: WorkerCoverage, name: string, version: number | null): boolean {
  return names === undefined || (names.get(name) ?? -1) >= (version ?? 0);
}

/** What keeps a task or a run waiting besides what its row says. */
export type Blockers = {
  /** No pod that is up may take what has this name and, if it is a run, this version. */
  noWorker(name: string, version: number | null): boolean;
  /** The name is paused, or everything is. */
  paused(name: string): boolean;
};

export async function readBlockers(database: Database): Promise<Blockers> {
  return blockersOf(await readCoverage(database), await database.read(listPauses()));
}

function blockersOf(works: WorkerCoverage, pauses: readonly Row[]): Blockers {
  const paused = new Set(pauses.map((row) => row["name"] as string));
  return {
    noWorker: (name, version) => !isCovered(works, name, version),
    paused: (name) => paused.has(name) || paused.has(allNames),
  };
}

function parse(metadata: string): Readonly<Record<string, unknown>> {
  try {
    return JSON.parse(metadata) as Record<string, unknown>;
  } catch {
    return {};
  }
}

/** Of these names, those that no pod which is up works on: their tasks wait until one does. */
export async function readNoWorker(
  database: Database,
  names: readonly string[],
): Promise<ReadonlySet<string>> {
  if (names.length === 0) return new Set();
  const works = await readCoverage(database);
  return new Set(names.filter((name) => !isCovered(works, name, null)));
}

// Long enough that a thousand requests a second ask once, and short beside how long a pod takes to start.
const coverageKeptMs = 1_000;

/** Who works on what, for callers that ask about tasks that wait. */
export type Workers = {
  /** As `readNoWorker`, for callers that ask with every task that they store. */
  noWorker(names: readonly string[]): Promise<string[]>;
  /** Says of waiting tasks whether anybody works on such, and may. Only for those it is asked. */
  markWaiting(tasks: readonly Task[]): Promise<Task[]>;
};

export function createWorkers({ database, clock }: { database: Database; clock: Clock }): Workers {
  const readThrottledBy = createThrottledBy({ database, clock });
  let known: { readonly works: WorkerCoverage; readonly atMs: number } | undefined;

  return {
    async noWorker(names) {
      const without = ({ works }: NonNullable<typeof known>) =>
        names.filter((name) => !isCovered(works, name, null));
      const atMs = clock.monotonic();
      const isFresh = known !== undefined && atMs - known.atMs < coverageKeptMs;
      if (names.length === 0 || (isFresh && without(known!).length === 0)) return [];
      // A pod may have come since that works on what no pod did.
      const seen = { works: await readCoverage(database), atMs };
      known = seen;
      return without(seen);
    },
    async markWaiting(tasks) {
      const pending = tasks.filter(({ status }) => status === "pending");
      if (pending.length === 0) return [...tasks];
      const [works, pauses] = await Promise.all([
        readCoverage(database),
        database.read(listPauses()),
      ]);
      const { noWorker, paused } = blockersOf(works, pauses);
      const held = await readThrottledBy(pending, { throttles: works.throttles, isPaused: paused });
      return tasks.map((task) =>
        task.status === "pending"
          ? {
              ...task,
              noWorker: noWorker(task.name, task.flowVersion),
              paused: paused(task.name),
              throttledBy: held.get(task.taskId) ?? null,
            }
          : task,
      );
    },
  };
}

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
const positionsKeptMs = 2_000;
const maxQueues = 1_000;

/** The tasks of a line that could be claimed, each with its place from 1 on. */
type QueuePositions = ReadonlyMap<string, number>;

/**
 * What holds these tasks up, by their ids. Those whose throttle has permits aren't among them. Where tasks
 * stand in a line is looked at every two seconds at most, however many ask.
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
    // The next who asks looks anew.
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
    const held = new Map<string, HeldByThrottle>();
    for (const [at, { of, taskIds }] of lines) {
      const names = [...throttles].flatMap(([name, each]) =>
        queueKey(each) === at && !isPaused(name) ? [{ name, rank: rankOf(each) }] : [],
      );
      const line = await readThrottleQueue(database, of);
      if (!line) continue;
      const places = await positionsOf(names);
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

async function readPositions(
  database: Database,
  names: readonly RankedName[],
): Promise<QueuePositions> {
  if (names.length === 0) return new Map();
  const found = await database.read(tasksInClaimOrder(names, maxDepthCount));
  return new Map(found.map((row, at) => [row["task_id"] as string, at + 1]));
}

export type ThrottlesByName = {
  /** The throttles of all names that pods work on. */
  readonly throttles: ReadonlyMap<string, ThrottleOfName>;
  /** Tasks of paused names stand before no others. */
  readonly isPaused: (name: string) => boolean;
};

const queueKey = ({ name, key }: ThrottleOfName): string => JSON.stringify([name, key]);

const rankOf = ({ priority = "batch" }: ThrottleOfName): number => priorities.indexOf(priority);

type ThrottleQueue = Pick<HeldByThrottle, "name" | "key" | "limit" | "inFlight"> & {
  /** What waits and isn't found among the tasks that could be claimed. It goes before those. */
  readonly before: number;
  /** How many are let through; 0 where that isn't known. */
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

// Pods come and go, and a name that was looked at is looked at again; but enqueueing must stay as cheap
// as it is.
const recheckMs = 60_000;
const maxNames = 1_000;

/**
 * Looks, beside what is enqueued, whether a pod that is up works on such tasks. A slip in a name would
 * otherwise show only by nothing happening.
 */
export function createNoWorkerCheck({
  database,
  clock,
  onNoWorker,
}: {
  database: Database;
  clock: Clock;
  onNoWorker: (name: string) => void;
}): (names: ReadonlySet<string>) => void {
  const checkedMs = new Map<string, number>();
  return (names) => {
    const nowMs = clock.monotonic();
    const unseen = [...names].filter(
      (name) => nowMs - (checkedMs.get(name) ?? -Infinity) >= recheckMs,
    );
    if (unseen.length === 0) return;
    if (checkedMs.size + unseen.length > maxNames) checkedMs.clear();
    const checked = unseen.slice(0, maxNames);
    for (const name of checked) checkedMs.set(name, nowMs);
    void readNoWorker(database, checked).then(
      (found) => found.forEach(onNoWorker),
      // The store is away, which the caller of enqueue is told of anyway.
      () => checked.forEach((name) => checkedMs.delete(name)),
    );
  };
}

export function noWorkerWarning(name: string): string {
  return `no pod that is up works on "${name}": its tasks wait until one does`;
}

// It is asked about a wait that took too long already.
const reasonTimeoutMs = 1_000;

/** Why a task hasn't ended, as far as the store says so in time; undefined where it doesn't. */
export async function whyOpen(
  { database, clock, workers }: { database: Database; clock: Clock; workers: Workers },
  taskId: string,
): Promise<string | undefined> {
  const reason = readReason({ database, workers }, taskId, clock.now()).catch(() => undefined);
  return settledWithin(clock, reasonTimeoutMs, reason);
}

async function readReason(
  { database, workers }: { database: Database; workers: Workers },
  taskId: string,
  nowMs: number,
): Promise<string | undefined> {
  const found = await toTasks(database, await database.read(getTask(taskId)));
  const [task] = await workers.markWaiting(found);
  return task && reasonOf(task, nowMs);
}

function reasonOf(task: Task, nowMs: number): string | undefined {
  const { name, waitsFor, failures, runAtMs } = task;
  if (task.status === "claimed") {
    return `it runs on pod ${task.claimedBy}, attempt ${failures + 1}`;
  }
  if (task.status !== "pending") return undefined;
  const failed = task.error === null ? "" : ` after it failed: ${task.error.message.slice(0, 200)}`;
  const reasons = [
    ...(runAtMs > nowMs ? [`it isn't due before ${new Date(runAtMs).toISOString()}${failed}`] : []),
    ...(waitsFor.length > 0 ? ["it waits for other tasks"] : []),
    ...(task.paused ? [`"${name}" is paused`] : []),
    ...(task.noWorker ? [`no pod that is up works on "${name}"`] : []),
    ...(task.blockedBy === null ? [] : [`the limit of ${task.blockedBy} is reached`]),
    ...(task.throttledBy === null
      ? []
      : [
          `the throttle ${task.throttledBy.name} has no permit, and ${task.throttledBy.ahead} wait before it`,
        ]),
  ];
  return reasons.length === 0 ? "it waits for a pod that has room" : reasons.join(", and ");
}
