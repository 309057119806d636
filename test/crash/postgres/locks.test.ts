import pg from "pg";
import { describe, expect, onTestFinished, test } from "vitest";
import { judge } from "../tasks/checkers.ts";
import { createFleet, type Fleet } from "../harness.ts";
import { startsIn } from "../ledger.ts";
import { until } from "../until.ts";
import { openTasks } from "./harness.ts";
import { withTimeouts } from "./harness-store.ts";

const names = ["held", "work"];
// What is killed is missed as soon as its connection ends. What is merely late isn't.
const config = { heartbeatMs: 300, deadAfterMs: 10_000, pollMs: 200 };
const quick = { heartbeatMs: 100, deadAfterMs: 600, pollMs: 200 };
const impatient = (fleet: Fleet) => withTimeouts(fleet.store, { lockTimeoutMs: 400 });

describe("a transaction that idles", () => {
  test("over a row that waits keeps no other task from being claimed", async () => {
    const fleet = await createFleet({ on: "postgres" });
    const [first, ...others] = await fleet.flotilla.enqueueMany(
      "work",
      Array.from({ length: 20 }, () => ({ ms: 0 })),
    );
    const holder = await idleOver(fleet, "task", "task_id", first!.taskId);
    await fleet.start({ names, config, store: impatient(fleet) });

    await Promise.all(others.map(({ taskId }) => fleet.flotilla.waitFor(taskId)));
    expect(await fleet.flotilla.tasks.get(first!.taskId)).toMatchObject({ status: "pending" });
    await holder.end();
    expect(await fleet.flotilla.waitFor(first!.taskId)).toMatchObject({ token: 1 });
    expect(await judge(fleet, config)).toEqual([]);
  });

  test("over a row that runs keeps no other result from being stored", async () => {
    const fleet = await createFleet({ on: "postgres" });
    const pod = await fleet.start({ names, config, store: impatient(fleet) });
    const [first, ...others] = await fleet.flotilla.enqueueMany(
      "held",
      Array.from({ length: 5 }, () => ({ gate: "door" })),
    );
    await until("all run", () => startsIn(fleet.ledger()).length === 5);
    const holder = await idleOver(fleet, "task", "task_id", first!.taskId);
    pod.open("door");

    await Promise.all(others.map(({ taskId }) => fleet.flotilla.waitFor(taskId)));
    expect(await fleet.flotilla.tasks.get(first!.taskId)).toMatchObject({ status: "claimed" });
    await holder.end();
    expect(await fleet.flotilla.waitFor(first!.taskId)).toEqual({ pod: pod.podId, token: 1 });
    expect(startsIn(fleet.ledger())).toHaveLength(5);
    expect(await judge(fleet, config)).toEqual([]);
  });

  test("over a dead pod's row, and over one of its tasks, keeps no other from being recovered", async () => {
    const fleet = await createFleet({ on: "postgres" });
    const dead = await fleet.start({ names, config });
    const [first, ...others] = await fleet.flotilla.enqueueMany(
      "held",
      Array.from({ length: 5 }, () => ({ gate: "door" })),
    );
    await until("all run", () => startsIn(fleet.ledger()).length === 5);
    const next = await fleet.start({ names, config, store: impatient(fleet) });
    next.open("door");
    // Without its row the pod can't beat, so that is taken last.
    const holders = [
      await idleOver(fleet, "task", "task_id", first!.taskId),
      await idleOver(fleet, "pod", "pod_id", dead.podId),
    ];
    await dead.kill();

    await Promise.all(others.map(({ taskId }) => fleet.flotilla.waitFor(taskId)));
    expect(await fleet.flotilla.tasks.get(first!.taskId)).toMatchObject({ status: "claimed" });
    await Promise.all(holders.map((holder) => holder.end()));
    expect(await fleet.flotilla.waitFor(first!.taskId)).toMatchObject({ pod: next.podId });
    expect(await judge(fleet, config)).toEqual([]);
  });

  test("over a live pod's row, for longer than the dead limit, loses and doubles nothing", async () => {
    const fleet = await createFleet({ on: "postgres" });
    const silenced = await fleet.start({ names, config: quick, store: impatient(fleet) });
    const { taskId } = await fleet.flotilla.enqueue("held", { gate: "door" });
    await until("it runs", () => startsIn(fleet.ledger(), taskId).length === 1);
    const other = await fleet.start({ names, config: quick });
    const holder = await idleOver(fleet, "pod", "pod_id", silenced.podId);
    await until("it was taken for dead", async () => {
      return (await fleet.flotilla.tasks.get(taskId))!.deaths === 1;
    });
    for (const pod of [silenced, other]) pod.open("door");
    await fleet.flotilla.waitFor(taskId);
    await holder.end();
    await until("it beats again", async () => {
      const pods = await fleet.flotilla.pods();
      return pods.find(({ podId }) => podId === silenced.podId)?.status === "up";
    });

    await until("all has ended", async () => (await openTasks(fleet)) === 0);
    expect(await judge(fleet, quick)).toEqual([]);
  });
});

/** Begins a transaction that locks one row and then asks nothing any more. */
async function idleOver(
  fleet: Fleet,
  table: string,
  column: string,
  value: string,
): Promise<{ end(): Promise<void> }> {
  const client = new pg.Client(fleet.store);
  await client.connect();
  const end = () => client.end();
  onTestFinished(end);
  await client.query("begin");
  const locked = `select 1 from flotilla.${table} where ${column} = $1 for update`;
  await client.query(locked, [value]);
  return { end };
}
