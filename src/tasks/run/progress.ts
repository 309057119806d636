import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Json } from "../../base/json.ts";
import { type Logger, silentLogger } from "../../base/log.ts";
import { settledWithin } from "../../base/timeout.ts";
import type { Database } from "../../store/database.ts";
import type { FinishedAttempt } from "../finish/finish.ts";
import type { LocalProgress } from "./local-progress.ts";
import type { TaskAttempt } from "./attempt.ts";
import { readProgress, saveProgress } from "../sql/finish.ts";

// Often enough for people to watch, seldom enough to cost nothing.
const everyMs = 250;
// What this machine keeps is in the store for people, and for the day that the machine is lost.
const localEveryMs = 5_000;
// A store that is away must not keep an ending waiting.
const lastSaveMs = 1_000;

export type TaskProgressParts = {
  database: Database;
  clock: Clock;
  /** Where the progress of tasks is kept that save often. Without it they are like any other. */
  localProgress?: LocalProgress;
  log?: Logger;
};

/** It belongs to what a run was at when it was said: what comes after that has none yet. */
type Unsaved = { readonly value: string; readonly runSeq: number };

export type TaskProgress = ReturnType<typeof createTaskProgress>;

/** Keeps the newest progress of each task and stores it now and then, for all in one write. */
export function createTaskProgress(parts: TaskProgressParts) {
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
    // One that is lost is followed by a newer one.
    await database.write([saveProgress(saved)]).catch((error: unknown) => {
      log.debug({ error: messageOf(error) }, "progress couldn't be stored");
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

    /** What was saved last, by this attempt or by one before it: null where nothing was. */
    async last(attempt: TaskAttempt): Promise<Json> {
      const mine = unsaved(attempt);
      if (mine !== undefined) return JSON.parse(mine.value) as Json;
      const { taskId } = attempt.claim;
      const localValue = isLocal(attempt) ? local?.last(taskId) : undefined;
      const [row] = await database.read(readProgress(taskId));
      const stored = row?.["progress"] as string | null | undefined;
      const token = Number(row?.["progress_token"] ?? 0);
      // What this machine has of an attempt is never older than what the store has of the same one.
      const newest = localValue && localValue.token >= token ? localValue.value : stored;
      return newest ? (JSON.parse(newest) as Json) : null;
    },

    isUnsaved: (attempt: TaskAttempt): boolean => unsaved(attempt) !== undefined,

    /** An attempt has ended in a way that may be followed by another: what it saved is to be found. */
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

    /** Where the task has ended, or another pod goes on with it, nobody here will ask again. */
    concluded(attempt: TaskAttempt, { finish, finished }: FinishedAttempt) {
      const isOver = finish.status !== "pending" || finished.type === "lost";
      if (isOver && isLocal(attempt)) local?.forget(attempt.claim);
    },

    stop() {
      often.stop();
      seldom.stop();
    },
  };
}
