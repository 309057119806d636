import type { Clock } from "../../base/clock.ts";
import { settledWithin } from "../../base/timeout.ts";
import { readPulses } from "../../pods/pods.ts";
import { livePods } from "../../pods/sql.ts";
import { allNames } from "../../protocol/task-options.ts";
import type { Database, Row } from "../../store/database.ts";
import { toTasks } from "../dependencies.ts";
import type { Task } from "../rows.ts";
import type { ThrottleOfName } from "../run/pod-status.ts";
import { getTask } from "../sql/inspect.ts";
import { listPauses } from "../sql/limits.ts";
import { createThrottledBy } from "./throttled-by.ts";

/** What blocks a task or run besides its own row. */
export type Blockers = {
  /** True if no live pod handles this name and, for a run, this version of its flow. */
  noWorker(name: string, flowVersion: number | null, version?: number | null): boolean;
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

export type WorkerCoverage = {
  /**
   * The names that live pods handle; for flows the highest version. Undefined if a pod does not
   * list its names.
   */
  readonly names: ReadonlyMap<string, number> | undefined;
  /** The highest versions of tasks that have one. */
  readonly versions: ReadonlyMap<string, number>;
  /** The throttles of these names. */
  readonly throttles: ReadonlyMap<string, ThrottleOfName>;
};

// Long enough that a thousand requests a second cause one read, and short compared with a pod's
// start.
const coverageKeptMs = 1_000;

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
              noWorker: noWorker(task.name, task.flowVersion, task.version),
              paused: paused(task.name),
              throttledBy: throttled.get(task.taskId) ?? null,
            }
          : task,
      );
    },
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

/** The task, with why it waits, or since when it runs. */
export async function readWaiting(
  { database, workers }: { database: Database; workers: Workers },
  taskId: string,
): Promise<Task | undefined> {
  const found = await toTasks(database, await database.read(getTask(taskId)));
  const [task] = await workers.markWaiting(found);
  if (task?.status !== "claimed") return task;
  const [pulse] = await readPulses(database, [task.claimedBy]);
  const running = pulse?.running.find((each) => each.taskId === taskId);
  // A pod says it a moment later than it claims, so this may still be about the attempt before.
  const isOlder = running && running.startedAtMs < task.updatedAtMs && !task.cancelRequested;
  if (!running || isOlder) return task;
  return { ...task, startedAtMs: running.startedAtMs };
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
  return coverageOf(await database.read(livePods()));
}

/** What these pods handle, by the metadata in their rows. */
export function coverageOf(pods: readonly Row[]): WorkerCoverage {
  const names = new Map<string, number>();
  const ofTasks = new Map<string, number>();
  const throttles = new Map<string, ThrottleOfName>();
  let allSay = true;
  for (const row of pods) {
    if (Number(row["drain"]) === 1) continue;
    const metadata = parse(row["metadata"]);
    const versions = (metadata["flows"] ?? {}) as Readonly<Record<string, unknown>>;
    if (!Array.isArray(metadata["names"])) allSay = false;
    else for (const name of metadata["names"].map(String)) raise(names, name, versions[name]);
    const tasks = (metadata["versions"] ?? {}) as Readonly<Record<string, number>>;
    for (const [name, version] of Object.entries(tasks)) raise(ofTasks, name, version);
    const of = (metadata["throttles"] ?? {}) as Readonly<Record<string, ThrottleOfName>>;
    for (const [name, throttle] of Object.entries(of)) throttles.set(name, throttle);
  }
  return { names: allSay ? names : undefined, versions: ofTasks, throttles };
}

/** A pod without a version accepts any version of the name. */
function raise(names: Map<string, number>, name: string, declared: unknown): void {
  const version = typeof declared === "number" ? declared : Number.POSITIVE_INFINITY;
  names.set(name, Math.max(names.get(name) ?? 0, version));
}

/** True if a live pod can take it: in the version that has got on with it, or a later one. */
export function isCovered(
  { names, versions }: WorkerCoverage,
  name: string,
  flowVersion: number | null,
  version: number | null = null,
): boolean {
  if (names === undefined) return true;
  const isLater = version === null || (versions.get(name) ?? 0) >= version;
  return isLater && (names.get(name) ?? -1) >= (flowVersion ?? 0);
}

function blockersOf(works: WorkerCoverage, pauses: readonly Row[]): Blockers {
  const paused = new Set(pauses.map((row) => row["name"] as string));
  return {
    noWorker: (name, flowVersion, version) => !isCovered(works, name, flowVersion, version),
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
