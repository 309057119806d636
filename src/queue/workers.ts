import type { Database } from "../store/database.ts";
import { livePods } from "../pods/statements.ts";
import type { Task } from "./row.ts";
import { everything, listPauses } from "./statements/pause.ts";

/** The names that pods which are up work on; undefined where one doesn't say which. */
async function workedOn(database: Database): Promise<ReadonlySet<string> | undefined> {
  const names = new Set<string>();
  for (const row of await database.read(livePods())) {
    const known = namesOf(row["metadata"]);
    if (known === undefined) return undefined;
    for (const name of known) names.add(name);
  }
  return names;
}

function namesOf(metadata: string): string[] | undefined {
  try {
    const { names } = JSON.parse(metadata) as { names?: unknown };
    return Array.isArray(names) ? names.map(String) : undefined;
  } catch {
    return undefined;
  }
}

/** Of these names, those that no pod which is up works on: their tasks wait until one does. */
export async function withoutWorker(
  database: Database,
  names: readonly string[],
): Promise<ReadonlySet<string>> {
  if (names.length === 0) return new Set();
  const known = await workedOn(database);
  return new Set(known === undefined ? [] : names.filter((name) => !known.has(name)));
}

/** Says of waiting tasks whether anybody works on such, and may. Only for those it is asked. */
export async function markWaiting(database: Database, tasks: readonly Task[]): Promise<Task[]> {
  const names = tasks.filter(({ status }) => status === "pending").map(({ name }) => name);
  if (names.length === 0) return [...tasks];
  const [idle, pauses] = await Promise.all([
    withoutWorker(database, names),
    database.read(listPauses()),
  ]);
  const paused = new Set(pauses.map((row) => row["name"] as string));
  const isPaused = (name: string) => paused.has(name) || paused.has(everything);
  return tasks.map((task) =>
    task.status === "pending"
      ? { ...task, noWorker: idle.has(task.name), paused: isPaused(task.name) }
      : task,
  );
}
