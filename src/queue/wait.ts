import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import type { Json } from "../base/jsonify.ts";
import type { Database } from "../store/database.ts";
import { type Task, toTask } from "./row.ts";
import { getTasks } from "./statements/ask.ts";

export type WaitOptions = {
  /** How long to wait before rejecting with `timeout`. Default: no limit. */
  timeoutMs?: number;
  signal?: AbortSignal;
};

type Waiter = {
  seen: boolean;
  resolve: (task: Task) => void;
  reject: (error: unknown) => void;
};

// A hint of the store shortens the wait; this is how long a lost hint costs.
const pollMs = 500;
const lookGapMs = 5;

/** Waits for tasks to finish: one question to the store for all that are waited for. */
export function createWaiting({ database, clock }: { database: Database; clock: Clock }) {
  const waiters = new Map<string, Set<Waiter>>();
  let stopTimer: (() => void) | undefined;
  let stopHints: (() => void) | undefined;
  let looking = false;
  /** Something was asked or hinted while a look was under way, which may have come too early for it. */
  let missed = false;
  let dueMs = Infinity;
  let closed = false;

  const arm = (delayMs: number) => {
    if (looking) missed = true;
    if (closed || looking || waiters.size === 0) return;
    const atMs = clock.monotonic() + delayMs;
    if (stopTimer && atMs >= dueMs) return;
    stopTimer?.();
    dueMs = atMs;
    stopTimer = clock.after(delayMs, () => {
      stopTimer = undefined;
      void look();
    });
  };

  const look = async (): Promise<void> => {
    looking = true;
    missed = false;
    try {
      const asked = [...waiters.keys()];
      const found = new Map(
        (await database.read(getTasks(asked))).map((row) => [row["task_id"], toTask(row)]),
      );
      for (const taskId of asked) judge(taskId, found.get(taskId));
    } catch {
      // The store is away for a moment; the next look will tell.
    }
    looking = false;
    dueMs = Infinity;
    if (waiters.size === 0) {
      stopHints?.();
      stopHints = undefined;
    } else arm(missed ? lookGapMs : pollMs);
  };

  const judge = (taskId: string, task: Task | undefined): void => {
    for (const waiter of waiters.get(taskId) ?? []) {
      // One that was never seen may be in a transaction of the caller's that has yet to commit.
      if (!task && waiter.seen) waiter.reject(gone(taskId));
      else if (task?.status === "pending" || task?.status === "claimed") waiter.seen = true;
      else if (task) waiter.resolve(task);
    }
  };

  const settled = (taskId: string, { timeoutMs, signal }: WaitOptions): Promise<Task> =>
    new Promise((resolve, reject) => {
      if (closed) return reject(new FlotillaError("closed", "the connection was closed"));
      if (signal?.aborted) return reject(new FlotillaError("cancelled", "the wait was cut short"));
      const done = () => {
        stopTimeout?.();
        signal?.removeEventListener("abort", onAbort);
        waiters.get(taskId)?.delete(waiter);
        if (waiters.get(taskId)?.size === 0) waiters.delete(taskId);
      };
      const waiter: Waiter = {
        seen: false,
        resolve: (task) => (done(), resolve(task)),
        reject: (error) => (done(), reject(error as Error)),
      };
      const onAbort = () => waiter.reject(new FlotillaError("cancelled", "the wait was cut short"));
      const stopTimeout =
        timeoutMs === undefined
          ? undefined
          : clock.after(timeoutMs, () =>
              waiter.reject(
                new FlotillaError("timeout", `task ${taskId} didn't finish within ${timeoutMs} ms`),
              ),
            );
      signal?.addEventListener("abort", onAbort, { once: true });
      waiters.set(taskId, (waiters.get(taskId) ?? new Set()).add(waiter));
      stopHints ??= database.subscribe(() => arm(lookGapMs));
      arm(0);
    });

  return {
    settled,
    /** The result of a task that completes; rejects with what went wrong where it doesn't. */
    async result(taskId: string, options: WaitOptions): Promise<Json> {
      const task = await settled(taskId, options);
      if (task.status === "completed") return task.result;
      if (task.status === "cancelled") {
        throw new FlotillaError("cancelled", `task ${taskId} (${task.name}) was cancelled`);
      }
      const error = task.status === "failed" ? task.error : undefined;
      throw new FlotillaError(
        "task_failed",
        `task ${taskId} (${task.name}) failed: ${error?.message}`,
        {
          details: { ...error },
        },
      );
    },
    close() {
      closed = true;
      stopTimer?.();
      stopHints?.();
      const error = new FlotillaError("closed", "the connection was closed");
      for (const each of waiters.values()) for (const waiter of each) waiter.reject(error);
      waiters.clear();
    },
  };
}

function gone(taskId: string): FlotillaError {
  return new FlotillaError("not_found", `task ${taskId} was deleted while it was waited for`);
}
