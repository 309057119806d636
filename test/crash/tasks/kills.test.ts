import { describe, expect, test } from "vitest";
import { judge } from "./checkers.ts";
import type { Gate } from "../gated-pod.ts";
import { createFleet, type Fleet, type StoreKind, storeKinds } from "../harness.ts";
import { until } from "../until.ts";
import { startsIn } from "../ledger.ts";

describe.each(storeKinds)("on %s, a pod that is killed", (on) => {
  test("between a claim's commit and its answer leaves a task that another pod runs once", async () => {
    const { fleet, taskId, second } = await killedAt(on, "claim committed");

    expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: second.podId, token: 2 });
    expect(startsIn(fleet.ledger(), taskId).map(({ pod }) => pod)).toEqual([second.podId]);
    expect(await fleet.flotilla.tasks.get(taskId)).toMatchObject({ deaths: 1, failures: 0 });
    expect(await judge(fleet)).toEqual([]);
  });

  test("between its work and the finish leaves a task that another pod does again", async () => {
    const { fleet, taskId, first, second } = await killedAt(on, "finish not sent");

    expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: second.podId, token: 2 });
    const pods = startsIn(fleet.ledger(), taskId).map(({ pod }) => pod);
    expect(pods).toEqual([first.podId, second.podId]);
    expect(fleet.ledger()).toContainEqual(
      expect.objectContaining({ event: "end", ok: true, task: taskId, pod: first.podId }),
    );
    expect(await judge(fleet)).toEqual([]);
  });

  test("between a finish's commit and its answer leaves a task that has ended", async () => {
    const { fleet, taskId, first } = await killedAt(on, "finish committed");

    expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: first.podId, token: 1 });
    // What comes later has been done, and the dead pod recovered, before the first is judged.
    await downIn(fleet, first.podId);
    const later = await fleet.flotilla.enqueue("work", { ms: 0 });
    await fleet.flotilla.waitFor(later.taskId);
    expect(startsIn(fleet.ledger(), taskId)).toHaveLength(1);
    expect(await judge(fleet)).toEqual([]);
  });
});

/** One task on a pod that is killed at the gate, and a second pod that is there for what is left. */
async function killedAt(on: StoreKind, gate: Gate) {
  const fleet = await createFleet({ on });
  const first = await fleet.start({ gate });
  const { taskId } = await fleet.flotilla.enqueue("work", { ms: 0 });
  expect(await first.reached()).toBe(gate);
  const second = await fleet.start();
  expect(await first.kill()).toEqual({ code: null, signal: "SIGKILL" });
  return { fleet, taskId, first, second };
}

async function downIn(fleet: Fleet, podId: string): Promise<void> {
  await until(`${podId} is marked down`, async () => {
    const pods = await fleet.flotilla.pods();
    return pods.find((pod) => pod.podId === podId)?.status === "down";
  });
}
