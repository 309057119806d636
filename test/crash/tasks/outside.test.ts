import { describe, expect, test } from "vitest";
import { judge } from "./checkers.ts";
import { createFleet, storeKinds } from "../harness.ts";
import { until } from "../until.ts";
import { startsIn } from "../ledger.ts";
import { lockedBy } from "../outage.ts";

describe.each(storeKinds)("on %s, a pod that gets SIGTERM", (on) => {
  test("lets short tasks end, gives long ones back uncounted, and exits with 0", async () => {
    const fleet = await createFleet({ on });
    const names = ["work", "held"];
    // Only its stop gives back what it has, however late a beat of it is.
    const patient = { deadAfterMs: 60_000 };
    const config = { ...patient, shutdownMs: 1_000, graceMs: 1_000 };
    const first = await fleet.start({ names, config });
    const short = await fleet.flotilla.enqueue("work", { ms: 300 });
    const long = await fleet.flotilla.enqueue("held", { gate: "door" });
    await until("both run", () => startsIn(fleet.ledger()).length === 2);

    const leaving = first.terminate();
    const second = await fleet.start({ names, config: patient });
    expect(await leaving).toEqual({ code: 0, signal: null });
    second.open("door");

    expect(await fleet.flotilla.waitFor(short.taskId)).toEqual({ pod: first.podId, token: 1 });
    expect(await fleet.flotilla.waitFor(long.taskId)).toMatchObject({ pod: second.podId });
    expect(await fleet.flotilla.tasks.get(long.taskId)).toMatchObject({ failures: 0, deaths: 0 });
    const runs = startsIn(fleet.ledger(), long.taskId);
    expect(runs.map(({ pod, attempt }) => ({ pod, attempt }))).toEqual([
      { pod: first.podId, attempt: 1 },
      { pod: second.podId, attempt: 1 },
    ]);
    const left = (await fleet.flotilla.pods()).find(({ podId }) => podId === first.podId);
    expect(left?.status).toBe("down");
    expect(await judge(fleet)).toEqual([]);
  });
});

describe.each(storeKinds)("on %s, from outside the pod's process", (on) => {
  test("a row inserted by hand, with only a name and a payload, runs", async () => {
    const fleet = await createFleet({ on });
    const pod = await fleet.start();
    const [row] = await fleet.sql(
      `insert into flotilla_task (name, payload) values ('work', '{"ms": 1}') returning task_id`,
    );

    expect(await fleet.flotilla.waitFor(row!["task_id"])).toEqual({ pod: pod.podId, token: 1 });
    expect(await judge(fleet)).toEqual([]);
  });

  test("a cancel aborts the running handler, and the task ends cancelled", async () => {
    const fleet = await createFleet({ on });
    const pod = await fleet.start({ names: ["held", "work"], config: { pollMs: 100 } });
    const { taskId } = await fleet.flotilla.enqueue("held", { gate: "door" });
    await until("it runs", () => startsIn(fleet.ledger(), taskId).length === 1);

    expect(await fleet.flotilla.tasks.cancel(taskId)).toBe("cancelling");
    await expect(fleet.flotilla.waitFor(taskId)).rejects.toMatchObject({ code: "cancelled" });
    expect(fleet.ledger()).toContainEqual(
      expect.objectContaining({ event: "abort", task: taskId, pod: pod.podId }),
    );
    expect(await fleet.flotilla.tasks.get(taskId)).toMatchObject({
      status: "cancelled",
      failures: 0,
    });
    expect(startsIn(fleet.ledger(), taskId)).toHaveLength(1);
    expect(await judge(fleet)).toEqual([]);
  });

  test("a result is waited for before its task has begun", async () => {
    const fleet = await createFleet({ on });
    const { taskId } = await fleet.flotilla.enqueue("work", { ms: 1 });
    const result = fleet.flotilla.waitFor(taskId);
    const pod = await fleet.start();

    expect(await result).toEqual({ pod: pod.podId, token: 1 });
    expect(await judge(fleet)).toEqual([]);
  });
});

describe("on postgres, rows that an idle transaction has locked", () => {
  test("are passed over, and what comes after them runs", async () => {
    const fleet = await createFleet({ on: "postgres" });
    const locked = await fleet.flotilla.enqueueMany("work", [{ ms: 0 }, { ms: 0 }]);
    const unlock = await lockedBy(fleet, ["select 1 from flotilla.task for update"]);
    const later = await fleet.flotilla.enqueueMany("work", [{ ms: 0 }, { ms: 0 }]);
    await fleet.start();

    await Promise.all(later.map(({ taskId }) => fleet.flotilla.waitFor(taskId)));
    expect(startsIn(fleet.ledger()).map(({ task }) => task)).not.toContain(locked[0]!.taskId);
    await unlock();
    await Promise.all(locked.map(({ taskId }) => fleet.flotilla.waitFor(taskId)));
    expect(startsIn(fleet.ledger())).toHaveLength(4);
    expect(await judge(fleet)).toEqual([]);
  });
});
