import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { beat } from "../../pods/sql.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, table } from "../../store/sql.ts";
import { openTasks, type TasksHarness, rowsOf } from "./harness.ts";
import { task } from "../task.ts";
import { heldOpen } from "./worker.ts";

/** What can be seen of a fleet in its two tables, on every store. */
export function fleetContract(kind: StoreKind): void {
  describe(`a fleet on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    const claimedBy = (podId: string) =>
      queue.count(sql`status = 'claimed' and claimed_by = ${podId}`);

    test("has a row for each pod, in which every beat is seen", async () => {
      const pods = async () =>
        queue.database.read(
          sql`select pod_id, started_at, last_heartbeat, beat, status
            from ${table("pod")} order by pod_id`,
        );
      await queue.beat("pod-1", "pod-2");
      const before = await pods();
      await queue.pass(3_000);
      await queue.database.write([beat("pod-1", "{}", 0)]);
      const [one, two, ...more] = await pods();
      expect(more).toEqual([]);
      expect(one).toMatchObject({ pod_id: "pod-1", status: "up", beat: 2 });
      expect(two).toMatchObject({ pod_id: "pod-2", status: "up", beat: 1 });
      expect(one!["started_at"]).toBe(before[0]!["started_at"]);
      expect(Number(one!["last_heartbeat"])).toBeGreaterThanOrEqual(
        Number(two!["last_heartbeat"]) + 3_000,
      );
    });

    test("has a row for each task, with all that an operator may want to know of it", async () => {
      const { taskId } = await queue.enqueue("mail", { to: "ada" }, { priority: 3 });
      const [row] = await queue.database.read(
        sql`select task_id, status, claimed_by, last_update, retry_count, payload, priority, created_at
          from ${rowsOf}`,
      );
      expect(row).toMatchObject({
        task_id: taskId,
        status: "pending",
        claimed_by: null,
        retry_count: 0,
        payload: `{"to":"ada"}`,
        priority: 3,
      });
      expect(Number(row!["last_update"])).toBe(Number(row!["created_at"]));
    });

    test("refuses unknown statuses from any writer", async () => {
      const { taskId } = await queue.enqueue("mail", null);
      const change = sql`update ${rowsOf} set status = 'done' where task_id = ${taskId}`;
      await expect(queue.database.write([change])).rejects.toThrow(/check/i);
      const down = sql`insert into ${table("pod")} (pod_id, status) values ('x', 'asleep')`;
      await expect(queue.database.write([down])).rejects.toThrow(/check/i);
      expect(await queue.row(taskId)).toMatchObject({ status: "pending" });
    });

    test("with one pod runs what is urgent first, and else what came first", async () => {
      const order: number[] = [];
      const note = task<number>("note", {}, ({ input }) => void order.push(input));
      const priorities = [0, 5, -5, 5, 0, 9, -5];
      for (const [at, priority] of priorities.entries()) {
        await queue.enqueue(note, at, { priority });
        await queue.pass(10);
      }
      await queue.work("pod-1", [note], { capacity: { slots: 1, target: 1 } });
      await queue.until("all of them", () => order.length === priorities.length);
      expect(order).toEqual([5, 1, 3, 0, 4, 2, 6]);
    });

    test.each([
      { target: 0.8, holds: 8 },
      { target: 0.5, holds: 5 },
    ])("of ten slots at $target holds no more than $holds", async ({ target, holds }) => {
      const { handler, attempts } = heldOpen("held");
      await queue.enqueueMany("held", Array.from({ length: 30 }).fill(null));
      await queue.work("pod-1", [handler], { capacity: { slots: 10, target }, graceMs: 5 });
      await queue.until("all it takes", () => attempts.length === holds);
      await queue.pass(5_000);
      expect(await claimedBy("pod-1")).toBe(holds);
      attempts[0]!.finish(null);
      await queue.until("the next", () => attempts.length === holds + 1);
      // The next may be there a moment before the row of the one that ended says so.
      await queue.until("its share", async () => (await claimedBy("pod-1")) === holds);
      await queue.pass(5_000);
      expect(await claimedBy("pod-1")).toBe(holds);
    });

    test("counts every attempt that failed, where every reader can see it", async () => {
      const options = { attempts: 4, backoff: { baseMs: 1_000, factor: 1, jitter: 0 } };
      const { handler, attempts } = heldOpen("flaky", options);
      await queue.work("pod-1", [handler]);
      const { taskId } = await queue.enqueue("flaky", null);
      for (let failed = 1; failed <= 4; failed++) {
        await queue.until(`attempt ${failed}`, () => attempts.length === failed);
        attempts[failed - 1]!.fail(new Error("as ordered"));
        await queue.inStatus(taskId, failed < 4 ? "pending" : "failed");
        expect(await queue.row(taskId)).toMatchObject({ retry_count: failed });
        await queue.pass(2_500);
      }
      expect(attempts).toHaveLength(4);
    });

    test("does as much more at once as every pod that joins has slots for", async () => {
      const room = { capacity: { slots: 2, target: 1 }, graceMs: 5 };
      const pods = Array.from({ length: 4 }, () => heldOpen("held"));
      await queue.enqueueMany("held", Array.from({ length: 12 }).fill(null));
      const running = () => pods.reduce((sum, { attempts }) => sum + attempts.length, 0);
      for (const [at, { handler }] of pods.entries()) {
        await queue.work(`pod-${at}`, [handler], room);
        await queue.until(`what ${at + 1} can do`, () => running() === 2 * (at + 1));
      }
      // None has ended, so that all of them run at the same time, and no pod has more than its share.
      await queue.pass(5_000);
      expect(pods.map(({ attempts }) => attempts.length)).toEqual([2, 2, 2, 2]);
      expect(await queue.count(sql`status = 'claimed'`)).toBe(8);
      expect(await queue.count(sql`status = 'pending'`)).toBe(4);
    });

    test("has a pod that joins take its share within a poll, and what one leaves is taken by others", async () => {
      // The grace leaves a loaded database the time to store what is given back, and the poll leaves it some
      // seconds to answer.
      const room = { capacity: { slots: 2, target: 1 }, pollMs: 5_000, graceMs: 400 };
      const [one, other] = [heldOpen("held"), heldOpen("held")];
      await queue.enqueueMany("held", Array.from({ length: 4 }).fill(null));
      const first = await queue.work("pod-1", [one.handler], room);
      await queue.until("the first pod's", () => one.attempts.length === 2);
      expect(await claimedBy("pod-1")).toBe(2);

      const joinedMs = queue.clock.monotonic();
      await queue.work("pod-2", [other.handler], { ...room, capacity: { slots: 4, target: 1 } });
      await queue.until("the second pod's", () => other.attempts.length === 2);
      // A poll is jittered by a quarter.
      expect(queue.clock.monotonic() - joinedMs).toBeLessThanOrEqual(6_250);

      await queue.outcome(first.stop({ waitMs: 0 }));
      expect(await claimedBy("pod-1")).toBe(0);
      const isLeft = () => other.attempts.length === 4;
      await queue.until("what the first has left", isLeft, { stepMs: 5 });
      expect(await queue.count(sql`status = 'claimed' and retry_count = 0`)).toBe(4);
    });
  });
}
