import { FlotillaError } from "../base/errors.ts";
import type { Database, Row } from "../store/database.ts";
import {
  beforeAll,
  failedAfter,
  failedSince,
  failedTasks,
  type FailedCursor,
  readGroupSecret,
} from "./sql.ts";
import { deadLetterOf } from "./dead-letter.ts";
import type { FailedTask, DeadLetterIndex } from "./index.ts";

// A page is read at once, so that neither the store nor this thread is busy for long.
export const tasksPerPage = 1_000;
const tasksPerFetch = 250;
// How much later a transaction may commit than one that began after it.
export const overlapMs = 60_000;

const afterAll: FailedCursor = { atMs: Number.MAX_SAFE_INTEGER, taskId: "\u{10ffff}" };

/**
 * Keeps an index in sync with the store. Recent failures are read from where the last read ended. A
 * repeated walk over all failed tasks, page by page, drops those that are no longer failed and
 * finds those that the first read could have missed.
 */
export function createIndexSync(database: Database, index: DeadLetterIndex) {
  let sinceMs = 0;
  let storeMs = 0;
  /** Where a read that reached its limit continues. */
  let readTo: FailedCursor | undefined;
  let walkedTo = beforeAll;
  let complete = false;
  /** True if an earlier process left the index: some of its tasks may no longer be failed. */
  let stale = index.tasks > 0;
  let staleSinceMs: number | undefined;

  const learn = async (taskIds: readonly string[]): Promise<void> => {
    for (let at = 0; at < taskIds.length; at += tasksPerFetch) {
      const part = taskIds.slice(at, at + tasksPerFetch);
      const secret = await groupSecretOf(database);
      const rows = await database.read(failedTasks(part));
      const deadLetters = rows.map((row) => deadLetterOf(row, secret));
      const failed = new Set(deadLetters.map((each) => each.taskId));
      index.drop(part.filter((taskId) => !failed.has(taskId)));
      index.put(deadLetters);
    }
  };

  /** Reads recent failures. Returns whether it reached the end. */
  const readRecent = async (pages: number): Promise<boolean> => {
    if (stale) return catchUp(pages);
    for (let page = 0; page < pages; page++) {
      const statement =
        readTo === undefined
          ? failedSince(sinceMs, overlapMs, tasksPerPage)
          : failedAfter(readTo, tasksPerPage);
      const rows = await database.read(statement);
      const failed = rows.map(toSeen);
      await learn(index.unknown(failed));
      // Without rows the store's time is unknown, and reading from the old position again costs
      // nothing.
      if (rows.length > 0) storeMs = Number(rows.at(-1)!["now"]);
      if (rows.length < tasksPerPage) {
        sinceMs = storeMs;
        readTo = undefined;
        return (complete = true);
      }
      readTo = cursorOf(failed.at(-1)!);
    }
    return false;
  };

  /** The first walk of an index that was left behind, which brings it in sync with the store. */
  const catchUp = async (pages: number): Promise<boolean> => {
    for (let page = 0; page < pages; page++) {
      if (!(await walk())) continue;
      // Failures since the walk began are read from there.
      sinceMs = staleSinceMs ?? 0;
      stale = false;
      return (complete = true);
    }
    return false;
  };

  /** Continues the walk by a page. Returns whether it reached the end and starts over. */
  const walk = async (): Promise<boolean> => {
    const rows = await database.read(failedAfter(walkedTo, tasksPerPage));
    if (rows.length > 0) staleSinceMs ??= Number(rows[0]!["now"]);
    const failed = rows.map(toSeen);
    const ended = failed.length < tasksPerPage;
    index.keepOnly(failed, walkedTo, ended ? afterAll : cursorOf(failed.at(-1)!));
    await learn(index.unknown(failed));
    walkedTo = ended ? beforeAll : cursorOf(failed.at(-1)!);
    return ended;
  };

  return {
    /** True if everything that had failed when it began is in the index. */
    get complete() {
      return complete;
    },
    read: readRecent,
    walk,
    /** Updates tasks that the index has, or may have. */
    learn,
    /** Brings the index in sync with the store now. */
    async refresh(onProgress?: (tasks: number) => void): Promise<void> {
      walkedTo = beforeAll;
      while (!(await walk())) onProgress?.(index.tasks);
      stale = false;
      complete = true;
      onProgress?.(index.tasks);
    },
  };
}

/** Never changes, so it is read once. */
const groupSecrets = new WeakMap<Database, string>();

/** What the ids of groups are made with: the same for all pods of a store, and after restarts. */
export async function groupSecretOf(database: Database): Promise<string> {
  const known = groupSecrets.get(database);
  if (known !== undefined) return known;
  const [row] = await database.read(readGroupSecret());
  if (!row) {
    throw new FlotillaError(
      "store_corrupt",
      "the table bus_secret has lost its row: restore the store from a back-up",
    );
  }
  groupSecrets.set(database, row["secret"]);
  return row["secret"];
}

function cursorOf({ failedAtMs, taskId }: FailedTask): FailedCursor {
  return { atMs: failedAtMs, taskId };
}

function toSeen(row: Row): FailedTask {
  return {
    taskId: row["task_id"],
    token: Number(row["claim_token"]),
    failedAtMs: Number(row["last_update"]),
    redriveId: row["redrive_id"],
  };
}
