import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { messageOf } from "../base/errors.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import { openIndex, type DeadLetterIndex } from "./index.ts";

/** Where views of failed tasks are kept. */
export type IndexFiles = {
  /** A view, in a file if there may be many tasks and there is a folder for one. */
  open(size: "few" | "many"): Promise<DeadLetterIndex>;
  /** Whether a view that has grown would rather be in a file. */
  outgrown(index: DeadLetterIndex): boolean;
  /**
   * Throws a view away if it was its own file that failed, and gives whether that was so. Nothing is in
   * it that the store doesn't have.
   */
  discard(index: DeadLetterIndex, error: unknown): boolean;
};

/** So many are read from the store anew sooner than a file is worth having. */
const maxTasksInMemory = 1_000;
// Processes with the same folder have a file each, and whoever starts later takes over one that is free.
const maxFiles = 4;

/**
 * Keeps views in files of a folder on this machine, so that a leader that comes back, or a command that is
 * run again, compares what it has with the store instead of reading every error anew. A file belongs to
 * one process at a time by SQLite's own lock. One that can't be used is removed, and where none can be
 * had the view is in memory, and says the same.
 */
export function indexFilesIn(
  findFolder: () => Promise<string | undefined>,
  log: Logger = silentLogger,
): IndexFiles {
  let folder: string | undefined;
  /** Once a file has failed, this process needs none. */
  let usesFiles = true;

  const openFile = (path: string): DeadLetterIndex | undefined => {
    try {
      return openIndex(path);
    } catch (error) {
      if (isHeld(error)) return undefined;
      remove(path);
      return openIndex(path);
    }
  };

  const openAny = (inFolder: string): DeadLetterIndex => {
    mkdirSync(inFolder, { recursive: true, mode: 0o700 });
    for (let at = 1; at <= maxFiles; at++) {
      const index = openFile(join(inFolder, `failed-${at}.db`));
      if (index) return index;
    }
    return openIndex();
  };

  const giveUp = (error: unknown) => {
    usesFiles = false;
    log.warn({ folder, error: messageOf(error) }, "the view of failed tasks is kept in memory");
  };

  return {
    async open(size) {
      folder ??= await findFolder();
      usesFiles &&= folder !== undefined;
      if (size === "few" || !usesFiles) return openIndex();
      try {
        return openAny(folder!);
      } catch (error) {
        giveUp(error);
        return openIndex();
      }
    },
    outgrown: (index) => usesFiles && index.path === undefined && index.tasks >= maxTasksInMemory,
    discard(index, error) {
      if (index.path === undefined || !isOfSqlite(error)) return false;
      giveUp(error);
      closeAnyhow(index);
      remove(index.path);
      return true;
    },
  };
}

export const indexesInMemory: IndexFiles = indexFilesIn(async () => undefined);

function closeAnyhow(index: DeadLetterIndex): void {
  try {
    index.close();
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
