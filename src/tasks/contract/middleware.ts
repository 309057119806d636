import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { abort, snooze } from "../../base/errors.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { openTasks, type TasksHarness } from "./harness.ts";
import { task } from "../task.ts";
import { heldOpen } from "./worker.ts";
import type { Middleware } from "../model.ts";

/** What middleware promises on every store. */
export function middlewareContract(kind: StoreKind): void {
  describe(`middleware on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    test("runs around every attempt, and what it makes of the result is checked and stored", async () => {
      const seen: unknown[] = [];
      const doubles: Middleware = async ({ name, input, attempt }, next) => {
        seen.push([name, input, attempt]);
        return 2 * ((await next()) as number);
      };
      const input = z.object({ of: z.number().default(4) });
      const flaky = task(
        "flaky",
        { input, output: z.number().max(10), attempts: 2, backoff: { baseMs: 0 } },
        ({ input: { of }, attempt }) => {
          if (attempt === 1) throw new Error("first");
          return of;
        },
      );
      await queue.work("pod-1", [flaky], { middleware: [doubles] });
      const { taskId } = await queue.enqueue(flaky, {});
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", result: 8 });
      expect(seen).toEqual([
        ["flaky", { of: 4 }, 1],
        ["flaky", { of: 4 }, 2],
      ]);
      const tooMuch = await queue.enqueue(flaky, { of: 6 });
      expect(await queue.ended(tooMuch.taskId)).toMatchObject({
        error: { code: "invalid_output" },
      });
    });

    test("that throws counts as the handler throwing", async () => {
      const stops: Middleware = ({ input, snoozes }, next) => {
        if (input === "abort") throw abort("not for us");
        if (input === "snooze" && snoozes === 0) throw snooze(0);
        return next();
      };
      let runs = 0;
      const echo = task<unknown, unknown, unknown>("echo", { attempts: 5 }, () => ++runs);
      await queue.work("pod-1", [echo], { middleware: [stops] });
      const aborted = await queue.enqueue(echo, "abort");
      expect(await queue.ended(aborted.taskId)).toMatchObject({
        status: "failed",
        failures: 1,
        error: { code: "aborted", message: "not for us" },
      });
      const snoozed = await queue.enqueue(echo, "snooze");
      expect(await queue.ended(snoozed.taskId)).toMatchObject({ status: "completed", snoozes: 1 });
      expect(runs).toBe(1);
    });

    test("that never calls the handler fails the attempt, and the error names it", async () => {
      const forgetful: Middleware = () => "nothing";
      const echo = task("echo", { attempts: 1 }, () => 1);
      await queue.work("pod-1", [echo], { middleware: [forgetful] });
      const { taskId } = await queue.enqueue(echo, null);
      expect(await queue.ended(taskId)).toMatchObject({
        status: "failed",
        error: {
          code: "invalid_middleware",
          message: 'the middleware "forgetful" returned without calling `next`',
        },
      });
    });

    test("that hangs is stopped by the timeout, and left to itself after the grace", async () => {
      const { handler, attempts } = heldOpen("a", { attempts: 1, timeoutMs: 10_000 });
      let fired = 0;
      const hangs: Middleware = async ({ signal }, next) => {
        signal.addEventListener("abort", () => fired++);
        await next();
        await new Promise(() => {});
      };
      await queue.work("pod-1", [handler], { middleware: [hangs], graceMs: 2_000 });
      const { taskId } = await queue.enqueue("a", 1);
      await queue.until("the attempt", () => attempts[0]);
      attempts[0]!.finish(1);
      await queue.pass(10_001);
      expect(fired).toBe(1);
      await queue.pass(2_001);
      expect(await queue.ended(taskId)).toMatchObject({ error: { code: "timeout" } });
    });
  });
}
