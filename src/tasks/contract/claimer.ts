import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { abort } from "../../base/errors.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql } from "../../store/sql.ts";
import { type Claimer, type ClaimerParts, createClaimer } from "../claim/claimer.ts";
import { openTasks, type TasksHarness, rowsOf } from "./harness.ts";

/** What claiming with a loop of one's own promises on every store. */
export function claimerContract(kind: StoreKind): void {
  describe(`claiming with one's own loop on ${kind.name}`, () => {
    let queue: TasksHarness;
    let claimers: Claimer[];
    beforeEach(async () => {
      queue = await openTasks(kind);
      claimers = [];
    });
    afterEach(async () => {
      await queue.outcome(Promise.all(claimers.map((claimer) => claimer.stop())));
      await queue.close();
    });

    const start = async (podId = "pod-1", more: Partial<ClaimerParts> = {}) => {
      await queue.beat(podId);
      const claimer = createClaimer({ ...queue, podId, names: ["a"], ...more });
      claimers.push(claimer);
      return claimer;
    };
    const claimOne = async (claimer: Claimer) => {
      const [claim] = await claimer.claim(1);
      return claim!;
    };

    test("gives tasks that are due, up to so many, and stores how each ends", async () => {
      const claimer = await start();
      const { taskId } = await queue.enqueue("a", { n: 1 });
      await queue.enqueue("a", { n: 2 });
      await queue.enqueue("a", { n: 3 }, { delayMs: 60_000 });
      await queue.enqueue("b", { n: 4 });
      expect(await claimer.claim(1)).toMatchObject([
        { taskId, name: "a", input: { n: 1 }, attempt: 1, token: 1 },
      ]);
      expect(await claimer.claim(5)).toMatchObject([{ input: { n: 2 } }]);
      expect(await claimer.claim(5)).toEqual([]);

      const [first, second] = claimer.held;
      expect(await claimer.complete(first!, { words: 120 })).toBe("stored");
      expect(await claimer.complete(second!)).toBe("stored");
      expect(await queue.get(taskId)).toMatchObject({
        status: "completed",
        result: { words: 120 },
      });
      expect(claimer.held).toEqual([]);
    });

    test("gives none while its pod drains, and what is held can be ended", async () => {
      let isDraining = false;
      const claimer = await start("pod-1", { isDraining: () => isDraining });
      await queue.enqueueMany("a", [1, 2]);
      const held = await claimOne(claimer);
      isDraining = true;
      expect(await claimer.claim(5)).toEqual([]);
      expect(await claimer.complete(held, 1)).toBe("stored");
      isDraining = false;
      expect(await claimer.claim(5)).toHaveLength(1);
    });

    test("gives none that waits for what has failed: it is failed itself", async () => {
      const claimer = await start();
      const root = await queue.enqueue("a", 1);
      const { taskId } = await queue.enqueue("a", 2, { after: [root] });
      expect(await claimer.fail(await claimOne(claimer), abort("no"))).toBe("stored");
      expect(await claimer.claim(5)).toEqual([]);
      expect(await queue.ended(taskId)).toMatchObject({ error: { code: "dependency_failed" } });
    });

    test("counts a failure, waits with the next attempt, and fails for good at the limit", async () => {
      const claimer = await start("pod-1", { attempts: 2, backoff: { baseMs: 1_000, jitter: 0 } });
      const { taskId } = await queue.enqueue("a", 1);
      expect(await claimer.fail(await claimOne(claimer), new Error("broken"))).toBe("stored");
      expect(await queue.get(taskId)).toMatchObject({ status: "pending", failures: 1 });
      expect(await claimer.claim(1)).toEqual([]);
      await queue.pass(1_001);
      const again = await claimOne(claimer);
      expect(again).toMatchObject({ attempt: 2, token: 3 });
      await claimer.fail(again, new Error("broken again"));
      expect(await queue.get(taskId)).toMatchObject({
        status: "failed",
        failures: 2,
        error: { message: "broken again" },
      });
      const other = await queue.enqueue("a", 2);
      await claimer.fail(await claimOne(claimer), abort("hopeless"));
      expect(await queue.get(other.taskId)).toMatchObject({ status: "failed", failures: 1 });
    });

    test("gives back at once or for later, uncounted", async () => {
      const claimer = await start();
      const { taskId } = await queue.enqueue("a", 1);
      expect(await claimer.release(await claimOne(claimer))).toBe("stored");
      expect(await claimer.reschedule(await claimOne(claimer), 5_000)).toBe("stored");
      expect(await queue.get(taskId)).toMatchObject({ status: "pending", failures: 0 });
      expect(await claimer.claim(1)).toEqual([]);
      await queue.pass(5_001);
      expect(await claimOne(claimer)).toMatchObject({ taskId, attempt: 1 });
    });

    test.each(["complete", "fail", "release", "reschedule"] as const)(
      "returns `lost` and changes nothing where another pod has the task: %s",
      async (how) => {
        const claimer = await start();
        await queue.enqueue("a", 1);
        const claim = await claimOne(claimer);
        await queue.recover("pod-1", [claim]);
        const other = await start("pod-2");
        const theirs = await claimOne(other);
        const before = await queue.row(claim.taskId);

        const said = {
          complete: () => claimer.complete(claim, "late"),
          fail: () => claimer.fail(claim, new Error("late")),
          release: () => claimer.release(claim),
          reschedule: () => claimer.reschedule(claim, 1_000),
        };
        expect(await said[how]()).toBe("lost");
        expect(await queue.row(claim.taskId)).toEqual(before);
        expect(await other.complete(theirs, "in time")).toBe("stored");
      },
    );

    test("reports that a task went to another pod", async () => {
      const told: string[] = [];
      const claimer = await start("pod-1", { onLost: (_, reason) => told.push(reason) });
      await queue.enqueue("a", 1);
      const claim = await claimOne(claimer);
      await queue.recover("pod-1", [claim]);
      await claimOne(await start("pod-2"));
      await queue.pass(1_000);
      await queue.until("it is told", () => told.length > 0);
      expect(told).toEqual(["claim_lost"]);
      expect(claim.signal.aborted).toBe(true);
    });

    test("reports a cancel, and what is given back then is cancelled", async () => {
      const told: string[] = [];
      const claimer = await start("pod-1", { onLost: (_, reason) => told.push(reason) });
      const { taskId } = await queue.enqueue("a", 1);
      const claim = await claimOne(claimer);
      await queue.cancel(taskId);
      await queue.pass(1_000);
      await queue.until("it is told", () => told.length > 0);
      expect(told).toEqual(["cancel"]);
      expect(await claimer.release(claim)).toBe("stored");
      expect(await queue.get(taskId)).toMatchObject({ status: "cancelled" });
    });

    test("gives alone what pods have died under", async () => {
      const claimer = await start();
      const { taskId } = await queue.enqueue("a", "deadly");
      await queue.enqueue("a", "harmless", { delayMs: 1 });
      await queue.database.write([sql`update ${rowsOf} set deaths = 2 where task_id = ${taskId}`]);
      await queue.pass(10);
      const [harmless] = await claimer.claim(10);
      expect(harmless).toMatchObject({ input: "harmless" });
      expect(await claimer.claim(10)).toEqual([]);
      await claimer.complete(harmless!);
      const deadly = await claimer.claim(10);
      expect(deadly).toMatchObject([{ input: "deadly" }]);
      await queue.enqueue("a", "later");
      expect(await claimer.claim(10)).toEqual([]);
      await claimer.complete(deadly[0]!);
      expect(await claimer.claim(10)).toMatchObject([{ input: "later" }]);
    });

    test("gives back what is held when it stops, and takes no more calls about it", async () => {
      const claimer = await start();
      const { taskId } = await queue.enqueue("a", 1);
      const claim = await claimOne(claimer);
      await queue.outcome(claimer.stop());
      expect(await queue.get(taskId)).toMatchObject({ status: "pending", failures: 0 });
      await expect(claimer.claim(1)).rejects.toMatchObject({ code: "closed" });
      await expect(claimer.complete(claim)).rejects.toMatchObject({ code: "conflict" });
    });
  });
}
