import { inheritFiles } from "../sql/inherit-files.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import { checkOptions } from "../../base/options.ts";
import type { Statement } from "../../store/sql.ts";
import { dependencyWritesOf } from "../dependencies.ts";
import type { TaskContract } from "../model.ts";
import {
  insertAliases,
  insertTasks,
  linkTasks,
  lockHolders,
  type NewTask,
} from "../sql/enqueue.ts";
import { type LoggedTask, runOutdated, whenLogged } from "../sql/logged.ts";
import { checkKeys, type GraphRow, inDependencyOrder } from "./graph.ts";
import { type EnqueueOptions, prepareTask } from "./options.ts";

/**
 * A task, or a run of a flow, that is stored in one record of a log with what it belongs to. Its id is known
 * before it is stored. If another task holds its key by then, the id becomes another name of that one.
 */
export type TaskToStart = {
  readonly input?: unknown;
  /** Names it for the `after` of others in the same list. */
  readonly ref?: string;
  /** Others of the same list that must have ended before it runs, by their refs. */
  readonly after?: readonly string[];
  readonly options?: StartedTaskOptions;
} & ({ readonly task: TaskContract | string } | { readonly flow: TaskContract | string });

export type StartedTaskOptions = Pick<
  EnqueueOptions,
  "priority" | "delayMs" | "runAt" | "attempts" | "concurrencyKey" | "key" | "afterFailed"
>;

type PrepareParts = {
  readonly ids: Ids;
  readonly maxPayloadBytes: number;
  readonly tenant: string;
  readonly origin: NonNullable<NewTask["origin"]>;
  readonly trace: string | null;
};

const maxTasks = 100;
// They are in one record with what they belong to, and a log takes no record of any size.
const maxTotalChars = 1024 * 1024;
const rowNames = ["task", "flow", "input", "ref", "after", "options"];
const optionNames = [
  "priority",
  "delayMs",
  "runAt",
  "attempts",
  "concurrencyKey",
  "key",
  "afterFailed",
];

/** Validates tasks as `enqueueGraph` does, and makes their rows. Returns them in the given order. */
export async function prepareLoggedTasks(
  given: readonly TaskToStart[],
  { tenant, origin, trace, ...parts }: PrepareParts,
): Promise<NewTask[]> {
  if (!Array.isArray(given) || given.length > maxTasks) {
    const message = `tasks must be a list of at most ${maxTasks} tasks`;
    throw new FlotillaError("invalid_option", message);
  }
  const rows = given.map((each: TaskToStart, at) => rowOf(each, at, tenant));
  const ordered = inDependencyOrder(rows);
  checkKeys(ordered);
  const byRef = new Map<string, NewTask>();
  let chars = 0;
  for (const { ref, task, input, options, after = [] } of ordered) {
    const dependencies = after.map((each) => {
      const found = typeof each === "string" ? byRef.get(each) : undefined;
      if (found) return found.taskId;
      throw new FlotillaError(
        "invalid_option",
        `tasks: \`after\` takes refs of the same list, and ${JSON.stringify(each)} is none`,
      );
    });
    const more = dependencies.length > 0 ? { after: dependencies } : {};
    const originOf = () => origin;
    const made = await prepareTask(
      task,
      input ?? null,
      { ...options, ...more },
      { ...parts, originOf },
      trace,
    );
    chars += made.payload.length;
    if (chars > Math.max(maxTotalChars, parts.maxPayloadBytes)) {
      const message = `the payloads of tasks that are stored together may have ${maxTotalChars} characters in all`;
      throw new FlotillaError("payload_too_large", message);
    }
    byRef.set(ref, made);
  }
  return rows.map(({ ref }) => byRef.get(ref)!);
}

function rowOf(given: TaskToStart, at: number, tenant: string): GraphRow {
  checkOptions("tasks", given, rowNames);
  const { input, ref = `tasks[${at}]`, after, options = {} } = given;
  checkOptions("tasks: options", options, optionNames);
  if ("task" in given === "flow" in given) {
    throw new FlotillaError("invalid_option", "tasks: give each either `task` or `flow`");
  }
  const task = "flow" in given ? flowOf(given.flow) : given.task;
  return { ref, task, input, options: { ...options, tenant }, ...(after && { after }) };
}

function flowOf(flow: TaskContract | string): TaskContract {
  if (typeof flow === "string") {
    return { name: flow, input: undefined, output: undefined, isFlow: true };
  }
  if (flow?.isFlow === true) return flow;
  const name = JSON.stringify(flow?.name);
  throw new FlotillaError("invalid_option", `tasks: ${name} isn't a flow: give it as \`task\``);
}

/**
 * The statements that store tasks in the transaction of records of logs, for those of which `isStored` is
 * true. A task whose key is held is not stored, and its id names the holder from then on.
 */
export function storeLoggedTasks(
  newTasks: readonly LoggedTask[],
  isStored: (logId: Statement) => Statement,
): Statement[] {
  const when = whenLogged(newTasks, isStored);
  const keyed = newTasks.filter(({ key }) => key !== null);
  const insert = insertTasks(newTasks, when);
  return [
    // A holder that is deleted after the conflict and before its new name is stored would leave neither.
    ...(keyed.length > 0 ? [lockHolders(keyed), insert, insertAliases(keyed, when)] : [insert]),
    ...linkTasks(newTasks),
    ...inheritFiles(newTasks),
    ...runOutdated(newTasks, isStored),
    ...(dependencyWritesOf(newTasks)?.inserts ?? []),
  ];
}

/** Whether a pod may claim one of these at once, so that pods are told. */
export function isAnyDue(newTasks: readonly NewTask[]): boolean {
  return newTasks.some(({ delayMs, after }) => delayMs === 0 && after === undefined);
}
