import { describe, expect, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { uuidv7 } from "../../../src/base/ids.ts";
import { systemRandom } from "../../../src/base/random.ts";
import { emptyLiveness, type Liveness, observe, type PodSeen } from "../../../src/pods/liveness.ts";
import { toPodSeen } from "../../../src/pods/sql.ts";
import { createLeader } from "../../../src/tasks/leader/recover.ts";
import type { Database } from "../../../src/store/database.ts";
import { openStore } from "../../../src/store/open.ts";
import { judge, recoveriesIn } from "./checkers.ts";
import { createFleet, type Fleet, storeKinds } from "../harness.ts";
import { until } from "../until.ts";
import { startsIn } from "../ledger.ts";

const limits = { heartbeatMs: 100, deadAfterMs: 500, gapMs: 10_000 };

describe.each(storeKinds)("on %s, two leaders at once", (on) => {
  test("recover a dead pod's tasks as one would", async () => {
    const fleet = await createFleet({ on });
    const dead = await fleet.start({ names: ["held"] });
    const count = 30;
    for (let at = 0; at < count; at++) await fleet.flotilla.enqueue("held", { gate: "door" });
    await until("all are running", () => startsIn(fleet.ledger()).length === count);
    await dead.kill();

    const meeting = meetingOf(2);
    const leaders = ["leader-1", "leader-2"].map((podId) =>
      leaderOn(fleet, podId, [dead.podId], (store) => ({
        ...store,
        // Both have read the claims before either writes.
        read: async (statement) => {
          const rows = await store.read(statement);
          await meeting();
          return rows;
        },
      })),
    );
    const passes = await Promise.all(leaders.map((leader) => leader()));

    expect(passes.map(({ led }) => led)).toEqual([true, true]);
    expect(passes[0]!.recovered + passes[1]!.recovered).toBe(count);
    expect(recoveriesIn(await fleet.transitions())).toHaveLength(count);
    expect(
      await fleet.sql("select status, deaths, count(*) as tasks from flotilla_task group by 1, 2"),
    ).toEqual([{ status: "pending", deaths: 1, tasks: count }]);
    expect(
      await fleet.sql("select count(*) as events from flotilla_task_event where type = 'pod_died'"),
    ).toEqual([{ events: count }]);

    const next = await fleet.start({ names: ["held"] });
    next.open("door");
    await until("all have ended", async () => {
      const { byStatus } = await fleet.flotilla.tasks.stats({ exact: true });
      return byStatus.completed === count;
    });
    expect(startsIn(fleet.ledger())).toHaveLength(2 * count);
    expect(await judge(fleet)).toEqual([]);
  });
});

describe.each(storeKinds)(
  "on %s, a task that is finished between recovery's read and its write",
  (on) => {
    test("stays finished", async () => {
      const fleet = await createFleet({ on });
      // Its heart stops while the rest of it goes on, so that nothing but the finish gives it away.
      const pod = await fleet.start({ names: ["held"], gate: "none" });
      const { taskId } = await fleet.flotilla.enqueue("held", { gate: "door" });
      await until("it runs", () => startsIn(fleet.ledger(), taskId).length === 1);
      await pod.stopHeart();

      let looked = 0;
      const pass = leaderOn(fleet, "leader", [pod.podId], (store) => ({
        ...store,
        read: async (statement) => {
          const rows = await store.read(statement);
          looked += rows.some((row) => row["task_id"] === taskId && "claimed_by" in row) ? 1 : 0;
          pod.open("door");
          await fleet.flotilla.waitFor(taskId);
          return rows;
        },
      }));
      expect(await pass()).toEqual({ led: true, recovered: 0 });

      expect(looked).toBe(1);
      expect(await fleet.flotilla.tasks.get(taskId)).toMatchObject({
        status: "completed",
        deaths: 0,
        result: { pod: pod.podId, token: 1 },
      });
      expect(startsIn(fleet.ledger(), taskId)).toHaveLength(1);
      expect(await judge(fleet)).toEqual([]);
    });

    test("stays finished when all its pod's claims are read again", async () => {
      const fleet = await createFleet({ on });
      const pod = await fleet.start();
      const { taskId } = await fleet.flotilla.enqueue("work", { ms: 0 });
      await fleet.flotilla.waitFor(taskId);
      await pod.kill();

      expect(await leaderOn(fleet, "leader", [pod.podId], (store) => store)()).toEqual({
        led: true,
        recovered: 0,
      });
      expect(await fleet.flotilla.tasks.get(taskId)).toMatchObject({
        status: "completed",
        deaths: 0,
      });
      expect(await judge(fleet)).toEqual([]);
    });
  },
);

describe.each(storeKinds)("on %s, a claim that is newer than the one recovery has read", (on) => {
  test("is left alone", async () => {
    const fleet = await createFleet({ on });
    const pod = await fleet.start({ names: ["held"], gate: "none" });
    const gates = { gate: "door", laterGate: "window" };
    const { taskId } = await fleet.flotilla.enqueue("held", gates);
    await until("it runs", () => startsIn(fleet.ledger(), taskId).length === 1);
    await pod.stopHeart();

    let looked = 0;
    const pass = leaderOn(fleet, "leader", [pod.podId], (store) => ({
      ...store,
      read: async (statement) => {
        const rows = await store.read(statement);
        looked += rows.some((row) => row["task_id"] === taskId && "claimed_by" in row) ? 1 : 0;
        // The first attempt fails, and the same pod, whose beat doesn't move, claims the task again.
        pod.open("door", { fails: true });
        await until("it runs again", () => startsIn(fleet.ledger(), taskId).length === 2);
        return rows;
      },
    }));
    expect(await pass()).toEqual({ led: true, recovered: 0 });
    pod.open("window");

    expect(looked).toBe(1);
    expect(await fleet.flotilla.tasks.settled(taskId)).toMatchObject({
      status: "completed",
      deaths: 0,
      failures: 1,
    });
    expect(startsIn(fleet.ledger(), taskId)).toHaveLength(2);
    expect(await judge(fleet)).toEqual([]);
  });
});

describe.each(storeKinds)(
  "on %s, a pod that beats again between recovery's read and its write",
  (on) => {
    test("keeps its task", async () => {
      const fleet = await createFleet({ on });
      const pod = await fleet.start({ names: ["held"] });
      const { taskId } = await fleet.flotilla.enqueue("held", { gate: "door" });
      await until("it runs", () => startsIn(fleet.ledger(), taskId).length === 1);

      const pass = leaderOn(fleet, "leader", [pod.podId], (store) => ({
        ...store,
        read: async (statement) => {
          const rows = await store.read(statement);
          const beat = await beatOf(fleet, pod.podId);
          await until("it has beaten", async () => (await beatOf(fleet, pod.podId)) > beat);
          return rows;
        },
      }));
      expect(await pass()).toEqual({ led: true, recovered: 0 });
      expect(await fleet.flotilla.tasks.get(taskId)).toMatchObject({
        status: "claimed",
        deaths: 0,
      });
      pod.open("door");

      expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: pod.podId, token: 1 });
      expect(await judge(fleet)).toEqual([]);
    });
  },
);

async function beatOf(fleet: Fleet, podId: string): Promise<number> {
  const [row] = await fleet.sql("select beat from flotilla_pod where pod_id = ?", podId);
  return row!["beat"];
}

/** A leader with a connection of its own, for which some pods have been silent for long enough. */
function leaderOn(
  fleet: Fleet,
  podId: string,
  silent: readonly string[],
  wrap: (store: Database) => Database,
) {
  return async (): Promise<{ led: boolean; recovered: number }> => {
    const store = await openStore(fleet.store);
    let recovered = 0;
    const leader = createLeader({
      podId,
      database: wrap(store),
      limits,
      retentionMs: 3_600_000,
      ids: uuidv7(systemClock, systemRandom),
      onRecovered: (tasks) => (recovered += tasks),
    });
    const led = await leader.pass(await livenessOf(fleet, podId, silent));
    await store.close();
    return { led, recovered };
  };
}

async function livenessOf(
  fleet: Fleet,
  podId: string,
  silent: readonly string[],
): Promise<Liveness> {
  const pods = (await fleet.sql("select * from flotilla_pod"))
    .map(toPodSeen)
    .filter((pod) => silent.includes(pod.podId));
  const self: PodSeen = { podId, birthMs: 0, status: "up", beat: 1, passes: 0 };
  const first = observe(emptyLiveness, { atMs: 0, pods: [self, ...pods] }, limits);
  return observe(first, { atMs: 600, pods: [{ ...self, beat: 2 }, ...pods] }, limits);
}

/** Resolves for all callers when all have come, and lets later ones pass. */
function meetingOf(size: number): () => Promise<void> {
  let arrived = 0;
  let begin = () => {};
  const begun = new Promise<void>((resolve) => {
    begin = resolve;
  });
  return () => {
    if (++arrived === size) begin();
    return begun;
  };
}
