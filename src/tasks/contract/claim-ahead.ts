import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import { beat } from "../../pods/sql.ts";
import { task } from "../task.ts";
import type { Database } from "../../store/database.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, type Statement, table } from "../../store/sql.ts";
import type { TaskHandler } from "../model.ts";
import { type Claim, toClaim } from "../rows.ts";
import type { WorkerOptions } from "../run/worker.ts";
import { claimTasks, markBegun, releaseCall } from "../sql/claim.ts";
import { openTasks, rowsOf, type TasksHarness } from "./harness.ts";
import { heldOpen } from "./worker.ts";

const heldBack = sql`status = 'claimed' and claim_call < 0
  and task_id > (select begun_task from ${table("pod")} where pod_id = 'pod-1')`;

const count = 200;
// A pod measures over at least this time how many tasks end.
const sampleMs = 20;

/** What is promised of tasks that are claimed ahead of free slots. */
export function claimAheadContract(kind: StoreKind): void {
  describe(`claiming ahead on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    const enqueue = (name: string, tasks: number) =>
      queue.enqueueMany(
        name,
        Array.from({ length: tasks }, (_, at) => at),
      );

    /** A pod with four slots whose tasks end fast enough for it to hold others back. */
    const withHeldBack = async (
      more: Partial<WorkerOptions> = {},
      others: readonly TaskHandler[] = [],
    ) => {
      const { handler, attempts } = heldOpen("a");
      await enqueue("a", count);
      const worker = await queue.work("pod-1", [handler, ...others], {
        capacity: { slots: 4, target: 1 },
        ahead: { tasks: 20, ms: 1_000 },
        ...more,
      });
      let most = 0;
      const finishAll = () => {
        most = Math.max(most, worker.running);
        for (const attempt of attempts) attempt.finish(1);
      };
      await queue.until("tasks held back", async () => {
        finishAll();
        await queue.clock.advance(sampleMs);
        await queue.until("full slots", () => worker.running === 4);
        return (await queue.count(heldBack)) > 0;
      });
      await queue.until("full slots again", () => worker.running === 4);
      return { worker, attempts, finishAll, mostRunning: () => most };
    };

    /** Claims three tasks as a pod does that holds them back. */
    const claimThree = async (call: number, podId = "pod-1"): Promise<readonly Claim[]> => {
      const claim = { podId, call, names: ["a"], limit: 3, ahead: true };
      const [rows] = await queue.database.write([claimTasks(claim)]);
      return rows!
        .map((row) => toClaim(row, queue.clock.now()))
        .toSorted((a, b) => (a.taskId < b.taskId ? -1 : 1));
    };

    const idsOf = async (which: Statement): Promise<string[]> => {
      const rows = await queue.database.read(sql`select task_id from ${rowsOf} where ${which}`);
      return rows.map((row) => row["task_id"] as string);
    };

    const deathsOf = async (claims: readonly Claim[]) =>
      Promise.all(claims.map(async ({ taskId }) => Number((await queue.row(taskId))["deaths"])));

    test("holds tasks back while the slots are full, and runs each once", async () => {
      const { worker, finishAll, mostRunning } = await withHeldBack();
      expect(await queue.count(heldBack)).toBeGreaterThan(4);
      expect(worker.running).toBe(4);
      await queue.until("the end of all", async () => {
        finishAll();
        return (await queue.stats()).byStatus.completed === count;
      });
      expect(mostRunning()).toBe(4);
      expect(await queue.count(sql`claim_token = 1`)).toBe(count);
    });

    test("gives back all that it holds back when it is to drain, and begins none of it", async () => {
      const { worker, attempts } = await withHeldBack();
      const begun = attempts.length;
      worker.drain(true);
      await queue.until("no claims but those that run", async () => {
        const held = await queue.count(sql`status = 'claimed'`);
        return held === worker.running && (await queue.count(heldBack)) === 0;
      });
      for (const attempt of attempts) attempt.finish(1);
      await queue.until("its end", () => worker.capacity.drain === "drained");
      expect(attempts).toHaveLength(begun);
      expect(await queue.count(sql`status = 'claimed'`)).toBe(0);
    });

    test("counts the death of a pod for tasks that had begun, and for no others", async () => {
      await queue.beat("pod-1");
      await enqueue("a", 3);
      const claims = await claimThree(7);
      const pauses = await pausesOf("pod-1");
      await queue.database.write([
        markBegun("pod-1", { call: 7, taskId: claims[1]!.taskId, pauses }),
      ]);
      expect(await queue.recover("pod-1", claims)).toBe(3);
      expect(await deathsOf(claims)).toEqual([1, 1, 0]);
      expect(await queue.count(sql`status = 'pending' and claimed_by is null`)).toBe(3);
    });

    test("counts tasks of earlier calls as begun", async () => {
      await queue.beat("pod-1");
      await enqueue("a", 6);
      const [earlier, later] = [await claimThree(7), await claimThree(8)];
      const pauses = await pausesOf("pod-1");
      await queue.database.write([
        markBegun("pod-1", { call: 8, taskId: later[0]!.taskId, pauses }),
      ]);
      await queue.recover("pod-1", [...earlier, ...later]);
      expect(await deathsOf([...earlier, ...later])).toEqual([1, 1, 1, 1, 0, 0]);
    });

    test("counts every task once the pod's row, with how far it has begun, was removed", async () => {
      await queue.beat("pod-1");
      await enqueue("a", 3);
      const claims = await claimThree(7);
      await queue.database.write([sql`delete from ${table("pod")}`]);
      await queue.database.write([beat("pod-1", "{}", 0, { count: 2, hadRow: true })]);
      await queue.recover("pod-1", claims);
      expect(await deathsOf(claims)).toEqual([1, 1, 1]);
    });

    test("counts every task also if a release of another call brought the row back", async () => {
      await queue.beat("pod-1");
      await enqueue("a", 3);
      const claims = await claimThree(7);
      await queue.database.write([sql`delete from ${table("pod")}`]);
      await queue.database.write(releaseCall("pod-1", 8));
      await queue.beat("pod-1");
      await queue.recover("pod-1", claims);
      expect(await deathsOf(claims)).toEqual([1, 1, 1]);
    });

    test("runs tasks that waited through the deaths of four pods, beside others", async () => {
      await enqueue("a", 3);
      for (const podId of ["pod-1", "pod-2", "pod-3", "pod-4"]) {
        await queue.beat(podId);
        const claims = await claimThree(1, podId);
        expect(await queue.recover(podId, claims)).toBe(3);
        expect(await deathsOf(claims)).toEqual([0, 0, 0]);
      }
      await enqueue("a", 1);
      const { handler, attempts } = heldOpen("a");
      const worker = await queue.work("pod-5", [handler], { capacity: { slots: 4, target: 1 } });
      // A task that pods died under would run alone, and fail after the fourth.
      await queue.until("all of them run", () => worker.running === 4);
      for (const attempt of attempts) attempt.finish(1);
      await queue.until("their ends", async () => {
        return (await queue.stats()).byStatus.completed === 4;
      });
    });

    test("gives the tasks back when the pod stops", async () => {
      const { worker, finishAll, attempts } = await withHeldBack();
      const stopping = worker.stop({ waitMs: 1_000 });
      finishAll();
      await queue.outcome(stopping);
      const begun = attempts.length;
      expect(await queue.count(sql`status = 'completed'`)).toBe(begun);
      expect(await queue.count(sql`status = 'pending' and deaths = 0 and retry_count = 0`)).toBe(
        count - begun,
      );
    });

    test("begins none of a name that has been paused", async () => {
      const { finishAll, attempts } = await withHeldBack();
      await queue.outcome(queue.pause("a"));
      const waiting = new Set(await idsOf(heldBack));
      expect(waiting.size).toBeGreaterThan(0);
      await queue.until("the release", async () => {
        finishAll();
        return (await queue.count(heldBack)) === 0;
      });
      expect(attempts.filter(({ context }) => waiting.has(context.taskId))).toEqual([]);
      await queue.until("none claimed", async () => {
        finishAll();
        return (await queue.count(sql`status = 'claimed'`)) === 0;
      });
      expect(await queue.count(sql`status = 'pending'`)).toBe(count - attempts.length);
    });

    test("marks tasks before slots are free, but no more than the pod has slots", async () => {
      const { worker, attempts } = await withHeldBack();
      const marked = async () => {
        const begun = new Set(attempts.map(({ context }) => context.taskId));
        const ids = await idsOf(sql`status = 'claimed' and claim_call < 0 and not (${heldBack})`);
        return ids.filter((id) => !begun.has(id)).length;
      };
      await queue.until("marked tasks", async () => (await marked()) > 0);
      expect(await marked()).toBeLessThanOrEqual(4);
      expect(worker.running).toBe(4);
    });

    test("begins none on a pod that counts as dead", async () => {
      const { finishAll, attempts } = await withHeldBack();
      await queue.database.write([sql`update ${table("pod")} set status = 'down'`]);
      const waiting = new Set(await idsOf(heldBack));
      const begun = attempts.length;
      finishAll();
      await queue.until("the release", async () => (await queue.count(heldBack)) === 0);
      // It may claim others, and these again, with another token.
      const begunAhead = attempts.slice(begun).filter(({ context: { taskId, token } }) => {
        return token === 1 && waiting.has(taskId);
      });
      expect(begunAhead).toEqual([]);
    });

    test("releases tasks that don't begin soon, since other pods may have free slots", async () => {
      const { worker } = await withHeldBack();
      await queue.pass(250);
      await queue.until("the release", async () => (await queue.count(heldBack)) === 0);
      expect(worker.running).toBe(4);
    });

    test("releases them when it is unknown whether the pod's row says that they begin", async () => {
      let lost = 0;
      const losing: Database = {
        ...queue.database,
        async write(statements, options) {
          const answer = await queue.database.write(statements, options);
          if (!isMark(statements[0]!.strings.join(""))) return answer;
          lost++;
          throw new FlotillaError("unknown_outcome", "the answer was lost");
        },
      };
      const { handler, attempts } = heldOpen("a");
      await enqueue("a", count);
      const worker = await queue.work("pod-1", [handler], {
        database: losing,
        capacity: { slots: 4, target: 1 },
        ahead: { tasks: 20, ms: 1_000 },
      });
      await queue.until("the end of all", async () => {
        for (const attempt of attempts) attempt.finish(1);
        await queue.clock.advance(sampleMs);
        return (await queue.stats()).byStatus.completed === count;
      });
      expect(worker.running).toBe(0);
      expect(lost).toBeGreaterThan(0);
      expect(attempts).toHaveLength(count);
    });

    test("takes nothing while another pod with that name is idle", async () => {
      await queue.beat("pod-1", "pod-2");
      await enqueue("a", 3);
      const idle = async (names: readonly string[], waiting: number) => {
        const metadata = JSON.stringify({ names });
        await queue.database.write([
          sql`update ${table("pod")} set waiting = ${waiting}, metadata = ${metadata} where pod_id = 'pod-2'`,
        ]);
      };
      await idle(["a"], 1);
      expect(await claimThree(1)).toEqual([]);
      await idle(["a"], 0);
      expect(await claimThree(2)).toHaveLength(3);
      await enqueue("a", 3);
      await idle(["ab", "b"], 1);
      expect(await claimThree(3)).toHaveLength(3);
    });

    test("is for tasks that need nothing but a slot", async () => {
      const own = task("b", { slots: 100 }, () => 1);
      await enqueue("b", count);
      const { finishAll } = await withHeldBack({}, [own]);
      await queue.until("the end of all", async () => {
        expect(await queue.count(sql`name = 'b' and claim_call < 0`)).toBe(0);
        finishAll();
        return (await queue.stats()).byStatus.completed === 2 * count;
      });
    });

    const pausesOf = async (podId: string): Promise<number> => {
      const [row] = await queue.database.read(
        sql`select pauses from ${table("pod")} where pod_id = ${podId}`,
      );
      return Number(row!["pauses"]);
    };
  });
}

function isMark(text: string): boolean {
  return text.includes("begun_call = ");
}
