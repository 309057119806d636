import { describe, expect, test } from "vitest";
import { judge } from "./checkers.ts";
import type { Gate } from "../gated-pod.ts";
import { createFleet, storeKinds, type StoreKind } from "../harness.ts";
import { startsIn } from "../ledger.ts";

describe.each(storeKinds)("on %s, an answer that is lost after the commit", (on) => {
  test("of a claim gives the task back, and it runs once under a newer token", async () => {
    const { fleet, pod, taskId } = await losing(on, "claim answer lost", { ms: 0 });

    // One claim, one release, and the claim that counts.
    expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: pod.podId, token: 3 });
    expect(startsIn(fleet.ledger(), taskId)).toHaveLength(1);
    expect(await judge(fleet)).toEqual([]);
  });

  test("of a completion changes nothing when it is sent again", async () => {
    const { fleet, pod, taskId } = await losing(on, "finish answer lost", { ms: 0 });

    expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: pod.podId, token: 1 });
    // What is sent again comes before what is finished later.
    const later = await fleet.flotilla.enqueue("work", { ms: 0 });
    await fleet.flotilla.waitFor(later.taskId);
    await leave(pod);
    const changes = (await fleet.transitions()).filter(({ task }) => task === taskId);
    expect(changes.map(({ to }) => to)).toEqual(["claimed", "completed"]);
    expect(startsIn(fleet.ledger(), taskId)).toHaveLength(1);
    expect(await judge(fleet)).toEqual([]);
  });

  test("of a failure counts it once and notes it once", async () => {
    const { fleet, pod, taskId } = await losing(on, "finish answer lost", { ms: 0, failures: 1 });

    expect(await fleet.flotilla.tasks.settled(taskId)).toMatchObject({
      status: "completed",
      failures: 1,
    });
    await leave(pod);
    const events = await fleet.sql(
      "select type from flotilla_task_event where task_id = ?",
      taskId,
    );
    expect(events.filter(({ type }) => type === "retry")).toHaveLength(1);
    expect(startsIn(fleet.ledger(), taskId)).toHaveLength(2);
    expect(await judge(fleet)).toEqual([]);
  });
});

describe.each(storeKinds)("on %s, a claim that gets to the store after it was given up", (on) => {
  test("takes nothing, and the task runs once by a later one", async () => {
    const { fleet, pod, taskId } = await losing(on, "claim comes late", { ms: 0 });

    expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: pod.podId, token: 1 });
    expect(startsIn(fleet.ledger(), taskId)).toHaveLength(1);
    expect(await judge(fleet)).toEqual([]);
  });
});

/** One task that waits for one pod, to which an answer is lost. */
async function losing(on: StoreKind, gate: Gate, input: object) {
  const fleet = await createFleet({ on });
  const { taskId } = await fleet.flotilla.enqueue("work", input);
  const pod = await fleet.start({ gate, config: { pollMs: 100 } });
  expect(await pod.reached()).toBe(gate);
  return { fleet, pod, taskId };
}

/** A pod that has left has had the outcome of everything it sent. */
async function leave(pod: { terminate(): Promise<unknown> }): Promise<void> {
  expect(await pod.terminate()).toEqual({ code: 0, signal: null });
}
