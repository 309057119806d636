import type { Database } from "../store/database.ts";
import { livePods } from "../pods/statements.ts";
import type { Task } from "./row.ts";
import { everything, listPauses } from "./statements/pause.ts";
import { readHeld, type ThrottleOfName } from "./throttle-held.ts";

type WorkedOn = {
  /** The names that pods which are up work on; undefined where one doesn't say which. */
  readonly names: ReadonlySet<string> | undefined;
  /** The throttles that tasks of some of them wait for. */
  readonly throttles: ReadonlyMap<string, ThrottleOfName>;
};

async function workedOn(database: Database): Promise<WorkedOn> {
  const names = new Set<string>();
  const throttles = new Map<string, ThrottleOfName>();
  let allSay = true;
  for (const row of await database.read(livePods())) {
    const said = parse(row["metadata"]);
    if (Array.isArray(said["names"])) for (const name of said["names"]) names.add(String(name));
    else allSay = false;
    const of = (said["throttles"] ?? {}) as Readonly<Record<string, ThrottleOfName>>;
    for (const [name, throttle] of Object.entries(of)) throttles.set(name, throttle);
  }
  return { names: allSay ? names : undefined, throttles };
}

function parse(metadata: string): Readonly<Record<string, unknown>> {
  try {
    return JSON.parse(metadata) as Record<string, unknown>;
  } catch {
    return {};
  }
}

/** Of these names, those that no pod which is up works on: their tasks wait until one does. */
export async function withoutWorker(
  database: Database,
  names: readonly string[],
): Promise<ReadonlySet<string>> {
  if (names.length === 0) return new Set();
  return unknownAmong(names, await workedOn(database));
}

function unknownAmong(names: readonly string[], { names: known }: WorkedOn): ReadonlySet<string> {
  return new Set(known === undefined ? [] : names.filter((name) => !known.has(name)));
}

/** Says of waiting tasks whether anybody works on such, and may. Only for those it is asked. */
export async function markWaiting(database: Database, tasks: readonly Task[]): Promise<Task[]> {
  const names = tasks.filter(({ status }) => status === "pending").map(({ name }) => name);
  if (names.length === 0) return [...tasks];
  const [works, pauses] = await Promise.all([workedOn(database), database.read(listPauses())]);
  const idle = unknownAmong(names, works);
  const throttled = new Map([...works.throttles].filter(([name]) => names.includes(name)));
  const held = throttled.size === 0 ? undefined : await readHeld(database, throttled);
  const paused = new Set(pauses.map((row) => row["name"] as string));
  const isPaused = (name: string) => paused.has(name) || paused.has(everything);
  return tasks.map((task) =>
    task.status === "pending"
      ? {
          ...task,
          noWorker: idle.has(task.name),
          paused: isPaused(task.name),
          throttledBy: held?.get(task.name) ?? null,
        }
      : task,
  );
}
