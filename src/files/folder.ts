import { mkdir, open, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { FlotillaError } from "../base/errors.ts";
import { bytesGone, type FileStorage, usualPartBytes as partBytes } from "./storage.ts";

/** Keeps bytes in files of a folder, which all pods of the store share. */
export function createFolderStorage(folder: string): FileStorage {
  // By the end of the id, which is random: its beginning is the time.
  const pathOf = (fileId: string) => join(folder, fileId.slice(-2), fileId);
  return {
    place: "folder",
    partBytes,
    async write(fileId, part, bytes) {
      const path = pathOf(fileId);
      try {
        await mkdir(dirname(path), { recursive: true });
        const file = await open(path, part === 0 ? "w" : "r+");
        try {
          // A write may take fewer bytes than it was given.
          for (let at = 0; at < bytes.length;) {
            const place = part * partBytes + at;
            at += (await file.write(bytes, at, bytes.length - at, place)).bytesWritten;
          }
        } finally {
          await file.close();
        }
      } catch (error) {
        throw unwritable(folder, error);
      }
    },
    async flush(fileId) {
      const path = pathOf(fileId);
      for (const each of [path, dirname(path), folder]) {
        const opened = await open(each, "r");
        try {
          await opened.sync();
        } finally {
          await opened.close();
        }
      }
    },
    async read(fileId, part, { from, to }) {
      let file;
      try {
        file = await open(pathOf(fileId), "r");
      } catch (error) {
        throw codeOf(error) === "ENOENT" ? bytesGone(error) : error;
      }
      try {
        const buffer = Buffer.alloc(to - from + 1);
        const { bytesRead } = await file.read(buffer, 0, buffer.length, part * partBytes + from);
        return buffer.subarray(0, bytesRead);
      } finally {
        await file.close();
      }
    },
    async remove(fileId) {
      await rm(pathOf(fileId), { force: true });
    },
  };
}

function codeOf(error: unknown): string | undefined {
  return (error as NodeJS.ErrnoException).code;
}

function unwritable(folder: string, error: unknown): FlotillaError {
  const code = codeOf(error);
  return code === "ENOSPC" || code === "EDQUOT"
    ? new FlotillaError("store_full", `the folder of files, ${folder}, has no room left`, {
        cause: error,
      })
    : new FlotillaError(
        "unavailable",
        `the folder of files, ${folder}, can't be written: ${code}`,
        {
          cause: error,
        },
      );
}
