import { describe, expect, test } from "vitest";
import { judge } from "./checkers.ts";
import { createFleet, type Fleet, until } from "./harness.ts";
import { startsIn } from "./ledger.ts";

// Without polls, a pod learns that it has lost a task only by the store's refusal.
const unaware = { pollMs: 60_000 };
const held = { names: ["held"] };

describe("a pod that was paused for longer than the dead limit", () => {
  test("can't finish a task that another pod runs by now, and the other's result stands", async () => {
    const fleet = await createFleet();
    const first = await fleet.start({ ...held, config: unaware });
    const { taskId } = await fleet.flotilla.enqueue("held", { gate: "door" });
    await startedOn(fleet, taskId, first.podId);
    const second = await fleet.start(held);

    first.pause();
    await startedOn(fleet, taskId, second.podId);
    first.open("door");
    first.resume();
    await until("the first pod's finish was refused, or taken", async () => {
      return lostOn(fleet, first.podId) || (await fleet.flotilla.get(taskId))?.status !== "claimed";
    });
    expect(await fleet.flotilla.get(taskId)).toMatchObject({
      status: "claimed",
      claimedBy: second.podId,
    });
    second.open("door");

    expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: second.podId, token: 2 });
    expect(startsIn(fleet.ledger(), taskId)).toHaveLength(2);
    expect(judge(fleet)).toEqual([]);
  });

  test("aborts its handler when it wakes and sees that another pod has the task", async () => {
    const fleet = await createFleet();
    const first = await fleet.start({ ...held, config: { pollMs: 100 } });
    const { taskId } = await fleet.flotilla.enqueue("held", { gate: "door" });
    await startedOn(fleet, taskId, first.podId);
    const second = await fleet.start(held);

    first.pause();
    await startedOn(fleet, taskId, second.podId);
    first.resume();
    await until("the first handler was aborted", () =>
      fleet.ledger().some((entry) => entry.event === "abort" && entry.pod === first.podId),
    );
    second.open("door");

    expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: second.podId, token: 2 });
    expect(judge(fleet)).toEqual([]);
  });

  test("finishes what nobody else has claimed meanwhile, and it isn't run again", async () => {
    const fleet = await createFleet();
    const first = await fleet.start(held);
    const { taskId } = await fleet.flotilla.enqueue("held", { gate: "door" });
    await startedOn(fleet, taskId, first.podId);
    // It leads once the first is silent, but has no handler for the task.
    await fleet.start({ names: ["work"] });

    first.pause();
    await until("the task was recovered", async () => {
      const task = await fleet.flotilla.get(taskId);
      return task?.status === "pending" && task.deaths === 1;
    });
    first.resume();
    // It has beaten and looked for work since it woke, and still runs what it had.
    await until("the first pod is up again", () => isUp(fleet, first.podId));
    first.open("door");

    expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: first.podId, token: 1 });
    expect(startsIn(fleet.ledger(), taskId)).toHaveLength(1);
    expect(judge(fleet)).toEqual([]);
  });
});

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

function isUp(fleet: Fleet, podId: string): boolean {
  const [row] = fleet.sql("select status from flotilla_pod_health where pod_id = ?", podId);
  return row?.["status"] === "up";
}
