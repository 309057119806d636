import { beforeEach, describe, expect, expectTypeOf, test } from "vitest";
import { abort, FlotillaError, hasCode } from "../../base/errors.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql } from "../../store/sql.ts";
import { task } from "../task.ts";
import { rowsOf, type TasksHarness } from "./harness.ts";
import { quick, type StepHandler, useSteps } from "./steps-harness.ts";

/** What is promised of steps that start other tasks and wait for them. */
export function stepChildrenContract(kind: StoreKind): void {
  describe(`children of steps on ${kind.name}`, () => {
    const { queue: steps, calls, called, rows } = useSteps(kind);
    let queue: TasksHarness;
    beforeEach(() => void (queue = steps()));

    const [untilDue, forDependencies, untilSignal] = [1, 2, 5];
    const shout = task<string, string, string>("shout", quick, ({ input }) => input.toUpperCase());
    const double = task<number, number, number>("double", quick, ({ input }) => {
      called(`double ${input}`);
      return input * 2;
    });
    /** A child that waits for a word, and fails if that is bad. */
    const talker = task<string, string, unknown>("talker", quick, async ({ step }) => {
      const word = await step.signal<string>("word");
      if (word === "bad") throw abort("in a bad mood");
      return word;
    });
    const begin = async (handler: StepHandler, options = {}) => {
      const handled = task<any, any, unknown>("a", { ...quick, ...options }, handler);
      const worker = await queue.work("pod-1", [handled]);
      const { taskId } = await queue.enqueue("a", 1, { tenant: "ours" });
      return { worker, taskId };
    };
    const parked = (taskId: string, as: number) =>
      queue.until("it is parked", async () => {
        const found = await queue.row(taskId);
        return found["status"] === "pending" && Number(found["parked"]) === as ? found : undefined;
      });
    const childrenOf = (taskId: string) =>
      queue.database.read(
        sql`select * from ${rowsOf} where parent_id = ${taskId} order by unique_key`,
      );
    const say = async (childId: unknown, word: string) => {
      await parked(childId as string, untilSignal);
      await queue.signal(childId as string, "word", word);
    };

    test("a task is parked until its children have ended, and gets their results in order", async () => {
      let attempts = 0;
      const { worker, taskId } = await begin(async ({ step }) => {
        attempts++;
        const results = await step.children("both", [
          [double, 21],
          [shout, "hey", { priority: -5 }],
        ]);
        expectTypeOf(results).toEqualTypeOf<[number, string]>();
        return results;
      });
      await parked(taskId, forDependencies);
      await queue.until("nothing is held", () => worker.running === 0);
      expect(await childrenOf(taskId)).toMatchObject([
        { name: "double", tenant: "ours", parent_id: taskId },
        { name: "shout", tenant: "ours", priority: -5 },
      ]);
      await queue.work("pod-2", [shout, double]);
      expect(await queue.ended(taskId)).toMatchObject({ result: [42, "HEY"], failures: 0 });
      expect([attempts, calls]).toEqual([2, ["double 21"]]);
      expect(await rows(taskId)).toMatchObject([{ key: "both", kind: "done" }]);
    });

    test("no child is started twice by attempts that follow each other, nor a list without any", async () => {
      let attempts = 0;
      const { taskId } = await begin(async ({ step }) => {
        attempts++;
        expect(await step.children("none", [])).toEqual([]);
        const waiting = step.children("both", [[talker, "x"]]);
        if (attempts < 3) {
          await queue.until("the children", async () => (await childrenOf(taskId)).length > 0);
          throw new Error("before it is parked");
        }
        return waiting;
      });
      await parked(taskId, forDependencies);
      expect(await childrenOf(taskId)).toHaveLength(1);
      await queue.work("pod-2", [talker]);
      const [child] = await childrenOf(taskId);
      await say(child!["task_id"], "done");
      expect(await queue.ended(taskId)).toMatchObject({ result: ["done"] });
      expect(await childrenOf(taskId)).toHaveLength(1);
    });

    test("a child that fails fails the step once all have ended, and a retry starts it over", async () => {
      let moods = 0;
      const moody = task<string, string, string>("moody", quick, ({ input }) => {
        if (++moods === 1) throw abort("in a bad mood");
        return input;
      });
      const { taskId } = await begin(
        ({ step }) =>
          step.children("both", [
            [moody, "one"],
            [talker, "two"],
          ]),
        { attempts: 3 },
      );
      await queue.work("pod-2", [talker, moody]);
      await parked(taskId, forDependencies);
      const [one, two] = await childrenOf(taskId);
      expect(await queue.ended(one!["task_id"])).toMatchObject({ status: "failed" });
      await parked(taskId, forDependencies);
      await say(two!["task_id"], "good");
      expect(await queue.ended(taskId)).toMatchObject({
        status: "failed",
        failures: 1,
        error: { code: "dependency_failed", message: expect.stringMatching(/in a bad mood/) },
      });
      await queue.retry(taskId);
      expect(await queue.ended(taskId)).toMatchObject({ result: ["one", "good"] });
      expect([moods, (await childrenOf(taskId)).length]).toEqual([2, 2]);
    });

    test("with `keep` the result says how each child ended", async () => {
      const { taskId } = await begin(async ({ step }) => {
        const ended = await step.children(
          "both",
          [
            [talker, "one"],
            [talker, "two"],
            [double, 2],
          ],
          {
            failures: "keep",
          },
        );
        return ended.map((each) => [
          each.status,
          each.status === "failed" ? each.error.code : each.status === "completed" && each.output,
        ]);
      });
      await queue.work("pod-2", [talker, double]);
      await parked(taskId, forDependencies);
      const found = await childrenOf(taskId);
      await say(found[0]!["task_id"], "bad");
      await parked(found[1]!["task_id"], untilSignal);
      await queue.cancel(found[1]!["task_id"]);
      expect(await queue.ended(taskId)).toMatchObject({
        result: [
          ["failed", "aborted"],
          ["cancelled", false],
          ["completed", 4],
        ],
      });
    });

    test("a cancel of a parked task cancels its children, and one of a running task too", async () => {
      const { taskId } = await begin(({ step }) => step.children("one", [[talker, "x"]]));
      await queue.work("pod-2", [talker]);
      await parked(taskId, forDependencies);
      const [child] = await childrenOf(taskId);
      await parked(child!["task_id"], untilSignal);
      expect(await queue.cancel(taskId)).toBe("cancelled");
      expect(await queue.ended(child!["task_id"])).toMatchObject({ status: "cancelled" });

      let isRunning = false;
      const busy = task<any, any, unknown>("busy", quick, ({ step, signal }) =>
        Promise.all([
          step.children("one", [[talker, "x"]]),
          step("long", () => {
            isRunning = true;
            return new Promise((_, reject) => signal.addEventListener("abort", reject));
          }),
        ]),
      );
      await queue.work("pod-3", [busy]);
      const other = await queue.enqueue(busy, 1);
      await queue.until("the step", () => isRunning);
      const [second] = await queue.until("the child", async () => {
        const found = await childrenOf(other.taskId);
        return found.length > 0 ? found : undefined;
      });
      expect(await queue.cancel(other.taskId)).toBe("cancelling");
      await queue.pass(1_000);
      expect(await queue.ended(other.taskId)).toMatchObject({ status: "cancelled" });
      expect(await queue.ended(second!["task_id"])).toMatchObject({ status: "cancelled" });
    });

    const first: StepHandler = ({ step }) =>
      Promise.all([
        step.children("kids", [[talker, "x"]]).then((said) => called(`said ${said[0] as string}`)),
        step.signal("stop").then(() => called("stop")),
        step.sleep("night", 60_000).then(() => called("night")),
      ]);

    test("beside a time and a signal, the first of them wakes the task", async () => {
      const { taskId } = await begin(first);
      await queue.work("pod-2", [talker]);
      await parked(taskId, untilDue);
      const [child] = await childrenOf(taskId);
      await queue.signal(taskId, "stop");
      await queue.until("the signal", () => calls.includes("stop"));
      await parked(taskId, untilDue);
      await say(child!["task_id"], "hello");
      await queue.until("the child", () => calls.includes("said hello"));
      await parked(taskId, untilDue);
      await queue.pass(61_000);
      await queue.ended(taskId);
      expect(new Set(calls)).toEqual(new Set(["stop", "said hello", "night"]));
    });

    test("are waited for up to a timeout from their start, and go on after it", async () => {
      const { taskId } = await begin(async ({ step }) => {
        const limit = { timeoutMs: 60_000 };
        try {
          return await step.children("kids", [[talker, "x"]], limit);
        } catch (error) {
          if (!hasCode(error, "timeout")) throw error;
          called(error.message);
          return error.message;
        }
      });
      await queue.work("pod-2", [talker]);
      await parked(taskId, untilDue);
      const [child] = await childrenOf(taskId);
      await queue.pass(59_000);
      expect(calls).toEqual([]);
      await queue.pass(2_000);
      const late = 'the children of "kids" took over 60000 ms';
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", result: late });
      expect(calls).toEqual([late]);
      await say(child!["task_id"], "hello");
      expect(await queue.ended(child!["task_id"])).toMatchObject({ status: "completed" });
    });

    test("several steps of children may wait at the same time, and a child that ends early isn't missed", async () => {
      const { taskId } = await begin(({ step }) =>
        Promise.all([
          step.children("one", [[double, 1]]),
          step.children("two", [[double, 2]]),
          step("slow", async () => {
            await queue.until("both", () => calls.length === 2);
          }),
        ]),
      );
      await queue.work("pod-2", [double]);
      expect(await queue.ended(taskId)).toMatchObject({ result: [[2], [4], null] });
    });

    test("wrong lists, options and inputs are refused", async () => {
      const wrong: unknown[] = [[["x", 1]], "no", [[double, 1, { delay: 1 }]]];
      const { taskId } = await begin(async ({ step }) => {
        const codes: string[] = [];
        for (const [at, list] of wrong.entries()) {
          await step
            .children(`wrong ${at}`, list as [])
            .catch((error: FlotillaError) => codes.push(error.code));
        }
        return codes;
      });
      expect(await queue.ended(taskId)).toMatchObject({
        result: ["invalid_option", "invalid_option", "invalid_option"],
      });
      expect(await childrenOf(taskId)).toEqual([]);
    });
  });
}
