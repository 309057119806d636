import { FlotillaError } from "../../base/errors.ts";
import { openTasks } from "../../tasks/contract/harness.ts";
import type { Database } from "../../store/database.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { now, rows, sql, table } from "../../store/sql.ts";
import { createDeadLetters } from "../dead-letters.ts";
import { createIndexSync } from "../index-sync.ts";
import { createDeadLetterLeader } from "../leader.ts";
import type { DeadLetter } from "../dead-letter.ts";
import { openIndex } from "../index.ts";

const tasks = table("task");
const everything = 100_000;

export type DeadLettersHarness = Awaited<ReturnType<typeof openDeadLetters>>;

/** A queue with tasks that fail when they are told to, and as many leaders as are wanted. */
export async function openDeadLetters(kind: StoreKind) {
  const queue = await openTasks(kind);
  const { clock, random, ids } = queue;
  await queue.database.write([
    sql`delete from ${table("redrive")}`,
    sql`delete from ${table("failure_group")}`,
  ]);
  const letters = createDeadLetters(queue);

  const among = (taskIds: readonly string[]) =>
    sql`task_id in (select task_id from ${rows(
      { task_id: "text" },
      taskIds.map((each) => [each]),
    )} wanted)`;

  const scene = {
    queue,
    letters,

    lead: (database: Database = queue.database) =>
      createDeadLetterLeader({ database, clock, random, ids }),

    /** Ends tasks as failed, as a pod would. */
    async fail(taskIds: readonly string[], message: string | ((at: number) => string)) {
      const error = (at: number) => (typeof message === "string" ? message : message(at));
      const failed = rows(
        { task_id: "text", error: "text" },
        taskIds.map((taskId, at) => [
          taskId,
          JSON.stringify({ code: "handler_failed", message: error(at), stack: "at home" }),
        ]),
      );
      await queue.database.write([
        sql`update ${tasks} set status = 'failed', error = failed.error, retry_count = 3,
            claim_token = claim_token + 1, last_update = ${now}
          from ${failed} failed where ${tasks}.task_id = failed.task_id`,
      ]);
    },

    /** Enqueues tasks that have failed. */
    async failed(name: string, count: number, message: string | ((at: number) => string)) {
      const inputs = Array.from({ length: count }, (_, at) => at);
      const made = await queue.enqueueMany(name, inputs);
      const taskIds = made.map((each) => each.taskId);
      await scene.fail(taskIds, message);
      return taskIds;
    },

    async complete(taskIds: readonly string[]): Promise<void> {
      await queue.database.write([
        sql`update ${tasks} set status = 'completed', result = '1', last_update = ${now}
          where ${among(taskIds)}`,
      ]);
    },

    async pending(): Promise<string[]> {
      const found = await queue.database.read(
        sql`select task_id from ${tasks} where status = 'pending' order by task_id`,
      );
      return found.map((row) => row["task_id"]);
    },

    /** Each task's redrives, as its events tell. */
    async redrivenTimes(): Promise<number[]> {
      const found = await queue.database.read(
        sql`select task_id, count(*) as times from ${table("task_event")}
          where type = 'redriven' group by task_id order by task_id`,
      );
      return found.map((row) => Number(row["times"]));
    },

    /** Time passes, for the rows of groups as well. */
    async pass(byMs: number): Promise<void> {
      if (!queue.store.clock) {
        const groups = table("failure_group");
        await queue.database.write([
          sql`update ${groups} set state_at = state_at - ${byMs}, until_at = until_at - ${byMs},
            first_at = first_at - ${byMs}, came_back_at = came_back_at - ${byMs},
            last_update = last_update - ${byMs}`,
        ]);
      }
      await queue.pass(byMs);
    },

    /** What a view says that is built from nothing now. */
    async fresh(): Promise<DeadLetter[]> {
      const index = openIndex();
      await createIndexSync(queue.database, index).refresh();
      const all = index.page({}, undefined, everything);
      index.close();
      return all;
    },

    async close(): Promise<void> {
      letters.close();
      await queue.close();
    },
  };
  return scene;
}

/** A leader's own way to the store, on which answers get lost after their commit. */
export function forgetful(database: Database, lost: () => boolean): Database {
  return {
    ...database,
    async write(statements, options) {
      const tables = await database.write(statements, options);
      if (lost()) throw new FlotillaError("unknown_outcome", "the answer was lost, as ordered");
      return tables;
    },
  };
}
