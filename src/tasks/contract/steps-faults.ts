import { beforeEach, describe, expect, test } from "vitest";
import { abort, FlotillaError } from "../../base/errors.ts";
import type { StepContext } from "../../steps/model.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import type { Database } from "../../store/database.ts";
import { sql, table } from "../../store/sql.ts";
import type { TaskContext } from "../model.ts";
import { task } from "../task.ts";
import type { TasksHarness } from "./harness.ts";
import { journal, quick, useSteps } from "./steps-harness.ts";

/** What is promised of steps when pods, claims and stores fail them. */
export function stepFaultsContract(kind: StoreKind): void {
  describe(`steps under faults on ${kind.name}`, () => {
    const { queue: steps, calls, called, run, failingOnce, rows, keys } = useSteps(kind);
    let queue: TasksHarness;
    beforeEach(() => void (queue = steps()));

    describe("that run at most once", () => {
      /** A pod that is lost in the step, and a second one that takes over. */
      const lostWithin = async (step: (context: TaskContext<any>) => Promise<unknown>) => {
        const handler = task<any, any, unknown>("a", { ...quick, attempts: 1 }, step);
        await queue.work("pod-1", [handler]);
        const { taskId } = await queue.enqueue("a", 1);
        await queue.until("the call", () => calls.length === 1);
        expect((await rows(taskId)).map((row) => row["kind"])).toEqual(["begun"]);
        await queue.recover("pod-1", [{ taskId, token: 1 }]);
        await queue.work("pod-2", [handler]);
        // A claim that missed the row is made again with the next poll.
        await queue.pass(2_000);
        return { taskId, ended: await queue.ended(taskId) };
      };
      const hang = () => {
        called("pay");
        return new Promise<string>(() => {});
      };

      test("throw that their outcome is unknown after a crash", async () => {
        const { ended } = await lostWithin(({ step }) => step("pay", { once: true }, hang));
        expect(ended).toMatchObject({ status: "failed", error: { code: "unknown_outcome" } });
        expect(calls).toEqual(["pay"]);
      });

      test("look for their outcome after a crash, and store it", async () => {
        const look = async ({ key }: StepContext) => called("look", `found ${key.split("/")[1]}`);
        const { ended, taskId } = await lostWithin(({ step }) =>
          step("pay", { once: { look } }, hang),
        );
        expect(ended).toMatchObject({ status: "completed", result: "found pay" });
        expect(calls).toEqual(["pay", "look"]);
        expect((await rows(taskId)).map((row) => row["kind"])).toEqual(["done"]);
      });

      test("throw if nothing is found", async () => {
        const { ended } = await lostWithin(({ step }) =>
          step("pay", { once: { look: () => undefined } }, hang),
        );
        expect(ended).toMatchObject({ status: "failed", error: { code: "unknown_outcome" } });
      });

      test("are stored as others when no pod is lost", async () => {
        const { ended, taskId } = await run(
          failingOnce(({ step }) => step("pay", { once: true }, () => called("pay", 5))),
        );
        expect(ended).toMatchObject({ result: 5 });
        expect(calls).toEqual(["pay"]);
        expect((await rows(taskId)).map((row) => row["kind"])).toEqual(["done"]);
      });
    });

    test("don't begin after a cancel, and what has ended is stored", async () => {
      let go = () => {};
      await queue.work("pod-1", [
        task<any, any, unknown>("a", quick, async ({ step, signal }) => {
          await step("slow", async () => {
            await new Promise<void>((resolve) => (go = resolve));
            return called("slow");
          });
          expect(signal.aborted).toBe(true);
          await step("next", () => called("next")).catch(() => {});
          return "ignored";
        }),
      ]);
      const { taskId } = await queue.enqueue("a", 1);
      await queue.inStatus(taskId, "claimed");
      expect(await queue.cancel(taskId)).toBe("cancelling");
      await queue.pass(2_000);
      go();
      expect(await queue.ended(taskId)).toMatchObject({ status: "cancelled" });
      expect(calls).toEqual(["slow"]);
      expect(await keys(taskId)).toEqual(["slow"]);
    });

    test("hand their task over before the next one when the pod stops", async () => {
      let go = () => {};
      const handler = task<any, any, unknown>("a", quick, async ({ step }) => {
        await step("slow", async () => {
          called("slow");
          await new Promise<void>((resolve) => (go = resolve));
        });
        // What the handler makes of the refusal doesn't count.
        return step("next", () => called("next", "done")).catch(() => "wrong");
      });
      const worker = await queue.work("pod-1", [handler]);
      const { taskId } = await queue.enqueue("a", 1);
      await queue.until("the step", () => calls.length === 1);
      const stopped = worker.stop({ waitMs: 60_000 });
      go();
      await queue.outcome(stopped);
      expect(await queue.get(taskId)).toMatchObject({ status: "pending", failures: 0 });
      expect(await keys(taskId)).toEqual(["slow"]);
      await queue.work("pod-2", [handler]);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", result: "done" });
      expect(calls).toEqual(["slow", "next"]);
    });

    describe("of a pod that lost its claim", () => {
      /** A pod in a step whose task another pod has by now. */
      const overtaken = async (after: (context: TaskContext<any>) => Promise<unknown>) => {
        let go: (() => void) | undefined;
        const handler = task<any, any, unknown>("a", quick, async (context) => {
          const { step, token } = context;
          const first = await step("first", async () => {
            if (token === 1) await new Promise<void>((resolve) => (go = resolve));
            return called(`by ${token}`, token);
          }).catch((error: FlotillaError) => {
            called(error.code);
            return after(context);
          });
          return first;
        });
        await queue.work("pod-1", [handler], { pollMs: 600_000 });
        const { taskId } = await queue.enqueue("a", 1);
        await queue.inStatus(taskId, "claimed");
        const goOn = await queue.until("the step", () => go);
        await queue.recover("pod-1", [{ taskId, token: 1 }]);
        await queue.work("pod-2", [handler]);
        const ended = await queue.ended(taskId);
        goOn();
        await queue.until("the late step", () => calls.includes("claim_lost"));
        return { taskId, ended };
      };

      test("are refused, and the other's stand", async () => {
        const { taskId, ended } = await overtaken(async () => "wrong");
        expect(ended).toMatchObject({ status: "completed", result: 2 });
        expect(calls).toEqual(["by 2", "by 1", "claim_lost"]);
        expect((await rows(taskId)).map((row) => [row["key"], Number(row["token"])])).toEqual([
          ["first", 2],
        ]);
      });

      test("are never stored, though the other has stored none", async () => {
        let go: (() => void) | undefined;
        const handler = task<any, any, unknown>("a", quick, ({ step }) =>
          step("first", () => new Promise<void>((resolve) => (go = resolve))).catch(
            (error: FlotillaError) => called(error.code),
          ),
        );
        await queue.work("pod-1", [handler], { pollMs: 600_000 });
        const { taskId } = await queue.enqueue("a", 1);
        const goOn = await queue.until("the step", () => go);
        await queue.recover("pod-1", [{ taskId, token: 1 }]);
        await queue.beat("pod-2");
        expect(await queue.claim("pod-2", ["a"])).toMatchObject([{ taskId, token: 2 }]);
        goOn();
        await queue.until("the refusal", () => calls.includes("claim_lost"));
        expect(await keys(taskId)).toEqual([]);
        expect(await queue.get(taskId)).toMatchObject({ status: "claimed", claimedBy: "pod-2" });
      });

      test("don't begin, though its handler goes on", async () => {
        const { taskId } = await overtaken(({ step }) =>
          step("second", () => called("second")).catch(() => called("refused")),
        );
        await queue.until("the refusal", () => calls.includes("refused"));
        expect(calls).not.toContain("second");
        expect(await keys(taskId)).toEqual(["first"]);
      });
    });

    test("are stored once, though the answer of the store was lost", async () => {
      let lose = 1;
      const database: Database = {
        ...queue.database,
        async write(statements, options) {
          const answer = await queue.database.write(statements, options);
          const stores = JSON.stringify(statements).includes("took_ms");
          if (stores && lose-- > 0) throw new FlotillaError("unknown_outcome", "lost");
          return answer;
        },
      };
      const { ended, taskId } = await run(
        async ({ step }) => step("a", async (outer) => outer.step("b", () => called("b", 1))),
        { database },
      );
      expect(ended).toMatchObject({ status: "completed", result: 1, failures: 0 });
      expect(calls).toEqual(["b"]);
      expect(await keys(taskId)).toEqual(["a"]);
    });

    test("wait for a store that is away for a minute, and the next begins only then", async () => {
      let away = false;
      const database: Database = {
        ...queue.database,
        write: async (statements, options) => {
          if (away) throw new FlotillaError("store_unavailable", "away");
          return queue.database.write(statements, options);
        },
      };
      const handler = task<any, any, unknown>(
        "a",
        { ...quick, attempts: 1, timeoutMs: 1_000 },
        async ({ step }) => {
          const found = await step("find", () => {
            away = true;
            return called("find", "found");
          });
          return step("use", () => called("use", `${found} and used`));
        },
      );
      await queue.work("pod-1", [handler], { database, graceMs: 10 });
      const { taskId } = await queue.enqueue("a", 1);
      await queue.until("the step has ended", () => calls.length === 1);
      await queue.pass(60_000);
      expect(calls).toEqual(["find"]);
      away = false;
      await queue.pass(10_000);
      expect(await queue.ended(taskId)).toMatchObject({
        status: "completed",
        result: "found and used",
        claimToken: 1,
        failures: 0,
      });
      expect(calls).toEqual(["find", "use"]);
    });

    test("and their waits take no time from a pod's clock that is set", async () => {
      let offMs = 0;
      const { clock } = queue;
      const set = { ...clock, now: () => clock.now() + offMs };
      const hourMs = 3_600_000;
      const handler = task<any, any, unknown>("a", quick, async ({ step }) => {
        await step("forwards", { timeoutMs: 10_000 }, () => void (offMs = hourMs));
        await step.sleep("minute", 60_000);
        return step("backwards", { timeoutMs: 10_000 }, () => void (offMs = -hourMs));
      });
      await queue.work("pod-1", [handler], { clock: set });
      const { taskId } = await queue.enqueue("a", 1);
      await queue.until(
        "it is parked",
        async () => Number((await queue.row(taskId))["parked"]) === 1,
      );
      await queue.pass(50_000);
      expect(await queue.get(taskId)).toMatchObject({ status: "pending" });
      await queue.pass(12_000);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", failures: 0 });
      const took = (await rows(taskId)).map((row) => Number(row["at"]) - Number(row["started_at"]));
      for (const tookMs of took) expect(Math.abs(tookMs)).toBeLessThan(hourMs / 2);
    });

    test("of many tasks that end at the same time share a transaction with their endings", async () => {
      const sizes: number[] = [];
      let writes = 0;
      const database: Database = {
        ...queue.database,
        write(statements, options) {
          const text = JSON.stringify(statements);
          if (text.includes("took_ms") || text.includes("claim_call = null")) writes++;
          sizes.push(statements.length);
          return queue.database.write(statements, options);
        },
      };
      const tasks = 40;
      const handler = task<any, any, unknown>("a", quick, ({ step }) => step("one", () => 1));
      await queue.work("pod-1", [handler], { database, capacity: { slots: tasks, target: 1 } });
      const all = await queue.enqueueMany(
        "a",
        Array.from({ length: tasks }, (_, at) => at),
      );
      for (const { taskId } of all) await queue.ended(taskId);
      expect(writes).toBeLessThan(tasks / 2);
    });

    test("are listed with their times, sizes and claims", async () => {
      const anyBytes = expect.any(Number) as number;
      const bytes = (plain: number) => (kind.encrypts ? anyBytes : plain);
      const { taskId } = await run(
        failingOnce(async ({ step }) => {
          await step("first", () => "12345");
          await step.loop("loop", 1, (n, { done }) => (n === 2 ? done(n) : n + 1));
        }),
      );
      const listed = await queue.steps(taskId);
      expect(listed).toMatchObject([
        { seq: 1, key: "first", kind: "done", token: 1, bytes: bytes(7) },
        { seq: 3, key: "loop", kind: "done", token: 1, bytes: bytes(1) },
      ]);
      expect(listed[0]!.startedAtMs).toBeLessThanOrEqual(listed[0]!.atMs);
      expect(await queue.steps(taskId, { after: 1, limit: 1 })).toMatchObject([{ key: "loop" }]);
    });

    test("don't change the row of their task", async () => {
      let seen: unknown;
      await run(async ({ step, taskId }) => {
        const before = await queue.row(taskId);
        await step("a", () => 1);
        await step("b", (outer) => outer.step("c", () => 2));
        seen = [before, await queue.row(taskId)];
      });
      const [before, after] = seen as [unknown, unknown];
      expect(after).toEqual(before);
    });

    test("make attempts count from the last one that was stored", async () => {
      let attempts = 0;
      const { ended } = await run(
        async ({ step, attempt }) => {
          attempts++;
          // Each attempt gets one step further, and fails behind it.
          for (let at = 1; at <= attempts; at++) await step(`step ${at}`, () => called(`${at}`));
          if (attempts < 6) throw new Error(`attempt ${attempt}`);
          return attempt;
        },
        {},
        { attempts: 2 },
      );
      expect(ended).toMatchObject({ status: "completed", result: 2, failures: 1 });
      expect(calls).toEqual(["1", "2", "3", "4", "5", "6"]);
    });

    test("make deaths count from the last one that was stored", async () => {
      const { taskId } = await queue.enqueue("a", 1);
      await queue.beat("pod-1");
      const seen: unknown[] = [];
      for (const steps of [0, 1, 0]) {
        const [claim] = await queue.claim("pod-1", ["a"], 1, { oldestFirst: true });
        if (claim && steps > 0) {
          await queue.database.write([
            sql`insert into ${journal} (owner_id, key, seq, token, kind, value, started_at)
              values (${taskId}, 'a', 1, ${claim.token}, 'done', '1', 0)`,
            sql`update ${table("task")} set retry_count = 2 where task_id = ${taskId}`,
          ]);
        }
        const { claim_token: token } = await queue.row(taskId);
        if (claim) await queue.recover("pod-1", [{ taskId, token: Number(token) }]);
        seen.push(await queue.get(taskId));
      }
      expect(seen).toMatchObject([{ deaths: 1 }, { deaths: 1, failures: 0 }, { deaths: 2 }]);
    });

    test("go with their task when it is pruned, and those of a session with its id don't", async () => {
      const { taskId } = await run(({ step }) => step("a", () => 1));
      await queue.database.write([
        sql`insert into ${journal} (owner_id, part, key, seq, token, kind, value, started_at)
          values (${taskId}, '1', 'of a turn', 1, 1, 'done', '1', 0)`,
      ]);
      await queue.pass(120_000);
      expect(await queue.prune({ olderThanMs: 60_000 })).toMatchObject({ deleted: 1 });
      expect(await keys(taskId)).toEqual(["of a turn"]);
    });

    describe("of a failed task", () => {
      const failed = async () => {
        let broken = true;
        const { taskId, ended } = await run(async ({ step }) => {
          await step("good", () => called("good"));
          await step("bad", () => {
            called("bad");
            if (broken) throw abort("broken");
          });
          return "done";
        });
        expect(ended.status).toBe("failed");
        broken = false;
        return taskId;
      };

      test("are kept by a retry, but those that failed for good", async () => {
        const taskId = await failed();
        await queue.retry(taskId);
        expect(await queue.ended(taskId)).toMatchObject({ status: "completed" });
        expect(calls).toEqual(["good", "bad", "bad"]);
      });

      test("are forgotten by a retry from the start, which says how many", async () => {
        const taskId = await failed();
        expect(await queue.retry(taskId, { fromStart: true })).toEqual({ forgottenSteps: 2 });
        expect(await queue.ended(taskId)).toMatchObject({ status: "completed" });
        expect(calls).toEqual(["good", "bad", "good", "bad"]);
      });
    });

    if (!kind.callers) return;
    describe("stored within a transaction of their own", () => {
      const within = (work: (context: StepContext, tx: any) => Promise<unknown>) =>
        run(
          failingOnce(async ({ step }) => {
            const caller = await queue.store.caller!();
            try {
              return await step("pay", async (context) => {
                called("pay");
                await caller.begin();
                await caller.exec("insert into effects values ('paid')");
                return work(context, caller);
              });
            } finally {
              await caller.close();
            }
          }),
          {},
          { attempts: 4 },
        );
      const effects = async () => {
        const caller = await queue.store.caller!();
        const found = await caller.all("select body from effects");
        await caller.close();
        return found.length;
      };
      beforeEach(async () => {
        const caller = await queue.store.caller!();
        await caller.exec("create table if not exists effects (body text)");
        await caller.exec("delete from effects");
        await caller.close();
      });

      test("commit with its writes, and run no more", async () => {
        const { ended, taskId } = await within(async ({ store }, caller) => {
          await store(caller.handle, { paid: true });
          await caller.exec("commit");
        });
        expect(ended).toMatchObject({ status: "completed", result: { paid: true } });
        expect([calls, await effects()]).toEqual([["pay"], 1]);
        expect(await keys(taskId)).toEqual(["pay"]);
      });

      test("count if it was committed, though the function threw after that", async () => {
        const { ended } = await within(async ({ store }, caller) => {
          await store(caller.handle, 7);
          await caller.exec("commit");
          throw new Error("after the commit");
        });
        expect(ended).toMatchObject({ status: "completed", result: 7 });
        expect([calls, await effects()]).toEqual([["pay"], 1]);
      });

      // Elsewhere recovery's write waits for the transaction, and this test would wait for recovery.
      test.runIf(kind.name === "Postgres")("hold their task until the commit", async () => {
        const recovered: number[] = [];
        const { ended, taskId } = await within(async ({ store, key }, caller) => {
          await store(caller.handle, 7);
          const id = key.slice(0, key.indexOf("/"));
          recovered.push(await queue.recover("pod-1", [{ taskId: id, token: 1 }]));
          await caller.exec("commit");
        });
        expect(recovered).toEqual([0]);
        expect(ended).toMatchObject({ status: "completed", result: 7 });
        expect([calls, await keys(taskId)]).toEqual([["pay"], ["pay"]]);
      });

      test("run again if it was rolled back", async () => {
        const { ended } = await within(async ({ store }, caller) => {
          await store(caller.handle, calls.length);
          await caller.exec(calls.length === 1 ? "rollback" : "commit");
        });
        expect(ended).toMatchObject({ status: "completed", result: 2 });
        expect([calls, await effects()]).toEqual([["pay", "pay"], 1]);
      });
    });
  });
}
