import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { judge } from "./checkers.ts";
import { keepAlive } from "../keep-alive.ts";
import { createFleet, type Fleet, storeKinds } from "../harness.ts";
import type { PodProcess } from "../pod-handle.ts";
import { pauseFor, until } from "../until.ts";
import { startsIn } from "../ledger.ts";

// What is killed is missed at once, and what is merely late for seconds isn't.
const patient = { heartbeatMs: 300, deadAfterMs: 10_000 };

describe.each(storeKinds)("on %s, a handler that", (on) => {
  test("throws what isn't an error, or never settles, fails within its attempts beside its neighbours", async () => {
    const fleet = await createFleet({ on });
    const bad = ["throws-text", "throws-nothing", "throws-trap", "never-settles"];
    const pod = await fleet.start({ names: ["work", ...bad], config: { graceMs: 100 } });
    const before = await enqueueWork(fleet, 10);
    const tasks = await Promise.all(bad.map((name) => fleet.flotilla.enqueue(name, {})));
    const after = await enqueueWork(fleet, 10);

    const ended = await Promise.all(
      tasks.map(({ taskId }) => fleet.flotilla.tasks.settled(taskId)),
    );
    expect(ended.map(({ name, status, failures }) => ({ name, status, failures }))).toEqual(
      bad.map((name) => ({ name, status: "failed", failures: 2 })),
    );
    expect(ended.map((task) => task.status === "failed" && task.error)).toEqual([
      { code: "handler_failed", message: "not an error" },
      { code: "handler_failed", message: "undefined" },
      { code: "handler_failed", message: expect.any(String) },
      { code: "timeout", message: "the attempt took longer than 100 ms" },
    ]);
    await allCompleted(fleet, [...before, ...after]);
    expect(pod.alive).toBe(true);
    expect(await judge(fleet)).toEqual([]);
  });

  // To the store, one death is like the other.
  test.each(on === "sqlite" ? ["exits", "kills"] : ["kills"])(
    "%s its process each time is failed after four pods, and every neighbour completes",
    async (name) => {
      const fleet = await createFleet({ on });
      const place = { names: ["work", name], config: patient };
      const respawned = keepAlive(2, () => fleet.start(place));
      const neighbours = await enqueueWork(fleet, 20);
      const { taskId } = await fleet.flotilla.enqueue(name, {});
      neighbours.push(...(await enqueueWork(fleet, 20)));

      const task = await fleet.flotilla.tasks.settled(taskId);
      expect(task).toMatchObject({
        status: "failed",
        deaths: 4,
        failures: 0,
        error: { code: "pod_died" },
      });
      await allCompleted(fleet, neighbours);
      expect(startsIn(fleet.ledger(), taskId)).toHaveLength(4);
      // From its third run on nothing else is on the pod that it takes down.
      const [, , third, fourth] = startsIn(fleet.ledger(), taskId);
      expect([third, fourth].flatMap((run) => openOn(fleet, run!.pod, run!.atMs))).toEqual([]);
      await respawned.stop();
      expect(await judge(fleet, patient)).toEqual([]);
    },
  );

  test("blocks its thread for many times the dead limit finishes once, and nothing of its pod is run elsewhere", async () => {
    const fleet = await createFleet({ on });
    const limits = { heartbeatMs: 200, deadAfterMs: 3_000 };
    const config = { ...limits, stallBeats: 100_000 };
    const over = join(fleet.folder, "over");
    // The older pod leads, so the younger has to take over the lead as well, and still leave it alone.
    const pod = await fleet.start({ names: ["held", "blocks"], config });
    const held = await fleet.flotilla.enqueue("held", { gate: "door" });
    const blocking = await fleet.flotilla.enqueue("blocks", { until: over });
    await until("both run", () => startsIn(fleet.ledger()).length === 2);
    const other = await fleet.start({ names: ["held", "blocks"], config });
    await until("the other leads", () =>
      fleet
        .ledger()
        .some(
          (entry) =>
            entry.event === "leading" && entry.pod === other.podId && entry.leader === other.podId,
        ),
    );
    await pauseFor(3 * limits.deadAfterMs);
    pod.open("door");
    writeFileSync(over, "");

    const results = [held, blocking].map(({ taskId }) => fleet.flotilla.waitFor(taskId));
    expect(await Promise.all(results)).toEqual([
      { pod: pod.podId, token: 1 },
      { pod: pod.podId, token: 1 },
    ]);
    expect(startsIn(fleet.ledger())).toHaveLength(2);
    expect(await judge(fleet, limits)).toEqual([]);
  });

  test("blocks its thread for ever has its process ended, and the task goes on elsewhere", async () => {
    const fleet = await createFleet({ on });
    const names = ["blocks-at-first"];
    // It can't say that a beat of it was late.
    const pod = await fleet.start({ names, config: { ...patient, stallBeats: 10 } });
    const { taskId } = await fleet.flotilla.enqueue("blocks-at-first", {});
    await until("it runs", () => startsIn(fleet.ledger(), taskId).length === 1);
    const other = await fleet.start({ names, config: patient });

    expect(await pod.exited).toEqual({ code: null, signal: "SIGKILL" });
    expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: other.podId, token: 2 });
    expect(await judge(fleet, patient)).toEqual([]);
  });
});

async function enqueueWork(fleet: Fleet, count: number): Promise<string[]> {
  const inputs = Array.from({ length: count }, () => ({ ms: 20 }));
  const enqueued = await fleet.flotilla.enqueueMany("work", inputs);
  return enqueued.map(({ taskId }) => taskId);
}

async function allCompleted(fleet: Fleet, taskIds: readonly string[]): Promise<void> {
  const ended = await Promise.all(taskIds.map((taskId) => fleet.flotilla.tasks.settled(taskId)));
  expect(ended.filter(({ status }) => status !== "completed")).toEqual([]);
}

/** What else was running on a pod at that moment. */
function openOn(fleet: Fleet, pod: PodProcess["podId"], atMs: number): string[] {
  const open = new Set<string>();
  for (const entry of fleet.ledger()) {
    if (entry.pod !== pod || entry.atMs >= atMs) continue;
    if (entry.event === "start") open.add(entry.task);
    if (entry.event === "end") open.delete(entry.task);
  }
  return [...open];
}
