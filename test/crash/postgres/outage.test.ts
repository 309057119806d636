import { join } from "node:path";
import { globSync, rmSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { beforeAll, describe, expect, test } from "vitest";
import { type PostgresServer, startPostgres } from "../../postgres/server.ts";
import { judge, recoveriesIn } from "../tasks/checkers.ts";
import { createFleet, type Fleet } from "../harness.ts";
import { startsIn } from "../ledger.ts";
import type { PodProcess } from "../pod-handle.ts";
import { until } from "../until.ts";
import { openTasks, createScene } from "./harness.ts";

const names = ["held"];
// Nobody who lives may be found dead, also where a machine lets it wait for a second or two.
const quick = { heartbeatMs: 100, deadAfterMs: 3_000, pollMs: 200 };
// Long enough for a process to start again on a busy machine before its tasks go to others.
const patient = { heartbeatMs: 200, deadAfterMs: 60_000, pollMs: 200 };
const count = 20;

let server: PostgresServer;
beforeAll(async () => {
  server = await startPostgres();
  return () => server.stop();
});

describe("an outage of the database", () => {
  test("longer than the dead limit, in which everything ends: all of it is stored after, and nothing runs twice", async () => {
    const fleet = await createFleet({ on: "postgres", server: server.url });
    const pods = [await podIn(fleet, "one", quick), await podIn(fleet, "two", quick)];
    await holdTasks(fleet);
    await server.kill();
    for (const pod of pods) pod.open("door");
    await until("all results are kept", () => keptIn(fleet) === count);
    await until("the dead limit has passed", hasPassed(2 * quick.deadAfterMs));
    await server.start();

    await until("all have ended", async () => (await openTasks(fleet)) === 0);
    expect(startsIn(fleet.ledger())).toHaveLength(count);
    expect(recoveriesIn(await fleet.transitions())).toEqual([]);
    await until("nothing is kept any more", () => keptIn(fleet) === 0);
    expect(await judge(fleet, quick)).toEqual([]);
  });

  test("in which a pod is killed: started again with its folder, it stores what it had done, and no pod does it again", async () => {
    const fleet = await createFleet({ on: "postgres", server: server.url });
    const pod = await podIn(fleet, "one", patient);
    await holdTasks(fleet);
    const other = await podIn(fleet, "two", patient);
    await server.kill();
    pod.open("door");
    await until("all results are kept", () => keptIn(fleet) === count);
    await pod.kill();
    await server.start();
    const again = await podIn(fleet, "one", patient);

    await until("all have ended", async () => (await openTasks(fleet)) === 0);
    expect(startsIn(fleet.ledger())).toHaveLength(count);
    expect([other.alive, again.alive]).toEqual([true, true]);
    await until("nothing is kept any more", () => keptIn(fleet) === 0);
    expect(await judge(fleet, patient)).toEqual([]);
  });

  test("that outlasts a shutdown: the next pod with that folder stores what was done", async () => {
    const fleet = await createFleet({ on: "postgres", server: server.url });
    const config = { ...patient, shutdownMs: 100, graceMs: 100 };
    const pod = await podIn(fleet, "one", config);
    await holdTasks(fleet);
    await server.kill();
    pod.open("door");
    await until("all results are kept", () => keptIn(fleet) === count);
    expect(await pod.terminate()).toEqual({ code: 0, signal: null });
    await server.start();
    await podIn(fleet, "one", config);

    await until("all have ended", async () => (await openTasks(fleet)) === 0);
    expect(startsIn(fleet.ledger())).toHaveLength(count);
  });

  test("in which a pod is killed and its folder is lost: its tasks run again", async () => {
    const fleet = await createFleet({ on: "postgres", server: server.url });
    const pod = await podIn(fleet, "one", quick);
    await holdTasks(fleet);
    await server.kill();
    pod.open("door");
    await until("all results are kept", () => keptIn(fleet) === count);
    await pod.kill();
    rmSync(join(fleet.folder, "one"), { recursive: true });
    await server.start();
    const again = await podIn(fleet, "one", quick);
    again.open("door");

    await until("all have ended", async () => (await openTasks(fleet)) === 0);
    expect(startsIn(fleet.ledger())).toHaveLength(2 * count);
    expect(await judge(fleet, quick)).toEqual([]);
  });
});

test("a pod that alone was cut off for longer than the dead limit: another runs its task, and its late result is dropped", async () => {
  const scene = await createScene();
  const { fleet, proxy } = scene;
  const folder = join(fleet.folder, "one");
  const cutOff = await scene.start({ names, config: { ...quick, dataDir: folder } });
  const { taskId } = await fleet.flotilla.enqueue("held", { gate: "door" });
  await until("it runs", () => startsIn(fleet.ledger(), taskId).length === 1);
  const other = await podIn(fleet, "two", quick);
  await proxy.refuse();
  cutOff.open("door");
  await until("the result is kept", () => keptIn(fleet) === 1);
  await until("the other runs it", () => startsIn(fleet.ledger(), taskId).length === 2);
  await proxy.accept();
  await until("the late result was dropped", () => keptIn(fleet) === 0);
  expect(await fleet.flotilla.tasks.get(taskId)).toMatchObject({ claimedBy: other.podId });
  other.open("door");

  expect(await fleet.flotilla.waitFor(taskId)).toEqual({ pod: other.podId, token: 2 });
  expect(startsIn(fleet.ledger(), taskId)).toHaveLength(2);
});

function podIn(fleet: Fleet, place: string, config: object): Promise<PodProcess> {
  return fleet.start({ names, config: { ...config, dataDir: join(fleet.folder, place) } });
}

async function holdTasks(fleet: Fleet): Promise<void> {
  const inputs = Array.from({ length: count }, () => ({ gate: "door" }));
  await fleet.flotilla.enqueueMany("held", inputs);
  await until("all run", () => startsIn(fleet.ledger()).length === count);
}

/** How many results all outboxes of a fleet hold, read from their files. */
function keptIn(fleet: Fleet): number {
  const files = globSync(join(fleet.folder, "*", "store-*", "outbox-*.db"));
  return files.reduce((sum, path) => sum + finishesIn(path), 0);
}

function finishesIn(path: string): number {
  const db = new DatabaseSync(path, { readOnly: true, timeout: 1_000 });
  try {
    return Number(db.prepare("select count(*) as kept from finish").get()!["kept"]);
  } catch {
    // It is just being made.
    return 0;
  } finally {
    db.close();
  }
}

function hasPassed(ms: number): () => boolean {
  const startedMs = performance.now();
  return () => performance.now() - startedMs >= ms;
}
