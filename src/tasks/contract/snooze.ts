import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { snooze } from "../../base/errors.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { openTasks, type TasksHarness } from "./harness.ts";
import { task } from "../task.ts";
import { heldOpen } from "./worker.ts";

/** What snoozing promises on every store. */
export function snoozeContract(kind: StoreKind): void {
  describe(`snoozing on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    test("waits as long as the handler returned, and isn't an attempt", async () => {
      const { handler, attempts } = heldOpen("a", { attempts: 1 });
      await queue.work("pod-1", [handler]);
      const { taskId } = await queue.enqueue("a", 1);
      await queue.until("the first run", () => attempts[0]);
      attempts[0]!.fail(snooze(60_000, "the report isn't there"));
      expect(await queue.inStatus(taskId, "pending")).toMatchObject({
        failures: 0,
        snoozes: 1,
        error: null,
      });
      await queue.pass(58_000);
      expect(attempts).toHaveLength(1);
      await queue.pass(3_500);
      await queue.until("the second run", () => attempts[1]);
      expect(attempts.map(({ context }) => [context.attempt, context.snoozes])).toEqual([
        [1, 0],
        [1, 1],
      ]);
      attempts[1]!.finish("ok");
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", failures: 0 });
      expect(queue.told).toContainEqual(
        expect.objectContaining({ type: "ended", name: "a", outcome: "snoozed" }),
      );
    });

    test("notes how often and how long, without its events growing", async () => {
      const patient = task("patient", { attempts: 2, backoff: { baseMs: 0 } }, (context) => {
        if (context.snoozes < 5) throw snooze(0, "not yet");
        if (context.attempt === 1) throw new Error("broken");
        if (context.snoozes < 7) throw snooze(0, "not yet either");
        return context.snoozes;
      });
      await queue.work("pod-1", [patient]);
      const { taskId } = await queue.enqueue(patient, null);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", result: 7 });
      expect(await queue.events(taskId)).toMatchObject([
        { type: "snoozed", attempt: 1, detail: { times: 5, delayMs: 0, message: "not yet" } },
        { type: "retry", attempt: 1 },
        { type: "snoozed", attempt: 2, detail: { times: 7, message: "not yet either" } },
      ]);
    });

    test("is ended by a cancel that came in the meantime", async () => {
      const { handler, attempts } = heldOpen("a");
      await queue.work("pod-1", [handler]);
      const { taskId } = await queue.enqueue("a", 1);
      await queue.until("the run", () => attempts[0]);
      expect(await queue.cancel(taskId)).toBe("cancelling");
      attempts[0]!.fail(snooze(60_000));
      expect(await queue.ended(taskId)).toMatchObject({ status: "cancelled", snoozes: 0 });
    });
  });
}
