import type { Clock } from "../base/clock.ts";
import { hourMs, minuteMs } from "../base/durations.ts";
import { messageOf } from "../base/errors.ts";
import { createLeaderPass, type LeaderPass } from "../base/semaphore.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import type { Database } from "../store/database.ts";
import type { Files } from "./files.ts";
import {
  closeRemnants,
  deleteReferencesAmong,
  deleteUnused,
  dropRemnant,
  dropUnsent,
  findClosed,
  findUnsent,
  findUnused,
  type BytesPlace,
  type FileOwner,
  readReferringOwners,
} from "./sql/files.ts";

export type FilesLeaderOptions = {
  database: Database;
  files: Pick<Files, "storageAt">;
  clock: Clock;
  log?: Logger;
  /** How long files wait for the message or task that has them, and uploads for their end. Default an hour. */
  graceMs?: number;
};

const bytesPlaces: readonly BytesPlace[] = ["store", "folder", "s3"];
/** How many rows of a kind a pass takes. The next pass goes on. */
const rowsPerPass = 500;
/** Of each of these the bytes are removed. */
const remnantsPerPass = 100;

/**
 * The leader's work on files: deletes what nothing refers to, and what uploads left behind. Each step is one
 * transaction that leaves the next one something to find, so that a pass which dies is continued by another.
 */
export function createFilesLeader(options: FilesLeaderOptions): LeaderPass {
  const { database, files, clock, log = silentLogger, graceMs = hourMs } = options;
  const walkedTo = { session: "", task: "" };
  let removedTo = "";

  const passNow = async (): Promise<void> => {
    const unsent = await database.read(findUnsent(graceMs, rowsPerPass));
    if (unsent.length > 0) {
      const found = unsent.map((row) => ({
        kind: row["owner_kind"] as FileOwner["kind"],
        id: row["owner_id"] as string,
        hash: row["hash"] as string,
      }));
      await database.write(dropUnsent(found, graceMs));
    }
    await walk("session");
    await walk("task");
    const unused = await database.read(findUnused(graceMs, rowsPerPass));
    if (unused.length > 0) {
      const fileIds = unused.map((row) => row["file_id"] as string);
      await database.write(deleteUnused(fileIds, graceMs));
    }
    await database.write([closeRemnants(graceMs)], { lossy: true });
    await removeRemnants();
  };

  /** One whose bytes can't be removed now is met again after all others. */
  const removeRemnants = async (): Promise<void> => {
    // Those in a place that this pod doesn't know are another leader's.
    const places = bytesPlaces.filter((place) => files.storageAt(place));
    const page = await database.read(findClosed(places, removedTo, remnantsPerPass));
    removedTo = page.length < remnantsPerPass ? "" : (page.at(-1)!["file_id"] as string);
    for (const row of page) {
      const fileId = row["file_id"] as string;
      try {
        await files.storageAt(row["place"] as BytesPlace)!.remove(fileId);
      } catch (error) {
        log.warn({ file: fileId, error: messageOf(error) }, "bytes of a file not removed");
        continue;
      }
      await database.write([dropRemnant(fileId)]);
    }
  };

  /**
   * Finds references of a message that was sent while its session was deleted, and of tasks that were deleted by
   * what knows no files, such as SQL of an operator.
   */
  const walk = async (kind: "session" | "task"): Promise<void> => {
    const next = readReferringOwners(kind, walkedTo[kind], rowsPerPass);
    const page = await database.read(next, { cold: true });
    walkedTo[kind] = page.length < rowsPerPass ? "" : (page.at(-1)!["owner_id"] as string);
    const deleted = page.filter((row) => Number(row["deleted"]) === 1);
    if (deleted.length === 0) return;
    const ids = deleted.map((row) => row["owner_id"] as string);
    await database.write(deleteReferencesAmong(kind, ids));
  };

  return createLeaderPass(passNow, {
    clock,
    everyMs: minuteMs,
    log,
    failed: "files not collected",
  });
}
