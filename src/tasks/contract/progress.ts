import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Json } from "../../base/json.ts";
import { silentLogger } from "../../base/log.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { type LocalProgress, localProgress } from "../run/local-progress.ts";
import { openTasks, type TasksHarness } from "./harness.ts";
import { type HandleOptions, task } from "../task.ts";

/** What a later attempt finds of what an earlier one saved, on every store. */
export function progressContract(kind: StoreKind): void {
  describe(`progress that a later attempt reads on ${kind.name}`, () => {
    let queue: TasksHarness;
    let folder: string;
    let local: LocalProgress;
    beforeEach(async () => {
      queue = await openTasks(kind);
      folder = mkdtempSync(join(tmpdir(), "flotilla-progress-"));
      local = localProgress(folder, { clock: queue.clock, log: silentLogger });
    });
    afterEach(async () => {
      await queue.close();
      local.close();
      rmSync(folder, { recursive: true });
    });

    /** Saves the number of its attempt, and fails until the last. */
    const saving = (options: HandleOptions, seen: Json[]) =>
      task("a", { backoff: { baseMs: 1 }, ...options }, async (context) => {
        const { attempt, progress, lastProgress } = context;
        seen.push(await lastProgress());
        progress({ step: attempt });
        if (attempt < 3) throw new Error("failed right after it has saved");
        return attempt;
      });

    test("is what the last one saved, also right before it failed", async () => {
      const seen: Json[] = [];
      await queue.work("pod-1", [saving({}, seen)]);
      const { taskId } = await queue.enqueue("a", 1);
      await queue.ended(taskId);
      expect(seen).toEqual([null, { step: 1 }, { step: 2 }]);
    });

    test("is what this machine has kept, where that is newer, and forgotten when the task ends", async () => {
      const seen: Json[] = [];
      const { taskId } = await queue.enqueue("a", 1);
      await queue.beat("pod-1");
      const [claim] = await queue.claim("pod-1", ["a"]);
      // A pod that was killed had saved this on the machine, and nothing in the store.
      local.save(claim!, '{"step":"before the kill"}');
      await queue.recover("pod-1", [claim!]);

      const handler = saving({ progress: "local" }, seen);
      await queue.work("pod-2", [handler], { localProgress: local });
      await queue.ended(taskId);
      expect(seen).toEqual([{ step: "before the kill" }, { step: 1 }, { step: 2 }]);
      await queue.until("it is forgotten", () => local.last(taskId) === undefined);
    });

    test("is the store's where another machine went on since", async () => {
      const seen: Json[] = [];
      const { taskId } = await queue.enqueue("a", 1);
      await queue.beat("pod-1");
      const [claim] = await queue.claim("pod-1", ["a"]);
      local.save(claim!, '"old"');
      await queue.recover("pod-1", [claim!]);
      const elsewhere = task("a", { backoff: { baseMs: 60_000 } }, ({ progress }) => {
        progress("elsewhere");
        throw new Error("and failed");
      });
      const worker = await queue.work("pod-2", [elsewhere]);
      await queue.until("it failed", async () => (await queue.get(taskId))?.failures === 1);
      await queue.outcome(worker.stop({ waitMs: 0 }));
      await queue.pass(80_000);
      const handler = saving({ progress: "local" }, seen);
      await queue.work("pod-3", [handler], { localProgress: local });
      await queue.ended(taskId);
      expect(seen[0]).toBe("elsewhere");
    });

    test("is nothing for a task that an operator has started over", async () => {
      const seen: Json[] = [];
      const { taskId } = await queue.enqueue("a", 1);
      await queue.beat("pod-1");
      const [claim] = await queue.claim("pod-1", ["a"]);
      local.save(claim!, '"old"');
      await queue.recover("pod-1", [claim!]);
      await queue.cancel(taskId);
      await queue.retry(taskId);
      const handler = saving({ progress: "local" }, seen);
      await queue.work("pod-2", [handler], { localProgress: local });
      await queue.ended(taskId);
      expect(seen[0]).toBe(null);
    });

    test("is the store's where the machine's own file is damaged, which is set aside", async () => {
      const seen: Json[] = [];
      writeFileSync(join(folder, "progress.db"), "this was a database once, ".repeat(100));
      const handler = saving({ progress: "local" }, seen);
      await queue.work("pod-1", [handler], { localProgress: local });
      const { taskId } = await queue.enqueue("a", 1);
      await queue.ended(taskId);
      expect(seen).toEqual([null, { step: 1 }, { step: 2 }]);
      expect(readdirSync(folder)).toContain("progress.db.damaged");
    });
  });
}
