import { beforeEach, describe, expect, test } from "vitest";
import { abort, type FlotillaError } from "../../base/errors.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import type { Database } from "../../store/database.ts";
import { sql } from "../../store/sql.ts";
import { throttle } from "../../throttles/throttle.ts";
import { task } from "../task.ts";
import type { TasksHarness } from "./harness.ts";
import { journal, quick, type StepHandler, useSteps } from "./steps-harness.ts";

/** What is promised of steps in tasks, by their names. */
export function stepsContract(kind: StoreKind): void {
  describe(`steps of tasks on ${kind.name}`, () => {
    const { queue: steps, calls, called, run, failingOnce, rows, keys, logged } = useSteps(kind);
    let queue: TasksHarness;
    beforeEach(() => void (queue = steps()));

    test("run once, and answer what they returned in every later attempt", async () => {
      const { ended, taskId } = await run(
        failingOnce(async ({ step }) => {
          const first = await step("first", () => called("first", { at: new Date(0) }));
          const second = await step("second", async () => called("second", [first.at, null]));
          return { first, second };
        }),
      );
      const at = "1970-01-01T00:00:00.000Z";
      expect(ended).toMatchObject({
        status: "completed",
        result: { first: { at }, second: [at, null] },
      });
      expect(calls).toEqual(["first", "second"]);
      expect(await keys(taskId)).toEqual(["first", "second"]);
    });

    test("give the same in the first attempt as from the journal", async () => {
      const seen: unknown[] = [];
      await run(
        failingOnce(async ({ step }) => {
          seen.push(await step("dates", () => ({ at: new Date(5), none: undefined })));
          seen.push(await step("nothing", () => {}));
        }),
      );
      expect(seen.slice(0, 2)).toEqual(seen.slice(2));
      expect(seen[1]).toBe(null);
    });

    test("cost no read in a first attempt, and one in a later one", async () => {
      let reads = 0;
      const database: Database = {
        ...queue.database,
        read(statement, options) {
          if (JSON.stringify(statement).includes("input_hash")) reads++;
          return queue.database.read(statement, options);
        },
      };
      const counts: number[] = [];
      await run(
        failingOnce(async ({ step }) => {
          for (const name of ["a", "b", "c"]) await step(name, () => name);
          counts.push(reads);
        }),
        { database },
      );
      expect(counts).toEqual([0, 1]);
    });

    test("that threw keep their place, for code that catches the error and tries again", async () => {
      let tries = 0;
      const twice = async (attempt: () => Promise<unknown>) => attempt().catch(attempt);
      const flaky = (name: string) => () => {
        called(name);
        if (++tries % 2 === 1) throw new Error("not yet");
        return name;
      };
      const { taskId } = await run(
        failingOnce(async ({ step }) => {
          await twice(() => step("plain", flaky("plain")));
          await twice(() => step("keyed", { key: "x" }, flaky("keyed")));
          await step("plain", () => called("next"));
        }),
      );
      expect(await keys(taskId)).toEqual(["plain", "keyed[x]", "plain#2"]);
      expect(calls).toEqual(["plain", "plain", "keyed", "keyed", "next"]);
    });

    test("that threw run again, and are not stored", async () => {
      let tries = 0;
      const { ended, taskId } = await run(async ({ step }) => {
        await step("good", () => called("good"));
        return step("bad", () => {
          called("bad");
          if (++tries < 2) throw new Error("not yet");
          return tries;
        });
      });
      expect(ended).toMatchObject({ status: "completed", result: 2 });
      expect(calls).toEqual(["good", "bad", "bad"]);
      expect(await keys(taskId)).toEqual(["good", "bad"]);
    });

    test("that aborted are stored, and throw the same again", async () => {
      const seen: unknown[] = [];
      const { ended } = await run(
        failingOnce(async ({ step }) => {
          await step("never", () => {
            called("never");
            throw abort("no such user");
          }).catch((error: FlotillaError) => seen.push([error.code, error.message]));
        }),
      );
      expect(ended.status).toBe("completed");
      expect(calls).toEqual(["never"]);
      expect(seen).toEqual([
        ["aborted", "no such user"],
        ["aborted", "no such user"],
      ]);
    });

    test("of one name are numbered one after the other", async () => {
      const { taskId } = await run(
        failingOnce(async ({ step }) => {
          for (const at of [1, 2, 3]) await step("model", () => called(`model ${at}`, at));
        }),
      );
      expect(await keys(taskId)).toEqual(["model", "model#2", "model#3"]);
      expect(calls).toEqual(["model 1", "model 2", "model 3"]);
    });

    test("of one name at the same time without a key are refused, in the first attempt", async () => {
      const { ended } = await run(({ step }) =>
        Promise.all([step("a", async () => 1), step("a", async () => 2)]),
      );
      expect(ended).toMatchObject({
        status: "failed",
        failures: 1,
        error: { code: "step_ambiguous" },
      });
    });

    test("of one name run at the same time with keys, whatever these hold", async () => {
      const given = ["x", "x]", "[x", "a/b#2@3", "ö".repeat(999), `${"ö".repeat(999)}x`];
      const { ended, taskId } = await run(
        failingOnce(({ step }) =>
          Promise.all(given.map((key) => step("read", { key }, async () => called(key, key)))),
        ),
      );
      expect(ended).toMatchObject({ status: "completed", result: given });
      expect(calls).toHaveLength(given.length);
      expect(await keys(taskId)).toHaveLength(given.length);
    });

    test.each<[string, StepHandler]>([
      [
        "a key that is used twice",
        async ({ step }) => {
          await step("a", { key: "k" }, () => 1);
          await step("a", { key: "k" }, () => 2);
        },
      ],
      [
        "two items with one key",
        ({ step }) => step.forEach("a", [1, 2], { key: () => "k" }, (item) => item),
      ],
    ])("refuse %s", async (_, handler) => {
      const { ended } = await run(handler);
      expect(ended).toMatchObject({ status: "failed", error: { code: "step_ambiguous" } });
    });

    test("of different names run at the same time and are found again in any order", async () => {
      const { ended } = await run(
        failingOnce(({ step, attempt }) => {
          const names = attempt === 1 ? ["a", "b", "c"] : ["c", "a", "b"];
          return Promise.all(names.map((name) => step(name, async () => called(name, name))));
        }),
      );
      expect(ended.status).toBe("completed");
      expect(calls.toSorted()).toEqual(["a", "b", "c"]);
    });

    test("that were added, moved and removed between attempts are found by their names", async () => {
      const { log, lines } = logged();
      let attempts = 0;
      const { ended, taskId } = await run(
        async ({ step }) => {
          const names = ++attempts === 1 ? ["a", "b", "c"] : ["new", "c", "a"];
          const results: unknown[] = [];
          for (const name of names) results.push(await step(name, () => called(name, name)));
          if (attempts === 1) throw new Error("once");
          return results;
        },
        { log },
      );
      expect(ended).toMatchObject({ result: ["new", "c", "a"] });
      expect(calls).toEqual(["a", "b", "c", "new"]);
      expect(lines).toContain("stored steps were not asked for");
      const listed = (await queue.steps(taskId)).map(({ key, requested }) => [key, requested]);
      expect(listed).toEqual([
        ["a", true],
        ["b", false],
        ["c", true],
        ["new", true],
      ]);
    });

    const aside = (taskId: string) =>
      queue.until("it is set aside", async () => {
        const found = await queue.get(taskId);
        return found?.status === "pending" && found.setAside ? found : undefined;
      });

    test("with another input than the stored one set the task aside, until that is forgotten", async () => {
      let input: any = { b: 1, a: 2 };
      let failed = false;
      const handler = task<any, any, unknown>("a", { ...quick, attempts: 2 }, async ({ step }) => {
        await step("before", () => called("before"));
        const read = step("read", { input }, () => called("read"));
        // What the handler makes of the refusal doesn't count.
        await read.catch(() => step("later", () => called("later")));
        if (failed) return input;
        failed = true;
        // The order of fields is no change.
        input = { a: 2, b: 1 };
        throw new Error("again");
      });
      await queue.work("pod-1", [handler]);
      const first = await queue.enqueue("a", 1);
      expect(await queue.ended(first.taskId)).toMatchObject({ status: "completed" });
      expect(calls.splice(0)).toEqual(["before", "read"]);

      failed = false;
      input = { b: 1.5 };
      const { taskId } = await queue.enqueue("a", 1);
      const { setAside, failures } = await aside(taskId);
      const [, row] = await rows(taskId);
      expect(setAside).toMatchObject({
        reason: "step_changed",
        step: "read",
        stored: row!["input_hash"],
        given: expect.stringMatching(/^[\w-]+$/),
      });
      expect(setAside!.given).not.toBe(setAside!.stored);
      expect([failures, calls.splice(0)]).toEqual([1, ["before", "read"]]);
      await expect(queue.resumeTask(taskId, { forget: ["no"] })).rejects.toMatchObject({
        code: "not_found",
      });
      await queue.resumeTask(taskId);
      await queue.until("it is tried again", async () => {
        const events = await queue.events(taskId);
        return events.filter(({ type }) => type === "set_aside").length === 2;
      });
      await queue.resumeTask(taskId, { forget: ["read"] });
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", failures: 1 });
      expect(calls).toEqual(["read"]);
      await expect(queue.resumeTask(taskId)).rejects.toMatchObject({ code: "conflict" });
    });

    test("whose rows were edited by hand set the task aside, and may be cancelled or started over", async () => {
      let failed = false;
      const handler = task<any, any, unknown>("a", quick, async ({ step, taskId }) => {
        const read = await step("read", () => called("read", 1));
        if (failed) return read;
        failed = true;
        await queue.database.write([
          sql`update ${journal} set value = '{' where owner_id = ${taskId}`,
        ]);
        throw new Error("again");
      });
      await queue.work("pod-1", [handler]);
      const { taskId } = await queue.enqueue("a", 1);
      expect(await aside(taskId)).toMatchObject({ setAside: { step: "read" } });
      expect(await queue.cancel(taskId)).toBe("cancelled");
      await queue.resumeTask(taskId, { forget: ["read"] });
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", result: 1 });
      expect(calls).toEqual(["read", "read"]);
    });

    test("within a step are forgotten in the write that stores it", async () => {
      const seen: string[][] = [];
      const { taskId, ended } = await run(async ({ step, taskId }) => {
        const sum = await step("outer", async (outer) => {
          const one = await outer.step("one", () => called("one", 1));
          const two = await outer.step("two", async (inner) => {
            await inner.step("deep", () => called("deep"));
            seen.push(await keys(taskId));
            return 2;
          });
          seen.push(await keys(taskId));
          return one + two;
        });
        return sum;
      });
      expect(ended).toMatchObject({ result: 3 });
      expect(seen).toEqual([
        ["outer/one", "outer/two/deep"],
        ["outer/one", "outer/two"],
      ]);
      expect(await keys(taskId)).toEqual(["outer"]);
    });

    test("within a step that failed answer when it runs again, and are forgotten then", async () => {
      let tries = 0;
      const { taskId } = await run(({ step }) =>
        step("outer", async (outer) => {
          await outer.step("inner", () => called("inner"));
          called("outer");
          if (++tries === 1) throw new Error("once");
        }),
      );
      expect(calls).toEqual(["inner", "outer", "outer"]);
      expect(await keys(taskId)).toEqual(["outer"]);
    });

    test("for each item keep the order, and run as many at once as they may", async () => {
      let [running, most] = [0, 0];
      const items = Array.from({ length: 12 }, (_, at) => at);
      const { ended, taskId } = await run(
        failingOnce(({ step }) =>
          step.forEach("each", items, { key: String, atOnce: 3 }, async (item) => {
            most = Math.max(most, ++running);
            await Promise.resolve();
            running--;
            return called(String(item), item * 2);
          }),
        ),
      );
      expect(ended).toMatchObject({ result: items.map((item) => item * 2) });
      expect(most).toBe(3);
      expect(calls).toHaveLength(12);
      expect(new Set(await keys(taskId))).toEqual(new Set(items.map((item) => `each[${item}]`)));
    });

    test("for each item go on behind the ones that are stored", async () => {
      let broken = true;
      const { ended } = await run(({ step }) =>
        step.forEach("each", ["a", "b", "c", "d"], { key: (each) => each, atOnce: 1 }, (item) => {
          if (item === "c" && broken) {
            broken = false;
            throw new Error("once");
          }
          return called(item, item);
        }),
      );
      expect(ended).toMatchObject({ result: ["a", "b", "c", "d"] });
      expect(calls).toEqual(["a", "b", "c", "d"]);
    });

    test("in a loop are forgotten with each round, and it goes on with its state", async () => {
      const seen: string[][] = [];
      let failed = false;
      const { ended, taskId } = await run(({ step, taskId }) =>
        step.loop("write", { n: 0, text: "" }, async ({ n, text }, round) => {
          const word = await round.step("model", () => called(`model ${n}`, `${n}`));
          seen.push(await keys(taskId));
          if (n === 2 && !failed) {
            failed = true;
            throw new Error("once");
          }
          return n === 3 ? round.done(text + word) : { n: n + 1, text: text + word };
        }),
      );
      expect(ended).toMatchObject({ result: "0123" });
      expect(calls).toEqual(["model 0", "model 1", "model 2", "model 3"]);
      expect(seen).toEqual([
        ["write@1/model"],
        ["write", "write@2/model"],
        ["write", "write@3/model"],
        ["write", "write@3/model"],
        ["write", "write@4/model"],
      ]);
      expect(await keys(taskId)).toEqual(["write"]);
    });

    test("take a key that is the same in every attempt and another for every task", async () => {
      const given: string[] = [];
      const handler: StepHandler = async ({ step }) => {
        await step("pay", ({ key }) => {
          given.push(key);
          if (given.length % 2 === 1) throw new Error("once");
        });
      };
      const { taskId } = await run(handler);
      const other = await queue.enqueue("a", 2);
      await queue.ended(other.taskId);
      expect(given).toEqual([
        `${taskId}/pay`,
        `${taskId}/pay`,
        `${other.taskId}/pay`,
        `${other.taskId}/pay`,
      ]);
    });

    test("stop at their time limit, though they ignore their signal", async () => {
      const seen: unknown[] = [];
      await queue.work("pod-1", [
        task<any, any, unknown>("a", { attempts: 1 }, ({ step }) =>
          step("slow", { timeoutMs: 100 }, ({ signal }) => {
            signal.addEventListener("abort", () =>
              seen.push((signal.reason as FlotillaError).code),
            );
            return new Promise(() => {});
          }),
        ),
      ]);
      const { taskId } = await queue.enqueue("a", 1);
      await queue.inStatus(taskId, "claimed");
      await queue.pass(100);
      await queue.until("the signal", () => seen.length > 0);
      await queue.pass(5_000);
      expect(await queue.ended(taskId)).toMatchObject({
        status: "failed",
        error: { code: "timeout", message: 'step "slow" took longer than 100 ms' },
      });
      expect(seen).toEqual(["timeout"]);
    });

    test("renew the time of their attempt when they are stored", async () => {
      let next: (() => void) | undefined;
      await queue.work("pod-1", [
        task<any, any, unknown>("a", { attempts: 1, timeoutMs: 60_000 }, async ({ step }) => {
          for (let at = 0; at < 4; at++) {
            await step("slow", () => new Promise<void>((resolve) => (next = resolve)));
          }
          return "done";
        }),
      ]);
      const { taskId } = await queue.enqueue("a", 1);
      for (let at = 0; at < 4; at++) {
        const go = await queue.until("the step", () => next);
        // Twice that is too much, and what the store takes to answer isn't.
        await queue.pass(40_000);
        next = undefined;
        go();
      }
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", result: "done" });
    });

    test("run under the permits of a throttle", async () => {
      const model = throttle(`steps ${kind.name}`, { initial: 1, max: 1, mode: "local" });
      let [running, most] = [0, 0];
      const { ended } = await run(({ step }) =>
        step.forEach("call", [1, 2, 3], { key: String, throttle: model }, async (item) => {
          most = Math.max(most, ++running);
          await new Promise((resolve) => setImmediate(resolve));
          running--;
          return item;
        }),
      );
      expect(ended).toMatchObject({ result: [1, 2, 3] });
      expect(most).toBe(1);
    });
  });
}
