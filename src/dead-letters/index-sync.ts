import type { Database, Row } from "../store/database.ts";
import { beforeAll, failedAfter, failedSince, failedTasks, type Place } from "./sql.ts";
import { letterOf } from "./dead-letter.ts";
import type { Seen, View } from "./index.ts";

// A page is what is asked for at once, so that neither the store nor this thread is busy for long.
export const pageTasks = 1_000;
const fetchTasks = 250;
// How much later than another a transaction may commit that began before it.
export const overlapMs = 60_000;

const afterAll: Place = { atMs: Number.MAX_SAFE_INTEGER, taskId: "\u{10ffff}" };

/**
 * Keeps a view like the store. Tasks that have failed lately are looked for where the last look has
 * ended; a walk over all of them, page by page and again and again, forgets what isn't failed any more
 * and finds what the first could have missed.
 */
export function followFailed(database: Database, view: View) {
  let sinceMs = 0;
  let storeMs = 0;
  /** Where a look that has come to its limit goes on. */
  let lookedTo: Place | undefined;
  let walkedTo = beforeAll;
  let complete = false;
  /** What it has was left by an earlier process: some of it may not be failed any more. */
  let stale = view.tasks > 0;
  let staleSinceMs: number | undefined;

  const learn = async (taskIds: readonly string[]): Promise<void> => {
    for (let at = 0; at < taskIds.length; at += fetchTasks) {
      const asked = taskIds.slice(at, at + fetchTasks);
      const letters = (await database.read(failedTasks(asked))).map(letterOf);
      const failed = new Set(letters.map((each) => each.taskId));
      view.drop(asked.filter((taskId) => !failed.has(taskId)));
      view.put(letters);
    }
  };

  /** Looks for what has failed lately. Gives whether it has come to the end. */
  const look = async (pages: number): Promise<boolean> => {
    if (stale) return catchUp(pages);
    for (let page = 0; page < pages; page++) {
      const statement =
        lookedTo === undefined
          ? failedSince(sinceMs, overlapMs, pageTasks)
          : failedAfter(lookedTo, pageTasks);
      const rows = await database.read(statement);
      const failed = rows.map(toSeen);
      await learn(view.unknown(failed));
      // Without rows the store's time isn't known, and looking again from there costs nothing.
      if (rows.length > 0) storeMs = Number(rows.at(-1)!["now"]);
      if (rows.length < pageTasks) {
        sinceMs = storeMs;
        lookedTo = undefined;
        return (complete = true);
      }
      lookedTo = placeOf(failed.at(-1)!);
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
    const rows = await database.read(failedAfter(walkedTo, pageTasks));
    if (rows.length > 0) staleSinceMs ??= Number(rows[0]!["now"]);
    const failed = rows.map(toSeen);
    const ended = failed.length < pageTasks;
    view.keepOnly(failed, walkedTo, ended ? afterAll : placeOf(failed.at(-1)!));
    await learn(view.unknown(failed));
    walkedTo = ended ? beforeAll : placeOf(failed.at(-1)!);
    return ended;
  };

  return {
    /** Whether everything that had failed when it began is in the view. */
    get complete() {
      return complete;
    },
    look,
    walk,
    /** Brings tasks up to date that the view has, or may have. */
    learn,
    /** Makes the view as the store is now. */
    async refresh(onProgress?: (tasks: number) => void): Promise<void> {
      walkedTo = beforeAll;
      while (!(await walk())) onProgress?.(view.tasks);
      stale = false;
      complete = true;
      onProgress?.(view.tasks);
    },
  };
}

function placeOf({ failedAtMs, taskId }: Seen): Place {
  return { atMs: failedAtMs, taskId };
}

function toSeen(row: Row): Seen {
  return {
    taskId: row["task_id"],
    token: Number(row["claim_token"]),
    failedAtMs: Number(row["last_update"]),
    redriveId: row["redrive_id"],
  };
}
