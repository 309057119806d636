import { describe, expect, test } from "vitest";
import type { Enqueued } from "flotilla";
import { judge } from "./checkers.ts";
import { createFleet, type Fleet } from "../harness.ts";
import { startsIn } from "../ledger.ts";
import { openTasks } from "../postgres/harness.ts";
import { until } from "../until.ts";

const heldBack = `select task.task_id, task.claim_call, task.deaths from flotilla_task task
  join flotilla_pod pod on pod.pod_id = task.claimed_by
  where task.status = 'claimed' and task.claim_call < 0 and pod.pod_id = ?
    and (-task.claim_call > pod.begun_call
      or -task.claim_call = pod.begun_call and task.task_id > pod.begun_task)`;

describe("tasks that were claimed ahead of free slots on Postgres", () => {
  test("that wait when their pod dies count no death, and run in the end", async () => {
    const fleet = await createFleet({ on: "postgres" });
    const limits = { heartbeatMs: 100, deadAfterMs: 1_000 };
    const config = { ...limits, slots: 2, target: 1 };
    const enqueued = [...(await enqueueWork(fleet, 3_000))];
    let uncounted = 0;
    for (let death = 1; death <= 4; death++) {
      const pod = await fleet.start({ config });
      enqueued.push(...(await untilHeldBack(fleet, pod.podId)));
      await pod.kill();
      const waiting = await fleet.sql(heldBack, pod.podId);
      const next = await fleet.start({ names: [], config });
      await until("they are recovered", async () => {
        const [left] = await fleet.sql(
          "select count(*) as count from flotilla_task where claimed_by = ? and status = 'claimed'",
          pod.podId,
        );
        return Number(left!["count"]) === 0;
      });
      // What it had sent may have landed after its end.
      const [mark] = await fleet.sql(
        "select begun_call, begun_task from flotilla_pod where pod_id = ?",
        pod.podId,
      );
      const neverBegun = waiting.filter(({ task_id: taskId, claim_call: call }) => {
        const begunCall = Number(mark!["begun_call"]);
        return -call > begunCall || (-call === begunCall && taskId > mark!["begun_task"]);
      });
      uncounted += neverBegun.length;
      for (const { task_id: taskId, deaths } of neverBegun) {
        const [row] = await fleet.sql(
          "select status, deaths from flotilla_task where task_id = ?",
          taskId,
        );
        expect(row).toEqual({ status: "pending", deaths });
      }
      await next.kill();
    }
    expect(uncounted).toBeGreaterThan(0);
    await fleet.start({ config: { slots: 100 } });
    await allCompleted(fleet, enqueued);
    expect(await judge(fleet, limits)).toEqual([]);
  });

  test("go back to others when their pod stops, none of them begun", async () => {
    const fleet = await createFleet({ on: "postgres" });
    const enqueued = [...(await enqueueWork(fleet, 3_000))];
    const pod = await fleet.start({ config: { slots: 2, target: 1 } });
    enqueued.push(...(await untilHeldBack(fleet, pod.podId)));
    await pod.terminate();
    const begun = new Set(startsIn(fleet.ledger()).map(({ task }) => task));
    const rows = await fleet.sql("select task_id, status, deaths from flotilla_task");
    for (const row of rows) {
      const status = begun.has(row["task_id"]) ? "completed" : "pending";
      expect(row).toMatchObject({ status, deaths: 0 });
    }
    await fleet.start({ config: { slots: 100 } });
    await allCompleted(fleet, enqueued);
    expect(await judge(fleet)).toEqual([]);
  });
});

async function enqueueWork(fleet: Fleet, count: number) {
  return fleet.flotilla.enqueueMany(
    "work",
    Array.from({ length: count }, () => ({ ms: 0 })),
  );
}

/** Waits until a pod has claimed what waits for a slot. A test that looks late finds all done, and adds more. */
async function untilHeldBack(fleet: Fleet, podId: string) {
  const added: Enqueued[] = [];
  await until("tasks wait for a slot", async () => {
    if ((await fleet.sql(heldBack, podId)).length > 0) return true;
    const { byStatus } = await fleet.flotilla.tasks.stats({ exact: true });
    if (byStatus.pending < 1_000) added.push(...(await enqueueWork(fleet, 1_000)));
    return false;
  });
  return added;
}

async function allCompleted(fleet: Fleet, enqueued: readonly { taskId: string }[]): Promise<void> {
  await until("every task has ended", async () => (await openTasks(fleet)) === 0);
  const rows = await fleet.sql("select task_id from flotilla_task where status = 'completed'");
  const completed = new Set(rows.map((row) => row["task_id"]));
  expect(enqueued.filter(({ taskId }) => !completed.has(taskId))).toEqual([]);
}
