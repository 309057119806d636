import { FlotillaError } from "../base/errors.ts";
import { checkChoice } from "../base/options.ts";
import type { Database, Row } from "../store/database.ts";
import type { Statement } from "../store/sql.ts";
import { type Task, toTask } from "./rows.ts";
import type { Ending } from "./finish/outcome.ts";
import type { NewTask } from "./sql/enqueue.ts";
import {
  allThere,
  beginWaiting,
  getParents,
  missing,
  type Wait,
  waitsOf,
} from "./sql/dependencies.ts";

export type WaitingOptions = {
  /** Tasks that must have ended before this one runs, by their ids or as `enqueue` gave them. */
  after?: readonly Awaited[];
  /** What if one of them fails or is cancelled: this one fails too, or runs all the same. Default fail. */
  afterFailed?: "fail" | "run";
};

export type Awaited = string | { readonly taskId: string };

export const waitingOptionNames = ["after", "afterFailed"] as const;

const afterMost = 1_000;
// More would make one transaction too long, and travel as too long a text.
const waitsMost = 100_000;
const idChars = 500;

/** What a new task waits for, checked. */
export function checkAfter(
  options: WaitingOptions & { onDuplicate?: string },
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
  if (!Array.isArray(after) || after.length > afterMost) {
    throw new FlotillaError(
      "invalid_option",
      `after must be a list of ${afterMost} tasks at most, by their ids or as enqueue gave them`,
    );
  }
  if (options.onDuplicate === "replace") {
    throw new FlotillaError(
      "invalid_option",
      "a task that may replace another can't wait: what is there already waits for what it was given",
    );
  }
  if (after.length === 0) return {};
  const ids = new Set(after.map((each: Awaited) => idOf(each)));
  return { after: [...ids], waits: afterFailed === "fail" ? 1 : 2 };
}

export function idOf(awaited: Awaited): string {
  const id: unknown = typeof awaited === "string" ? awaited : awaited?.taskId;
  if (typeof id === "string" && id.length > 0 && id.length <= idChars) {
    if (id.isWellFormed() && !id.includes("\u0000")) return id;
  }
  throw new FlotillaError("invalid_option", "after: one of them is no task's id");
}

export type Waiting = {
  /** Nothing is stored unless all that is to be waited for is there. */
  readonly when: Statement;
  /** What follows the insert. The answer of the last says what isn't there. */
  readonly statements: readonly Statement[];
};

/** What goes along with new tasks that wait for others; undefined where none does. */
export function waitingOf(
  news: readonly NewTask[],
  together: readonly NewTask[] = news,
): Waiting | undefined {
  if (!news.some(({ after }) => after !== undefined)) return undefined;
  const own = new Map(together.map((each) => [each.taskId, each]));
  const waits = news.flatMap(({ taskId: waiterId, after = [] }) =>
    after.map((awaitedId, place): Wait => {
      const holds = keyOf(own.get(awaitedId));
      return { awaitedId, waiterId, place, ...(holds && { holds }) };
    }),
  );
  if (waits.length > waitsMost) {
    throw new FlotillaError(
      "payload_too_large",
      `${waits.length} waits in one call are more than ${waitsMost}: send them in parts`,
    );
  }
  const others = new Set(waits.map(({ awaitedId }) => awaitedId).filter((id) => !own.has(id)));
  return {
    when: allThere([...others]),
    statements: [...beginWaiting(waits), missing([...others])],
  };
}

/** A task with a key may be one that is there already, under another id. */
function keyOf(task: NewTask | undefined): Wait["holds"] {
  if (!task || task.key === null) return undefined;
  return { tenant: task.tenant, name: task.name, key: task.key };
}

export function unknownAwaited(rows: readonly Row[]): FlotillaError {
  const taskIds = rows.map((row) => row["task_id"] as string);
  const isId = /^[0-9a-f-]{36}$/.test(taskIds[0]!);
  const orRow = isId ? "" : ", nor a row of the same graph by that name";
  const message = `after: there is no task ${taskIds[0]}${orRow}`;
  return new FlotillaError("not_found", message, { details: { taskId: taskIds[0], taskIds } });
}

/** Tasks as people see them, with what each waits for. */
export async function toTasks(database: Database, rows: readonly Row[]): Promise<Task[]> {
  const waits = await readWaits(database, rows);
  return rows.map((row) => toTask(row, waits.get(row["task_id"])));
}

/** What each of these waits for, or has waited for, by their ids. */
export async function readWaits(
  database: Database,
  rows: readonly Row[],
): Promise<ReadonlyMap<string, readonly string[]>> {
  const waits = new Map<string, string[]>();
  const waiters = rows.filter((row) => Number(row["depends"]) > 0);
  if (waiters.length === 0) return waits;
  const found = await database.read(waitsOf(waiters.map((row) => row["task_id"] as string)));
  for (const { dependent_id: waiter, dependency_id: awaited } of found) {
    waits.set(waiter, [...(waits.get(waiter) ?? []), awaited]);
  }
  return waits;
}

/** The tasks that one waits for, in the order that was given. */
export async function readParents(database: Database, taskId: string): Promise<Task[]> {
  return toTasks(database, await database.read(getParents(taskId)));
}

/** How a task ends that won't run, because one that it waits for hasn't completed. */
export async function endUnmet(database: Database, taskId: string): Promise<Ending> {
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
