import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { defaultMaxBytes, type Json } from "../base/json.ts";
import { checkNumber, checkOptions } from "../base/options.ts";
import { fitPage } from "../base/page.ts";
import type { Logger } from "../base/log.ts";
import type { Random } from "../base/random.ts";
import { type Links, linksOf } from "../links/links.ts";
import { type Database, pageReads, type Row } from "../store/database.ts";
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
import { createTaskFiles, type TaskFiles, type TaskFilesClient } from "./files/task-files.ts";
import type { FileSettings } from "../files/files.ts";
import { createEnqueue } from "./enqueue/enqueue.ts";
import type { InsertParts } from "./enqueue/insert.ts";
import type { StepKind } from "../steps/model.ts";
import { createTaskActs, notFound, type TaskActs } from "./acts.ts";
import { lenientJson, type Task, type TaskState, type TaskStatus, toTaskState } from "./rows.ts";
import { findAliases } from "./sql/enqueue.ts";
import { getTask } from "./sql/inspect.ts";
import { listSteps, readUnasked, taskPart } from "./sql/steps.ts";
import { getEvents, selectStates } from "./sql/task-state.ts";
import { checkTaskName, type InputOf, type ResultOf } from "./task.ts";
import { type Depth, readDepth, readStats } from "./inspect/depth.ts";
import { type TaskFilter, taskFilterNames } from "./inspect/filter.ts";
import {
  type InGroup,
  listPageNames,
  type ListPageOptions,
  type ListProgress,
  planTasks,
  readList,
} from "./inspect/list.ts";
import { prune, type Pruned, type PruneOptions } from "./leader/prune.ts";
import {
  createNoWorkerCheck,
  createWorkers,
  readNoWorker,
  readWaiting,
} from "./inspect/blocked-by.ts";
import type { Verdict } from "./inspect/evidence.ts";
import { createWaitFor, type WaitOptions } from "./inspect/wait-for.ts";
import { createWhy, type WhyOptions } from "./inspect/why.ts";
import { toTasks } from "./dependencies.ts";
import type { TaskContract } from "./model.ts";

export type ListOptions = TaskFilter & ListPageOptions;

export type TaskEventsOptions = {
  /** Only events after the one with this number. */
  after?: number;
  /** 1 to 1,000, and no more bytes than a page may have. Default: all events. */
  limit?: number;
};

export type TaskPage = ListProgress & { readonly tasks: Task[] };

export type StatsOptions = {
  /** Counts every task, which takes as long as there are tasks. Default false. */
  exact?: boolean;
};

/** How many tasks there are of each name and status. */
export type Stats = {
  readonly byStatus: Readonly<Record<TaskStatus, number>>;
  readonly byName: Readonly<Record<string, Readonly<Record<TaskStatus, number>>>>;
  /** The statuses with more tasks than were counted: their numbers are lower bounds. */
  readonly atLeast: readonly TaskStatus[];
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

/** A new task whose result type is known. */
export type EnqueuedTask<T extends TaskContract> = Enqueued & { readonly contract?: T };

/** A task by its id, such as what `enqueue` returned. */
export type TaskRef = Pick<Enqueued, "taskId">;

/** The operations on tasks, for producers, servers and the command line. */
export type Tasks = Pauses &
  TaskActs & {
    /** How many tasks of a key or of a tenant may run at once. */
    readonly limits: Limits;
    /** Files of payloads and results, such as `file(…)` has made. */
    readonly files: TaskFilesClient;
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
    /** How up to 1,000 tasks stand, without what users put in. Those that don't exist are left out. */
    states(taskIds: readonly string[]): Promise<TaskState[]>;
    events(taskId: string, options?: TaskEventsOptions): Promise<TaskEvent[]>;
    /** The stored steps of a task, in the order in which they were stored. */
    steps(taskId: string, options?: TaskEventsOptions): Promise<StepEntry[]>;
    /** Why a task or run waits, where it runs, or how it has ended: the reasons, the first one first. */
    why(taskId: string, options?: WhyOptions): Promise<Verdict>;
    /** What started a task or run, and the first tasks that it has started. */
    links(taskId: string): Promise<Links>;
    /** A page, newest first. It searches no further than a page may, whatever the filter. */
    list(options?: ListOptions): Promise<TaskPage>;
    /** Counts as far as indexes reach, 10,000 of a kind. With `exact`, it counts the table. */
    stats(options?: StatsOptions): Promise<Stats>;
    /** Waits for the result of a task. Rejects if the task fails or is cancelled. */
    waitFor<T extends TaskContract>(
      task: Pick<EnqueuedTask<T>, "taskId" | "contract">,
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
  /** Where acts are logged. Default: nowhere. */
  log?: Logger;
  maxPayloadBytes?: number;
  /** How large files may be, and where they are. */
  fileSettings?: FileSettings;
  /** Called after tasks were stored here, so that a pod in this process need not wait for a notification. */
  onEnqueued?: () => void;
  /** A claim of a pod in this process, for a write that stores tasks of these names. */
  claimWithin?: InsertParts["claimWithin"];
  /** Reads the failed tasks of a group of errors, for lists by `group`. */
  inGroup?: InGroup;
  /** Called from time to time with a name that a task was enqueued under and that no live pod works on. */
  onNoWorker?: (name: string) => void;
};

/** The operations with the hooks of this process. */
export type LocalTasks = Tasks & {
  readonly files: TaskFiles;
  /** A task has ended here, so `waitFor` callers in this process need not wait for the next poll. */
  ended(taskId: string): void;
  close(): void;
};

/** Creates the operations on tasks. */
export function createTasks(parts: TasksParts): LocalTasks {
  const { database, maxPayloadBytes = defaultMaxBytes } = parts;
  const workers = createWorkers(parts);
  const pageWorkers = createWorkers({ ...parts, database: pageReads(database) });
  const waitFor = createWaitFor({ ...parts, workers });
  const { onNoWorker } = parts;
  const files = createTaskFiles({ ...parts, maxPayloadBytes, settings: parts.fileSettings });
  const onNames = onNoWorker && createNoWorkerCheck({ ...parts, onNoWorker });

  return {
    files,
    ...createEnqueue({ ...parts, files, maxPayloadBytes, ...(onNames && { onNames }) }),
    async noWorker(names) {
      for (const name of names) checkTaskName(name);
      return workers.noWorker(names);
    },
    ...createPauses(parts),
    limits: createLimits(parts),
    async get(taskId) {
      const found = await readWaiting({ database, workers }, taskId);
      if (found) return found;
      const holder = await holderOf(taskId);
      return holder === undefined ? undefined : readWaiting({ database, workers }, holder);
    },
    async states(taskIds) {
      checkNumber("the number of ids", taskIds.length, { min: 0, max: 1_000 });
      if (taskIds.length === 0) return [];
      return (await database.read(selectStates(taskIds))).map(toTaskState);
    },
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
    why: createWhy({ database: pageReads(database), workers: pageWorkers }),
    links: (taskId) => linksOf(database, taskId, "task"),
    async list(options = {}) {
      checkOptions("list", options, [...taskFilterNames, ...listPageNames]);
      const { cursor: _, limit: __, signal, ...filter } = options;
      const plan = planTasks({ ...parts, database: pageReads(database, signal) }, filter);
      const { items, ...progress } = await readList(parts, plan, options, async (rows, pages) =>
        pageWorkers.markWaiting(await toTasks(pages, rows)),
      );
      return { tasks: items, ...progress };
    },
    async stats(options = {}) {
      checkOptions("stats", options, ["exact"]);
      const counts = await readStats(database, options);
      const waiting = Object.entries(counts.byName).filter(([, { pending }]) => pending > 0);
      const names = waiting.map(([name]) => name);
      return { ...counts, noWorker: [...(await readNoWorker(database, names))] };
    },
    ...createTaskActs({ ...parts, maxPayloadBytes, ended: waitFor.ended }),
    async waitFor(task: TaskRef | string, options: WaitOptions = {}): Promise<any> {
      checkOptions("waitFor", options, ["timeoutMs", "signal"]);
      const { taskId, seen } = await existing(task);
      return waitFor.result(taskId, { ...options, seen });
    },
    async settled(taskId, options = {}) {
      checkOptions("settled", options, ["timeoutMs", "signal"]);
      const found = await existing(taskId as TaskRef | string);
      return waitFor.settled(found.taskId, { ...options, seen: found.seen });
    },
    depth: () => readDepth(database),
    prune: (options) => prune(parts, options),
    ended: waitFor.ended,
    close: waitFor.close,
  };

  async function existing(task: TaskRef | string): Promise<{ taskId: string; seen: boolean }> {
    if (typeof task !== "string") return { taskId: taskIdOf(task), seen: false };
    const [row] = await database.read(getTask(task));
    if (row) return { taskId: task, seen: true };
    const holder = await holderOf(task);
    if (holder === undefined) throw notFound(task);
    return { taskId: holder, seen: true };
  }

  /** The task that an id is another name of. */
  async function holderOf(aliasId: string): Promise<string | undefined> {
    return (await database.read(findAliases([aliasId])))[0]?.["task_id"] as string | undefined;
  }
}

function taskIdOf(task: TaskRef): string {
  if (typeof task?.taskId === "string") return task.taskId;
  const what =
    (task as unknown) instanceof Promise
      ? "got a promise: await what `enqueue` gives first, as in `waitFor(await enqueue(…))`"
      : "needs what `enqueue` gives, or a task's id";
  throw new FlotillaError("invalid_option", `waiting for a task ${what}`);
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
    detail: lenientJson(row["detail"]),
  };
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
