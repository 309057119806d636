import { FlotillaError } from "../base/errors.ts";
import { checkChoice } from "../base/options.ts";
import { type NewTaskOptions, taskOptions } from "../protocol/task-options.ts";
import type { Database, Row } from "../store/database.ts";
import type { Statement } from "../store/sql.ts";
import { type Task, toTask } from "./rows.ts";
import type { NewTask } from "./sql/enqueue.ts";
import {
  dependenciesExist,
  insertDependencies,
  getParents,
  missingDependencies,
  type Dependency,
  dependenciesOf,
} from "./sql/dependencies.ts";
import { depends } from "./sql/task-state.ts";
import type { AttemptOutcome } from "./model.ts";

export type DependencyRef = string | { readonly taskId: string };

// More would make one transaction too long, and its text too large.
const maxDependenciesPerCall = 100_000;
const maxIdChars = 500;

/** Checks the dependencies of a new task. */
export function checkDependencies(
  options: Pick<NewTaskOptions<unknown, DependencyRef>, "after" | "afterFailed" | "onDuplicate">,
): Pick<NewTask, "after" | "depends"> {
  const { after, afterFailed = "fail" } = options;
  checkChoice("afterFailed", afterFailed, taskOptions.afterFailed.choices);
  if (after === undefined) {
    if (options.afterFailed === undefined) return {};
    throw new FlotillaError(
      "invalid_option",
      "afterFailed needs `after`: give the tasks to wait for",
    );
  }
  if (!Array.isArray(after) || after.length > taskOptions.after.max) {
    throw new FlotillaError(
      "invalid_option",
      `after must be a list of at most ${taskOptions.after.max} tasks: ids, or what enqueue returned`,
    );
  }
  if (options.onDuplicate === "replace") {
    throw new FlotillaError(
      "invalid_option",
      "after can't be combined with `onDuplicate: replace`, because the existing task keeps its own dependencies",
    );
  }
  if (after.length === 0) return {};
  const ids = new Set(after.map((each: DependencyRef) => dependencyIdOf(each)));
  return { after: [...ids], depends: afterFailed === "fail" ? depends.completed : depends.ended };
}

export function dependencyIdOf(dependency: DependencyRef): string {
  const id: unknown = typeof dependency === "string" ? dependency : dependency?.taskId;
  if (typeof id === "string" && id.length > 0 && id.length <= maxIdChars) {
    if (id.isWellFormed() && !id.includes("\u0000")) return id;
  }
  throw new FlotillaError(
    "invalid_option",
    "after: each entry must be a task's id, or what enqueue returned",
  );
}

export type DependencyWrites = {
  /** A condition of the insert: all dependencies exist. */
  readonly when: Statement;
  /** The statements after the insert. The last one returns the missing dependencies. */
  readonly statements: readonly Statement[];
  /** The same without that one, for tasks whose dependencies are all stored with them. */
  readonly inserts: readonly Statement[];
};

/** The writes for new tasks with dependencies; undefined if none has any. */
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
      `${dependencies.length} dependencies in one call are more than ${maxDependenciesPerCall}: send them in parts`,
    );
  }
  const others = new Set(
    dependencies.map(({ dependencyId }) => dependencyId).filter((id) => !own.has(id)),
  );
  const inserts = insertDependencies(dependencies);
  return {
    when: dependenciesExist([...others]),
    statements: [...inserts, missingDependencies([...others])],
    inserts,
  };
}

/** A task with a key may exist already, under another id. */
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

/** Tasks in their public form, with their dependencies. */
export async function toTasks(database: Database, rows: readonly Row[]): Promise<Task[]> {
  const dependencies = await readDependencies(database, rows);
  return rows.map((row) => toTask(row, dependencies.get(row["task_id"])));
}

/** The dependencies of these tasks, open or ended, by task id. */
export async function readDependencies(
  database: Database,
  rows: readonly Row[],
): Promise<ReadonlyMap<string, readonly string[]>> {
  const dependencies = new Map<string, string[]>();
  const dependents = rows.filter((row) => Number(row["depends"]) > depends.none);
  if (dependents.length === 0) return dependencies;
  const found = await database.read(
    dependenciesOf(dependents.map((row) => row["task_id"] as string)),
  );
  for (const { dependent_id: dependentId, dependency_id: dependencyId } of found) {
    dependencies.set(dependentId, [...(dependencies.get(dependentId) ?? []), dependencyId]);
  }
  return dependencies;
}

/** The dependencies of a task, in the given order. */
export async function readParents(database: Database, taskId: string): Promise<Task[]> {
  return toTasks(database, await database.read(getParents(taskId)));
}

/** The outcome of a task that does not run, because a dependency has not completed. */
export async function dependencyFailedOutcome(
  database: Database,
  taskId: string,
): Promise<AttemptOutcome> {
  try {
    const parents = await readParents(database, taskId);
    const culprit = parents.find(({ status }) => status === "failed" || status === "cancelled");
    // The dependency may have been restarted since. The failed dependent stays failed until it is
    // restarted itself.
    const message = culprit
      ? `its dependency ${culprit.taskId} (${culprit.name}) ${culprit.status === "failed" ? "has failed" : "was cancelled"}`
      : "a dependency had failed, and has been started over since";
    const error = {
      code: "dependency_failed",
      message,
      ...(culprit && { taskId: culprit.taskId }),
    };
    return { type: "unmet", error };
  } catch {
    // The store did not answer. The task is released and tried again.
    return { type: "interrupted" };
  }
}
