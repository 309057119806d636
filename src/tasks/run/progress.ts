import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Json } from "../../base/json.ts";
import { type Logger, silentLogger } from "../../base/log.ts";
import type { Database } from "../../store/database.ts";
import type { Conclusion } from "../finish/finish.ts";
import type { LocalProgress } from "./local-progress.ts";
import type { Running } from "./attempt.ts";
import { readProgress, saveProgress } from "../sql/finish.ts";

// Often enough for people to watch, seldom enough to cost nothing.
const everyMs = 250;
// What this machine keeps is in the store for people, and for the day that the machine is lost.
const localEveryMs = 5_000;
// A store that is away must not keep an ending waiting.
const lastSaveMs = 1_000;

export type ProgressParts = {
  database: Database;
  clock: Clock;
  /** Where the progress of tasks is kept that save often. Without it they are like any other. */
  localProgress?: LocalProgress;
  log?: Logger;
};

/** It belongs to what a run was at when it was said: what comes after that has none yet. */
type Unsaved = { readonly value: string; readonly runSeq: number };

export type Progress = ReturnType<typeof createProgress>;

/** Keeps the newest progress of each task and stores it now and then, for all in one write. */
export function createProgress(parts: ProgressParts) {
  const { database, clock, localProgress: local, log = silentLogger } = parts;

  const store = async (newest: Map<Running, Unsaved>): Promise<void> => {
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

  const storing = (intervalMs: number) => {
    const newest = new Map<Running, Unsaved>();
    let cancel: (() => void) | undefined;
    return {
      newest,
      save(running: Running, value: string) {
        newest.set(running, { value, runSeq: running.runSeq });
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
  const often = storing(everyMs);
  const seldom = storing(localEveryMs);
  const isLocal = ({ handler }: Running) => handler.options.progress === "local";
  const unsaved = (running: Running) => often.newest.get(running) ?? seldom.newest.get(running);

  return {
    save(running: Running, value: string) {
      const kept = isLocal(running) && local?.save(running.claim, value);
      (kept ? seldom : often).save(running, value);
    },

    /** What was saved last, by this attempt or by one before it: null where nothing was. */
    async last(running: Running): Promise<Json> {
      const mine = unsaved(running);
      if (mine !== undefined) return JSON.parse(mine.value) as Json;
      const { taskId } = running.claim;
      const here = isLocal(running) ? local?.last(taskId) : undefined;
      const [row] = await database.read(readProgress(taskId));
      const stored = row?.["progress"] as string | null | undefined;
      const token = Number(row?.["progress_token"] ?? 0);
      // What this machine has of an attempt is never older than what the store has of the same one.
      const newest = here && here.token >= token ? here.value : stored;
      return newest ? (JSON.parse(newest) as Json) : null;
    },

    isUnsaved: (running: Running): boolean => unsaved(running) !== undefined,

    /** An attempt has ended in a way that may be followed by another: what it saved is to be found. */
    async leave(running: Running): Promise<void> {
      const value = unsaved(running);
      this.forget(running);
      if (value === undefined) return;
      let cancel = () => {};
      const late = new Promise<void>((resolve) => {
        cancel = clock.after(lastSaveMs, resolve);
      });
      await Promise.race([store(new Map([[running, value]])), late]);
      cancel();
    },

    forget(running: Running) {
      often.newest.delete(running);
      seldom.newest.delete(running);
    },

    /** Where the task has ended, or another pod goes on with it, nobody here will ask again. */
    concluded(running: Running, { finish, finished }: Conclusion) {
      const isOver = finish.status !== "pending" || finished.type === "lost";
      if (isOver && isLocal(running)) local?.forget(running.claim);
    },

    stop() {
      often.stop();
      seldom.stop();
    },
  };
}
