import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { abort, FlotillaError } from "../../base/errors.ts";
import { emptyLiveness, observe } from "../../pods/liveness.ts";
import { beat, readPods, toPodSeen } from "../../pods/sql.ts";
import type { Database } from "../../store/database.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql } from "../../store/sql.ts";
import { task, type TaskFailure } from "../task.ts";
import { openTasks, type TasksHarness, rowsOf } from "./harness.ts";
import { createLeader } from "../leader/recover.ts";
import { insertFollowUps } from "../sql/finish.ts";

// A statement is known by its template, which is the same object every time it is made.
const followText = insertFollowUps([], sql``).strings;

/** What `onFailure` promises on every store. */
export function onFailureContract(kind: StoreKind): void {
  describe(`what follows a failure on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    const followUps = async () => {
      const rows = await queue.database.read(
        sql`select * from ${rowsOf} where name = 'charge:failed' order by created_at, task_id`,
      );
      return rows.map((row) => ({
        taskId: row["task_id"] as string,
        of: row["parent_id"] as string,
        status: row["status"] as string,
        tenant: row["tenant"] as string,
        payload: JSON.parse(row["payload"]) as TaskFailure<{ cents: number }>,
      }));
    };

    test("runs as a task of its own, gets everything, and is tried again", async () => {
      const told: TaskFailure<{ cents: number }>[] = [];
      const charge = task<{ cents: number }>(
        "charge",
        {
          attempts: 2,
          backoff: { baseMs: 0 },
          onFailure({ input, attempt, name }) {
            expect(name).toBe("charge:failed");
            if (attempt === 1) throw new Error("the mail server is away");
            told.push(input);
          },
        },
        () => {
          throw new Error("no money");
        },
      );
      await queue.work("pod-1", [charge]);
      const { taskId } = await queue.enqueue(charge, { cents: 5 }, { tenant: "ada" });
      await queue.ended(taskId);
      const [follower] = await followUps();
      expect(follower).toMatchObject({ of: taskId, tenant: "ada" });
      const [, failed] = await queue.events(taskId);
      expect(failed).toMatchObject({ type: "failed", detail: { followUp: follower!.taskId } });
      await queue.pass(1_500);
      expect(await queue.ended(follower!.taskId)).toMatchObject({
        status: "completed",
        failures: 1,
      });
      expect(told).toEqual([
        {
          taskId,
          name: "charge",
          input: { cents: 5 },
          attempts: 2,
          error: expect.objectContaining({ code: "handler_failed", message: "no money" }),
        },
      ]);
    });

    test("comes once per failure: none with a retry or a cancel, another where it fails anew", async () => {
      let seen = 0;
      const charge = task(
        "charge",
        { attempts: 2, backoff: { baseMs: 0 }, onFailure: () => void seen++ },
        ({ input }) => {
          throw input === "abort" ? abort("no") : new Error("broken");
        },
      );
      const cancelled = await queue.enqueue(charge, "cancel", { delayMs: 1_000 });
      await queue.cancel(cancelled.taskId);
      await queue.work("pod-1", [charge]);
      const aborted = await queue.enqueue(charge, "abort");
      const broken = await queue.enqueue(charge, "break");
      await queue.until("both follow-ups", () => seen === 2);
      await queue.retry(aborted.taskId);
      await queue.until("the third", () => seen === 3);
      const all = await followUps();
      expect(all.map((each) => each.of).sort()).toEqual(
        [aborted.taskId, aborted.taskId, broken.taskId].sort(),
      );
    });

    test("is stored once, also where the answer to the failure is lost", async () => {
      let lost = 0;
      const database: Database = {
        ...queue.database,
        async write(statements, options) {
          const tables = await queue.database.write(statements, options);
          const failing = statements.some((each) => each.strings === followText);
          if (failing && lost++ < 2) throw new FlotillaError("unknown_outcome", "no answer came");
          return tables;
        },
      };
      let runs = 0;
      const charge = task("charge", { attempts: 1, onFailure: () => void runs++ }, () => {
        throw new Error("broken");
      });
      await queue.work("pod-1", [charge], { database });
      const { taskId } = await queue.enqueue(charge, null);
      expect(await queue.ended(taskId)).toMatchObject({ status: "failed" });
      await queue.until("what follows", () => runs === 1);
      await queue.until("the end of the failing write", () => lost === 3);
      await queue.until("its end", async () => (await followUps())[0]!.status === "completed");
      expect(await followUps()).toHaveLength(1);
      expect(runs).toBe(1);
    });

    test("isn't there where the failure isn't: another pod has the task by then", async () => {
      const { promise: released, resolve: release } = Promise.withResolvers<void>();
      const charge = task("charge", { attempts: 1, onFailure: () => {} }, async () => {
        await released;
        throw new Error("too late");
      });
      const worker = await queue.work("pod-1", [charge]);
      const { taskId } = await queue.enqueue(charge, null);
      await queue.until("the run", () => worker.running === 1);
      await queue.recover("pod-1", [{ taskId, token: 1 }]);
      await queue.beat("pod-2");
      await queue.claim("pod-2", ["charge"]);
      release();
      await queue.until("the end of the run", () =>
        queue.told.some((each) => each.type === "ended"),
      );
      expect(queue.told).toContainEqual(expect.objectContaining({ outcome: "lost" }));
      expect(await followUps()).toEqual([]);
    });

    describe("of a task that pods have died of", () => {
      const limits = { heartbeatMs: 1_000, deadAfterMs: 5_000, gapMs: 3_000 };

      /** Fails a task by the leader, which has no handler at all. */
      const poison = async (saying: object, forget = false) => {
        await queue.database.write([beat("pod-2", JSON.stringify(saying), 0)]);
        const { taskId } = await queue.enqueue("charge", { cents: 5 });
        await queue.claim("pod-2", ["charge"]);
        await queue.database.write([sql`update ${rowsOf} set deaths = 3`]);
        let liveness = emptyLiveness;
        for (let second = 0; second < 7; second++) {
          await queue.pass(1_000);
          await queue.beat("pod-1");
          if (forget && second === 0) await queue.forgetPod("pod-2");
          const pods = (await queue.database.read(readPods())).map(toPodSeen);
          liveness = observe(liveness, { atMs: queue.clock.monotonic(), pods }, limits);
        }
        const { database, ids } = queue;
        await createLeader({ podId: "pod-1", database, limits, ids }).pass(liveness);
        expect(await queue.get(taskId)).toMatchObject({ status: "failed", deaths: 4 });
        return taskId;
      };

      test("is stored by a leader that knows nothing of it but what the dead pod published", async () => {
        const taskId = await poison({ names: ["charge"], followUps: ["charge"] });
        expect(await followUps()).toMatchObject([
          {
            of: taskId,
            status: "pending",
            payload: { taskId, input: { cents: 5 }, attempts: 0, error: { code: "pod_died" } },
          },
        ]);
      });

      test("doesn't come where the dead pod published that nothing does", async () => {
        await queue.database.write([beat("pod-3", `{"followUps":["charge"]}`, 0)]);
        await poison({ names: ["charge"], followUps: [] });
        expect(await followUps()).toEqual([]);
      });

      test("comes as another pod published it where the dead one is forgotten", async () => {
        await queue.database.write([beat("pod-3", `{"followUps":["charge"]}`, 0)]);
        await poison({ followUps: ["charge"] }, true);
        expect(await followUps()).toHaveLength(1);
      });
    });
  });
}
