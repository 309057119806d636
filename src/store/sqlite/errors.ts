import { existsSync, statfsSync } from "node:fs";
import { dirname } from "node:path";
import { type ErrorCode, FlotillaError, messageOf } from "../../base/errors.ts";

const codes: Readonly<Record<number, { code: ErrorCode; advice: string }>> = {
  5: { code: "store_busy", advice: "another process holds its write lock" },
  6: { code: "store_busy", advice: "another connection holds its lock" },
  8: {
    code: "store_read_only",
    advice: "it can't be written: check the permissions of the file and of its folder",
  },
  10: { code: "store_unavailable", advice: "the disk reported an error" },
  11: { code: "store_corrupt", advice: "it is damaged: restore it from a back-up" },
  13: { code: "store_full", advice: "the disk is full: free some space" },
  14: {
    code: "store_missing",
    advice: "it can't be opened: check that its folder exists and can be written",
  },
  26: {
    code: "store_corrupt",
    advice: "it isn't a SQLite database: check the path, or restore it from a back-up",
  },
};

/** The primary result code that SQLite gave, if this error comes from it. */
function sqliteCode(error: unknown): number | undefined {
  const code = error instanceof Error && "errcode" in error ? error.errcode : undefined;
  return typeof code === "number" ? code & 0xff : undefined;
}

export function isBusy(error: unknown): boolean {
  const code = sqliteCode(error);
  return code === 5 || code === 6;
}

/** Whether Node refused to read an integer because a number can't hold it. */
export function isTooWide(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ERR_OUT_OF_RANGE";
}

// The shared memory beside the file takes this much.
const minFreeBytes = 64 * 1024;

/** SQLite's code, made more precise where its trouble was with the files beside the database. */
function meaning(error: unknown, path: string): number | undefined {
  const code = sqliteCode(error);
  if (code === 10 && (freeBytes(dirname(path)) ?? Infinity) < minFreeBytes) return 13;
  if (code === 14 && existsSync(path)) return 8;
  return code;
}

/** SQLite's error in our words, with what to do about it. */
export function sqliteError(error: unknown, path: string): FlotillaError {
  if (error instanceof FlotillaError) return error;
  const known = codes[meaning(error, path) ?? -1];
  if (known) {
    return new FlotillaError(known.code, `the database file ${path}: ${known.advice}`, {
      cause: error,
    });
  }
  const message = messageOf(error);
  // SQLite has no code of its own for this; the words are as old as SQLite.
  const code = message.startsWith("no such table: flotilla_") ? "store_outdated" : "internal";
  return new FlotillaError(code, `the database file ${path}: ${message}`, { cause: error });
}

/** What is left on the disk that holds a folder, or undefined where there is no such folder. */
export function freeBytes(folder: string): number | undefined {
  try {
    const { bavail, bsize } = statfsSync(folder);
    return bavail * bsize;
  } catch {
    return undefined;
  }
}
