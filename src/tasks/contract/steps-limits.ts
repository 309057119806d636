import { beforeEach, describe, expect, test } from "vitest";
import type { FlotillaError } from "../../base/errors.ts";
import type { StepContext } from "../../steps/model.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql } from "../../store/sql.ts";
import type { TaskContext } from "../model.ts";
import { task } from "../task.ts";
import type { TasksHarness } from "./harness.ts";
import { journal, quick, useSteps } from "./steps-harness.ts";

/** What steps refuse, and which step their errors name. */
export function stepLimitsContract(kind: StoreKind): void {
  describe(`the bounds of steps on ${kind.name}`, () => {
    const { queue: steps, calls, called, run, failingOnce, keys, logged } = useSteps(kind);
    let queue: TasksHarness;
    beforeEach(() => void (queue = steps()));

    describe("and what they return", () => {
      const cycle: { self?: unknown } = {};
      cycle.self = cycle;
      let deep: unknown = 1;
      for (let level = 0; level < 100; level++) deep = [deep];
      test.each<[string, unknown, string]>([
        ["a BigInt", 1n, "payload_not_storable"],
        ["a cycle", cycle, "payload_not_storable"],
        ["300 KiB", "x".repeat(300 * 1024), "payload_too_large"],
        ["too deep a value", deep, "payload_too_deep"],
        ["a stream", new ReadableStream(), "payload_not_storable"],
        ["a response", new Response("x"), "payload_not_storable"],
        ["half a surrogate pair", "\ud800", "payload_not_storable"],
      ])("refuse %s, and name the step", async (_, result, code) => {
        const { ended } = await run(({ step }) => step("bad one", () => result));
        expect(ended).toMatchObject({ status: "failed", failures: 1, error: { code } });
        expect((ended as { error: { message: string } }).error.message).toContain('"bad one"');
      });

      test("may be as large as a result, and is read when it is asked for", async () => {
        const large = "y".repeat(200 * 1024);
        const { ended } = await run(
          failingOnce(async ({ step }) => {
            const texts = [await step("a", () => called("a", large)), await step("b", () => "b")];
            return texts.map((each) => each.length);
          }),
        );
        expect(ended).toMatchObject({ result: [large.length, 1] });
        expect(calls).toEqual(["a"]);
      });
    });

    test.each(["", "x".repeat(201), "a#b", "a@b", "a/b", "a[b", "a]b", 5, null, "\u0000"])(
      "refuse the name %j",
      async (name) => {
        const { ended } = await run(
          ({ step }) => step(name as string, () => 1),
          {},
          { attempts: 1 },
        );
        expect(ended).toMatchObject({ status: "failed", error: { code: "invalid_option" } });
      },
    );

    describe("that run at most once", () => {
      const declined = () => {
        called("pay");
        throw new Error("declined");
      };

      test.each([{}, { key: "a" }])(
        "aren't called again by code that catches what they threw, with %j",
        async (more) => {
          let tries = 0;
          const { ended, taskId } = await run(async ({ step }) => {
            const codes: unknown[] = [];
            for (let at = 0; at < 3; at++) {
              await step("pay", { once: true, ...more }, declined).catch((error: FlotillaError) =>
                codes.push(error.code ?? error.message),
              );
            }
            if (++tries === 1) throw new Error("once more");
            return codes;
          });
          const unknown = "unknown_outcome";
          expect(ended).toMatchObject({ status: "completed", result: [unknown, unknown, unknown] });
          expect(calls).toEqual(["pay"]);
          expect(await keys(taskId)).toHaveLength(1);
        },
      );

      test("look for their outcome when they are called again in the same attempt", async () => {
        const look = () => called("look", "found");
        const { ended, taskId } = await run(async ({ step }) => {
          const pay = () => step("pay", { once: { look } }, declined);
          return [await pay().catch(() => pay()), await step("pay", () => called("second", 2))];
        });
        expect(ended).toMatchObject({ status: "completed", result: ["found", 2] });
        expect(calls).toEqual(["pay", "look", "second"]);
        expect(await keys(taskId)).toEqual(["pay", "pay#2"]);
      });

      test("answer when the step around them is called again in the same attempt", async () => {
        const { ended } = await run(async ({ step }) => {
          const order = () =>
            step("order", async (inner) => {
              const paid = await inner.step("pay", { once: true }, () => called("pay", "paid"));
              if (calls.length === 1) {
                called("lost");
                throw new Error("lost");
              }
              return paid;
            });
          return order().catch(order);
        });
        expect(ended).toMatchObject({ status: "completed", result: "paid" });
        expect(calls).toEqual(["pay", "lost"]);
      });
    });

    test("are at most eight deep", async () => {
      const nest = async (context: Pick<StepContext, "step">, level: number): Promise<number> =>
        context.step(`level ${level}`, (inner) => (level === 8 ? level : nest(inner, level + 1)));
      const { ended } = await run((context) => nest(context, 1));
      expect(ended).toMatchObject({ status: "completed", result: 8 });
      const deeper = await queue.outcome(
        (async () => {
          const tooDeep = task<any, any, unknown>("b", { attempts: 1 }, (context) =>
            nest({ step: ((_: string, run: any) => context.step("zero", run)) as never }, 0),
          );
          await queue.work("pod-2", [tooDeep]);
          const { taskId } = await queue.enqueue("b", 1);
          return queue.ended(taskId);
        })(),
      );
      expect(deeper).toMatchObject({ status: "failed", error: { code: "invalid_option" } });
    });

    test.each([
      ["10,000 steps", 10_000, "1", "10000 steps are stored"],
      [
        "16 MiB",
        64,
        JSON.stringify("x".repeat(256 * 1024 - 2)),
        "16777216 bytes of steps are stored",
      ],
    ])("are refused beyond %s, which names the loop", async (_, count, value, message) => {
      const { taskId } = await queue.enqueue("a", 1);
      await queue.beat("pod-0");
      await queue.claim("pod-0", ["a"]);
      await queue.database.write([
        sql`insert into ${journal} (owner_id, key, seq, token, kind, value, started_at)
          select ${taskId}, 'old[' || n || ']', n, 1, 'done', ${value}, 0 from (
            with recursive numbers (n) as (
              select 1 union all select n + 1 from numbers where n < cast(${count} as integer))
            select n from numbers) all_numbers`,
      ]);
      await queue.recover("pod-0", [{ taskId, token: 1 }]);
      await queue.work("pod-1", [
        task<any, any, unknown>("a", quick, async ({ step }) => {
          const known = await step("old", { key: "7" }, () => 0);
          return step("one more", () => called("never", known));
        }),
      ]);
      const ended = await queue.ended(taskId);
      expect(ended).toMatchObject({ status: "failed", error: { code: "steps_full" } });
      const said = (ended as { error: { message: string } }).error.message;
      expect([said, said]).toEqual([
        expect.stringContaining("step.loop"),
        expect.stringContaining(message),
      ]);
      expect(calls).toEqual([]);
    });

    test("are refused before they pass 16 MiB at the same time, and what is stored stays", async () => {
      const value = "x".repeat(250_000);
      const most = Math.floor((16 * 1024 * 1024) / (value.length + 2));
      let results: PromiseSettledResult<string>[] = [];
      const { taskId } = await run(async ({ step }) => {
        const all = Array.from({ length: most + 20 }, (_, at) =>
          step("page", { key: String(at) }, async () => value),
        );
        results = await Promise.allSettled(all);
      });
      const refused = results.flatMap((each) => (each.status === "rejected" ? each.reason : []));
      expect(refused).toHaveLength(20);
      expect(new Set(refused.map(({ code }) => code))).toEqual(new Set(["steps_full"]));
      expect(await keys(taskId)).toHaveLength(most);
    });

    test("that replace the steps within them have the room of those", async () => {
      const value = "x".repeat(250_000);
      const { ended, taskId } = await run(({ step }) =>
        step("outer", async (inner) => {
          for (let at = 0; at < 67; at++) await inner.step("page", () => value);
          return value;
        }).then(({ length }) => length),
      );
      expect(ended).toMatchObject({ status: "completed", result: value.length });
      expect(await keys(taskId)).toEqual(["outer"]);
    });

    test("without a function say that they need one", async () => {
      const { ended } = await run(({ step }) => (step as any)("x"), {}, { attempts: 1 });
      expect(ended).toMatchObject({
        status: "failed",
        error: { code: "invalid_option", message: expect.stringContaining("needs a function") },
      });
    });

    test("a thousand at the same time keep no other task from running", async () => {
      let open = () => {};
      const gate = new Promise<void>((resolve) => (open = resolve));
      const keysOf = Array.from({ length: 1_000 }, (_, at) => String(at));
      const many = task<any, any, unknown>("a", quick, async ({ step }) => {
        const all = keysOf.map((key) =>
          step("each", { key }, async () => {
            called(key);
            await gate;
          }),
        );
        return (await Promise.all(all)).length;
      });
      const other = task<any, any, unknown>("b", quick, ({ step }) => step("one", () => "done"));
      await queue.work("pod-1", [many, other]);
      const { taskId } = await queue.enqueue("a", 1);
      await queue.until("all of them", () => calls.length === 1_000);
      const beside = await queue.enqueue("b", 1);
      expect(await queue.ended(beside.taskId)).toMatchObject({ result: "done" });
      open();
      const after = await queue.enqueue("b", 1);
      expect(await queue.ended(after.taskId)).toMatchObject({ result: "done" });
      expect(await queue.ended(taskId)).toMatchObject({ result: 1_000 });
      expect(await keys(taskId)).toHaveLength(1_000);
    });

    test.each([
      ["a text", "just a text", "just a text"],
      ["nothing", undefined, "undefined"],
      ["what can't be read", Object.create(null), ""],
    ])("that throw %s fail their task as any error does", async (_, thrown, message) => {
      const { ended, taskId } = await run(
        ({ step }) =>
          step("bad", () => {
            throw thrown;
          }),
        {},
        { attempts: 1 },
      );
      expect(ended).toMatchObject({
        status: "failed",
        error: { code: "handler_failed", message: expect.stringContaining(message) },
      });
      expect(await keys(taskId)).toEqual([]);
    });

    test("that aren't awaited are waited for and warned about", async () => {
      const { log, lines } = logged();
      const { ended, taskId } = await run(
        ({ step }) => {
          void step("forgotten", async () => {
            await new Promise((resolve) => setImmediate(resolve));
            return called("forgotten");
          });
          return "done";
        },
        { log },
      );
      expect(ended).toMatchObject({ status: "completed", result: "done" });
      expect(await keys(taskId)).toEqual(["forgotten"]);
      expect(lines).toContain("steps were not awaited, waiting for them");
    });

    test("are refused after their attempt or the step around them has ended", async () => {
      let step: TaskContext<any>["step"];
      let inner: StepContext["step"];
      await run(async (context) => {
        step = context.step;
        await step("outer", (within) => {
          inner = within.step;
        });
        await expect(inner("late", () => called("late"))).rejects.toMatchObject({ code: "closed" });
      });
      await expect(step!("late", () => called("late"))).rejects.toMatchObject({ code: "closed" });
      expect(calls).toEqual([]);
    });
  });
}
