import { FlotillaError } from "../base/errors.ts";
import type { Row } from "../store/database.ts";
import type { Statement } from "../store/sql.ts";
import type { Enqueued } from "./enqueue.ts";
import { keyId } from "./keys.ts";
import { insertTasks, type NewTask } from "./statements/enqueue.ts";
import { findKeys, findOwn } from "./statements/keys.ts";

export type Send = (
  statements: readonly Statement[],
  /** What is sent once an earlier send may have been stored. */
  again: () => readonly Statement[],
) => Promise<{ tables: Row[][]; repeated: boolean }>;

// Each time somebody deleted the task that held the key, after it was found to be taken.
const mostTries = 10;

export function checkTries(tries: number): void {
  if (tries < mostTries) return;
  throw new FlotillaError("store_busy", "tasks that hold keys kept being deleted: try again");
}

/**
 * Stores tasks of which some have keys, where nothing special is asked of those. Nearly always all of
 * them go in, so who holds a key is asked only for those that didn't.
 */
export async function storeKeyed(news: readonly NewTask[], send: Send): Promise<Enqueued[]> {
  const known = new Map<string, Enqueued>();
  let left = news;
  for (let tries = 0; left.length > 0; tries++) {
    checkTries(tries);
    const tried = left;
    const insert = insertTasks(tried);
    const { tables } = await send([insert], () => [insert, findOwn(tried)]);
    for (const row of tables.flat()) {
      known.set(row["task_id"], { taskId: row["task_id"], created: true });
    }
    const refused = tried.filter(({ taskId }) => !known.has(taskId));
    if (refused.length === 0) break;
    const keyless = refused.find(({ key }) => key === null);
    if (keyless) {
      throw new FlotillaError("internal", `task ${keyless.taskId} was neither stored nor found`);
    }
    const find = [findKeys(refused)];
    const holders = holdersOf((await send(find, () => find)).tables[0]!);
    for (const each of refused) {
      const holder = holders.get(keyId(each));
      if (holder !== undefined) known.set(each.taskId, { taskId: holder, created: false });
    }
    left = refused.filter(({ taskId }) => !known.has(taskId));
  }
  return news.map(({ taskId }) => known.get(taskId)!);
}

/** Who holds which key. */
export function holdersOf(rows: readonly Row[]): Map<string, string> {
  return new Map(
    rows.map((row) => [
      keyId({ tenant: row["tenant"], name: row["name"], key: row["unique_key"] }),
      row["task_id"] as string,
    ]),
  );
}
