import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { beat, changeDrain, readPods, toPodSeen } from "../../pods/sql.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, table } from "../../store/sql.ts";
import { openTasks, type TasksHarness } from "./harness.ts";
import { heldOpen } from "./worker.ts";

/** What a pod promises that is to take no more work, on every store. */
export function drainContract(kind: StoreKind): void {
  describe(`draining a pod on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    const stateOf = async (podId: string) => {
      const [row] = await queue.database.read(
        sql`select state from ${table("pod")} where pod_id = ${podId}`,
      );
      return JSON.parse(row!["state"] ?? "{}") as { drain?: string };
    };

    test("it claims nothing more, lets what runs end and store its outcome, and says when it has drained", async () => {
      const { handler, attempts } = heldOpen("a");
      const worker = await queue.work("pod-1", [handler]);
      const first = await queue.enqueue("a", 1);
      const attempt = await queue.until("the attempt", () => attempts[0]);
      worker.drain(true);
      const second = await queue.enqueue("a", 2);
      await queue.pass(5_000);
      expect(attempt.context.signal.aborted).toBe(false);
      expect([worker.state, worker.capacity.drain]).toEqual(["draining", "draining"]);
      // What a claim took that was on its way is given back.
      expect(await queue.inStatus(second.taskId, "pending")).toMatchObject({ failures: 0 });
      attempt.finish("done");
      expect(await queue.ended(first.taskId)).toMatchObject({ status: "completed" });
      await queue.until("its state", async () => (await stateOf("pod-1")).drain === "drained", {
        stepMs: 100,
      });
      expect(worker.capacity).toMatchObject({
        drain: "drained",
        reasons: [{ code: "drained", text: "drained: takes no work until it is undrained" }],
      });
      expect(attempts).toHaveLength(1);
    });

    test("another pod takes what it leaves, and it takes work again when it is undrained", async () => {
      const mine = heldOpen("a");
      const theirs = heldOpen("a");
      const worker = await queue.work("pod-1", [mine.handler]);
      worker.drain(true);
      const other = await queue.work("pod-2", [theirs.handler], {
        capacity: { slots: 1, target: 1 },
      });
      await queue.enqueueMany("a", [1, 2]);
      await queue.until("the other's attempt", () => theirs.attempts[0]);
      worker.drain(false);
      await queue.until("its own attempt", () => mine.attempts[0], { stepMs: 50 });
      expect([worker.running, other.running]).toEqual([1, 1]);
      expect(worker.capacity.drain).toBeUndefined();
      theirs.attempts[0]!.finish(1);
      mine.attempts[0]!.finish(1);
    });

    test("it is read with the beat, and is kept when the pod's row was lost", async () => {
      const { database } = queue;
      await queue.beat("pod-1", "pod-2");
      const drains = async () =>
        Object.fromEntries(
          (await database.read(readPods())).map(toPodSeen).map((pod) => [pod.podId, pod.drains]),
        );
      expect(await drains()).toEqual({ "pod-1": undefined, "pod-2": undefined });
      await database.write(changeDrain("pod-1", true, () => []));
      await queue.beat("pod-1", "pod-2");
      expect(await drains()).toEqual({ "pod-1": true, "pod-2": undefined });
      await queue.forgetPod("pod-1");
      await database.write([beat("pod-1", "{}", 0, { hadRow: true, drains: true })]);
      expect(await drains()).toMatchObject({ "pod-1": true });
      await database.write(changeDrain("pod-1", false, () => []));
      expect(await drains()).toMatchObject({ "pod-1": undefined });
    });

    test("a name that only such a pod works on has no worker, and what it has reserved is for others", async () => {
      const { handler, attempts } = heldOpen("a");
      const { database } = queue;
      const { taskId } = await queue.enqueue("a", 1);
      await database.write([
        beat("pod-1", JSON.stringify({ names: ["a"] }), 0),
        sql`update ${table("task")} set deaths = 2, claimed_by = 'pod-1' where task_id = ${taskId}`,
      ]);
      expect(await queue.noWorker(["a"])).toEqual([]);
      await database.write(changeDrain("pod-1", true, () => []));
      await queue.pass(10_000);
      expect(await queue.noWorker(["a"])).toEqual(["a"]);
      await queue.work("pod-2", [handler]);
      await queue.until("the attempt", () => attempts[0], { stepMs: 100 });
      attempts[0]!.finish(1);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed" });
    });
  });
}
