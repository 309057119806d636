import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { messageOf } from "../base/errors.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import { openView, type View } from "./index.ts";

/** Where views of failed tasks are kept. */
export type Views = {
  /** A view, in a file if there may be many tasks and there is a folder for one. */
  open(size: "few" | "many"): Promise<View>;
  /** Whether a view that has grown would rather be in a file. */
  outgrown(view: View): boolean;
  /**
   * Throws a view away if it was its own file that failed, and gives whether that was so. Nothing is in
   * it that the store doesn't have.
   */
  discard(view: View, error: unknown): boolean;
};

/** So many are read from the store anew sooner than a file is worth having. */
const fewTasks = 1_000;
// Processes with the same folder have a file each, and whoever starts later takes over one that is free.
const filesMost = 4;

/**
 * Keeps views in files of a folder on this machine, so that a leader that comes back, or a command that is
 * run again, compares what it has with the store instead of reading every error anew. A file belongs to
 * one process at a time by SQLite's own lock. One that can't be used is removed, and where none can be
 * had the view is in memory, and says the same.
 */
export function viewsIn(
  findFolder: () => Promise<string | undefined>,
  log: Logger = silentLogger,
): Views {
  let folder: string | undefined;
  /** Once a file has failed, this process needs none. */
  let given = true;

  const openFile = (path: string): View | undefined => {
    try {
      return openView(path);
    } catch (error) {
      if (isHeld(error)) return undefined;
      remove(path);
      return openView(path);
    }
  };

  const openAny = (inFolder: string): View => {
    mkdirSync(inFolder, { recursive: true, mode: 0o700 });
    for (let at = 1; at <= filesMost; at++) {
      const view = openFile(join(inFolder, `failed-${at}.db`));
      if (view) return view;
    }
    return openView();
  };

  const giveUp = (error: unknown) => {
    given = false;
    log.warn({ folder, error: messageOf(error) }, "the view of failed tasks is kept in memory");
  };

  return {
    async open(size) {
      folder ??= await findFolder();
      given &&= folder !== undefined;
      if (size === "few" || !given) return openView();
      try {
        return openAny(folder!);
      } catch (error) {
        giveUp(error);
        return openView();
      }
    },
    outgrown: (view) => given && view.path === undefined && view.tasks >= fewTasks,
    discard(view, error) {
      if (view.path === undefined || !isOfSqlite(error)) return false;
      giveUp(error);
      closeAnyhow(view);
      remove(view.path);
      return true;
    },
  };
}

export const viewsInMemory: Views = viewsIn(async () => undefined);

function closeAnyhow(view: View): void {
  try {
    view.close();
  } catch {
    // What has failed may fail once more. It is gone all the same.
  }
}

function remove(path: string): void {
  for (const end of ["", "-wal", "-shm", "-journal"]) rmSync(`${path}${end}`, { force: true });
}

// Errors of the store have codes of ours, so these are the view's.
function isOfSqlite(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ERR_SQLITE_ERROR";
}

const busy = 5;

function isHeld(error: unknown): boolean {
  return error instanceof Error && "errcode" in error && error.errcode === busy;
}
