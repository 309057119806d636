import type { Clock } from "../../base/clock.ts";
import { settledWithin } from "../../base/timeout.ts";
import { livePods } from "../../pods/sql.ts";
import type { Database, Row } from "../../store/database.ts";
import { readThrottle, readThrottles, type ThrottleView } from "../../throttles/shares/admin.ts";
import { toTasks } from "../dependencies.ts";
import type { HeldByThrottle, Task } from "../rows.ts";
import { maxDepthCount, getTask, type RankedName, tasksInClaimOrder } from "../sql/inspect.ts";
import { allNames, listPauses } from "../sql/limits.ts";
import { priorities, type Priority } from "../../throttles/limiter/priority.ts";
import type { TaskHandler } from "../model.ts";

/** What blocks a task or run besides its own row. */
export type Blockers = {
  /** True if no live pod handles this name and, for a run, this version. */
  noWorker(name: string, version: number | null): boolean;
  /** True if this name or all names are paused. */
  paused(name: string): boolean;
};

/** Which names live pods handle. */
export type Workers = {
  /** Like `readNoWorker`, but cached, for callers that check with every enqueue. */
  noWorker(names: readonly string[]): Promise<string[]>;
  /**
   * Marks pending tasks with why they wait: no worker, paused or throttled. Reads nothing if none
   * is pending.
   */
  markWaiting(tasks: readonly Task[]): Promise<Task[]>;
};

/** The throttle of a name's tasks, and the priority if it is not the default. */
export type ThrottleOfName = {
  readonly name: string;
  readonly key: string | null;
  readonly priority?: Priority;
};

export type ThrottlesByName = {
  /** The throttles of all names that pods handle. */
  readonly throttles: ReadonlyMap<string, ThrottleOfName>;
  /** Tasks of paused names are ahead of no others. */
  readonly isPaused: (name: string) => boolean;
};

type WorkerCoverage = {
  /**
   * The names that live pods handle; for flows the highest version. Undefined if a pod does not
   * list its names.
   */
  readonly names: ReadonlyMap<string, number> | undefined;
  /** The throttles of these names. */
  readonly throttles: ReadonlyMap<string, ThrottleOfName>;
};

// Long enough that a thousand requests a second cause one read, and short compared with a pod's
// start.
const coverageKeptMs = 1_000;

// The numbers are approximate anyway, so all callers within this time share one read of a long
// queue.
const positionsKeptMs = 2_000;
const maxQueues = 1_000;

// Pods come and go, so a name is checked again, but enqueueing must stay cheap.
const recheckMs = 60_000;
const maxNames = 1_000;

// It is read for a wait that already took too long.
const reasonTimeoutMs = 1_000;

/** Reads the blockers of all names once. */
export async function readBlockers(database: Database): Promise<Blockers> {
  return blockersOf(await readCoverage(database), await database.read(listPauses()));
}

/** The names that no live pod handles: their tasks wait until one does. */
export async function readNoWorker(
  database: Database,
  names: readonly string[],
): Promise<ReadonlySet<string>> {
  if (names.length === 0) return new Set();
  const works = await readCoverage(database);
  return new Set(names.filter((name) => !isCovered(works, name, null)));
}

/** Reads which names live pods handle, from the metadata in their rows. */
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
      // A new pod may handle a name that none did before, so read again.
      const fresh = { works: await readCoverage(database), atMs };
      known = fresh;
      return without(fresh);
    },
    async markWaiting(tasks) {
      const pending = tasks.filter(({ status }) => status === "pending");
      if (pending.length === 0) return [...tasks];
      const [works, pauses] = await Promise.all([
        readCoverage(database),
        database.read(listPauses()),
      ]);
      const { noWorker, paused } = blockersOf(works, pauses);
      const throttled = await readThrottledBy(pending, {
        throttles: works.throttles,
        isPaused: paused,
      });
      return tasks.map((task) =>
        task.status === "pending"
          ? {
              ...task,
              noWorker: noWorker(task.name, task.flowVersion),
              paused: paused(task.name),
              throttledBy: throttled.get(task.taskId) ?? null,
            }
          : task,
      );
    },
  };
}

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

/**
 * Checks, after an enqueue, whether a live pod handles such tasks. Otherwise a typo in a name would
 * show only by nothing happening.
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
      // The store is unavailable, which the caller of enqueue learns anyway.
      () => checked.forEach((name) => checkedMs.delete(name)),
    );
  };
}

export function noWorkerWarning(name: string): string {
  return `no pod that is up works on "${name}": its tasks wait until one does`;
}

/** Why a task has not ended; undefined if the store does not answer in time. */
export async function whyOpen(
  clock: Clock,
  read: () => Promise<Task | undefined>,
): Promise<string | undefined> {
  const reason = read().then(
    (task) => task && reasonOf(task, clock.now()),
    () => undefined,
  );
  return settledWithin(clock, reasonTimeoutMs, reason);
}

/** The task, with why it waits. */
export async function readWaiting(
  { database, workers }: { database: Database; workers: Workers },
  taskId: string,
): Promise<Task | undefined> {
  const found = await toTasks(database, await database.read(getTask(taskId)));
  return (await workers.markWaiting(found))[0];
}

/** The flows that a pod handles and their versions, for its metadata. */
export function flowsOf(handlers: Iterable<TaskHandler>): Record<string, number> {
  const found: Record<string, number> = {};
  for (const { name, flow } of handlers) if (flow) found[name] = flow.version;
  return found;
}

/** The throttles of a pod's handlers, for its metadata. */
export function throttlesOf(handlers: Iterable<TaskHandler>): Record<string, ThrottleOfName> {
  const found: Record<string, ThrottleOfName> = {};
  for (const { name, throttle } of handlers) {
    // The state of a local throttle is known only to its pod.
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
  return reasons.length === 0 ? "it waits for a pod with free capacity" : reasons.join(", and ");
}

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

/** A pod without a version accepts any version of the name. */
function raise(names: Map<string, number>, name: string, declared: unknown): void {
  const version = typeof declared === "number" ? declared : Number.POSITIVE_INFINITY;
  names.set(name, Math.max(names.get(name) ?? 0, version));
}

/** True if a live pod can take it: a run needs its version or a later one. */
function isCovered({ names }: WorkerCoverage, name: string, version: number | null): boolean {
  return names === undefined || (names.get(name) ?? -1) >= (version ?? 0);
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
