import type { Database, Row } from "../store/database.ts";
import { beforeAll, failedAfter, failedSince, failedTasks, type FailedCursor } from "./sql.ts";
import { deadLetterOf } from "./dead-letter.ts";
import type { FailedTask, DeadLetterIndex } from "./index.ts";

// A page is what is asked for at once, so that neither the store nor this thread is busy for long.
export const tasksPerPage = 1_000;
const tasksPerFetch = 250;
// How much later than another a transaction may commit that began before it.
export const overlapMs = 60_000;

const afterAll: FailedCursor = { atMs: Number.MAX_SAFE_INTEGER, taskId: "\u{10ffff}" };

/**
 * Keeps a view like the store. Tasks that have failed lately are looked for where the last look has
 * ended; a walk over all of them, page by page and again and again, forgets what isn't failed any more
 * and finds what the first could have missed.
 */
export function createIndexSync(database: Database, index: DeadLetterIndex) {
  let sinceMs = 0;
  let storeMs = 0;
  /** Where a look that has come to its limit goes on. */
  let readTo: FailedCursor | undefined;
  let walkedTo = beforeAll;
  let complete = false;
  /** What it has was left by an earlier process: some of it may not be failed any more. */
  let stale = index.tasks > 0;
  let staleSinceMs: number | undefined;

  const learn = async (taskIds: readonly string[]): Promise<void> => {
    for (let at = 0; at < taskIds.length; at += tasksPerFetch) {
      const asked = taskIds.slice(at, at + tasksPerFetch);
      const deadLetters = (await database.read(failedTasks(asked))).map(deadLetterOf);
      const failed = new Set(deadLetters.map((each) => each.taskId));
      index.drop(asked.filter((taskId) => !failed.has(taskId)));
      index.put(deadLetters);
    }
  };

  /** Looks for what has failed lately. Gives whether it has come to the end. */
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
      // Without rows the store's time isn't known, and looking again from there costs nothing.
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

  /** The first walk of a view that was left behind, which makes it as the store is. */
  const catchUp = async (pages: number): Promise<boolean> => {
    for (let page = 0; page < pages; page++) {
      if (!(await walk())) continue;
      // What has failed since the walk began is looked for from there.
      sinceMs = staleSinceMs ?? 0;
      stale = false;
      return (complete = true);
    }
    return false;
  };

  /** Goes on with the walk by a page. Gives whether it has come to the end, to begin anew. */
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
    /** Whether everything that had failed when it began is in the view. */
    get complete() {
      return complete;
    },
    look: readRecent,
    walk,
    /** Brings tasks up to date that the view has, or may have. */
    learn,
    /** Makes the view as the store is now. */
    async refresh(onProgress?: (tasks: number) => void): Promise<void> {
      walkedTo = beforeAll;
      while (!(await walk())) onProgress?.(index.tasks);
      stale = false;
      complete = true;
      onProgress?.(index.tasks);
    },
  };
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
