import { beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import type { FlotillaError } from "../../base/errors.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { task } from "../task.ts";
import type { TasksHarness } from "./harness.ts";
import { quick, type StepHandler, useSteps } from "./steps-harness.ts";

/** What is promised of steps that wait: the task is parked, and nothing is held. */
export function stepWaitsContract(kind: StoreKind): void {
  describe(`waits of steps on ${kind.name}`, () => {
    const { queue: steps, calls, called, keys, rows, logged } = useSteps(kind);
    let queue: TasksHarness;
    beforeEach(() => void (queue = steps()));

    const begin = async (handler: StepHandler, options = {}, more = {}) => {
      const handled = task<any, any, unknown>("a", { ...quick, ...options }, handler);
      const worker = await queue.work("pod-1", [handled], more);
      const { taskId } = await queue.enqueue("a", 1);
      return { worker, taskId };
    };
    const parked = async (taskId: string, as: number) => {
      const row = await queue.until("it is parked", async () => {
        const found = await queue.row(taskId);
        return found["status"] === "pending" && Number(found["parked"]) === as ? found : undefined;
      });
      return row;
    };
    const [untilDue, untilSignal] = [1, 5];

    test("a sleep holds no pod, and goes on behind it when its time has come", async () => {
      const { worker, taskId } = await begin(async ({ step }) => {
        await step("before", () => called("before"));
        await step.sleep("night", 60_000);
        return step("after", () => called("after", "done"));
      });
      await parked(taskId, untilDue);
      await queue.until("nothing is held", () => worker.running === 0);
      await queue.pass(30_000);
      expect((await queue.get(taskId))!.status).toBe("pending");
      await queue.pass(31_000);
      expect(await queue.ended(taskId)).toMatchObject({
        status: "completed",
        result: "done",
        failures: 0,
      });
      expect(calls).toEqual(["before", "after"]);
      expect(await keys(taskId)).toEqual(["before", "night", "after"]);
    });

    test("a sleep lasts as long as it was first asked for, however often it is asked again", async () => {
      let attempts = 0;
      const { taskId } = await begin(
        async ({ step }) => {
          attempts++;
          await step.sleep("night", 60_000);
          return attempts;
        },
        { attempts: 1 },
      );
      await parked(taskId, untilDue);
      await queue.pass(61_000);
      await queue.ended(taskId);
      expect(attempts).toBe(2);
    });

    test("lets steps end that run at the same time, and those that follow them", async () => {
      let goOn: (() => void) | undefined;
      const { taskId } = await begin(({ step }) =>
        Promise.all([
          step.sleep("night", 60_000),
          (async () => {
            await step("slow", () => new Promise<void>((resolve) => (goOn = resolve)));
            await step("next", () => called("next"));
          })(),
        ]),
      );
      const go = await queue.until("the step", () => goOn);
      await queue.pass(50);
      expect((await queue.get(taskId))!.status).toBe("claimed");
      go();
      await parked(taskId, untilDue);
      expect(calls).toEqual(["next"]);
      expect(new Set(await keys(taskId))).toEqual(new Set(["night", "slow", "next"]));
    });

    test("parks the task though its handler catches what that throws, and no step begins", async () => {
      const { taskId } = await begin(async ({ step }) => {
        const caught = await step
          .sleep("night", 60_000)
          .catch((error: FlotillaError) => error.code);
        if (caught === undefined) return "slept";
        await step("later", () => called("later")).catch(() => called(`refused: ${caught}`));
        return "wrong";
      });
      await parked(taskId, untilDue);
      expect(calls).toEqual(["refused: suspended"]);
      await queue.pass(61_000);
      expect(await queue.ended(taskId)).toMatchObject({ result: "slept" });
    });

    test("counts what fails beside it as an attempt", async () => {
      const { taskId } = await begin(
        ({ step }) =>
          Promise.all([
            step.sleep("night", 60_000),
            step("bad", () => {
              called("bad");
              throw new Error("bad");
            }),
          ]),
        { attempts: 2 },
      );
      expect(await queue.ended(taskId)).toMatchObject({
        status: "failed",
        error: { message: "bad" },
      });
      expect(calls).toEqual(["bad", "bad"]);
    });

    const asking: StepHandler = async ({ step }) => {
      const answer = await step.signal("review");
      await step("use", () => called("use"));
      return answer;
    };

    test("a signal is waited for without a pod, and taken once", async () => {
      const { worker, taskId } = await begin(async (context) => [
        await asking(context),
        await context.step.signal("review"),
      ]);
      await parked(taskId, untilSignal);
      await queue.until("nothing is held", () => worker.running === 0);
      await queue.signal(taskId, "review", { ok: 1 }, { id: "one" });
      await queue.signal(taskId, "review", { ok: 1 }, { id: "one" });
      await queue.until("the step", () => calls.length === 1);
      await parked(taskId, untilSignal);
      await queue.signal(taskId, "review", { ok: 2 });
      expect(await queue.ended(taskId)).toMatchObject({ result: [{ ok: 1 }, { ok: 2 }] });
      expect(calls).toEqual(["use"]);
      expect(await keys(taskId)).toEqual(["review", "use", "review#2"]);
    });

    test("a signal that came before is there, and one that comes while it parks isn't missed", async () => {
      const { taskId } = await queue.enqueue("a", 1, { delayMs: 1_000 });
      await queue.signal(taskId, "review", "early");
      await queue.work("pod-1", [task<any, any, unknown>("a", quick, asking)]);
      await queue.pass(1_000);
      expect(await queue.ended(taskId)).toMatchObject({ result: "early" });

      let sent = false;
      const racing = task<any, any, unknown>("b", quick, async ({ step, taskId }) => {
        const seen = step.signal("review");
        if (!sent) {
          sent = true;
          // Sent after the claim, so that the write that parks the task must see it.
          await queue.signal(taskId, "other", 0);
          await queue.signal(taskId, "review", "late");
        }
        return seen;
      });
      await queue.work("pod-2", [racing]);
      const other = await queue.enqueue("b", 1);
      expect(await queue.ended(other.taskId)).toMatchObject({ result: "late" });
    });

    test("a signal that its schema refuses is dropped, with a warning", async () => {
      const { log, lines } = logged();
      const schema = z.object({ ok: z.boolean() });
      const { taskId } = await begin(({ step }) => step.signal("review", { schema }), {}, { log });
      await parked(taskId, untilSignal);
      await queue.signal(taskId, "review", "nonsense");
      await queue.until("the warning", () =>
        lines.includes("signal refused by its schema, and dropped"),
      );
      await parked(taskId, untilSignal);
      await queue.signal(taskId, "review", { ok: true });
      expect(await queue.ended(taskId)).toMatchObject({ result: { ok: true } });
    });

    test("a signal is waited for as long as it may, then there is a value or a timeout", async () => {
      const { taskId } = await begin(
        async ({ step }) => {
          const given = await step.signal("one", {
            timeoutMs: 60_000,
            onTimeout: { value: "none" },
          });
          const code = await step
            .signal("two", { timeoutMs: 60_000 })
            .catch((error: FlotillaError) => {
              if (error.code === "suspended") throw error;
              return error.code;
            });
          return [given, code];
        },
        { attempts: 1 },
      );
      await parked(taskId, untilDue);
      await queue.pass(61_000);
      await queue.until("the second wait", async () => (await keys(taskId)).includes("two"));
      await parked(taskId, untilDue);
      await queue.pass(61_000);
      expect(await queue.ended(taskId)).toMatchObject({ result: ["none", "timeout"] });
      expect((await rows(taskId)).map((row) => row["kind"])).toEqual(["done", "failed"]);
    });

    test("a signal that doesn't come fails the task at once, and is waited for anew by a retry", async () => {
      const { taskId } = await begin(({ step }) => step.signal("one", { timeoutMs: 60_000 }), {
        attempts: 3,
      });
      await parked(taskId, untilDue);
      await queue.pass(61_000);
      expect(await queue.ended(taskId)).toMatchObject({
        status: "failed",
        failures: 1,
        error: { code: "timeout" },
      });
      await queue.retry(taskId);
      await parked(taskId, untilDue);
      await queue.signal(taskId, "one", "here");
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", result: "here" });
    });

    test("waits in a round of a loop, and not within a step", async () => {
      const { taskId } = await begin(
        async ({ step }) => {
          const rounds = await step.loop("talk", 0, async (n, round) => {
            const word = await round.step.signal<string>("word");
            called(word);
            return word === "end" ? round.done(n) : n + 1;
          });
          const code = await step("inner", (context) =>
            (context.step as typeof step)
              .sleep("no", 5)
              .catch((error: FlotillaError) => error.code),
          );
          return [rounds, code];
        },
        { attempts: 1 },
      );
      for (const word of ["hello", "again", "end"]) {
        await queue.until(`before ${word}`, async () => {
          const { status, parked: as } = await queue.row(taskId);
          return status === "pending" && Number(as) === untilSignal;
        });
        await queue.signal(taskId, "word", word);
        await queue.until(word, () => calls.includes(word));
      }
      expect(await queue.ended(taskId)).toMatchObject({ result: [2, "invalid_option"] });
      expect(calls).toEqual(["hello", "again", "end"]);
    });

    describe("that lose a race", () => {
      const dropped =
        "waits were not over when the code that asked for them ended, and are dropped";
      const eitherSignal: StepHandler = ({ step }) =>
        Promise.race([
          step.signal("approve").then(() => "approved"),
          step.signal("reject").then(() => "rejected"),
        ]);

      test.each(["approve", "reject"])("to the signal %s don't hold up the task", async (name) => {
        const { taskId } = await begin(eitherSignal);
        await parked(taskId, untilSignal);
        await queue.signal(taskId, name);
        expect(await queue.ended(taskId)).toMatchObject({
          status: "completed",
          result: name === "approve" ? "approved" : "rejected",
          failures: 0,
        });
      });

      test("to a sleep, or to a signal before its end, don't hold up the steps behind it", async () => {
        const handler: StepHandler = async ({ step }) => {
          const won = await Promise.race([
            step.signal("approve").then(() => "approved"),
            step.sleep("day", 60_000).then(() => "late"),
          ]);
          return step("note", () => called(won, won));
        };
        const { taskId } = await begin(handler);
        await parked(taskId, untilDue);
        await queue.pass(61_000);
        expect(await queue.ended(taskId)).toMatchObject({ status: "completed", result: "late" });
        const other = await queue.enqueue("a", 2);
        await parked(other.taskId, untilDue);
        await queue.signal(other.taskId, "approve");
        expect(await queue.ended(other.taskId)).toMatchObject({ result: "approved" });
        expect(calls).toEqual(["late", "approved"]);
      });

      test("in a round of a loop don't hold up the next round", async () => {
        const { taskId } = await begin(({ step }) =>
          step.loop("talk", 0, async (n, round) => {
            const word = await Promise.race([
              round.step.signal<string>("word"),
              round.step.sleep("silence", 60_000).then(() => "end"),
            ]);
            called(word);
            return word === "end" ? round.done(n) : n + 1;
          }),
        );
        await parked(taskId, untilDue);
        await queue.signal(taskId, "word", "hello");
        await queue.until("the first round", () => calls.length === 1);
        await parked(taskId, untilDue);
        await queue.pass(61_000);
        expect(await queue.ended(taskId)).toMatchObject({ status: "completed", result: 1 });
        expect(calls).toEqual(["hello", "end"]);
      });

      test("to a whole loop that waits are dropped with it", async () => {
        const { taskId } = await begin(({ step }) =>
          Promise.race([
            step.loop("talk", 0, async (n, round) => {
              await round.step.signal("word");
              return n + 1;
            }),
            step.sleep("day", 60_000).then(() => "over"),
          ]),
        );
        await parked(taskId, untilDue);
        await queue.pass(61_000);
        expect(await queue.ended(taskId)).toMatchObject({ status: "completed", result: "over" });
      });

      test("are logged as usual, and warned about where nothing was waited for", async () => {
        const warned: string[] = [];
        const { log } = logged();
        const warn = (_: object, message: string) => void warned.push(message);
        const { taskId } = await begin(eitherSignal, {}, { log: { ...log, warn } });
        await parked(taskId, untilSignal);
        await queue.signal(taskId, "approve");
        await queue.ended(taskId);
        expect(warned).not.toContain(dropped);

        const forgetful = task<any, any, unknown>("b", quick, ({ step }) => {
          void step.sleep("night", 60_000);
          void step("beside", () => called("beside"));
          return "done";
        });
        await queue.work("pod-2", [forgetful], { log: { ...log, warn } });
        const other = await queue.enqueue("b", 1);
        expect(await queue.ended(other.taskId)).toMatchObject({
          status: "completed",
          result: "done",
        });
        expect(warned).toContain(dropped);
        expect(calls).toEqual(["beside"]);
      });

      test("and go on to call a step leave the task's result as it is", async () => {
        const { taskId } = await begin(({ step }) =>
          Promise.race([
            step.signal("approve"),
            step.signal("reject").catch(() => step("tidy", () => called("tidy"))),
          ]),
        );
        await parked(taskId, untilSignal);
        await queue.signal(taskId, "approve", "yes");
        expect(await queue.ended(taskId)).toMatchObject({ status: "completed", result: "yes" });
      });
    });

    test("in a round count what fails beside them as an attempt", async () => {
      const { taskId } = await begin(
        ({ step }) =>
          step.loop("talk", 0, (_, round) =>
            Promise.all([
              round.step.signal("word"),
              round.step("bad", () => {
                called("bad");
                throw new Error("bad");
              }),
            ]).then(() => round.done(1)),
          ),
        { attempts: 2 },
      );
      expect(await queue.ended(taskId)).toMatchObject({
        status: "failed",
        error: { message: "bad" },
      });
      expect(calls).toEqual(["bad", "bad"]);
    });

    test("a parked task can be cancelled, and a task that has ended takes no signal", async () => {
      const { taskId } = await begin(asking);
      await parked(taskId, untilSignal);
      expect(await queue.cancel(taskId)).toBe("cancelled");
      await expect(queue.signal(taskId, "review")).rejects.toMatchObject({ code: "conflict" });
      await expect(queue.signal("no-such-task", "review")).rejects.toMatchObject({
        code: "not_found",
      });
      await expect(queue.signal(taskId, "a/b")).rejects.toMatchObject({ code: "invalid_option" });
    });
  });
}
