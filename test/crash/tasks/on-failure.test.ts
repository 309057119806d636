import { describe, expect, test } from "vitest";
import { judge } from "./checkers.ts";
import type { Gate } from "../gated-pod.ts";
import { createFleet, type Fleet, type StoreKind, storeKinds } from "../harness.ts";
import { startsIn } from "../ledger.ts";
import { pauseFor, until } from "../until.ts";

const knowing = { names: ["tells", "tells:failed"], config: { slots: 5, pollMs: 100 } };
const kills = 4;

describe.each(storeKinds)("on %s, what follows a failure", (on) => {
  test("isn't there when the pod is killed before the failing write, and is once another has failed it", async () => {
    const { fleet, taskId, first } = await stoppedAt(on, "finish not sent");
    expect(await followersOf(fleet, taskId)).toEqual([]);
    expect(await statusOf(fleet, taskId)).toBe("claimed");
    await first.kill();
    const second = await fleet.start(knowing);

    expect(await fleet.flotilla.tasks.settled(taskId)).toMatchObject({
      status: "failed",
      deaths: 1,
    });
    const [follower, ...more] = await followersOf(fleet, taskId);
    expect(more).toEqual([]);
    expect(follower).toMatchObject({ key: `${taskId}/2` });
    await fleet.flotilla.tasks.settled(follower!.taskId);
    expect(startsIn(fleet.ledger(), follower!.taskId)).toMatchObject([{ pod: second.podId }]);
    expect(await judge(fleet)).toEqual([]);
  });

  test("is there when the pod is killed right after the failing write, and runs elsewhere", async () => {
    const { fleet, taskId, first } = await stoppedAt(on, "finish committed");
    const followers = await followersOf(fleet, taskId);
    expect(followers).toMatchObject([{ key: `${taskId}/1` }]);
    expect(await statusOf(fleet, taskId)).toBe("failed");
    await first.kill();
    const second = await fleet.start(knowing);

    const [follower] = followers;
    expect(await fleet.flotilla.tasks.settled(follower!.taskId)).toMatchObject({
      status: "completed",
    });
    // The first may have begun it in the moment before it was killed, and even been done with it.
    const last = startsIn(fleet.ledger(), follower!.taskId).at(-1);
    expect([first.podId, second.podId]).toContain(last?.pod);
    expect(startsIn(fleet.ledger(), taskId)).toHaveLength(1);
    expect(await followersOf(fleet, taskId)).toEqual(followers);
    expect(await judge(fleet)).toEqual([]);
  });

  test("is there once if and only if the failure is, whenever pods are killed", async () => {
    const fleet = await createFleet({ on });
    await Promise.all(Array.from({ length: 3 }, () => fleet.start(knowing)));
    const torn: unknown[] = [];
    let over = false;
    const looking = (async () => {
      while (!over) {
        torn.push(...(await halfDone(fleet)));
        await pauseFor(20);
      }
    })();
    for (let killed = 1; killed <= kills; killed++) {
      const inputs = Array.from({ length: 50 }, (_, at) => ({ ms: at % 20 }));
      await fleet.flotilla.enqueueMany("tells", inputs);
      const pod = fleet.pods.find(({ alive }) => alive)!;
      await until("it runs some", () =>
        startsIn(fleet.ledger()).some((start) => start.pod === pod.podId),
      );
      await Promise.all([pod.kill(), fleet.start(knowing)]);
    }
    await until("every task has ended", async () => {
      const { pending, claimed } = (await fleet.flotilla.tasks.stats({ exact: true })).byStatus;
      return pending + claimed === 0;
    });
    over = true;
    await looking;

    expect(torn.slice(0, 5)).toEqual([]);
    expect(await halfDone(fleet)).toEqual([]);
    const { byStatus } = await fleet.flotilla.tasks.stats({ exact: true });
    expect(byStatus).toMatchObject({ completed: 50 * kills, failed: 50 * kills });
    expect(await judge(fleet)).toEqual([]);
  });
});

/** One task that fails, on a pod that stops at the gate. */
async function stoppedAt(on: StoreKind, gate: Gate) {
  const fleet = await createFleet({ on });
  const first = await fleet.start({ ...knowing, gate });
  const { taskId } = await fleet.flotilla.enqueue("tells", { ms: 0 });
  expect(await first.reached()).toBe(gate);
  return { fleet, taskId, first };
}

async function followersOf(fleet: Fleet, taskId: string) {
  const rows = await fleet.sql(
    "select task_id, name, unique_key from flotilla_task where parent_id = ?",
    taskId,
  );
  return rows.map((row) => ({ taskId: String(row["task_id"]), key: String(row["unique_key"]) }));
}

async function statusOf(fleet: Fleet, taskId: string): Promise<unknown> {
  const [row] = await fleet.sql("select status from flotilla_task where task_id = ?", taskId);
  return row?.["status"];
}

/** Failures that nothing follows, or more than one task, and tasks that follow no failure. */
function halfDone(fleet: Fleet): Promise<unknown[]> {
  return fleet.sql(
    `select task.task_id, task.status, count(follower.task_id) as followers
     from flotilla_task task
     left join flotilla_task follower on follower.parent_id = task.task_id
     where task.name = 'tells'
     group by task.task_id, task.status
     having count(follower.task_id) <> case when task.status = 'failed' then 1 else 0 end`,
  );
}
