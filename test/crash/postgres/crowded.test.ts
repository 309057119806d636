import pg from "pg";
import { describe, expect, inject, onTestFinished, test } from "vitest";
import { connect } from "flotilla";
import { judge, recoveriesIn } from "../tasks/checkers.ts";
import { createFleet, type Fleet } from "../harness.ts";
import { startsIn } from "../ledger.ts";
import { pauseFor, until } from "../until.ts";

// Nobody is to be found dead, also where a machine lets it wait for a second or two.
const config = { heartbeatMs: 100, deadAfterMs: 3_000, pollMs: 200 };
const names = ["held", "work"];
const longMs = 2 * config.deadAfterMs;
const count = 10;

describe("a pod", () => {
  test("whose every connection is stuck beats on, and stores what it has once it can", async () => {
    const fleet = await createFleet({ on: "postgres" });
    const pod = await fleet.start({ names, config, store: `${fleet.store}?connections=1` });
    await fleet.start({ names, config });
    await holdTasks(fleet);
    const stuck = await connectedAs(fleet, inject("postgresUrl"));
    await stuck.query("begin");
    // Reads go on, and beats; whatever would change a task waits.
    await stuck.query("lock table flotilla.task in exclusive mode");
    for (const each of fleet.pods) each.open("door");
    await until("a finish waits", () => isWaiting(fleet));
    const before = await beatOf(fleet, pod.podId);
    await pauseFor(longMs);
    await expect.poll(() => beatOf(fleet, pod.podId)).toBeGreaterThan(before + 3);
    await stuck.end();

    await allEndedAtOnce(fleet);
  });

  test("that finds no connection left, with all of its own gone, goes on when there are some again", async () => {
    const fleet = await createFleet({ on: "postgres" });
    for (let pods = 0; pods < 2; pods++) await fleet.start({ names, config });
    await holdTasks(fleet);
    const name = new URL(fleet.store).pathname.slice(1);
    await fleet.sql(`alter database ${name} connection limit 0`);
    await fleet.sql(
      `select pg_terminate_backend(pid) from pg_stat_activity
       where datname = current_database() and usename <> current_user`,
    );
    for (const each of fleet.pods) each.open("door");
    await using late = connect(fleet.store);
    await expect(late.enqueue("work", { ms: 0 })).rejects.toMatchObject({
      code: "store_unavailable",
    });
    await pauseFor(longMs);
    expect(fleet.pods.map(({ alive }) => alive)).toEqual([true, true]);
    await fleet.sql(`alter database ${name} connection limit -1`);

    await allEndedAtOnce(fleet);
    const { taskId } = await fleet.flotilla.enqueue("work", { ms: 0 });
    await fleet.flotilla.waitFor(taskId);
  });
});

test("a task that only newer pods know waits for one, while older pods go on with the rest", async () => {
  const fleet = await createFleet({ on: "postgres" });
  const old = [await fleet.start({ config }), await fleet.start({ config })];
  const rare = await fleet.flotilla.enqueue("rare", { ms: 0 }, { priority: 100 });
  const work = await fleet.flotilla.enqueueMany(
    "work",
    Array.from({ length: 50 }, () => ({ ms: 20 })),
  );
  await Promise.all(work.map(({ taskId }) => fleet.flotilla.waitFor(taskId)));
  expect(await fleet.flotilla.tasks.get(rare.taskId)).toMatchObject({
    status: "pending",
    deaths: 0,
  });

  const young = await fleet.start({ names: ["work", "rare"], config });
  expect(await fleet.flotilla.waitFor(rare.taskId)).toEqual({ pod: young.podId, token: 1 });
  // The others leave one by one while work comes in.
  for (const pod of old) {
    const { taskId } = await fleet.flotilla.enqueue("work", { ms: 100 });
    expect(await pod.terminate()).toEqual({ code: 0, signal: null });
    await fleet.flotilla.waitFor(taskId);
  }
  expect(await judge(fleet, config)).toEqual([]);
});

async function holdTasks(fleet: Fleet): Promise<void> {
  const inputs = Array.from({ length: count }, () => ({ gate: "door" }));
  await fleet.flotilla.enqueueMany("held", inputs);
  await until("all run", () => startsIn(fleet.ledger()).length === count);
}

/** Each task ran once, on the pod that had it before, and its result counts. */
async function allEndedAtOnce(fleet: Fleet): Promise<void> {
  await until("all have ended", async () => {
    const { byStatus } = await fleet.flotilla.tasks.stats({ exact: true });
    return byStatus.completed === count;
  });
  expect(startsIn(fleet.ledger())).toHaveLength(count);
  expect(recoveriesIn(await fleet.transitions())).toEqual([]);
  expect(await judge(fleet, config)).toEqual([]);
}

/** A connection of the test's own to a fleet's database. */
async function connectedAs(fleet: Fleet, serverUrl: string): Promise<pg.Client> {
  const url = new URL(serverUrl);
  url.pathname = new URL(fleet.store).pathname;
  const client = new pg.Client(url.href);
  await client.connect();
  onTestFinished(() => client.end());
  return client;
}

async function isWaiting(fleet: Fleet): Promise<boolean> {
  const rows = await fleet.sql(
    "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()",
  );
  return rows.length > 0;
}

async function beatOf(fleet: Fleet, podId: string): Promise<number> {
  const pods = await fleet.flotilla.pods();
  return pods.find((pod) => pod.podId === podId)!.beat;
}
