import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { abort, retryAfter } from "../../base/errors.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql } from "../../store/sql.ts";
import { openTasks, type TasksHarness, rowsOf } from "./harness.ts";
import { type HandleOptions, task } from "../task.ts";
import type { TaskContext } from "../model.ts";

const once = { attempts: 3, backoff: { baseMs: 1_000, factor: 2, jitter: 0 } };

/** A handler whose attempts end when the test says so. */
export function heldOpen(name: string, options: HandleOptions = once) {
  type Attempt = {
    context: TaskContext<unknown>;
    finish: (value: unknown) => void;
    fail: (thrown: unknown) => void;
  };
  const attempts: Attempt[] = [];
  const handler = task<unknown, unknown, unknown>(
    name,
    options,
    (context) =>
      new Promise((finish, fail) => {
        attempts.push({ context, finish, fail });
      }),
  );
  return { handler, attempts };
}

/** Not a promise, but something that can be waited for like one. */
function waitable(then: (tell: (value: unknown) => void) => void): object {
  const key = ["th", "en"].join("");
  return { [key]: then };
}

/** What running tasks promises on every store. */
export function workerContract(kind: StoreKind): void {
  describe(`running tasks on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    test("gives the handler what it needs, in the output form, and stores what it returns", async () => {
      const seen: object[] = [];
      const input = z.object({ to: z.string().trim(), copies: z.number().default(1) });
      const mail = task("mail", { input }, ({ input: given, attempt, token, taskId, name }) => {
        seen.push({ given, attempt, token, taskId, name });
        return { sent: new Date(0), left: undefined };
      });
      await queue.work("pod-1", [mail]);
      const { taskId } = await queue.enqueue(mail, { to: " ada " });
      expect(await queue.ended(taskId)).toMatchObject({
        status: "completed",
        result: { sent: "1970-01-01T00:00:00.000Z" },
        failures: 0,
      });
      expect(seen).toEqual([
        { given: { to: "ada", copies: 1 }, attempt: 1, token: 1, taskId, name: "mail" },
      ]);
    });

    test("runs each of many once, and never more at a time than it has slots", async () => {
      let running = 0;
      let most = 0;
      const runs = new Map<number, number>();
      const count = task<number, number, void>("count", {}, async ({ input }) => {
        most = Math.max(most, ++running);
        runs.set(input, (runs.get(input) ?? 0) + 1);
        await new Promise((resolve) => setImmediate(resolve));
        running--;
      });
      await queue.work("pod-1", [count], { capacity: { slots: 10, target: 0.8 } });
      await queue.enqueueMany(
        count,
        Array.from({ length: 300 }, (_, at) => at),
      );
      await queue.until(
        "all of them",
        async () => (await queue.stats()).byStatus.completed === 300,
      );
      expect([...runs.values()].every((each) => each === 1)).toBe(true);
      expect(runs.size).toBe(300);
      expect(most).toBeLessThanOrEqual(8);
      expect(most).toBeGreaterThan(1);
    });

    test("tries again after the backoff, not before, until it works", async () => {
      // Some stores have the machine's time, which goes on meanwhile.
      const { handler, attempts } = heldOpen("a", { backoff: { baseMs: 60_000, jitter: 0 } });
      await queue.work("pod-1", [handler]);
      const { taskId } = await queue.enqueue("a", 1);
      await queue.until("the first attempt", () => attempts[0]);
      attempts[0]!.fail(new Error("first"));
      await queue.inStatus(taskId, "pending");
      await queue.pass(30_000);
      expect(attempts).toHaveLength(1);
      await queue.pass(30_000);
      await queue.until("the second attempt", () => attempts[1]);
      attempts[1]!.fail("not even an error");
      await queue.inStatus(taskId, "pending");
      await queue.pass(120_000);
      await queue.until("the third attempt", () => attempts[2]);
      expect(attempts.map(({ context }) => context.attempt)).toEqual([1, 2, 3]);
      // Each is of a later claim. One whose answer took as long as time passed here was given back before it.
      const tokens = attempts.map(({ context }) => context.token);
      expect(tokens).toEqual([...new Set(tokens)].toSorted((one, other) => one - other));
      attempts[2]!.finish("ok");
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", failures: 2 });
      expect((await queue.events(taskId)).map((each) => each.type)).toEqual(["retry", "retry"]);
    });

    test("fails a task that is out of attempts, with its last error", async () => {
      let runs = 0;
      const broken = task("broken", { attempts: 2, backoff: { baseMs: 0 } }, () => {
        throw new Error(`broken ${++runs}`);
      });
      await queue.work("pod-1", [broken]);
      const { taskId } = await queue.enqueue("broken", 1);
      expect(await queue.ended(taskId)).toMatchObject({
        status: "failed",
        failures: 2,
        error: { code: "handler_failed", message: "broken 2" },
      });
      expect((await queue.events(taskId)).map((each) => each.type)).toEqual(["retry", "failed"]);
      const own = await queue.enqueue("broken", 1, { attempts: 1 });
      expect(await queue.ended(own.taskId)).toMatchObject({ failures: 1 });
    });

    test("fails at once where another attempt couldn't help", async () => {
      let runs = 0;
      const aborts = task("aborts", once, () => {
        runs++;
        throw abort("no use");
      });
      const large = task("large", once, () => {
        runs++;
        return "x".repeat(100);
      });
      await queue.work("pod-1", [aborts, large], { maxResultBytes: 50 });
      const aborted = await queue.enqueue("aborts", 1);
      expect(await queue.ended(aborted.taskId)).toMatchObject({ error: { code: "aborted" } });
      const tooLarge = await queue.enqueue("large", 1);
      expect(await queue.ended(tooLarge.taskId)).toMatchObject({
        error: { code: "payload_too_large" },
      });
      expect(runs).toBe(2);
    });

    test("waits as long as the error's retryAfter", async () => {
      const { handler, attempts } = heldOpen("a");
      await queue.work("pod-1", [handler]);
      const { taskId } = await queue.enqueue("a", 1);
      await queue.until("the first attempt", () => attempts[0]);
      attempts[0]!.fail(retryAfter(30_000, "too many requests"));
      await queue.inStatus(taskId, "pending");
      await queue.pass(29_000);
      expect(attempts).toHaveLength(1);
      await queue.pass(2_500);
      await queue.until("the second attempt", () => attempts[1]);
      attempts[1]!.finish(1);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed" });
    });

    test("runs nothing before its time", async () => {
      const { handler, attempts } = heldOpen("a");
      await queue.work("pod-1", [handler]);
      const { taskId } = await queue.enqueue("a", 1, { delayMs: 60_000 });
      for (let second = 0; second < 58; second += 2) await queue.pass(2_000);
      expect(attempts).toHaveLength(0);
      await queue.pass(3_500);
      await queue.until("the attempt", () => attempts[0]);
      attempts[0]!.finish(1);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed" });
    });

    test("never claims names that it has no handler for", async () => {
      const { handler, attempts } = heldOpen("known");
      await queue.work("pod-1", [handler]);
      const unknown = await queue.enqueue("unknown", 1, { priority: 100 });
      const known = await queue.enqueue("known", 1);
      await queue.until("the known one", () => attempts[0]);
      await queue.pass(30_000);
      expect(await queue.get(unknown.taskId)).toMatchObject({ status: "pending", claimToken: 0 });
      attempts[0]!.finish(1);
      await queue.ended(known.taskId);
      expect(attempts).toHaveLength(1);
    });

    test("fails for good what no longer fits its schema, without running it", async () => {
      let runs = 0;
      const strict = task("strict", { input: z.object({ to: z.string() }), ...once }, () => runs++);
      const { taskId } = await queue.enqueue("strict", { to: 5 });
      await queue.database.write([
        sql`insert into ${rowsOf} (task_id, name, payload) values ('by hand', 'strict', '{"to":')`,
      ]);
      await queue.work("pod-1", [strict]);
      expect(await queue.ended(taskId)).toMatchObject({
        status: "failed",
        failures: 1,
        error: { code: "invalid_input", message: expect.stringContaining("to: ") },
      });
      expect(await queue.ended("by hand")).toMatchObject({
        status: "failed",
        error: { code: "invalid_input", message: expect.stringContaining("isn't JSON") },
      });
      expect(runs).toBe(0);
    });

    test("tries again when what was returned doesn't fit its schema", async () => {
      let runs = 0;
      const output = task("out", { output: z.number(), attempts: 2, backoff: { baseMs: 0 } }, () =>
        ++runs === 1 ? ("one" as never) : 2,
      );
      await queue.work("pod-1", [output]);
      const { taskId } = await queue.enqueue("out", 1);
      expect(await queue.ended(taskId)).toMatchObject({
        status: "completed",
        result: 2,
        failures: 1,
      });
    });

    test("runs a row that was inserted by hand with only a name and a payload", async () => {
      const echo = task<unknown, unknown, unknown>("echo", {}, ({ input }) => input);
      await queue.work("pod-1", [echo]);
      await queue.database.write([
        sql`insert into ${rowsOf} (name, payload) values ('echo', '{"by":"hand"}')`,
      ]);
      await queue.pass(1_500);
      const [row] = await queue.database.read(sql`select task_id from ${rowsOf}`);
      const taskId = row!["task_id"] as string;
      expect(taskId).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-a[0-9a-f]{3}-[0-9a-f]{12}$/);
      expect(await queue.ended(taskId)).toMatchObject({
        status: "completed",
        result: { by: "hand" },
      });
    });

    test("runs a row that was inserted by hand with numbers that JavaScript can't hold", async () => {
      const echo = task<unknown, unknown, unknown>("echo", {}, ({ input }) => input);
      await queue.database.write([
        sql`insert into ${rowsOf} (task_id, name, payload, created_at, max_attempts)
          values ('wide', 'echo', '1', 1700000000000000000, 9223372036854775807)`,
      ]);
      const { taskId } = await queue.enqueue(echo, 2);
      await queue.work("pod-1", [echo]);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed" });
      expect(await queue.ended("wide")).toMatchObject({ status: "completed", result: 1 });
      expect((await queue.list()).tasks).toHaveLength(2);
    });

    test("gives a context that can be destructured", async () => {
      const handler = task<unknown, unknown, unknown>("a", {}, async (context) => {
        const { signal, progress, lastProgress, parents, log } = context;
        progress({ done: 1 });
        log.info({}, "half done");
        return [signal.aborted, await lastProgress(), await parents(), signal === context.signal];
      });
      await queue.work("pod-1", [handler]);
      const { taskId } = await queue.enqueue("a", 1);
      expect(await queue.ended(taskId)).toMatchObject({ result: [false, { done: 1 }, [], true] });
    });

    test.each([
      ["at once", () => 1],
      ["later", async () => 1],
      ["by something that can be waited for", () => waitable((tell) => tell(1))],
    ])("stores what a handler gives %s", async (_when, run) => {
      await queue.work("pod-1", [task<unknown, unknown, unknown>("a", {}, run)]);
      const { taskId } = await queue.enqueue("a", 1);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", result: 1 });
    });

    test.each([
      [
        "at once",
        () => {
          throw new Error("no");
        },
      ],
      ["later", () => Promise.reject(new Error("no"))],
      [
        "where it is waited for",
        () =>
          waitable(() => {
            throw new Error("no");
          }),
      ],
    ])("fails what a handler throws %s", async (_when, run) => {
      await queue.work("pod-1", [task<unknown, unknown, unknown>("a", { attempts: 1 }, run)]);
      const { taskId } = await queue.enqueue("a", 1);
      expect(await queue.ended(taskId)).toMatchObject({
        status: "failed",
        error: { message: "no" },
      });
    });

    test("shows progress while it runs", async () => {
      const { handler, attempts } = heldOpen("a");
      await queue.work("pod-1", [handler]);
      const { taskId } = await queue.enqueue("a", 1);
      const attempt = await queue.until("the attempt", () => attempts[0]);
      attempt.context.progress({ done: 1 });
      attempt.context.progress({ done: 2 });
      await queue.pass(300);
      await queue.until("its progress", async () => (await queue.get(taskId))!.progress);
      expect((await queue.get(taskId))!.progress).toEqual({ done: 2 });
      attempt.finish(1);
      await queue.ended(taskId);
      expect(() => attempt.context.progress({ done: 3 })).not.toThrow();
    });

    test("lets a task of low priority through an endless stream of others", async () => {
      let running = true;
      let ahead = 0;
      const order: number[] = [];
      const endless = task<number, number, void>("a", {}, async ({ input }) => {
        order.push(input);
        if (input === 0) running = false;
        // Every task brings two more of a higher priority.
        if (running && ahead < 400) {
          ahead += 2;
          await queue.enqueueMany("a", [1, 1], { priority: 10 });
        }
      });
      const { taskId } = await queue.enqueue("a", 0, { priority: -10 });
      await queue.enqueueMany("a", [1, 1, 1, 1], { priority: 10 });
      await queue.work("pod-1", [endless], { capacity: { slots: 2, target: 1 } });
      await queue.ended(taskId);
      // With one task a claim, the sixteenth claim takes the oldest. It looks for it first, and where a
      // store takes several at once, claims that are made beside it don't wait for that, however long it
      // takes; and a claim may find nothing for a moment.
      expect(order.indexOf(0)).toBeGreaterThanOrEqual(10);
      expect(order.indexOf(0)).toBeLessThan(queue.database.writesAtOnce ? 256 : 32);
    });
  });
}
