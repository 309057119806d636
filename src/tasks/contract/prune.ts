import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, table } from "../../store/sql.ts";
import { prune, type Pruned } from "../leader/prune.ts";
import { openTasks, type TasksHarness } from "./harness.ts";

const tasks = table("task");

/** What deleting finished tasks by hand promises on every store. */
export function pruneContract(kind: StoreKind): void {
  describe(`pruning on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    test("deletes what ended long enough ago, of one outcome or of all, and returns how much", async () => {
      const statuses = ["completed", "failed", "cancelled", "claimed", "pending"];
      await queue.database.write(
        statuses.map(
          (status) =>
            sql`insert into ${tasks} (task_id, name, status) values (${`old ${status}`}, 'b', ${status})`,
        ),
      );
      await queue.pass(120_000);
      await queue.database.write([
        sql`insert into ${tasks} (task_id, name, status) values ('young', 'b', 'completed')`,
      ]);
      const left = async () => {
        const found = await queue.database.read(sql`select task_id from ${tasks} order by task_id`);
        return found.map((row) => row["task_id"]);
      };

      const told: Pruned[] = [];
      const onProgress = (pruned: Pruned) => void told.push(pruned);
      const failed = { olderThanMs: 90_000, status: "failed" as const, onProgress };
      expect(await prune(queue, failed)).toMatchObject({ deleted: 1 });
      expect(told.at(-1)).toMatchObject({ deleted: 1 });
      expect(await left()).not.toContain("old failed");
      expect(await prune(queue, { olderThanMs: 90_000 })).toMatchObject({ deleted: 2 });
      expect(await left()).toEqual(["old claimed", "old pending", "young"]);
    });

    test.each([
      { olderThanMs: 59_999 },
      { olderThanMs: Number.NaN },
      { olderThanMs: 1e6, status: "pending" },
    ])("refuses %j", async (options) => {
      const refused = prune(queue, options as Parameters<typeof prune>[1]);
      await expect(refused).rejects.toMatchObject({ code: "invalid_option" });
    });
  });
}
