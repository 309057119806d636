import { describe, expect, test } from "vitest";
import { gapOf } from "../../../src/pods/liveness.ts";
import { createFleet, type Fleet, type StartOptions, storeKinds } from "../harness.ts";
import { startsIn } from "../ledger.ts";
import type { PodProcess } from "../pod-handle.ts";
import { until } from "../until.ts";
import { judge } from "./checkers.ts";

// An hour of silence is never waited for here, so what is given back was given back for another reason.
const hourMs = 3_600_000;
// Slow beats: the observer itself may stand still for three of them without a gap.
const config = { heartbeatMs: 2_000, deadAfterMs: hourMs, pollMs: 500 };
const gapMs = gapOf(config);
const limits = { deadAfterMs: hourMs };
/** A pod that doesn't say which process it is, as if it were on another machine. */
const elsewhere: StartOptions = { gate: "none" };

describe.each(storeKinds)("on %s, with a limit of an hour for silent pods", (on) => {
  test("the task of a killed leader runs on a pod beside it", async () => {
    const fleet = await createFleet({ on });
    const leader = await start(fleet);
    const taskId = await hold(fleet);
    const first = await start(fleet);
    await leader.kill();
    const survivor = await heirOf(fleet, taskId, first);
    survivor.open("door");

    expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: survivor.podId, token: 2 });
    expect(await fleet.flotilla.tasks.get(taskId)).toMatchObject({ deaths: 1, failures: 0 });
    expect(await judge(fleet, limits)).toEqual([]);
  });

  test("the task of a killed pod runs on one that starts on its machine later", async () => {
    const fleet = await createFleet({ on });
    const dead = await start(fleet);
    const taskId = await hold(fleet);
    await dead.kill();
    const next = await heirOf(fleet, taskId, await start(fleet));
    next.open("door");

    expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: next.podId, token: 2 });
    expect(await judge(fleet, limits)).toEqual([]);
  });

  test("a paused pod isn't taken for a dead one", async () => {
    const fleet = await createFleet({ on });
    const paused = await start(fleet);
    const taskId = await hold(fleet);
    const other = await start(fleet);
    await paused.pauseOutsideWrites();
    await beats(fleet, other.podId, 4);
    expect(await fleet.flotilla.tasks.get(taskId)).toMatchObject({ status: "claimed", deaths: 0 });
    paused.resume();
    paused.open("door");

    expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: paused.podId, token: 1 });
    expect(await judge(fleet, limits)).toEqual([]);
  });
});

describe("on Postgres, with a limit of an hour for silent pods of other machines", () => {
  test("the task of a killed pod runs elsewhere once its connection has ended", () =>
    whereAwake(async (fleet) => {
      const dead = await start(fleet, elsewhere);
      const taskId = await hold(fleet);
      const other = await start(fleet);
      await beats(fleet, other.podId, 2);
      expect(await connectionOf(fleet, dead.podId)).toEqual(expect.any(Number));
      await dead.kill();
      await runsOn(fleet, taskId, other.podId);
      other.open("door");

      expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: other.podId, token: 2 });
      expect(await judge(fleet, limits)).toEqual([]);
    }));

  test("a paused pod isn't taken for a dead one while it has its connection", async () => {
    const fleet = await createFleet({ on: "postgres" });
    const paused = await start(fleet, elsewhere);
    const taskId = await hold(fleet);
    const other = await start(fleet);
    await beats(fleet, other.podId, 2);
    await paused.pauseOutsideWrites();
    await beats(fleet, other.podId, 4);
    expect(await fleet.flotilla.tasks.get(taskId)).toMatchObject({ status: "claimed", deaths: 0 });
    paused.resume();
    paused.open("door");

    expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: paused.podId, token: 1 });
    expect(await judge(fleet, limits)).toEqual([]);
  });

  test("a pod whose connections are ended again and again isn't, because its beats come", async () => {
    const fleet = await createFleet({ on: "postgres" });
    const pod = await start(fleet, elsewhere);
    const taskId = await hold(fleet);
    const other = await start(fleet);
    await beats(fleet, other.podId, 2);
    for (let times = 0; times < 3; times++) {
      const ended = await connectionOf(fleet, pod.podId);
      await fleet.sql("select pg_terminate_backend(?)", ended);
      await until("it beats on another connection", async () => {
        return (await connectionOf(fleet, pod.podId)) !== ended;
      });
    }
    await beats(fleet, other.podId, 3);
    expect(await fleet.flotilla.tasks.get(taskId)).toMatchObject({ status: "claimed", deaths: 0 });
    pod.open("door");

    expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: pod.podId, token: 1 });
    expect(await judge(fleet, limits)).toEqual([]);
  });

  test("one that is paused and loses its connection is, and its late result changes nothing", () =>
    whereAwake(async (fleet) => {
      const paused = await start(fleet, elsewhere);
      const taskId = await hold(fleet);
      const other = await start(fleet);
      await beats(fleet, other.podId, 2);
      await paused.pauseOutsideWrites();
      await fleet.sql("select pg_terminate_backend(?)", await connectionOf(fleet, paused.podId));
      await runsOn(fleet, taskId, other.podId);
      paused.resume();
      paused.open("door");
      await beats(fleet, paused.podId, 2);
      expect(await fleet.flotilla.tasks.get(taskId)).toMatchObject({ claimedBy: other.podId });
      other.open("door");

      expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: other.podId, token: 2 });
      expect(await judge(fleet, limits)).toEqual([]);
    }));
});

function start(fleet: Fleet, options: StartOptions = {}) {
  return fleet.start({ names: ["held"], config, ...options });
}

/** A task that runs on the only pod there is. */
async function hold(fleet: Fleet): Promise<string> {
  const { taskId } = await fleet.flotilla.enqueue("held", { gate: "door" });
  await until("it runs", () => startsIn(fleet.ledger(), taskId).length === 1);
  return taskId;
}

/**
 * The pod that a task goes on with. One that stood still counts all silence anew, for an hour, and what a
 * supervisor starts in its place sees at once which processes are gone.
 */
async function heirOf(fleet: Fleet, taskId: string, first: PodProcess): Promise<PodProcess> {
  let heir = first;
  await until("it runs on another pod", async () => {
    const { podId } = heir;
    if (startsIn(fleet.ledger(), taskId).some(({ pod }) => pod === podId)) return true;
    const [task] = await fleet.flotilla.tasks.states([taskId]);
    const hasIt = task?.claimedBy === podId;
    if (!hasStoodStill(fleet, podId) || hasIt) return false;
    await heir.terminate();
    heir = await start(fleet);
    return false;
  });
  return heir;
}

/** Says that an observer has to count an hour of silence anew. */
class StoodStill extends Error {}

/** Plays a scene again where its observer stood still, which no longer knows which connections were open. */
async function whereAwake(scene: (fleet: Fleet) => Promise<void>): Promise<void> {
  for (;;) {
    try {
      return await scene(await createFleet({ on: "postgres" }));
    } catch (error) {
      if (!(error instanceof StoodStill)) throw error;
    }
  }
}

async function runsOn(fleet: Fleet, taskId: string, podId: string): Promise<void> {
  await until("it runs on the other pod", () => {
    if (startsIn(fleet.ledger(), taskId).some(({ pod }) => pod === podId)) return true;
    if (hasStoodStill(fleet, podId)) throw new StoodStill();
    return false;
  });
}

function hasStoodStill(fleet: Fleet, podId: string): boolean {
  return fleet
    .ledger()
    .some((each) => each.event === "gap" && each.pod === podId && each.gapMs > gapMs);
}

/** Waits for so many more beats of a pod. */
async function beats(fleet: Fleet, podId: string, count: number): Promise<void> {
  const beatOf = async () => {
    const [row] = await fleet.sql("select beat from flotilla_pod where pod_id = ?", podId);
    return row!["beat"] as number;
  };
  const before = await beatOf();
  await until(`${count} beats`, async () => (await beatOf()) >= before + count);
}

async function connectionOf(fleet: Fleet, podId: string): Promise<number> {
  const [row] = await fleet.sql("select connection from flotilla_pod where pod_id = ?", podId);
  return row!["connection"];
}
