import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import { silentLogger } from "../../base/log.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import type { Database } from "../../store/database.ts";
import { openTasks, type TasksHarness } from "./harness.ts";
import { task } from "../task.ts";
import { heldOpen } from "./worker.ts";
import { sendLeftovers } from "../finish/outbox-resend.ts";
import { memoryDisk } from "./memory-disk.ts";
import { createOutbox, type Outbox } from "../finish/outbox.ts";

/** What is promised of results that the store can't take when they are there. */
export function outboxContract(kind: StoreKind): void {
  describe(`results that ${kind.name} can't take yet`, () => {
    let queue: TasksHarness;
    let memory: ReturnType<typeof memoryDisk>;
    beforeEach(async () => {
      queue = await openTasks(kind);
      memory = memoryDisk();
    });
    afterEach(() => queue.close());

    const outboxOf = (podId: string, maxBytes = 1_000_000): Outbox =>
      createOutbox({ ...queue, disk: memory.disk, podId, maxBytes });

    /** The same store, which a pod can be cut off from. */
    const shakyStore = () => {
      const state = { away: false, hangs: false };
      const meet = async <Answer>(ask: () => Promise<Answer>): Promise<Answer> => {
        if (state.hangs) return new Promise(() => {});
        if (state.away) throw new FlotillaError("store_unavailable", "away");
        return ask();
      };
      const database: Database = {
        ...queue.database,
        read: (statement) => meet(() => queue.database.read(statement)),
        write: (statements, options) => meet(() => queue.database.write(statements, options)),
      };
      return { state, database };
    };

    /** A pod that has run a task and can't say so. */
    const podInOutage = async (how: "away" | "hangs", maxBytes?: number) => {
      const { handler, attempts } = heldOpen("a");
      const { state, database } = shakyStore();
      const outbox = outboxOf("pod-1", maxBytes);
      const worker = await queue.work("pod-1", [handler], { database, outbox, graceMs: 10 });
      const { taskId } = await queue.enqueue("a", 1);
      await queue.until("the attempt", () => attempts.length === 1);
      state[how] = true;
      attempts[0]!.finish("done");
      return { worker, taskId, state, attempts, handler };
    };

    const send = (outbox: Outbox) => {
      const { signal } = new AbortController();
      return queue.outcome(sendLeftovers({ ...queue, outbox, log: silentLogger, signal }));
    };

    test.each(["away", "hangs"] as const)(
      "are kept while it %s, and sent by the next pod on the machine",
      async (how) => {
        const { taskId, attempts, handler } = await podInOutage(how);
        await queue.pass(2_000);
        await queue.until("it is kept", () => memory.entries.size === 1);

        // The first pod is never heard of again. Its task is released, and no pod has claimed it.
        await queue.recover("pod-1", [{ taskId, token: 1 }]);
        const outbox = outboxOf("pod-2");
        await send(outbox);
        expect(await queue.get(taskId)).toMatchObject({ status: "completed", result: "done" });
        await queue.work("pod-2", [handler], { outbox, graceMs: 10 });
        await queue.until("nothing is kept", () => memory.entries.size === 0);
        expect(attempts).toHaveLength(1);
      },
    );

    test("are stored by the pod itself when it is back, and then kept no longer", async () => {
      const { taskId, state, attempts } = await podInOutage("away");
      await queue.until("it is kept", () => memory.entries.size === 1);
      state.away = false;
      await queue.pass(6_000);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", result: "done" });
      await queue.until("nothing is kept", () => memory.entries.size === 0);
      expect(attempts).toHaveLength(1);
    });

    test("don't count when another pod has claimed the task meanwhile, and are kept no longer", async () => {
      const { taskId } = await podInOutage("away");
      await queue.until("it is kept", () => memory.entries.size === 1);
      await queue.recover("pod-1", [{ taskId, token: 1 }]);
      await queue.beat("pod-2");
      await queue.claim("pod-2", ["a"]);

      await send(outboxOf("pod-3"));
      await queue.until("nothing is kept", () => memory.entries.size === 0);
      expect(await queue.get(taskId)).toMatchObject({ status: "claimed", claimedBy: "pod-2" });
    });

    test("give way to a cancel that came before they could be sent", async () => {
      const { handler, attempts } = heldOpen("a");
      const { state, database } = shakyStore();
      await queue.work("pod-1", [handler], { database, outbox: outboxOf("pod-1"), graceMs: 10 });
      const { taskId } = await queue.enqueue("a", 1);
      await queue.until("the attempt", () => attempts.length === 1);
      state.away = true;
      attempts[0]!.fail(new Error("broken"));
      await queue.until("it is kept", () => memory.entries.size === 1);
      await queue.cancel(taskId);

      await send(outboxOf("pod-2"));
      expect(await queue.get(taskId)).toMatchObject({ status: "cancelled" });
    });

    test("stay kept when the pod is stopped meanwhile", async () => {
      const { worker, taskId } = await podInOutage("hangs");
      await queue.outcome(worker.stop({ waitMs: 0 }));
      expect(memory.entries.size).toBe(1);
      await send(outboxOf("pod-2"));
      expect(await queue.get(taskId)).toMatchObject({ status: "completed", result: "done" });
    });

    /** A pod in a step that has ended and can't be stored. */
    const stepInOutage = async () => {
      const calls: string[] = [];
      let goOn: (() => void) | undefined;
      const handler = task<unknown, unknown, unknown>("a", { timeoutMs: 1_000 }, ({ step }) =>
        step("one", async () => {
          calls.push("one");
          await new Promise<void>((resolve) => (goOn = resolve));
          return "done";
        }),
      );
      const { state, database } = shakyStore();
      const worker = await queue.work("pod-1", [handler], {
        database,
        outbox: outboxOf("pod-1"),
        graceMs: 10,
      });
      const { taskId } = await queue.enqueue("a", 1);
      const end = await queue.until("the step", () => goOn);
      state.away = true;
      end();
      return { worker, taskId, state, handler, calls };
    };

    test("are those of steps too, which wait for it without a limit", async () => {
      const { taskId, state, calls } = await stepInOutage();
      await queue.until("it is kept", () => memory.entries.size === 1);
      await queue.pass(60_000);
      state.away = false;
      await queue.pass(6_000);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", result: "done" });
      await queue.until("nothing is kept", () => memory.entries.size === 0);
      expect(calls).toEqual(["one"]);
    });

    test("of steps are sent by the next pod on the machine, and the steps don't run again", async () => {
      const { taskId, handler, calls } = await stepInOutage();
      await queue.until("it is kept", () => memory.entries.size === 1);
      await queue.recover("pod-1", [{ taskId, token: 1 }]);
      const outbox = outboxOf("pod-2");
      await send(outbox);
      await queue.work("pod-2", [handler], { outbox, graceMs: 10 });
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", result: "done" });
      await queue.until("nothing is kept", () => memory.entries.size === 0);
      expect(calls).toEqual(["one"]);
    });

    test("aren't kept at all while it is well", async () => {
      const quick = task("a", {}, () => "done");
      await queue.work("pod-1", [quick], { outbox: outboxOf("pod-1") });
      memory.fail(new Error("nothing should be written"));
      const { taskId } = await queue.enqueue("a", 1);
      await queue.ended(taskId);
      await queue.pass(3_000);
      expect(memory.entries.size).toBe(0);
    });

    test("keep the pod from claiming when they are more than fits, and it publishes that", async () => {
      const { worker, taskId, state } = await podInOutage("away", 10);
      await queue.until("it is full", () => worker.state === "outbox full");
      const other = await queue.enqueue("a", 2);
      state.away = false;
      await queue.pass(6_000);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", result: "done" });
      await queue.until("it claims again", async () => {
        await queue.pass(500);
        return (await queue.get(other.taskId))?.status === "claimed";
      });
      expect(memory.entries.size).toBe(0);
    });
  });
}
