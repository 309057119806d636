import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { messageOf } from "../base/errors.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import { isBusy } from "../store/sqlite/errors.ts";
import { openIndex, type DeadLetterIndex } from "./index.ts";

/** Opens indexes of failed tasks, in memory or in files. */
export type IndexFiles = {
  /** Opens an index, in a file if there may be many tasks and there is a folder. */
  open(size: "few" | "many"): Promise<DeadLetterIndex>;
  /** True if an index in memory has grown enough to be moved to a file. */
  outgrown(index: DeadLetterIndex): boolean;
  /**
   * Discards an index if its own file caused the error, and returns whether it did. The store has
   * everything that was in it.
   */
  discard(index: DeadLetterIndex, error: unknown): boolean;
};

/** Below this number, reading from the store again is cheaper than a file. */
const maxTasksInMemory = 1_000;
// Processes with the same folder have a file each, and a later process takes over a free one.
const maxFiles = 4;

/**
 * Keeps indexes in files of a folder on this machine, so that a returning leader, or a repeated
 * command, compares its index with the store instead of reading every error again. SQLite's own
 * lock gives a file to one process at a time. A file that cannot be used is removed. If there is
 * none, the index is in memory, with the same content.
 */
export function indexFilesIn(
  findFolder: () => Promise<string | undefined>,
  log: Logger = silentLogger,
): IndexFiles {
  let folder: string | undefined;
  /** After a file has failed, this process uses none. */
  let usesFiles = true;

  const openFile = (path: string): DeadLetterIndex | undefined => {
    try {
      return openIndex(path);
    } catch (error) {
      if (isBusy(error)) return undefined;
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
    log.warn({ folder, error: messageOf(error) }, "dead-letter index kept in memory");
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
    // A failed index may fail again on close. It is discarded anyway.
  }
}

function remove(path: string): void {
  for (const end of ["", "-wal", "-shm", "-journal"]) rmSync(`${path}${end}`, { force: true });
}

// Errors of the store have our codes, so an SQLite error comes from the index.
function isOfSqlite(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ERR_SQLITE_ERROR";
}
