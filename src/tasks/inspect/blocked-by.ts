import type { Clock } from "../../base/clock.ts";
import type { Database, Row } from "../../store/database.ts";
import { livePods } from "../../pods/sql.ts";
import type { Task } from "../rows.ts";
import { everything, listPauses } from "../sql/pause.ts";
import type { TaskHandler } from "../task.ts";
import { createHeld, type ThrottleOfName } from "./throttle-held.ts";

type WorkedOn = {
  /**
   * The names that pods which are up work on, of flows with the highest version that one has; undefined
   * where a pod doesn't say which.
   */
  readonly names: ReadonlyMap<string, number> | undefined;
  /** The throttles that tasks of some of them wait for. */
  readonly throttles: ReadonlyMap<string, ThrottleOfName>;
};

async function workedOn(database: Database): Promise<WorkedOn> {
  const names = new Map<string, number>();
  const throttles = new Map<string, ThrottleOfName>();
  let allSay = true;
  for (const row of await database.read(livePods())) {
    const said = parse(row["metadata"]);
    const versions = (said["flows"] ?? {}) as Readonly<Record<string, unknown>>;
    if (!Array.isArray(said["names"])) allSay = false;
    else for (const name of said["names"].map(String)) raise(names, name, versions[name]);
    const of = (said["throttles"] ?? {}) as Readonly<Record<string, ThrottleOfName>>;
    for (const [name, throttle] of Object.entries(of)) throttles.set(name, throttle);
  }
  return { names: allSay ? names : undefined, throttles };
}

/** Who doesn't say a version takes whatever has the name. */
function raise(names: Map<string, number>, name: string, said: unknown): void {
  const version = typeof said === "number" ? said : Number.POSITIVE_INFINITY;
  names.set(name, Math.max(names.get(name) ?? 0, version));
}

/** What versions pods have of the flows they work on, for whoever looks at their runs. */
export function flowsOf(handlers: Iterable<TaskHandler>): Record<string, number> {
  const found: Record<string, number> = {};
  for (const { name, flow } of handlers) if (flow) found[name] = flow.version;
  return found;
}

/** Whether a pod may take it: a run goes to its version or a later one. */
function isWorkedOn({ names }: WorkedOn, name: string, version: number | null): boolean {
  return names === undefined || (names.get(name) ?? -1) >= (version ?? 0);
}

/** What keeps a task or a run waiting besides what its row says. */
export type Holds = {
  /** No pod that is up may take what has this name and, if it is a run, this version. */
  noWorker(name: string, version: number | null): boolean;
  /** The name is paused, or everything is. */
  paused(name: string): boolean;
};

export async function readHolds(database: Database): Promise<Holds> {
  return holdsOf(await workedOn(database), await database.read(listPauses()));
}

function holdsOf(works: WorkedOn, pauses: readonly Row[]): Holds {
  const paused = new Set(pauses.map((row) => row["name"] as string));
  return {
    noWorker: (name, version) => !isWorkedOn(works, name, version),
    paused: (name) => paused.has(name) || paused.has(everything),
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
  const works = await workedOn(database);
  return new Set(names.filter((name) => !isWorkedOn(works, name, null)));
}

// Long enough that a thousand requests a second ask once, and short beside how long a pod takes to start.
const knownMs = 1_000;

/** Who works on what, for callers that ask about tasks that wait. */
export type Workers = {
  /** As `readNoWorker`, for callers that ask with every task that they store. */
  noWorker(names: readonly string[]): Promise<string[]>;
  /** Says of waiting tasks whether anybody works on such, and may. Only for those it is asked. */
  markWaiting(tasks: readonly Task[]): Promise<Task[]>;
};

export function createWorkers({ database, clock }: { database: Database; clock: Clock }): Workers {
  const readHeld = createHeld({ database, clock });
  let known: { readonly works: WorkedOn; readonly atMs: number } | undefined;

  return {
    async noWorker(names) {
      const without = ({ works }: NonNullable<typeof known>) =>
        names.filter((name) => !isWorkedOn(works, name, null));
      const atMs = clock.monotonic();
      const isFresh = known !== undefined && atMs - known.atMs < knownMs;
      if (names.length === 0 || (isFresh && without(known!).length === 0)) return [];
      // A pod may have come since that works on what no pod did.
      const seen = { works: await workedOn(database), atMs };
      known = seen;
      return without(seen);
    },
    async markWaiting(tasks) {
      const pending = tasks.filter(({ status }) => status === "pending");
      if (pending.length === 0) return [...tasks];
      const [works, pauses] = await Promise.all([workedOn(database), database.read(listPauses())]);
      const { noWorker, paused } = holdsOf(works, pauses);
      const held = await readHeld(pending, { throttles: works.throttles, isPaused: paused });
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
