import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { abort } from "../../base/errors.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { openTasks, type TasksHarness } from "./harness.ts";
import { task } from "../task.ts";

const double = task<number, number, number>("double", {}, ({ input }) => {
  if (input < 0) throw abort("negative");
  return input * 2;
});

/** What waiting for results promises on every store. */
export function waitForContract(kind: StoreKind): void {
  describe(`waiting on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    test("gives the result once the task has completed, to every caller that waits", async () => {
      const enqueued = await queue.enqueue(double, 4);
      const waits = [
        queue.waitFor(enqueued),
        queue.waitFor(enqueued.taskId),
        queue.waitFor(enqueued),
      ];
      await queue.work("pod-1", [double]);
      expect(await queue.outcome(Promise.all(waits))).toEqual([8, 8, 8]);
    });

    test("gives at once the result of a task that has ended long ago", async () => {
      await queue.work("pod-1", [double]);
      const enqueued = await queue.enqueue(double, 5);
      await queue.ended(enqueued.taskId);
      expect(await queue.outcome(queue.waitFor(enqueued))).toBe(10);
      expect(await queue.outcome(queue.waitFor(enqueued.taskId))).toBe(10);
    });

    test("rejects with what went wrong", async () => {
      await queue.work("pod-1", [double]);
      const enqueued = await queue.enqueue(double, -1);
      await expect(queue.outcome(queue.waitFor(enqueued))).rejects.toMatchObject({
        code: "task_failed",
        message: expect.stringContaining("(double) failed: negative"),
        details: { code: "aborted", message: "negative" },
      });
    });

    test("rejects where the task is cancelled", async () => {
      const enqueued = await queue.enqueue(double, 1);
      const wait = queue.waitFor(enqueued);
      await queue.cancel(enqueued.taskId);
      await expect(queue.outcome(wait)).rejects.toMatchObject({ code: "cancelled" });
    });

    test("gives the task itself however it ended", async () => {
      await queue.work("pod-1", [double]);
      const failed = await queue.enqueue(double, -1);
      expect(await queue.outcome(queue.settled(failed.taskId))).toMatchObject({ status: "failed" });
    });

    test("ends after its time, or with its signal, and the task goes on", async () => {
      const enqueued = await queue.enqueue(double, 3);
      const late = queue.waitFor(enqueued, { timeoutMs: 2_000 }).catch((error: unknown) => error);
      const stop = new AbortController();
      const stopped = queue
        .waitFor(enqueued, { signal: stop.signal })
        .catch((error: unknown) => error);
      stop.abort();
      expect(await stopped).toMatchObject({ code: "cancelled" });
      await queue.pass(2_001);
      expect(await late).toMatchObject({
        code: "timeout",
        message: expect.stringContaining("didn't finish within 2000 ms"),
      });
      await expect(queue.waitFor(enqueued, { signal: AbortSignal.abort() })).rejects.toMatchObject({
        code: "cancelled",
      });
      await queue.work("pod-1", [double]);
      expect(await queue.outcome(queue.waitFor(enqueued, { timeoutMs: 60_000 }))).toBe(6);
      expect(queue.clock.timers).toBeLessThan(6);
    });

    test("sees a task that ends while it reads another", async () => {
      await queue.work("pod-1", [double]);
      const many = await queue.enqueueMany(
        double,
        Array.from({ length: 80 }, (_, at) => at),
      );
      const startedMs = queue.clock.monotonic();
      const results = await queue.outcome(
        Promise.all(many.map(({ taskId }) => queue.waitFor(taskId))),
      );
      expect(results).toEqual(many.map((_, at) => at * 2));
      // A look that comes too early is followed by another, not by the slow poll.
      expect(queue.clock.monotonic() - startedMs).toBeLessThan(30_000);
    });

    test("ends for all when the connection is closed", async () => {
      const client = queue.client();
      const enqueued = await client.enqueue(double, 1);
      const wait = client.waitFor(enqueued).catch((error: unknown) => error);
      client.close();
      expect(await wait).toMatchObject({ code: "closed" });
      await expect(client.waitFor(enqueued)).rejects.toMatchObject({ code: "closed" });
    });

    test("refuses options that it doesn't know", async () => {
      const enqueued = await queue.enqueue(double, 1);
      const wait = queue.waitFor(enqueued, { timeout: 5 } as object);
      await expect(wait).rejects.toMatchObject({ code: "invalid_option" });
    });
  });
}
