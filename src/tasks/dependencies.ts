import { FlotillaError } from "../base/errors.ts";
import { checkChoice } from "../base/options.ts";
import type { Database, Row } from "../store/database.ts";
import type { Statement } from "../store/sql.ts";
import { type Task, toTask } from "./rows.ts";
import type { AttemptOutcome } from "./finish/outcome.ts";
import type { NewTask } from "./sql/enqueue.ts";
import {
  dependenciesExist,
  insertDependencies,
  getParents,
  missingDependencies,
  type Dependency,
  dependenciesOf,
} from "./sql/dependencies.ts";

export type DependencyOptions = {
  /** Tasks that must have ended before this one runs, by their ids or as `enqueue` gave them. */
  after?: readonly DependencyRef[];
  /** What if one of them fails or is cancelled: this one fails too, or runs all the same. Default fail. */
  afterFailed?: "fail" | "run";
};

export type DependencyRef = string | { readonly taskId: string };

export const dependencyOptionNames = ["after", "afterFailed"] as const;

const maxDependencies = 1_000;
// More would make one transaction too long, and travel as too long a text.
const maxDependenciesPerCall = 100_000;
const maxIdChars = 500;

/** What a new task waits for, checked. */
export function checkDependencies(
  options: DependencyOptions & { onDuplicate?: string },
): Pick<NewTask, "after" | "waits"> {
  const { after, afterFailed = "fail" } = options;
  checkChoice("afterFailed", afterFailed, ["fail", "run"]);
  if (after === undefined) {
    if (options.afterFailed === undefined) return {};
    throw new FlotillaError(
      "invalid_option",
      "afterFailed needs `after`: there is nothing to fail",
    );
  }
  if (!Array.isArray(after) || after.length > maxDependencies) {
    throw new FlotillaError(
      "invalid_option",
      `after must be a list of ${maxDependencies} tasks at most, by their ids or as enqueue gave them`,
    );
  }
  if (options.onDuplicate === "replace") {
    throw new FlotillaError(
      "invalid_option",
      "a task that may replace another can't wait: what is there already waits for what it was given",
    );
  }
  if (after.length === 0) return {};
  const ids = new Set(after.map((each: DependencyRef) => dependencyIdOf(each)));
  return { after: [...ids], waits: afterFailed === "fail" ? 1 : 2 };
}

export function dependencyIdOf(dependency: DependencyRef): string {
  const id: unknown = typeof dependency === "string" ? dependency : dependency?.taskId;
  if (typeof id === "string" && id.length > 0 && id.length <= maxIdChars) {
    if (id.isWellFormed() && !id.includes("\u0000")) return id;
  }
  throw new FlotillaError("invalid_option", "after: one of them is no task's id");
}

export type DependencyWrites = {
  /** Nothing is stored unless all that is to be waited for is there. */
  readonly when: Statement;
  /** What follows the insert. The answer of the last says what isn't there. */
  readonly statements: readonly Statement[];
};

/** What goes along with new tasks that wait for others; undefined where none does. */
export function dependencyWritesOf(
  newTasks: readonly NewTask[],
  together: readonly NewTask[] = newTasks,
): DependencyWrites | undefined {
  if (!newTasks.some(({ after }) => after !== undefined)) return undefined;
  const own = new Map(together.map((each) => [each.taskId, each]));
  const dependencies = newTasks.flatMap(({ taskId: dependentId, after = [] }) =>
    after.map((dependencyId, place): Dependency => {
      const holds = keyHolderOf(own.get(dependencyId));
      return { dependencyId, dependentId, place, ...(holds && { holds }) };
    }),
  );
  if (dependencies.length > maxDependenciesPerCall) {
    throw new FlotillaError(
      "payload_too_large",
      `${dependencies.length} waits in one call are more than ${maxDependenciesPerCall}: send them in parts`,
    );
  }
  const others = new Set(
    dependencies.map(({ dependencyId: awaitedId }) => awaitedId).filter((id) => !own.has(id)),
  );
  return {
    when: dependenciesExist([...others]),
    statements: [...insertDependencies(dependencies), missingDependencies([...others])],
  };
}

/** A task with a key may be one that is there already, under another id. */
function keyHolderOf(task: NewTask | undefined): Dependency["holds"] {
  if (!task || task.key === null) return undefined;
  return { tenant: task.tenant, name: task.name, key: task.key };
}

export function missingDependencyError(rows: readonly Row[]): FlotillaError {
  const taskIds = rows.map((row) => row["task_id"] as string);
  const isId = /^[0-9a-f-]{36}$/.test(taskIds[0]!);
  const orRow = isId ? "" : ", nor a row of the same graph by that name";
  const message = `after: there is no task ${taskIds[0]}${orRow}`;
  return new FlotillaError("not_found", message, { details: { taskId: taskIds[0], taskIds } });
}

/** Tasks as people see them, with what each waits for. */
export async function toTasks(database: Database, rows: readonly Row[]): Promise<Task[]> {
  const dependencies = await readDependencies(database, rows);
  return rows.map((row) => toTask(row, dependencies.get(row["task_id"])));
}

/** What each of these waits for, or has waited for, by their ids. */
export async function readDependencies(
  database: Database,
  rows: readonly Row[],
): Promise<ReadonlyMap<string, readonly string[]>> {
  const dependencies = new Map<string, string[]>();
  const dependents = rows.filter((row) => Number(row["depends"]) > 0);
  if (dependents.length === 0) return dependencies;
  const found = await database.read(
    dependenciesOf(dependents.map((row) => row["task_id"] as string)),
  );
  for (const { dependent_id: waiter, dependency_id: awaited } of found) {
    dependencies.set(waiter, [...(dependencies.get(waiter) ?? []), awaited]);
  }
  return dependencies;
}

/** The tasks that one waits for, in the order that was given. */
export async function readParents(database: Database, taskId: string): Promise<Task[]> {
  return toTasks(database, await database.read(getParents(taskId)));
}

/** How a task ends that won't run, because one that it waits for hasn't completed. */
export async function dependencyFailedOutcome(
  database: Database,
  taskId: string,
): Promise<AttemptOutcome> {
  try {
    const parents = await readParents(database, taskId);
    const culprit = parents.find(({ status }) => status === "failed" || status === "cancelled");
    // It may have been started over since. What has failed stays so until it is started over itself.
    const message = culprit
      ? `task ${culprit.taskId} (${culprit.name}), which it waits for, ${culprit.status === "failed" ? "has failed" : "was cancelled"}`
      : "a task that it waits for had failed, and has been started over since";
    const error = {
      code: "dependency_failed",
      message,
      ...(culprit && { taskId: culprit.taskId }),
    };
    return { type: "unmet", error };
  } catch {
    // The store didn't say which. It is given back, to be asked again.
    return { type: "interrupted" };
  }
}
