import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import type { Database } from "../../store/database.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql } from "../../store/sql.ts";
import { openTasks, type TasksHarness, rowsOf } from "./harness.ts";
import { heldOpen } from "./worker.ts";

/** What stopping an attempt promises on every store: by time, by cancel, by shutdown, by loss. */
export function stopContract(kind: StoreKind): void {
  describe(`stopping tasks on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    const started = async (handler = heldOpen("a"), more: object = {}) => {
      const worker = await queue.work("pod-1", [handler.handler], more);
      const { taskId } = await queue.enqueue("a", 1);
      const attempt = await queue.until("the attempt", () => handler.attempts[0]);
      return { worker, taskId, attempt, signal: attempt.context.signal, ...handler };
    };
    const reasonOf = (signal: AbortSignal) => (signal.reason as FlotillaError).code;

    test("a timeout fires the signal, and counts as a failed attempt", async () => {
      const options = { attempts: 2, timeoutMs: 10_000, backoff: { baseMs: 0 } };
      const { taskId, attempt, signal, attempts } = await started(heldOpen("a", options));
      await queue.pass(9_000);
      expect(signal.aborted).toBe(false);
      await queue.pass(1_500);
      expect(reasonOf(signal)).toBe("timeout");
      attempt.fail(signal.reason);
      await queue.until("the next attempt", () => attempts[1]);
      expect(await queue.get(taskId)).toMatchObject({
        failures: 1,
        error: { code: "timeout", message: "the attempt took longer than 10000 ms" },
      });
    });

    test("a value that comes after the signal but within the grace still counts", async () => {
      const { taskId, attempt, signal } = await started(heldOpen("a", { timeoutMs: 10_000 }));
      await queue.pass(10_500);
      expect(signal.aborted).toBe(true);
      attempt.finish("just in time");
      expect(await queue.ended(taskId)).toMatchObject({
        status: "completed",
        result: "just in time",
      });
    });

    test("a handler that ignores its signal is left to itself, and can store nothing any more", async () => {
      const options = { attempts: 1, timeoutMs: 10_000 };
      const { taskId, attempt, worker } = await started(heldOpen("a", options), { graceMs: 2_000 });
      await queue.pass(10_500);
      expect(await queue.get(taskId)).toMatchObject({ status: "claimed" });
      await queue.pass(2_500);
      expect(await queue.ended(taskId)).toMatchObject({
        status: "failed",
        error: { code: "timeout" },
      });
      expect(worker.running).toBe(0);
      const before = await queue.row(taskId);
      attempt.finish("too late");
      attempt.context.progress("too late");
      await queue.pass(2_000);
      expect(await queue.row(taskId)).toEqual(
        // Time was passed by moving the row where the store's clock can't be moved.
        expect.objectContaining({ status: before["status"], result: null, progress: null }),
      );
      expect(queue.told.filter((event) => event.type === "ended")).toHaveLength(1);
    });

    test("a cancel reaches the handler through its signal, from any connection", async () => {
      const { taskId, attempt, signal } = await started();
      const other = queue.client();
      expect(await other.cancel(taskId)).toBe("cancelling");
      await queue.pass(2_000);
      await queue.until("the signal", () => signal.aborted);
      expect(reasonOf(signal)).toBe("cancelled");
      attempt.fail(signal.reason);
      expect(await queue.ended(taskId)).toMatchObject({ status: "cancelled", failures: 0 });
      expect((await queue.events(taskId)).map((each) => each.type)).toEqual([
        "cancel_requested",
        "cancelled",
      ]);
      other.close();
    });

    test("a cancel isn't lost to an attempt that fails before the pod learns of it", async () => {
      const { taskId, attempt, attempts } = await started();
      await queue.cancel(taskId);
      attempt.fail(new Error("broken"));
      expect(await queue.ended(taskId)).toMatchObject({ status: "cancelled" });
      await queue.pass(10_000);
      expect(attempts).toHaveLength(1);
    });

    test("a result that is there before the pod learns of the cancel counts", async () => {
      const { taskId, attempt } = await started();
      await queue.cancel(taskId);
      attempt.finish("done");
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", result: "done" });
    });

    test("a stop waits, then aborts handlers, and gives their attempts back uncounted", async () => {
      const { taskId, attempt, signal, worker, attempts } = await started();
      const stopped = worker.stop({ waitMs: 5_000 });
      const later = await queue.enqueue("a", 2);
      await queue.pass(4_000);
      expect(signal.aborted).toBe(false);
      await queue.pass(1_500);
      expect(reasonOf(signal)).toBe("cancelled");
      attempt.fail(signal.reason);
      await queue.outcome(stopped);
      expect(await queue.get(taskId)).toMatchObject({
        status: "pending",
        failures: 0,
        claimToken: 2,
      });
      // A claim that was under way may have brought it, and then it was given back.
      expect(await queue.get(later.taskId)).toMatchObject({ status: "pending", failures: 0 });
      expect(attempts).toHaveLength(1);
    });

    test("a stop ends as soon as nothing runs any more", async () => {
      const { taskId, attempt, worker } = await started();
      const stopped = worker.stop({ waitMs: 60_000 });
      attempt.finish("done");
      const startedMs = queue.clock.monotonic();
      await queue.outcome(stopped);
      expect(queue.clock.monotonic() - startedMs).toBeLessThan(30_000);
      expect(await queue.get(taskId)).toMatchObject({ status: "completed" });
    });

    test("a stop leaves no timer behind, also where a claim was under way", async () => {
      await queue.enqueue("a", 1, { delayMs: 900 });
      let answer: (() => void) | undefined;
      const slow: typeof queue.database = {
        ...queue.database,
        write: async (statements) => {
          const tables = await queue.database.write(statements);
          // On a slow machine its time has come, and what it has claimed is given back by another write.
          if (answer === undefined) await new Promise<void>((resolve) => (answer = resolve));
          return tables;
        },
      };
      const before = queue.clock.timers;
      const worker = await queue.work("pod-1", [heldOpen("a").handler], { database: slow });
      await queue.until("the claim", () => answer);
      const stopping = worker.stop({ waitMs: 60_000 });
      answer!();
      await queue.outcome(stopping);
      expect(queue.clock.timers).toBe(before);
    });

    test("a stop gives back also what never settles", async () => {
      const { taskId, worker } = await started(heldOpen("a"), { graceMs: 1_000 });
      const stopped = worker.stop({ waitMs: 1_000 });
      await queue.pass(2_500);
      await queue.outcome(stopped);
      expect(await queue.get(taskId)).toMatchObject({ status: "pending", failures: 0 });
    });

    test("a handler whose task went to another pod is aborted, and its result is dropped", async () => {
      const { taskId, attempt, signal } = await started();
      const [claim] = (await queue.list()).tasks;
      await queue.recover("pod-1", [{ taskId, token: claim!.claimToken } as never]);
      await queue.beat("pod-2");
      const [taken] = await queue.claim("pod-2", ["a"]);
      expect(taken!.taskId).toBe(taskId);
      await queue.pass(3_000);
      await queue.until("the signal", () => signal.aborted);
      expect(reasonOf(signal)).toBe("claim_lost");
      attempt.finish("stale");
      await queue.pass(1_000);
      expect(await queue.row(taskId)).toMatchObject({
        status: "claimed",
        claimed_by: "pod-2",
        result: null,
      });
      expect(queue.told).toContainEqual(
        expect.objectContaining({ type: "ended", outcome: "lost" }),
      );
    });

    test("a pod that was taken for dead finishes what it runs instead of claiming it again", async () => {
      const { taskId, attempt, attempts } = await started();
      await queue.pass(1_500);
      await queue.recover("pod-1", [{ taskId, token: 1 } as never]);
      await queue.pass(5_000);
      expect(attempts).toHaveLength(1);
      attempt.finish("kept");
      expect(await queue.ended(taskId)).toMatchObject({
        status: "completed",
        result: "kept",
        deaths: 1,
      });
    });

    test.each(["lost", "late"] as const)(
      "a claim whose answer was %s leaves nothing claimed without a pod that runs it",
      async (how) => {
        let claims = 0;
        let landed = 0;
        const shaky: Database = {
          ...queue.database,
          async write(statements) {
            const isClaim = statements.length > 2;
            if (isClaim) claims++;
            const answer = await queue.database.write(statements);
            if (isClaim) landed++;
            if (!isClaim || claims > 1) return answer;
            if (how === "late") return new Promise(() => {});
            throw new FlotillaError("unknown_outcome", "the answer was lost");
          },
        };
        const floors: number[] = [];
        await queue.enqueueMany("a", [1, 2, 3]);
        const { handler, attempts } = heldOpen("a");
        await queue.work("pod-1", [handler], {
          database: shaky,
          onAbandoned: (call: number) => floors.push(call),
        });
        // Passing time touches the rows, and a claim that is under way would skip them.
        await queue.until("the first claim", () => landed > 0);
        expect(attempts).toHaveLength(0);
        // Not longer than it takes: a claim that is under way meanwhile would be given up as well.
        await queue.pass(how === "late" ? 10_001 : 1);
        await queue.until("the tasks", () => attempts.length === 3);
        expect(attempts.map((each) => each.context.token)).toEqual([3, 3, 3]);
        expect(attempts.map((each) => each.context.attempt)).toEqual([1, 1, 1]);
        expect(floors).toEqual([1]);
        for (const attempt of attempts) attempt.finish(1);
        await queue.until("their end", async () => (await queue.stats()).byStatus.completed === 3);
        expect(await queue.count(sql`claim_token = 3`)).toBe(3);
      },
    );

    test("a task that pods died under runs alone, when the pod has drained, and others after it", async () => {
      const { handler, attempts } = heldOpen("a");
      await queue.enqueueMany("a", ["x", "y"]);
      const worker = await queue.work("pod-1", [handler]);
      await queue.until("the first two", () => attempts.length === 2);
      await queue.database.write([
        sql`insert into ${rowsOf} (task_id, name, payload, deaths) values ('poison', 'a', '"p"', 2)`,
      ]);
      await queue.pass(2_000);
      await queue.until("draining", () => worker.state === "draining for one");
      await queue.enqueue("a", "z");
      await queue.pass(2_000);
      expect(worker.state).toBe("draining for one");
      expect(attempts).toHaveLength(2);
      attempts[0]!.finish(1);
      await queue.pass(2_000);
      expect(attempts).toHaveLength(2);
      attempts[1]!.finish(1);
      await queue.until("the poison", () => attempts.length === 3);
      expect(attempts[2]!.context.input).toBe("p");
      await queue.pass(2_000);
      expect(worker.state).toBe("alone");
      expect(attempts).toHaveLength(3);
      attempts[2]!.finish(1);
      await queue.until("the last one", () => attempts.length === 4);
      expect(attempts[3]!.context.input).toBe("z");
      attempts[3]!.finish(1);
      await queue.ended(attempts[3]!.context.taskId);
      expect(await queue.ended("poison")).toMatchObject({ status: "completed", deaths: 2 });
    });

    test("a task that pods died under isn't begun where a turn of that kind has just begun", async () => {
      const { handler, attempts } = heldOpen("a");
      await queue.database.write([
        sql`insert into ${rowsOf} (task_id, name, payload, deaths) values ('poison', 'a', '"p"', 2)`,
      ]);
      let hasSuspectTurn = true;
      const more = { hasSuspectTurn: () => hasSuspectTurn };
      const worker = await queue.work("pod-1", [handler], more);
      await queue.pass(5_000);
      await queue.until("draining", () => worker.state === "draining for one");
      expect([attempts.length, worker.hasSuspect]).toEqual([0, false]);
      hasSuspectTurn = false;
      await queue.pass(2_000);
      await queue.until("the poison", () => attempts.length === 1);
      expect(worker.hasSuspect).toBe(true);
      attempts[0]!.finish(1);
      await queue.ended("poison");
      await queue.until("it has ended", () => !worker.hasSuspect);
    });

    test("a pod no longer drains for a task that was cancelled meanwhile", async () => {
      const { handler, attempts } = heldOpen("a");
      await queue.enqueue("a", "x");
      const worker = await queue.work("pod-1", [handler]);
      await queue.until("the first", () => attempts.length === 1);
      await queue.database.write([
        sql`insert into ${rowsOf} (task_id, name, payload, deaths) values ('poison', 'a', '"p"', 2)`,
      ]);
      await queue.pass(2_000);
      await queue.until("draining", () => worker.state === "draining for one");
      expect(await queue.cancel("poison")).toBe("cancelled");
      await queue.enqueue("a", "z");
      await queue.pass(2_000);
      await queue.until("the next", () => attempts.length === 2);
      expect(attempts[1]!.context.input).toBe("z");
      for (const attempt of attempts) attempt.finish(1);
      await queue.ended(attempts[1]!.context.taskId);
    });
  });
}
