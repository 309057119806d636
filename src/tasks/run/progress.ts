import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Json } from "../../base/json.ts";
import { type Logger, silentLogger } from "../../base/log.ts";
import { settledWithin } from "../../base/timeout.ts";
import type { Database } from "../../store/database.ts";
import type { LocalProgress } from "./local-progress.ts";
import { readProgress, saveProgress } from "../sql/finish.ts";
import type { TaskProgress, FinishedAttempt, TaskAttempt } from "../model.ts";

export type TaskProgressParts = {
  database: Database;
  clock: Clock;
  /** Keeps the progress of tasks that save often. Without it the store keeps it like any other. */
  localProgress?: LocalProgress;
  log?: Logger;
};

// Often enough to watch, seldom enough to cost nothing.
const everyMs = 250;
// Progress kept on this machine is also stored, for display and in case the machine is lost.
const localEveryMs = 5_000;
// An unavailable store must not delay an outcome.
const lastSaveMs = 1_000;

/**
 * Progress belongs to the state of the run at the time of the save; the next transition starts
 * without any.
 */
type Unsaved = { readonly value: string; readonly runSeq: number };

/** Keeps the newest progress of each task and stores it at intervals, all tasks in one write. */
export function createTaskProgress(parts: TaskProgressParts): TaskProgress {
  const { database, clock, localProgress: local, log = silentLogger } = parts;

  const store = async (newest: Map<TaskAttempt, Unsaved>): Promise<void> => {
    const saved = [...newest].map(([{ claim }, { value, runSeq }]) => ({
      taskId: claim.taskId,
      token: claim.token,
      runSeq,
      value,
    }));
    newest.clear();
    if (saved.length === 0) return;
    // A lost value is followed by a newer one.
    await database.write([saveProgress(saved)]).catch((error: unknown) => {
      log.debug({ error: messageOf(error) }, "progress write failed");
    });
  };

  const createSaver = (intervalMs: number) => {
    const newest = new Map<TaskAttempt, Unsaved>();
    let cancel: (() => void) | undefined;
    return {
      newest,
      save(attempt: TaskAttempt, value: string) {
        newest.set(attempt, { value, runSeq: attempt.runSeq });
        cancel ??= clock.after(intervalMs, () => {
          cancel = undefined;
          void store(newest);
        });
      },
      stop() {
        cancel?.();
        newest.clear();
      },
    };
  };
  const often = createSaver(everyMs);
  const seldom = createSaver(localEveryMs);
  const isLocal = ({ handler }: TaskAttempt) => handler.options.progress === "local";
  const unsaved = (attempt: TaskAttempt) => often.newest.get(attempt) ?? seldom.newest.get(attempt);

  return {
    save(attempt: TaskAttempt, value: string) {
      const kept = isLocal(attempt) && local?.save(attempt.claim, value);
      (kept ? seldom : often).save(attempt, value);
    },

    async last(attempt: TaskAttempt): Promise<Json> {
      const pending = unsaved(attempt);
      if (pending !== undefined) return JSON.parse(pending.value) as Json;
      const { taskId } = attempt.claim;
      const localValue = isLocal(attempt) ? local?.last(taskId) : undefined;
      const [row] = await database.read(readProgress(taskId));
      const stored = row?.["progress"] as string | null | undefined;
      const token = Number(row?.["progress_token"] ?? 0);
      // For the same attempt, the local value is never older than the stored one.
      const newest = localValue && localValue.token >= token ? localValue.value : stored;
      return newest ? (JSON.parse(newest) as Json) : null;
    },

    isUnsaved: (attempt: TaskAttempt): boolean => unsaved(attempt) !== undefined,

    async leave(attempt: TaskAttempt): Promise<void> {
      const value = unsaved(attempt);
      this.forget(attempt);
      if (value === undefined) return;
      await settledWithin(clock, lastSaveMs, store(new Map([[attempt, value]])));
    },

    forget(attempt: TaskAttempt) {
      often.newest.delete(attempt);
      seldom.newest.delete(attempt);
    },

    finished(attempt: TaskAttempt, { finish, finished }: FinishedAttempt) {
      const isOver = finish.status !== "pending" || finished.type === "lost";
      if (isOver && isLocal(attempt)) local?.forget(attempt.claim);
    },

    stop() {
      often.stop();
      seldom.stop();
    },
  };
}
