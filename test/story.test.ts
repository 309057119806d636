import { expect, test } from "vitest";
import { judge, recoveriesIn } from "./crash/tasks/checkers.ts";
import { createFleet, type Fleet, storeKinds } from "./crash/harness.ts";
import type { PodProcess } from "./crash/pod-handle.ts";
import { until } from "./crash/until.ts";
import { startsIn } from "./crash/ledger.ts";

const limits = { heartbeatMs: 200, deadAfterMs: 3_000 };
// Each pod has five slots, so three pods hold fifteen tasks between them.
const spec = { names: ["held"], config: { ...limits, slots: 5, target: 1 } };
const room = 5;

test.each(storeKinds)(
  "on %s, the story of a fleet, from a task's submission to the survival of a pod's death",
  async (on) => {
    const fleet = await createFleet({ on });
    const { flotilla } = fleet;

    // 1. A task is submitted, and lands in the store as pending.
    const first = await submit(fleet, 1);
    expect(await flotilla.tasks.get(first[0]!)).toMatchObject({ status: "pending", claimToken: 0 });

    // 2. Workers beat and watch for work.
    const a = await fleet.start(spec);
    const b = await fleet.start(spec);
    const c = await fleet.start(spec);
    expect((await flotilla.pods()).map(({ status }) => status)).toEqual(["up", "up", "up"]);
    for (const pod of [a, b, c]) await beatsOn(fleet, pod);

    // 3. Worker A sees pending tasks and claims a set of them in one statement.
    const taskIds = [...first, ...(await submit(fleet, 3 * room - 1))];
    await until("A has all it can hold", async () => (await heldBy(fleet, a)).length === room);

    // 4. Workers B and C do the same, and no task is with two of them.
    await until(
      "B and C have the rest",
      async () => (await heldBy(fleet, b)).length + (await heldBy(fleet, c)).length === 2 * room,
    );
    const ofA = await heldBy(fleet, a);
    const ofB = await heldBy(fleet, b);
    const ofC = await heldBy(fleet, c);
    expect([...ofA, ...ofB, ...ofC].toSorted()).toEqual(taskIds.toSorted());
    await until("all are running", () => startsIn(fleet.ledger()).length === 3 * room);
    expect(startsIn(fleet.ledger()).map(({ token }) => token)).toEqual(taskIds.map(() => 1));

    // 5. Worker A processes its tasks and stores what became of them.
    const [bad, ...good] = ofA as [string, ...string[]];
    a.open(await gateOf(fleet, bad), { fails: true });
    for (const taskId of good) a.open(await gateOf(fleet, taskId));
    expect(await flotilla.tasks.settled(bad)).toMatchObject({ status: "failed", failures: 1 });
    for (const taskId of good) {
      expect(await flotilla.waitFor(taskId)).toEqual({ pod: a.podId, token: 1 });
    }

    // 6. Worker C dies in the middle of its tasks, and its heartbeats stop.
    expect(await c.kill()).toEqual({ code: null, signal: "SIGKILL" });
    // The leader may have seen by now that its process is gone.
    expect(ofC).toEqual(expect.arrayContaining(await heldBy(fleet, c)));
    const lastBeat = await beatOf(fleet, c);
    await beatsOn(fleet, a);
    expect(await beatOf(fleet, c)).toBe(lastBeat);

    // 7. The leader, which is the oldest pod, sees in the table of pods that C is dead.
    await until("C is marked down", async () => (await statusOf(fleet, c)) === "down");
    expect([await statusOf(fleet, a), await statusOf(fleet, b)]).toEqual(["up", "up"]);

    // 8. It gives the unfinished tasks back, and nothing else.
    await until("C holds nothing", async () => (await heldBy(fleet, c)).length === 0);
    const recovered = recoveriesIn(await fleet.transitions());
    expect(recovered.map(({ task }) => task).toSorted()).toEqual(ofC.toSorted());
    await until("the leader has said so", () => recoveredBy(fleet, a) === room);
    expect(recoveredBy(fleet, b)).toBe(0);
    expect(await heldBy(fleet, b)).toEqual(ofB);

    // 9. The remaining workers pick them up.
    await until("C's tasks run again", () => startsIn(fleet.ledger()).length === 4 * room);
    for (const taskId of [...ofB, ...ofC]) {
      for (const pod of [a, b]) pod.open(await gateOf(fleet, taskId));
    }
    for (const taskId of ofB) {
      expect(await flotilla.waitFor(taskId)).toEqual({ pod: b.podId, token: 1 });
    }
    for (const taskId of ofC) {
      expect(await flotilla.waitFor(taskId)).toEqual({ pod: a.podId, token: 2 });
    }

    // Every task was processed, none twice but those that C couldn't finish, and none was lost.
    expect((await flotilla.tasks.stats()).byStatus).toEqual({
      pending: 0,
      claimed: 0,
      completed: 3 * room - 1,
      failed: 1,
      cancelled: 0,
    });
    expect(await judge(fleet, limits)).toEqual([]);
  },
);

async function submit(fleet: Fleet, count: number): Promise<string[]> {
  const taskIds: string[] = [];
  for (let at = 0; at < count; at++) {
    const gate = `gate-${crypto.randomUUID()}`;
    const { taskId } = await fleet.flotilla.enqueue("held", { gate }, { attempts: 1 });
    taskIds.push(taskId);
  }
  return taskIds;
}

async function gateOf(fleet: Fleet, taskId: string): Promise<string> {
  const [row] = await fleet.sql("select payload from flotilla_task where task_id = ?", taskId);
  return JSON.parse(row!["payload"]).gate;
}

async function heldBy(fleet: Fleet, { podId }: PodProcess): Promise<string[]> {
  const rows = await fleet.sql(
    `select task_id from flotilla_task
     where status = 'claimed' and claimed_by = ? order by task_id`,
    podId,
  );
  return rows.map((row) => row["task_id"]);
}

async function healthOf(fleet: Fleet, { podId }: PodProcess) {
  const [row] = await fleet.sql("select beat, status from flotilla_pod where pod_id = ?", podId);
  return row as { beat: number; status: string };
}

const beatOf = async (fleet: Fleet, pod: PodProcess) => (await healthOf(fleet, pod)).beat;
const statusOf = async (fleet: Fleet, pod: PodProcess) => (await healthOf(fleet, pod)).status;

async function beatsOn(fleet: Fleet, pod: PodProcess): Promise<void> {
  const before = await beatOf(fleet, pod);
  await until(`${pod.podId} beats on`, async () => (await beatOf(fleet, pod)) >= before + 2);
}

function recoveredBy(fleet: Fleet, { podId }: PodProcess): number {
  return fleet
    .ledger()
    .reduce(
      (sum, entry) =>
        entry.pod === podId && entry.event === "recovered" ? sum + entry.tasks : sum,
      0,
    );
}
