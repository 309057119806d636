import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { FlotillaError, untilStoreRecovers } from "../../base/errors.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { openTasks, type TasksHarness } from "./harness.ts";
import { task } from "../task.ts";
import { heldOpen } from "./worker.ts";

/** What running tasks promises while the store itself is in trouble. */
export function storeErrorsContract(kind: StoreKind): void {
  describe(`running tasks through errors of ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    test("goes on when the store has been away", async () => {
      const echo = task<unknown, unknown, unknown>("a", {}, ({ input }) => input);
      let away = true;
      const shaky: typeof queue.database = {
        ...queue.database,
        write: async (statements) => {
          if (away) throw new FlotillaError("store_unavailable", "away");
          return queue.database.write(statements);
        },
      };
      const worker = await queue.work("pod-1", [echo], { database: shaky });
      const { taskId } = await queue.enqueue("a", 1);
      await queue.until("a claim to fail", () => worker.state === "waiting for the store");
      await queue.pass(5_000);
      expect(worker.state).toBe("waiting for the store");
      const failed = queue.told.filter((event) => event.type === "claim_failed").length;
      expect(failed).toBeGreaterThan(2);
      // It doesn't hammer a store that is away.
      expect(failed).toBeLessThan(12);
      away = false;
      await queue.pass(8_000);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed" });
    });

    test.each(untilStoreRecovers)("stores what has ended once %s is over", async (code) => {
      const { handler, attempts } = heldOpen("a");
      let ailing = false;
      const shaky: typeof queue.database = {
        ...queue.database,
        write: async (statements) => {
          if (ailing) throw new FlotillaError(code, code);
          return queue.database.write(statements);
        },
      };
      await queue.work("pod-1", [handler], { database: shaky });
      const { taskId } = await queue.enqueue("a", 1);
      await queue.until("the attempt", () => attempts.length === 1);
      ailing = true;
      attempts[0]!.finish("done");
      await queue.pass(5_000);
      expect(await queue.get(taskId)).toMatchObject({ status: "claimed" });
      ailing = false;
      await queue.pass(8_000);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", result: "done" });
      expect(attempts).toHaveLength(1);
    });
  });
}
