import { existsSync, statfsSync } from "node:fs";
import { dirname } from "node:path";
import { type ErrorCode, FlotillaError, messageOf } from "../../base/errors.ts";
import { auditedBefore, auditFull } from "../audit.ts";
import { fencedMessage } from "./fence.ts";

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

// The size of the shared memory file beside the database.
const minFreeBytes = 64 * 1024;

export function isBusy(error: unknown): boolean {
  const code = sqliteCode(error);
  return code === 5 || code === 6;
}

/** True if Node refused to read an integer because a number cannot hold it. */
export function isTooWide(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ERR_OUT_OF_RANGE";
}

/** Converts SQLite's error, with what to do about it. */
export function sqliteError(error: unknown, path: string): FlotillaError {
  if (error instanceof FlotillaError) return error;
  const known = codes[meaning(error, path) ?? -1];
  if (known) {
    return new FlotillaError(known.code, `the database file ${path}: ${known.advice}`, {
      cause: error,
    });
  }
  const message = messageOf(error);
  if (message === fencedMessage) {
    return new FlotillaError(
      "store_read_only",
      `the database file ${path}: its data is moved to another store, and it takes no more writes: \`flotilla doctor\` says where to, start this process there`,
      { cause: error },
    );
  }
  if (message.startsWith("UNIQUE constraint failed: flotilla_audit.")) return auditedBefore(error);
  if (message === "NOT NULL constraint failed: flotilla_audit.outcome") return auditFull(error);
  // SQLite has no code for this; the wording is as old as SQLite.
  const code = message.startsWith("no such table: flotilla_") ? "store_outdated" : "internal";
  return new FlotillaError(code, `the database file ${path}: ${message}`, { cause: error });
}

/** The free space on a folder's disk; undefined if there is no such folder. */
export function freeBytes(folder: string): number | undefined {
  try {
    const { bavail, bsize } = statfsSync(folder);
    return bavail * bsize;
  } catch {
    return undefined;
  }
}

/** SQLite's primary result code, if this error comes from it. */
function sqliteCode(error: unknown): number | undefined {
  const code = error instanceof Error && "errcode" in error ? error.errcode : undefined;
  return typeof code === "number" ? code & 0xff : undefined;
}

/** SQLite's code, made more precise if the files beside the database caused the error. */
function meaning(error: unknown, path: string): number | undefined {
  const code = sqliteCode(error);
  if (code === 10 && (freeBytes(dirname(path)) ?? Infinity) < minFreeBytes) return 13;
  if (code === 14 && existsSync(path)) return 8;
  return code;
}
