import { afterEach, beforeEach } from "vitest";
import type { Logger } from "../../base/log.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import type { Row } from "../../store/database.ts";
import { sql, table } from "../../store/sql.ts";
import type { TaskContext } from "../model.ts";
import type { WorkerOptions } from "../run/worker.ts";
import { task } from "../task.ts";
import { openTasks, type TasksHarness } from "./harness.ts";

export const journal = table("step_journal");
export const quick = { attempts: 3, backoff: { baseMs: 1, jitter: 0 } } as const;

export type StepHandler = (context: TaskContext<any>) => unknown;

/** What tests of steps stand on: a queue for each, and a list of the functions that were called. */
export function useSteps(kind: StoreKind) {
  let queue: TasksHarness;
  const calls: string[] = [];
  beforeEach(async () => {
    queue = await openTasks(kind);
    calls.length = 0;
  });
  afterEach(() => queue.close());

  const rows = (taskId: string): Promise<Row[]> =>
    queue.database.read(sql`select * from ${journal} where owner_id = ${taskId} order by seq`);
  return {
    queue: () => queue,
    calls,
    called<Result>(name: string, result?: Result): Result {
      calls.push(name);
      return result as Result;
    },
    /** Runs one task by this handler, and gives how it ended. */
    async run(handler: StepHandler, more: Partial<WorkerOptions> = {}, options = {}) {
      const handled = task<any, any, unknown>("a", { ...quick, ...options }, handler);
      await queue.work("pod-1", [handled], more);
      const { taskId } = await queue.enqueue("a", 1);
      return { taskId, ended: await queue.ended(taskId) };
    },
    /** A handler that fails once, behind its steps. */
    failingOnce(handler: StepHandler): StepHandler {
      let failed = false;
      return async (context) => {
        const result = await handler(context);
        if (failed) return result;
        failed = true;
        throw new Error("once");
      };
    },
    rows,
    keys: async (taskId: string) => (await rows(taskId)).map((row) => row["key"] as string),
    logged() {
      const lines: string[] = [];
      const keep = (_: object, message: string) => void lines.push(message);
      const log: Logger = { debug: keep, info: keep, warn: keep, error: keep };
      return { lines, log };
    },
  };
}
