import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, table } from "../../store/sql.ts";
import type { Pressure } from "../claim/capacity.ts";
import { openTasks, type TasksHarness } from "./harness.ts";
import type { PodState } from "../run/pod-status.ts";
import { heldOpen } from "./worker.ts";

const limits = { eventLoopMs: 200, memory: 0.9 };
const calm: Pressure = { lateMs: 0, memory: 0.1 };

/** What a pod's capacity promises on every store: by name, under pressure, and in words. */
export function capacityContract(kind: StoreKind): void {
  describe(`capacity on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    const said = async (): Promise<PodState | null> => {
      const [row] = await queue.database.read(
        sql`select state from ${table("pod")} where pod_id = 'pod-1'`,
      );
      return row!["state"] === null ? null : (JSON.parse(row!["state"]) as PodState);
    };

    test("by name is never passed, while other names take what is left", async () => {
      const heavy = heldOpen("heavy", { slots: 2 });
      const light = heldOpen("light");
      await queue.enqueueMany("heavy", [1, 2, 3], { priority: 5 });
      await queue.enqueueMany("heavy", [4, 5, 6], { priority: 4 });
      await queue.enqueueMany("light", [1, 2, 3]);
      // A slot that is free again is claimed for at once, without waiting for a poll.
      const pollMs = 3_600_000;
      const worker = await queue.work("pod-1", [heavy.handler, light.handler], { pollMs });
      await queue.until("all that may", () => worker.running === 5);
      expect([heavy.attempts.length, light.attempts.length]).toEqual([2, 3]);
      await queue.pass(1_500);
      expect(worker.running).toBe(5);
      expect(worker.capacity.reasons).toEqual([{ code: "slots", text: 'slots of "heavy" used' }]);
      // Whichever claim it is, also the sixteenth, which goes by age across priorities.
      for (let nth = 0; nth < 6; nth++) {
        const { context, finish } = await queue.until("the next", () => heavy.attempts[nth]);
        expect(heavy.attempts.length - nth).toBeLessThanOrEqual(2);
        finish(1);
        expect(await queue.ended(context.taskId)).toMatchObject({ status: "completed" });
      }
      expect(heavy.attempts).toHaveLength(6);
      for (const { finish } of light.attempts) finish(1);
    });

    test("by name holds for claims that take the oldest first, and for tasks with limits", async () => {
      const heavy = heldOpen("heavy", { slots: 1 });
      for (const priority of [1, 2, 3]) await queue.enqueueMany("heavy", [1, 1, 1], { priority });
      await queue.enqueueMany("heavy", [1, 1, 1], { tenant: "ada" });
      // Another name without a limit, so that claims ask for several.
      const worker = await queue.work("pod-1", [heavy.handler, heldOpen("light").handler]);
      let most = 0;
      for (let nth = 0; nth < 12; nth++) {
        const { context, finish } = await queue.until(`run ${nth}`, async () => {
          // Claims after notifications that find nothing bring the sixteenth about.
          worker.wake();
          most = Math.max(most, worker.running);
          return heavy.attempts[nth];
        });
        finish(1);
        await queue.ended(context.taskId);
      }
      await queue.until("all of them", async () => (await queue.stats()).byStatus.completed === 12);
      expect(most).toBe(1);
    });

    test("shrinks under pressure, never below one, is published with why, and comes back", async () => {
      let pressure: Pressure = calm;
      const { handler, attempts } = heldOpen("a");
      const worker = await queue.work("pod-1", [handler], {
        pressure: { read: () => pressure, limits },
      });
      expect(worker.capacity).toEqual({ holds: 10, reasons: [] });
      pressure = { lateMs: 400, memory: 0.1 };
      await queue.pass(1_001);
      expect(worker.capacity).toMatchObject({
        holds: 5,
        reasons: [{ code: "event_loop", text: "event loop late 400 ms: at most 5 for now" }],
      });
      await queue.enqueueMany(
        "a",
        Array.from({ length: 10 }, () => 1),
      );
      await queue.until("as many as may", () => worker.running === 5);
      for (let second = 0; second < 8; second++) await queue.pass(1_000);
      expect(worker.capacity.holds).toBe(1);
      expect(worker.state).toBe("full");
      await queue.until("its word in the store", async () => (await said())?.holds === 1);
      for (const { finish } of attempts.splice(0)) finish(1);
      await queue.until("one at a time", () => attempts.length === 1);
      await queue.pass(1_500);
      expect(worker.running).toBe(1);
      pressure = calm;
      for (let second = 0; second < 21; second++) await queue.pass(1_000);
      await queue.until("all of the rest", () => worker.running === 5);
      expect(worker.capacity).toEqual({ holds: 10, reasons: [] });
      await queue.pass(1_500);
      await queue.until("nothing left to say", async () => (await said())?.reasons.length === 0);
      expect(await said()).toEqual({ holds: 10, reasons: [] });
      for (const { finish } of attempts) finish(1);
    });

    test("is written to the store only where it changes, and nothing where nothing holds it back", async () => {
      const { handler, attempts } = heldOpen("a");
      const writes: string[] = [];
      const database = {
        ...queue.database,
        write: (...given: Parameters<typeof queue.database.write>) => {
          writes.push(given[0].map((each) => each.strings.join("")).join(";"));
          return queue.database.write(...given);
        },
      };
      const worker = await queue.work("pod-1", [handler], {
        database,
        capacity: { slots: 2, target: 1 },
      });
      const told = () => writes.filter((text) => text.includes("set state = ")).length;
      for (let second = 0; second < 5; second++) await queue.pass(1_300);
      expect(told()).toBe(0);
      expect(await said()).toBe(null);
      await queue.enqueueMany("a", [1, 2, 3]);
      await queue.until("a full pod", () => worker.running === 2);
      for (let second = 0; second < 5; second++) await queue.pass(1_300);
      await queue.until("its word", said);
      expect(await said()).toEqual({
        holds: 2,
        reasons: [{ code: "full", text: "full: 2 of 2" }],
      });
      expect(told()).toBe(1);
      for (const { finish } of attempts) finish(1);
    });
  });
}
