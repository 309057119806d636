import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { defaultMaxBytes, encodeJson, type Json } from "../base/json.ts";
import { checkNumber, checkOptions } from "../base/options.ts";
import { fitPage } from "../base/page.ts";
import type { Random } from "../base/random.ts";
import { type Links, linksOf } from "../links/links.ts";
import type { Database, Row } from "../store/database.ts";
import { hasMore } from "../store/page.ts";
import type {
  CheckedRows,
  EachResult,
  EnqueueEachOptions,
  EnqueueRow,
  EnqueueRows,
} from "./enqueue/each.ts";
import type { Enqueued, EnqueueManyOptions, EnqueueOptions } from "./enqueue/options.ts";
import { createLimits, type Limits } from "./concurrency/limits.ts";
import { createPauses, type Pauses } from "./claim/pauses.ts";
import type { GraphEnqueued, GraphOptions, GraphRow, TypedRows } from "./enqueue/graph.ts";
import { createEnqueue } from "./enqueue/enqueue.ts";
import type { InsertParts } from "./enqueue/insert.ts";
import { checkStepName } from "../steps/key.ts";
import type { StepKind } from "../steps/model.ts";
import { writeUntilKnown, untilKnown } from "../store/retry.ts";
import type { Statement } from "../store/sql.ts";
import { unblockScope } from "./concurrency/unblock.ts";
import { lenientJson, type Task, taskStatuses, type TaskStatus } from "./rows.ts";
import {
  cancelTask,
  countTasks,
  getTask,
  listTasks,
  resumeTask,
  retryTask,
} from "./sql/inspect.ts";
import { sendSignal } from "./sql/signals.ts";
import { countSteps, listSteps, readUnasked, taskPart } from "./sql/steps.ts";
import { getEvents, parked } from "./sql/task-state.ts";
import { checkSignalId, checkTaskName, type InputOf, type ResultOf } from "./task.ts";
import { type Depth, readDepth } from "./inspect/depth.ts";
import { prune, type Pruned, type PruneOptions } from "./leader/prune.ts";
import {
  createNoWorkerCheck,
  createWorkers,
  readNoWorker,
  readWaiting,
} from "./inspect/blocked-by.ts";
import { createWaitFor, type WaitOptions } from "./inspect/wait-for.ts";
import { toTasks } from "./dependencies.ts";
import type { TaskContract } from "./model.ts";

export type ListOptions = {
  name?: string;
  status?: TaskStatus;
  tenant?: string;
  /** The `next` of the page before. */
  cursor?: string;
  /** 1 to 1,000. Default 50. */
  limit?: number;
};

export type TaskEventsOptions = {
  /** Only events after the one with this number. */
  after?: number;
  /** 1 to 1,000, and no more bytes than a page may have. Default: all events. */
  limit?: number;
};

export type TaskPage = { readonly tasks: Task[]; readonly next: string | null };

/** How many tasks there are of each name and status, counted exactly. */
export type Stats = {
  readonly byStatus: Readonly<Record<TaskStatus, number>>;
  readonly byName: Readonly<Record<string, Readonly<Record<TaskStatus, number>>>>;
  /** Names with pending tasks that no live pod works on. */
  readonly noWorker: readonly string[];
};

export type TaskEvent = {
  readonly seq: number;
  readonly atMs: number;
  readonly type: string;
  readonly attempt: number | null;
  readonly podId: string | null;
  readonly detail: Json;
};

export type TaskRetryOptions = {
  /** Forgets the stored steps, so that all of them run again. Default false. */
  fromStart?: boolean;
};

/** A stored step of a task or run, without its value. */
export type StepEntry = {
  readonly seq: number;
  /** For a run: the transition that it is a step of, by the name that this had first. */
  readonly transition: string | null;
  /** The path of names that it is found by. */
  readonly key: string;
  /** `begun` if it is called at most once and hasn't ended, `round` for a loop, `wait` for a wait. */
  readonly kind: StepKind;
  /** The token of the claim that stored it. */
  readonly token: number;
  readonly startedAtMs: number;
  readonly atMs: number;
  /** The size of its value. */
  readonly bytes: number;
  /** False if the attempt that has completed the task did not ask for it: the code has it no more. */
  readonly requested: boolean;
};

export type TaskSignalOptions = {
  /** Sending a signal again with the same id does nothing. Default: a new id. */
  id?: string;
};

export type TaskResumeOptions = { forget?: readonly string[] };

export type Retried = {
  /** How many stored steps were forgotten, because it was to run from its start. */
  readonly forgottenSteps: number;
};

/** A new task whose result type is known. */
export type EnqueuedTask<T extends TaskContract> = Enqueued & { readonly contract?: T };

/** The operations on tasks, for producers, servers and the command line. */
export type Tasks = Pauses & {
  /** How many tasks of a key or of a tenant may run at once. */
  readonly limits: Limits;
  // The typed overload comes last, because compilers report errors in terms of the last one.
  enqueue(
    name: string,
    input: unknown,
    options?: EnqueueOptions,
  ): Promise<EnqueuedTask<TaskContract>>;
  enqueue<T extends TaskContract>(
    task: T,
    input: InputOf<T>,
    options?: EnqueueOptions,
  ): Promise<EnqueuedTask<T>>;
  /** Stores all tasks in one transaction, or none. */
  enqueueMany<T extends TaskContract>(
    task: T | string,
    inputs: readonly InputOf<T>[],
    options?: EnqueueManyOptions<InputOf<T>>,
  ): Promise<Enqueued[]>;
  /**
   * Stores any number of rows independently, and returns the outcome of each. A refused row does not
   * affect the others.
   */
  enqueueEach<const T extends readonly TaskContract[]>(
    rows: { readonly [At in keyof T]: EnqueueRow<T[At]> | Error },
    options?: EnqueueEachOptions,
  ): Promise<EachResult>;
  enqueueEach<Rows extends EnqueueRows & { readonly length?: never }>(
    rows: Rows & CheckedRows<Rows>,
    options?: EnqueueEachOptions,
  ): Promise<EachResult>;
  /**
   * Stores tasks that may depend on each other, by the names that `ref` gives them, in one
   * transaction. Returns them by `ref`.
   */
  enqueueGraph<const Rows extends readonly GraphRow[]>(
    rows: Rows & TypedRows<Rows>,
    options?: GraphOptions,
  ): Promise<GraphEnqueued<Rows>>;
  /** The names among these that no live pod works on: their tasks wait until one does. */
  noWorker(names: readonly string[]): Promise<string[]>;
  get(taskId: string): Promise<Task | undefined>;
  events(taskId: string, options?: TaskEventsOptions): Promise<TaskEvent[]>;
  /** The stored steps of a task, in the order in which they were stored. */
  steps(taskId: string, options?: TaskEventsOptions): Promise<StepEntry[]>;
  /** What started a task or run, and the first tasks that it has started. */
  links(taskId: string): Promise<Links>;
  list(options?: ListOptions): Promise<TaskPage>;
  stats(): Promise<Stats>;
  /**
   * Resolves when the cancel is stored: `cancelled` at once, or `cancelling` while a pod must still
   * stop the attempt or run finalizers.
   */
  cancel(taskId: string): Promise<"cancelled" | "cancelling" | "finished">;
  /**
   * Starts a failed or cancelled task again. Its stored steps are kept, but those that have failed
   * for good; `fromStart` forgets all of them.
   */
  retry(taskId: string, options?: TaskRetryOptions): Promise<Retried>;
  /**
   * Lets a task go on that was set aside, has failed or was cancelled. `forget` are the keys of stored
   * steps that run again, with all that is stored within them.
   */
  resumeTask(taskId: string, options?: TaskResumeOptions): Promise<void>;
  /** Sends a signal to a task whose steps wait for it, or will. Resolves once it is stored. */
  signal(taskId: string, name: string, payload?: Json, options?: TaskSignalOptions): Promise<void>;
  /** Waits for the result of a task. Rejects if the task fails or is cancelled. */
  waitFor<T extends TaskContract>(
    task: EnqueuedTask<T>,
    options?: WaitOptions,
  ): Promise<ResultOf<T>>;
  waitFor(taskId: string, options?: WaitOptions): Promise<Json>;
  /** Waits until a task has ended, in any way, and returns it. */
  settled(taskId: string, options?: WaitOptions): Promise<Task>;
  /** How many tasks wait and how long, at a cost that does not grow with the table. */
  depth(): Promise<Depth>;
  /** Deletes finished tasks now, before the leader does. */
  prune(options: PruneOptions): Promise<Pruned>;
};

/** The most used operations, which connections and pods also have without the prefix `tasks.`. */
export type TaskShortcuts = Pick<
  Tasks,
  "enqueue" | "enqueueMany" | "enqueueEach" | "enqueueGraph" | "waitFor"
>;

/** Picks the shortcuts from the operations. */
export function taskShortcuts(tasks: TaskShortcuts): TaskShortcuts {
  const { enqueue, enqueueMany, enqueueEach, enqueueGraph, waitFor } = tasks;
  return { enqueue, enqueueMany, enqueueEach, enqueueGraph, waitFor };
}

export type TasksParts = {
  database: Database;
  clock: Clock;
  random: Random;
  ids: Ids;
  maxPayloadBytes?: number;
  /** Called after tasks were stored here, so that a pod in this process need not wait for a notification. */
  onEnqueued?: () => void;
  /** A claim of a pod in this process, for a write that stores tasks of these names. */
  claimWithin?: InsertParts["claimWithin"];
  /** Called from time to time with a name that a task was enqueued under and that no live pod works on. */
  onNoWorker?: (name: string) => void;
};

/** The operations with the hooks of this process. */
export type LocalTasks = Tasks & {
  /** A task has ended here, so `waitFor` callers in this process need not wait for the next poll. */
  ended(taskId: string): void;
  close(): void;
};

/** Creates the operations on tasks. */
export function createTasks(parts: TasksParts): LocalTasks {
  const { database, clock, random, onEnqueued, maxPayloadBytes = defaultMaxBytes } = parts;
  const workers = createWorkers(parts);
  const waitFor = createWaitFor({ ...parts, workers });
  const { onNoWorker } = parts;
  const onNames = onNoWorker && createNoWorkerCheck({ ...parts, onNoWorker });

  /** Returns the row after the change. */
  const change = async (taskId: string, statements: readonly Statement[]): Promise<Row> => {
    const options = { clock, random, ...untilKnown, notify: true };
    const { tables } = await writeUntilKnown(database, statements, options);
    const [row] = tables.at(-1)!;
    if (!row) throw notFound(taskId);
    return row;
  };

  return {
    ...createEnqueue({ ...parts, maxPayloadBytes, ...(onNames && { onNames }) }),
    async noWorker(names) {
      for (const name of names) checkTaskName(name);
      return workers.noWorker(names);
    },
    ...createPauses(parts),
    limits: createLimits(parts),
    get: (taskId) => readWaiting({ database, workers }, taskId),
    async events(taskId, options = {}) {
      checkEventsOptions("events", options);
      return fitEvents((await database.read(getEvents(taskId, options))).map(toEvent), options);
    },
    async steps(taskId, options = {}) {
      checkEventsOptions("steps", options);
      const found = await database.read(listSteps(taskId, options));
      const unasked = found.length > 0 ? await database.read(readUnasked(taskId)) : [];
      const isUnasked = unaskedBy(unasked[0]);
      return fitEvents(
        found.map((row) => toStepEntry(row, isUnasked)),
        options,
      );
    },
    links: (taskId) => linksOf(database, taskId, "task"),
    async list(options = {}) {
      checkOptions("list", options, ["name", "status", "tenant", "cursor", "limit"]);
      const { cursor, limit = 50, status, ...filter } = options;
      checkNumber("limit", limit, { min: 1, max: 1_000 });
      if (status !== undefined && !taskStatuses.includes(status)) {
        throw new FlotillaError(
          "invalid_option",
          `status must be one of ${taskStatuses.join(", ")}`,
        );
      }
      const found = await database.read(
        listTasks({
          ...filter,
          ...(status !== undefined && { status }),
          ...(cursor !== undefined && { before: cursor }),
          limit,
        }),
      );
      const tasks = await workers.markWaiting(await toTasks(database, found));
      const page = fitPage(tasks, hasMore(found));
      return { tasks: page.items, next: page.hasMore ? page.items.at(-1)!.taskId : null };
    },
    async stats() {
      const counts = toCounts(await database.read(countTasks()));
      const waiting = Object.entries(counts.byName).filter(([, { pending }]) => pending > 0);
      const names = waiting.map(([name]) => name);
      return { ...counts, noWorker: [...(await readNoWorker(database, names))] };
    },
    async cancel(taskId) {
      const row = await change(taskId, cancelTask(taskId, parts.ids.next()));
      if (row["status"] === "cancelled") await unblockScope(parts, row["concurrency_key"]);
      // Its dependents may be ready now.
      onEnqueued?.();
      waitFor.ended(taskId);
      if (row["status"] === "cancelled") return "cancelled";
      // A pending run that was cancelled still has to run its finalizers.
      const isOpen = row["status"] === "claimed" || row["status"] === "pending";
      // The cancelled task had ended, and was retried before the answer arrived.
      if (isOpen && Number(row["cancel_requested"]) === 0) return "finished";
      return isOpen ? "cancelling" : "finished";
    },
    async retry(taskId, options = {}) {
      checkOptions("retry", options, ["fromStart"]);
      const { fromStart = false } = options;
      // The steps of a task that has ended don't change.
      const [counted] = fromStart ? await database.read(countSteps(taskId)) : [];
      const steps = fromStart ? "all" : "failed";
      const row = await change(taskId, retryTask(taskId, parts.ids.next(), steps));
      if (Number(row["retried"]) === 1) {
        onEnqueued?.();
        return { forgottenSteps: Number(counted?.["steps"] ?? 0) };
      }
      throw new FlotillaError(
        "conflict",
        `task ${taskId} is ${row["status"]}: only failed and cancelled tasks can be retried`,
      );
    },
    async resumeTask(taskId, options = {}) {
      checkOptions("resumeTask", options, ["forget"]);
      const { forget = [] } = options;
      const [found] = await database.read(getTask(taskId));
      if (!found) throw notFound(taskId);
      await checkForget(database, taskId, forget);
      const requestId = parts.ids.next();
      const isAside = Number(found["parked"]) === parked.setAside;
      const row =
        found["status"] === "pending" && isAside && found["flow_version"] === null
          ? await change(taskId, resumeTask(taskId, requestId, forget))
          : await change(taskId, retryTask(taskId, requestId, forget));
      if (Number(row["resumed"] ?? row["retried"]) === 1) return onEnqueued?.();
      throw new FlotillaError(
        "conflict",
        `task ${taskId} is ${row["status"]}, and wasn't set aside: there is nothing to resume`,
      );
    },
    async signal(taskId, name, payload = null, options = {}) {
      checkOptions("signal", options, ["id"]);
      checkStepName(name);
      const { id = parts.ids.next() } = options;
      checkSignalId(id);
      const text = encodeJson(`the signal "${name}"`, payload, { maxBytes: maxPayloadBytes });
      const signal = { taskId, to: "task", signalId: id, name, payload: text } as const;
      const row = await change(taskId, sendSignal(signal));
      if (row["flow_version"] !== null) {
        throw new FlotillaError("not_found", `${taskId} is a run: use \`runs.signal\``);
      }
      if (Number(row["sent"]) === 1) return onEnqueued?.();
      const isOpen = row["status"] === "pending" || row["status"] === "claimed";
      throw isOpen
        ? new FlotillaError("overloaded", `task ${taskId} has too many unused signals: send fewer`)
        : new FlotillaError("conflict", `task ${taskId} is ${row["status"]}: it takes no signals`);
    },
    async waitFor(task: Enqueued | string, options: WaitOptions = {}): Promise<any> {
      checkOptions("waitFor", options, ["timeoutMs", "signal"]);
      const { taskId, seen } = await existing(task);
      return waitFor.result(taskId, { ...options, seen });
    },
    async settled(taskId, options = {}) {
      checkOptions("settled", options, ["timeoutMs", "signal"]);
      const { seen } = await existing(taskId as Enqueued | string);
      return waitFor.settled(taskId, { ...options, seen });
    },
    depth: () => readDepth(database),
    prune: (options) => prune(database, options),
    ended: waitFor.ended,
    close: waitFor.close,
  };

  async function existing(task: Enqueued | string): Promise<{ taskId: string; seen: boolean }> {
    if (typeof task !== "string") return { taskId: taskIdOf(task), seen: false };
    const [row] = await database.read(getTask(task));
    if (!row) throw notFound(task);
    return { taskId: task, seen: true };
  }
}

function taskIdOf(task: Enqueued): string {
  if (typeof task?.taskId === "string") return task.taskId;
  const what =
    (task as unknown) instanceof Promise
      ? "got a promise: await what `enqueue` gives first, as in `waitFor(await enqueue(…))`"
      : "needs what `enqueue` gives, or a task's id";
  throw new FlotillaError("invalid_option", `waiting for a task ${what}`);
}

function notFound(taskId: string): FlotillaError {
  return new FlotillaError("not_found", `there is no task ${taskId}`, { details: { taskId } });
}

/** Throws unless these are keys of stored steps of a task or run. */
export async function checkForget(
  database: Database,
  taskId: string,
  keys: readonly string[],
): Promise<void> {
  if (!Array.isArray(keys) || keys.some((key) => typeof key !== "string")) {
    throw new FlotillaError("invalid_option", "forget must be a list of keys of steps");
  }
  if (keys.length === 0) return;
  const stored = await database.read(listSteps(taskId, {}));
  const missing = keys.find((key) => !stored.some((row) => row["key"] === key));
  if (missing === undefined) return;
  throw new FlotillaError(
    "not_found",
    `${taskId} has no stored step ${JSON.stringify(missing)}: \`flotilla tasks show\` lists them`,
  );
}

/** Tells steps that the attempt which completed the task did not ask for. */
function unaskedBy(noted: Row | undefined): (key: string) => boolean {
  const { token, steps } = (lenientJson(noted?.["detail"]) ?? {}) as Record<string, unknown>;
  const isNewest = noted !== undefined && Number(noted["claim_token"]) === token;
  const keys = new Set(isNewest && Array.isArray(steps) ? (steps as unknown[]) : []);
  return (key) => keys.has(key);
}

function toStepEntry(row: Row, isUnasked: (key: string) => boolean): StepEntry {
  return {
    seq: Number(row["seq"]),
    transition: row["part"] === taskPart ? null : row["part"],
    key: row["key"],
    kind: row["kind"] as StepKind,
    token: Number(row["token"]),
    startedAtMs: Number(row["started_at"]),
    atMs: Number(row["at"]),
    bytes: Number(row["bytes"]),
    requested: !isUnasked(row["key"]),
  };
}

export function toEvent(row: Row): TaskEvent {
  return {
    seq: Number(row["seq"]),
    atMs: Number(row["at"]),
    type: row["type"],
    attempt: row["attempt"] === null ? null : Number(row["attempt"]),
    podId: row["pod_id"],
    detail: row["detail"] === null ? null : (JSON.parse(row["detail"]) as Json),
  };
}

function toCounts(counts: Row[]): Omit<Stats, "noWorker"> {
  const none = (): Record<TaskStatus, number> => ({
    pending: 0,
    claimed: 0,
    completed: 0,
    failed: 0,
    cancelled: 0,
  });
  const byStatus = none();
  const byName: Record<string, Record<TaskStatus, number>> = Object.create(null);
  for (const row of counts) {
    const status = row["status"] as TaskStatus;
    const name = (byName[row["name"]] ??= none());
    name[status] += Number(row["tasks"]);
    byStatus[status] += Number(row["tasks"]);
  }
  return { byStatus, byName };
}

export function checkEventsOptions(what: string, options: TaskEventsOptions): void {
  checkOptions(what, options, ["after", "limit"]);
  const { after, limit } = options;
  if (after !== undefined) checkNumber("after", after, { min: 0, max: 2 ** 31 - 1 });
  if (limit !== undefined) checkNumber("limit", limit, { min: 1, max: 1_000 });
}

/** Cuts events that were read with a limit to the size of a page. */
export function fitEvents<Event>(events: Event[], { limit }: TaskEventsOptions): Event[] {
  return limit === undefined ? events : fitPage(events, false).items;
}
