import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import type { Database } from "../../store/database.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, table } from "../../store/sql.ts";
import type { Worker } from "../run/worker.ts";
import { openTasks, type TasksHarness } from "./harness.ts";
import { heldOpen } from "./worker.ts";

/** What is promised where a pod and the code that enqueues are one process. */
export function handOverContract(kind: StoreKind): void {
  describe(`enqueueing beside a pod on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    const beside = (worker: Worker, database: Database = queue.database) =>
      queue.client({
        database,
        onEnqueued: () => worker.wake(),
        claimWithin: (names) => worker.claimWithin(names),
      });

    /** A pod that has nothing to do, and has made its first claims. */
    const idlePod = async (name = "a") => {
      const { handler, attempts } = heldOpen(name);
      const worker = await queue.work("pod-1", [handler], { capacity: { slots: 2, target: 1 } });
      await queue.until("an idle pod", () => worker.state === "idle");
      return { worker, attempts };
    };

    /** Counts writes, and may lose the answer of one or refuse it. */
    const watched = (fault: (nth: number) => "lost" | "refused" | undefined = () => undefined) => {
      let writes = 0;
      const database: Database = {
        ...queue.database,
        async write(statements, options) {
          const what = fault(++writes);
          if (what === "refused") throw new FlotillaError("store_busy", "refused");
          const answer = await queue.database.write(statements, options);
          if (what === "lost") throw new FlotillaError("unknown_outcome", "the answer was lost");
          return answer;
        },
      };
      return { database, writes: () => writes };
    };

    test("an idle pod claims a task by the write that stores it", async () => {
      const { worker, attempts } = await idlePod();
      const { database, writes } = watched();
      const { taskId } = await beside(worker, database).enqueue("a", 1);
      expect(writes()).toBe(1);
      expect(await queue.row(taskId)).toMatchObject({ claimed_by: "pod-1", claim_token: 1 });
      await queue.until("its attempt", () => attempts.length === 1);
      attempts[0]!.finish(1);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed" });
    });

    test("when the answer is lost, the claim is given up and the task runs once", async () => {
      const { worker, attempts } = await idlePod();
      const { database } = watched((nth) => (nth === 1 ? "lost" : undefined));
      const enqueued = queue.outcome(beside(worker, database).enqueue("a", 1));
      await queue.until("its attempt", () => attempts.length === 1);
      attempts[0]!.finish(1);
      const { taskId, created } = await enqueued;
      expect(created).toBe(true);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed" });
      // The claim of the lost answer raised the token, and so did its release.
      expect(await queue.row(taskId)).toMatchObject({ claim_token: 3 });
      expect(await queue.count()).toBe(1);
      expect(attempts).toHaveLength(1);
    });

    test("when the write is refused, it may be for the claim: the task is stored without it", async () => {
      const { worker, attempts } = await idlePod();
      const { database, writes } = watched((nth) => (nth === 1 ? "refused" : undefined));
      const { created } = await queue.outcome(beside(worker, database).enqueue("a", 1));
      expect([created, writes()]).toEqual([true, 2]);
      await queue.until("its attempt", () => attempts.length === 1);
      expect(attempts[0]!.context.token).toBe(1);
    });

    test("when the write is refused without a claim too, the caller hears of it", async () => {
      const { worker, attempts } = await idlePod();
      const { database } = watched((nth) => (nth <= 2 ? "refused" : undefined));
      const tasks = beside(worker, database);
      await expect(queue.outcome(tasks.enqueue("a", 1))).rejects.toMatchObject({
        code: "store_busy",
      });
      expect(await queue.count()).toBe(0);
      await queue.until("an idle pod", () => worker.state === "idle");
      await tasks.enqueue("a", 2);
      await queue.until("its attempt", () => attempts.length === 1);
    });

    test("a write that is long or may wait for others carries no claim", async () => {
      let carried = 0;
      const tasks = queue.client({ claimWithin: () => void carried++ });
      await tasks.enqueue("a", 1, { key: "k" });
      const { taskId } = await tasks.enqueue("a", 1, { delayMs: 60_000 });
      await tasks.enqueue("a", 1, { after: [taskId] });
      await tasks.enqueueMany(
        "a",
        Array.from({ length: 51 }, (_, at) => at),
      );
      expect(carried).toBe(0);
      await tasks.enqueueMany("a", [1, 2]);
      expect(carried).toBe(1);
    });

    test("a pod takes no more than it has slots for", async () => {
      const { worker, attempts } = await idlePod();
      const tasks = beside(worker);
      await tasks.enqueueMany("a", [1, 2, 3, 4]);
      await queue.until("full slots", () => attempts.length === 2);
      await tasks.enqueue("a", 5);
      expect(worker.running).toBe(2);
      expect(await queue.count(sql`status = 'pending'`)).toBe(3);
    });

    test("a pod takes no task of a name that it has no handler for", async () => {
      const { worker } = await idlePod();
      await queue.enqueue("a", 1, { delayMs: 60_000 });
      const { taskId } = await beside(worker).enqueue("b", 1);
      expect(await queue.row(taskId)).toMatchObject({ status: "pending" });
    });

    test("a pod takes no task of a paused name", async () => {
      const { worker, attempts } = await idlePod();
      await queue.outcome(queue.pause("a"));
      const { taskId } = await queue.outcome(beside(worker).enqueue("a", 1));
      expect(await queue.row(taskId)).toMatchObject({ status: "pending" });
      expect(attempts).toHaveLength(0);
    });

    test("a pod that counts an abandoned claim takes nothing by an older one", async () => {
      const { worker } = await idlePod();
      await queue.database.write([sql`update ${table("pod")} set claim_floor = 1000`]);
      const { taskId } = await beside(worker).enqueue("a", 1);
      expect(await queue.row(taskId)).toMatchObject({ status: "pending" });
    });
  });
}
