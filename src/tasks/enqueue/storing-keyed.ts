import { FlotillaError } from "../../base/errors.ts";
import type { Row } from "../../store/database.ts";
import type { Statement } from "../../store/sql.ts";
import type { Enqueued } from "./options.ts";
import { keyId } from "./keys.ts";
import { insertTasks, type NewTask } from "../sql/enqueue.ts";
import { findKeys, findOwn } from "../sql/keys.ts";

export type Send = (
  statements: readonly Statement[],
  options: {
    /** What is sent once an earlier send may have been stored. Default: the very same. */
    again?: () => readonly Statement[];
    /** Whether an earlier write of the same call has stored something. */
    begun: boolean;
  },
) => Promise<{ tables: Row[][]; repeated: boolean }>;

/** What became of a task, or why the store didn't say. */
export type Settled = Enqueued | Unsettled;
export type Unsettled = { readonly error: unknown };

export function isUnsettled(settled: Settled): settled is Unsettled {
  return "error" in settled;
}

/** Whether this is there because it was asked for, and not by an earlier call. */
export function isStored(settled: Settled): boolean {
  return !isUnsettled(settled) && (settled.created || settled.replaced === true);
}

// Each time a task that held a key was deleted after the key was found to be taken.
const mostTries = 10;

/**
 * Stores tasks in as many writes as it takes, each of which stores some and gives those that are left. A
 * write that is refused says nothing about those that the ones before it have stored: only what is left
 * has its error.
 */
export async function settleEach(
  news: readonly NewTask[],
  write: (
    left: readonly NewTask[],
    known: Map<string, Enqueued>,
    begun: () => boolean,
  ) => Promise<readonly NewTask[]>,
): Promise<Settled[]> {
  const known = new Map<string, Enqueued>();
  const begun = () => [...known.values()].some(isStored);
  let left = news;
  let error: unknown;
  try {
    for (let tries = 0; left.length > 0; tries++) {
      if (tries >= mostTries) throw keysVanish();
      left = await write(left, known, begun);
    }
  } catch (thrown) {
    if (known.size === 0) throw thrown;
    error = thrown;
  }
  return news.map(({ taskId }) => known.get(taskId) ?? { error });
}

function keysVanish(): FlotillaError {
  return new FlotillaError("store_busy", "tasks that hold keys kept being deleted: try again");
}

/**
 * Stores tasks of which some have keys, where nothing special is asked of those. Nearly always all of
 * them go in, so who holds a key is asked only for those that didn't.
 */
export function storeKeyed(news: readonly NewTask[], send: Send): Promise<Settled[]> {
  return settleEach(news, async (left, known, begun) => {
    const insert = insertTasks(left);
    const { tables } = await send([insert], {
      again: () => [insert, findOwn(left)],
      begun: begun(),
    });
    for (const row of tables.flat()) {
      known.set(row["task_id"], { taskId: row["task_id"], created: true });
    }
    const refused = left.filter(({ taskId }) => !known.has(taskId));
    if (refused.length === 0) return refused;
    const keyless = refused.find(({ key }) => key === null);
    if (keyless) {
      throw new FlotillaError("internal", `task ${keyless.taskId} was neither stored nor found`);
    }
    const found = await send([findKeys(refused)], { begun: begun() });
    const holders = holdersOf(found.tables[0]!);
    for (const each of refused) {
      const holder = holders.get(keyId(each));
      if (holder !== undefined) known.set(each.taskId, { taskId: holder, created: false });
    }
    return refused.filter(({ taskId }) => !known.has(taskId));
  });
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
