import { describe, expect, test } from "vitest";
import { judge, recoveriesIn } from "./checkers.ts";
import { createFleet, type Fleet, storeKinds } from "../harness.ts";
import { pauseFor, until } from "../until.ts";
import { startsIn } from "../ledger.ts";
import { stopWrites } from "../outage.ts";

// A pod that takes none for dead takes back nothing from the pod that is there for its tasks.
const trusting = { deadAfterMs: 60_000 };
// Without polls, a pod learns that it has lost a task only by the store's refusal.
const unaware = { ...trusting, pollMs: 60_000 };
const held = { names: ["held"] };

describe.each(storeKinds)("on %s, a pod that was paused for longer than the dead limit", (on) => {
  test("can't finish a task that another pod runs by now, and the other's result stands", async () => {
    const fleet = await createFleet({ on });
    const first = await fleet.start({ ...held, config: unaware });
    const { taskId } = await fleet.flotilla.enqueue("held", { gate: "door" });
    await startedOn(fleet, taskId, first.podId);
    const second = await fleet.start(held);

    await first.pauseOutsideWrites();
    await startedOn(fleet, taskId, second.podId);
    first.open("door");
    first.resume();
    await until("the first pod's finish was refused, or taken", async () => {
      return (
        lostOn(fleet, first.podId) || (await fleet.flotilla.tasks.get(taskId))?.status !== "claimed"
      );
    });
    expect(await fleet.flotilla.tasks.get(taskId)).toMatchObject({
      status: "claimed",
      claimedBy: second.podId,
    });
    second.open("door");

    expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: second.podId, token: 2 });
    expect(startsIn(fleet.ledger(), taskId)).toHaveLength(2);
    expect(await judge(fleet)).toEqual([]);
  });

  test("aborts its handler when it wakes and sees that another pod has the task", async () => {
    const fleet = await createFleet({ on });
    const first = await fleet.start({ ...held, config: { ...trusting, pollMs: 100 } });
    const { taskId } = await fleet.flotilla.enqueue("held", { gate: "door" });
    await startedOn(fleet, taskId, first.podId);
    const second = await fleet.start(held);

    await first.pauseOutsideWrites();
    await startedOn(fleet, taskId, second.podId);
    first.resume();
    await until("the first handler was aborted", () =>
      fleet.ledger().some((entry) => entry.event === "abort" && entry.pod === first.podId),
    );
    second.open("door");

    expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: second.podId, token: 2 });
    expect(await judge(fleet)).toEqual([]);
  });

  test.each([
    { before: 0, way: "in the usual way" },
    { before: 1, way: "when it must run alone" },
  ])(
    "finishes what no other pod has claimed meanwhile, and doesn't run it again, $way",
    async ({ before }) => {
      const fleet = await createFleet({ on });
      const first = await fleet.start(held);
      const { taskId } = await fleet.flotilla.enqueue("held", { gate: "door" });
      await startedOn(fleet, taskId, first.podId);
      await fleet.sql("update flotilla_task set deaths = ?", before);
      // It leads once the first is silent, but has no handler for the task.
      await fleet.start({ names: ["work"] });

      await first.pauseOutsideWrites();
      await until("the task was recovered", async () => {
        const task = await fleet.flotilla.tasks.get(taskId);
        return task?.status === "pending" && task.deaths === before + 1;
      });
      first.resume();
      // It has beaten and looked for work since it woke, and still runs what it had.
      const other = await fleet.flotilla.enqueue("held", { gate: "window" });
      first.open("window");
      if (before === 0) await fleet.flotilla.waitFor(other.taskId);
      else
        await until("it is meant for the first pod", () => markedFor(fleet, taskId, first.podId));
      first.open("door");

      expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: first.podId, token: 1 });
      expect(startsIn(fleet.ledger(), taskId)).toHaveLength(1);
      await fleet.flotilla.waitFor(other.taskId);
      expect(await judge(fleet)).toEqual([]);
    },
  );
});

describe.each(storeKinds)(
  "on %s, a store that can be read but not written for longer than the dead limit",
  (on) => {
    test("makes no pod look dead", async () => {
      const fleet = await createFleet({ on });
      const limits = { heartbeatMs: 100, deadAfterMs: 5_000 };
      const spec = { ...held, config: limits };
      const leader = await fleet.start(spec);
      const other = await fleet.start(spec);
      const tasks = await fleet.flotilla.enqueueMany(
        "held",
        Array.from({ length: 100 }, () => ({ gate: "door" })),
      );
      await until("all run", () => startsIn(fleet.ledger()).length === tasks.length);

      const outage = await stopWrites(fleet, { last: other });
      await pauseFor(2 * limits.deadAfterMs);
      // The leader is the first to beat again, and sees that the other has yet to.
      await outage.end();
      await beatsAgain(fleet, leader.podId);
      await outage.endForAll();
      for (const pod of [leader, other]) pod.open("door");
      await Promise.all(tasks.map(({ taskId }) => fleet.flotilla.waitFor(taskId)));

      expect(recoveriesIn(await fleet.transitions())).toHaveLength(0);
      expect(startsIn(fleet.ledger())).toHaveLength(tasks.length);
      expect(await judge(fleet, limits)).toEqual([]);
    });
  },
);

async function startedOn(fleet: Fleet, taskId: string, podId: string): Promise<void> {
  await until(`${taskId} runs on ${podId}`, () =>
    startsIn(fleet.ledger(), taskId).some((entry) => entry.pod === podId),
  );
}

function lostOn(fleet: Fleet, podId: string): boolean {
  return fleet
    .ledger()
    .some((entry) => entry.event === "ended" && entry.pod === podId && entry.outcome === "lost");
}

/** Whether a task that must run alone waits for this pod to be empty. */
async function markedFor(fleet: Fleet, taskId: string, podId: string): Promise<boolean> {
  const [row] = await fleet.sql(
    "select status, claimed_by from flotilla_task where task_id = ?",
    taskId,
  );
  return row?.["status"] === "pending" && row["claimed_by"] === podId;
}

/** Often enough for what it saw with the first beat to have been acted on. */
async function beatsAgain(fleet: Fleet, podId: string): Promise<void> {
  const beat = async () => {
    const [row] = await fleet.sql("select beat from flotilla_pod where pod_id = ?", podId);
    return row!["beat"] as number;
  };
  const before = await beat();
  await until(`${podId} beats again`, async () => (await beat()) >= before + 4);
}
