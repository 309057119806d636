import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql } from "../../store/sql.ts";
import type { TaskContext } from "../model.ts";
import { task } from "../task.ts";
import { openTasks, rowsOf, type TasksHarness } from "./harness.ts";
import { quick } from "./steps-harness.ts";

/** What is promised of the versions of tasks' code. */
export function taskVersionsContract(kind: StoreKind): void {
  describe(`versions of tasks on ${kind.name}`, () => {
    let queue: TasksHarness;
    const seen: string[] = [];
    beforeEach(async () => {
      queue = await openTasks(kind);
      seen.length = 0;
    });
    afterEach(() => queue.close());

    type Run = (context: TaskContext<any>, version: number | undefined) => unknown;
    /** The task as a deploy of this version has it. */
    const digest = (version: number | undefined, run: Run, more = {}) =>
      task<any, any, unknown>(
        "digest",
        { ...quick, ...(version !== undefined && { version }), ...more },
        (context) => run(context, version),
      );
    /** Stores a step, says which version began the task, and fails until `done`. */
    let done = false;
    const stepping: Run = async ({ step, begunBy }, version) => {
      await step("one", () => "one");
      seen.push(`${version ?? "none"} of ${begunBy}`);
      if (!done) throw new Error("later");
      return begunBy;
    };
    beforeEach(() => void (done = false));
    const slow = { attempts: 100, backoff: { baseMs: 60_000, factor: 1, jitter: 0 } };

    const stop = (worker: { stop(options: { waitMs: number }): Promise<void> }) =>
      queue.outcome(worker.stop({ waitMs: 0 }));

    test("a task goes on in a higher version, and never again in a lower one", async () => {
      const { taskId } = await queue.enqueue("digest", 1);
      const first = await queue.work("pod-1", [digest(1, stepping, slow)]);
      await queue.until("its first attempt", () => seen.length === 1);
      expect(await queue.get(taskId)).toMatchObject({ version: 1 });
      await stop(first);
      const second = await queue.work("pod-2", [digest(2, stepping, slow)]);
      await queue.pass(60_000);
      await queue.until("its second attempt", () => seen.length === 2);
      // Nothing that version 2 has done is stored: version 1 may take it up again.
      expect(await queue.get(taskId)).toMatchObject({ version: 1 });
      await stop(second);
      const third = await queue.work("pod-3", [
        digest(
          2,
          async (context, version) => {
            await context.step("two", () => "two");
            return stepping(context, version);
          },
          slow,
        ),
      ]);
      await queue.pass(60_000);
      await queue.until("its third attempt", () => seen.length === 3);
      await queue.until("that it has ended", async () => {
        const found = await queue.get(taskId);
        return found?.status === "pending" && found.failures > 0;
      });
      expect(await queue.get(taskId)).toMatchObject({ version: 2 });
      await stop(third);
      done = true;
      await queue.work("pod-4", [digest(1, stepping, slow)]);
      await queue.work("pod-5", [digest(undefined, stepping, slow)]);
      await queue.pass(120_000);
      expect(seen).toEqual(["1 of 1", "2 of 1", "2 of 1"]);
      expect(await queue.get(taskId)).toMatchObject({ status: "pending" });
      await queue.work("pod-6", [digest(3, stepping, slow)]);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", result: 1 });
      expect(seen.at(-1)).toBe("3 of 1");
    });

    test("code without a version is below all others, and begins as 0", async () => {
      const { taskId } = await queue.enqueue("digest", 1);
      const first = await queue.work("pod-1", [digest(undefined, stepping, slow)]);
      await queue.until("its first attempt", () => seen.length === 1);
      expect(await queue.get(taskId)).toMatchObject({ version: null });
      await stop(first);
      done = true;
      await queue.work("pod-2", [
        digest(2, async (context, version) => {
          await context.step("two", () => "two");
          return stepping(context, version);
        }),
      ]);
      await queue.pass(60_000);
      expect(await queue.ended(taskId)).toMatchObject({ result: 0, version: 2 });
      expect(seen).toEqual(["none of 0", "2 of 0"]);
    });

    test("a task without stored steps is begun by the version that runs it", async () => {
      const failing: Run = ({ begunBy }, version) => {
        seen.push(`${version} of ${begunBy}`);
        if (!done) throw new Error("later");
      };
      const { taskId } = await queue.enqueue("digest", 1);
      const first = await queue.work("pod-1", [digest(2, failing, slow)]);
      await queue.until("its first attempt", () => seen.length === 1);
      await stop(first);
      done = true;
      await queue.work("pod-2", [digest(1, failing, slow)]);
      await queue.pass(60_000);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", version: null });
      expect(seen).toEqual(["2 of 2", "1 of 1"]);
    });

    test("what is run from its start may be begun by any version", async () => {
      const { taskId } = await queue.enqueue("digest", 1);
      const first = await queue.work("pod-1", [digest(2, stepping, { attempts: 1 })]);
      expect(await queue.ended(taskId)).toMatchObject({ status: "failed", version: 2 });
      await stop(first);
      await queue.retry(taskId);
      done = true;
      await queue.work("pod-2", [digest(1, stepping)]);
      await queue.pass(60_000);
      expect(await queue.get(taskId)).toMatchObject({ status: "pending", version: 2 });
      expect(await queue.cancel(taskId)).toBe("cancelled");
      expect(await queue.retry(taskId, { fromStart: true })).toEqual({ forgottenSteps: 1 });
      expect(await queue.ended(taskId)).toMatchObject({ result: 1, version: 1 });
    });

    test.each([
      ["of a limited key", { concurrency: { limit: 1, key: () => "k" } }],
      ["that runs alone", {}],
    ])("holds for a task %s", async (what, more) => {
      const lower = digest(1, stepping, { ...slow, ...more });
      const higher = digest(2, stepping, { ...slow, ...more });
      const { taskId } = await queue.enqueue(lower, 1);
      const first = await queue.work("pod-1", [higher]);
      await queue.until("its first attempt", () => seen.length === 1);
      await stop(first);
      if (what === "that runs alone") {
        await queue.database.write([
          sql`update ${rowsOf} set deaths = 2 where task_id = ${taskId}`,
        ]);
      }
      done = true;
      await queue.work("pod-2", [lower]);
      await queue.pass(120_000);
      expect(await queue.get(taskId)).toMatchObject({ status: "pending" });
      await queue.work("pod-3", [higher]);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed" });
      expect(seen).toEqual(["2 of 2", "2 of 2"]);
    });

    test("tasks of other names are claimed beside one that waits for its version", async () => {
      const first = await queue.work("pod-1", [digest(2, stepping, slow)]);
      const { taskId } = await queue.enqueue("digest", 1);
      await queue.until("its first attempt", () => seen.length === 1);
      await stop(first);
      const other = task<any, any, unknown>("other", quick, () => "done");
      await queue.work("pod-2", [digest(1, stepping, slow), other]);
      await queue.pass(60_000);
      const ended = await queue.enqueue("other", 1);
      expect(await queue.ended(ended.taskId)).toMatchObject({ result: "done" });
      expect(await queue.get(taskId)).toMatchObject({ status: "pending" });
    });

    test.each([0, 1.5, -1, "2"])("refuses the version %s", (version) => {
      expect(() => task("digest", { version: version as number }, () => {})).toThrow("version");
    });
  });
}
