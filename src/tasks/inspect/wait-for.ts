import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Json } from "../../base/json.ts";
import type { Database } from "../../store/database.ts";
import type { Task } from "../rows.ts";
import { findAliases } from "../sql/enqueue.ts";
import { getTasks } from "../sql/inspect.ts";
import { readTaskStates } from "../sql/finish.ts";
import { toTasks } from "../dependencies.ts";
import { readWaiting, whyOpen, type Workers } from "./blocked-by.ts";

export type WaitOptions = {
  /** How long to wait before rejecting with `timeout`. Default: no limit. */
  timeoutMs?: number;
  signal?: AbortSignal;
};

export type WaitForParts = { database: Database; clock: Clock; workers: Workers };

/** Whether the caller knows that the task exists. */
type Known = { seen?: boolean };

type Waiter = {
  /** What it waits for: the given task, or the one that its id turned out to be another name of. */
  taskId: string;
  /** True once the task was found, so that it is gone when it is missing later. */
  seen: boolean;
  /** Until then, a missing task may still be committed. */
  readonly untilMs: number;
  resolve: (task: Task) => void;
  reject: (error: unknown) => void;
};

// A notification shortens the wait, but it may get lost, and some stores send none for ended tasks.
// So poll soon at first, then less and less often.
const firstPollMs = 20;
const pollMs = 500;
const pollGapMs = 5;
// A task in a caller's transaction cannot be read until that commits.
const unseenMs = 60_000;

/** Waits for tasks to finish, with one read for all that are waited for. */
export function createWaitFor({ database, clock, workers }: WaitForParts) {
  const waiters = new Map<string, Set<Waiter>>();
  /** Tasks to read now: new ones, and ones that ended in this process. */
  let pollNow = new Set<string>();
  /** When to read all of them. */
  let allAtMs = Infinity;
  let armedMs = Infinity;
  let stopTimer: (() => void) | undefined;
  let unsubscribe: (() => void) | undefined;
  let polling = false;
  let nextPollMs = firstPollMs;
  let closed = false;

  const pollOne = (taskId: string) => {
    pollNow.add(taskId);
    arm();
  };
  const pollAll = (delayMs: number) => {
    allAtMs = Math.min(allAtMs, clock.monotonic() + delayMs);
    arm();
  };

  /**
   * What arrives during a poll waits for the next one, because the read in progress may miss it.
   */
  const arm = () => {
    if (closed || polling || waiters.size === 0) return;
    const nowMs = clock.monotonic();
    const atMs = pollNow.size > 0 ? nowMs : allAtMs;
    if (stopTimer && atMs >= armedMs) return;
    stopTimer?.();
    armedMs = atMs;
    stopTimer = clock.after(Math.max(0, atMs - nowMs), () => {
      stopTimer = undefined;
      void poll();
    });
  };

  const poll = async (): Promise<void> => {
    polling = true;
    const isForAll = clock.monotonic() >= allAtMs;
    const taskIds = isForAll ? [...waiters.keys()] : [...pollNow].filter((id) => waiters.has(id));
    pollNow = new Set();
    if (isForAll) allAtMs = Infinity;
    try {
      await readEnded(taskIds);
    } catch {
      // The store is unavailable; the next poll reads again.
    }
    polling = false;
    if (waiters.size === 0) {
      unsubscribe?.();
      unsubscribe = undefined;
      allAtMs = Infinity;
      return;
    }
    if (allAtMs === Infinity) {
      pollAll(nextPollMs);
      nextPollMs = Math.min(pollMs, nextPollMs * 2);
    }
    arm();
  };

  const readEnded = async (taskIds: readonly string[]): Promise<void> => {
    if (taskIds.length === 0) return;
    const states = new Map(
      (await database.read(readTaskStates(taskIds))).map((row) => [row["task_id"], row["status"]]),
    );
    const ended: string[] = [];
    await follow(taskIds.filter((taskId) => !states.has(taskId)));
    for (const taskId of taskIds) {
      const exists = states.has(taskId);
      if (exists && !isOpen(states.get(taskId))) ended.push(taskId);
      else noteSeen(taskId, exists);
    }
    // Payloads and results may be large, so only ended tasks are read in full.
    if (ended.length === 0) return;
    for (const task of await toTasks(database, await database.read(getTasks(ended)))) {
      for (const waiter of waiters.get(task.taskId) ?? []) waiter.resolve(task);
    }
  };

  /** Lets callers whose id is another name of a task wait for that one. */
  const follow = async (missing: readonly string[]): Promise<void> => {
    if (missing.length === 0) return;
    for (const row of await database.read(findAliases(missing))) {
      const taskId = row["task_id"] as string;
      for (const waiter of waiters.get(row["alias_id"]) ?? []) {
        waiter.taskId = taskId;
        waiter.seen = true;
        waiters.set(taskId, (waiters.get(taskId) ?? new Set()).add(waiter));
      }
      waiters.delete(row["alias_id"]);
      pollNow.add(taskId);
    }
  };

  const noteSeen = (taskId: string, exists: boolean): void => {
    for (const waiter of waiters.get(taskId) ?? []) {
      if (exists) waiter.seen = true;
      else if (waiter.seen) waiter.reject(gone(taskId));
      else if (clock.monotonic() >= waiter.untilMs) waiter.reject(neverSeen(taskId));
    }
  };

  const timedOut = async (waiter: Waiter, taskId: string, timeoutMs: number): Promise<void> => {
    const why = await whyOpen(clock, () => readWaiting({ database, workers }, taskId));
    waiter.reject(timeoutOf(taskId, timeoutMs, why));
  };

  const settled = (
    taskId: string,
    { timeoutMs, signal, seen = false }: WaitOptions & Known,
  ): Promise<Task> =>
    new Promise((resolve, reject) => {
      if (closed) return reject(new FlotillaError("closed", "the connection was closed"));
      if (signal?.aborted) return reject(new FlotillaError("cancelled", "the wait was aborted"));
      const done = () => {
        stopTimeout?.();
        signal?.removeEventListener("abort", onAbort);
        waiters.get(waiter.taskId)?.delete(waiter);
        if (waiters.get(waiter.taskId)?.size === 0) waiters.delete(waiter.taskId);
      };
      const waiter: Waiter = {
        taskId,
        seen,
        untilMs: clock.monotonic() + unseenMs,
        resolve: (task) => (done(), resolve(task)),
        reject: (error) => (done(), reject(error as Error)),
      };
      const onAbort = () => waiter.reject(new FlotillaError("cancelled", "the wait was aborted"));
      const stopTimeout =
        timeoutMs === undefined
          ? undefined
          : clock.after(timeoutMs, () => void timedOut(waiter, taskId, timeoutMs));
      signal?.addEventListener("abort", onAbort, { once: true });
      waiters.set(taskId, (waiters.get(taskId) ?? new Set()).add(waiter));
      // Commits of this process call `ended`.
      unsubscribe ??= database.subscribe((whose) => {
        if (whose !== "own") pollAll(pollGapMs);
      });
      nextPollMs = firstPollMs;
      pollOne(taskId);
    });

  return {
    settled,
    /** A task has ended in this process. */
    ended(taskId: string): void {
      if (waiters.has(taskId)) pollOne(taskId);
    },
    async result(taskId: string, options: WaitOptions & Known): Promise<Json> {
      return resultOf(await settled(taskId, options));
    },
    close() {
      closed = true;
      stopTimer?.();
      unsubscribe?.();
      const error = new FlotillaError("closed", "the connection was closed");
      for (const each of waiters.values()) for (const waiter of each) waiter.reject(error);
      waiters.clear();
    },
  };
}

/** The result of a completed task; throws the error of any other. */
export function resultOf(task: Task): Json {
  const what = `${task.flowVersion === null ? "task" : "run"} ${task.taskId} (${task.name})`;
  if (task.status === "completed") return task.result;
  if (task.status === "failed") {
    const message = `${what} failed: ${task.error.message}`;
    throw new FlotillaError("task_failed", message, { details: { ...task.error } });
  }
  const reason = task.status === "cancelled" && task.flowVersion !== null && task.error?.message;
  throw new FlotillaError("cancelled", `${what} was cancelled${reason ? `: ${reason}` : ""}`);
}

/** The error of a wait that took too long, with why the task is still open. */
export function timeoutOf(
  taskId: string,
  timeoutMs: number,
  why: string | undefined,
): FlotillaError {
  const message = `task ${taskId} didn't finish within ${timeoutMs} ms${why ? `: ${why}` : ""}`;
  return new FlotillaError("timeout", message, { details: { taskId, timeoutMs } });
}

function neverSeen(taskId: string): FlotillaError {
  return new FlotillaError(
    "not_found",
    `there is no task ${taskId}: it was deleted, or the transaction that enqueued it hasn't committed within ${unseenMs} ms`,
    { details: { taskId } },
  );
}

function gone(taskId: string): FlotillaError {
  return new FlotillaError("not_found", `task ${taskId} was deleted while it was waited for`);
}

function isOpen(status: unknown): boolean {
  return status === "pending" || status === "claimed";
}
