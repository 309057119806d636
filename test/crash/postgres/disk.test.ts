import process from "node:process";
import pg from "pg";
import { expect, inject, onTestFinished, test } from "vitest";
import { startPostgres } from "../../postgres/server.ts";
import { gather, judge, recoveriesIn, violations } from "../tasks/checkers.ts";
import { createHistory } from "../history.ts";
import { createFleet, type Fleet } from "../harness.ts";
import { startsIn } from "../ledger.ts";
import { producerViolations } from "../tasks/producer-checkers.ts";
import { pauseFor, until } from "../until.ts";
import { openTasks } from "./harness.ts";
import { mountTinyDisk } from "./tiny-disk.ts";

// Nobody is to be found dead, also where a machine lets it wait for a second or two.
const config = { heartbeatMs: 100, deadAfterMs: 3_000, slots: 300, pollMs: 200 };

test("a disk that is full refuses new tasks, and keeps results waiting until there is space", async () => {
  const disk = mountTinyDisk({ megabytes: 20 });
  onTestFinished(disk.remove);
  const space = await tablespaceOn(disk.folder);
  const fleet = await createFleet({ on: "postgres" });
  await moveTasksTo(fleet, space);
  const pod = await fleet.start({ names: ["held"], config });
  await fleet.start({ names: ["work"], config });
  const count = 200;
  await fleet.flotilla.enqueueMany(
    "held",
    Array.from({ length: count }, () => ({ gate: "door" })),
  );
  await until("all run", () => startsIn(fleet.ledger()).length === count);

  disk.fill();
  const refused = { code: "store_full" };
  await expect(enqueueUntilRefused(fleet)).rejects.toMatchObject(refused);
  const stored = await fleet.sql("select count(*) as tasks from flotilla_task");
  pod.open("door");
  await pauseFor(2 * config.deadAfterMs);
  const left = await openTasks(fleet);
  expect(left).toBeGreaterThan(0);
  expect(pod.alive).toBe(true);
  disk.free();

  await until("all have ended", async () => (await openTasks(fleet)) === 0);
  expect(startsIn(fleet.ledger()).filter(({ name }) => name === "held")).toHaveLength(count);
  expect(recoveriesIn(await fleet.transitions())).toEqual([]);
  // What was refused isn't there.
  expect(await fleet.sql("select count(*) as tasks from flotilla_task")).toEqual(stored);
  expect(await judge(fleet, config)).toEqual([]);
});

test("a server whose log has no space left falls, and when it is back nothing acked is lost", async () => {
  const disk = mountTinyDisk({ megabytes: 150 });
  onTestFinished(disk.remove);
  const settings = { max_wal_size: "32MB", min_wal_size: "32MB", max_connections: 60 };
  const server = await startPostgres({ within: disk.folder, settings });
  onTestFinished(server.stop);
  const fleet = await createFleet({ on: "postgres", server: server.url });
  const pods = [await fleet.start({ config }), await fleet.start({ config })];
  const history = createHistory();
  const enqueue = () =>
    history.note(
      { kind: "enqueue" },
      () => fleet.flotilla.enqueue("work", { ms: 0 }),
      ({ taskId }) => [taskId],
    );
  const calls = Array.from({ length: 50 }, enqueue);

  disk.fill();
  await exhaustLog(server.url);
  for (let call = 0; call < 5; call++) calls.push(enqueue());
  disk.free();
  // It may have stood up by itself, and it may have given up.
  if (!(await answers(server.url))) {
    await server.kill();
    await server.start();
  }
  await until("it can be enqueued again", enqueue);
  await Promise.all(calls);
  await until("all have ended", async () => (await openTasks(fleet)) === 0);

  expect(pods.map(({ alive }) => alive)).toEqual([true, true]);
  const seen = await gather(fleet, config);
  const evidence = { ...seen, history: history.operations, snapshots: [] };
  expect(violations(evidence)).toEqual([]);
  expect(producerViolations(evidence)).toEqual([]);
});

/** A part of this run's server that lies on another disk. */
async function tablespaceOn(folder: string): Promise<string> {
  const url = inject("postgresUrl");
  const name = `tiny_${process.pid}`;
  await ask(url, `create tablespace ${name} location '${folder}'`);
  onTestFinished(() => ask(url, `drop tablespace ${name}`));
  return name;
}

/** Puts the tasks there, and keeps the space of old versions of rows from being used again. */
async function moveTasksTo(fleet: Fleet, space: string): Promise<void> {
  await fleet.sql("alter table flotilla_task set (fillfactor = 100)");
  await fleet.sql(`alter table flotilla_task set tablespace ${space}`);
  const reader = new pg.Client(fleet.store);
  reader.on("error", () => {});
  await reader.connect();
  onTestFinished(() => reader.end());
  await reader.query("begin isolation level repeatable read");
  await reader.query("select 1");
}

/** The last page may have space for a few more. */
async function enqueueUntilRefused(fleet: Fleet): Promise<void> {
  for (let tasks = 0; tasks < 1_000; tasks++) await fleet.flotilla.enqueue("work", { ms: 0 });
}

/** Has the server write to its log and nowhere else until it can't. */
async function exhaustLog(url: string): Promise<void> {
  const client = new pg.Client(url);
  client.on("error", () => {});
  await client.connect();
  const line = "select pg_logical_emit_message(true, 'fill', repeat('x', 1000000))";
  const writing = async () => {
    for (let lines = 0; lines < 1_000; lines++) await client.query(line);
  };
  await expect(writing()).rejects.not.toMatchObject({ severity: "ERROR" });
  await client.end().catch(() => {});
}

async function answers(url: string): Promise<boolean> {
  try {
    await ask(url, "create temporary table tried (id integer)");
    return true;
  } catch {
    return false;
  }
}

async function ask(url: string, text: string): Promise<void> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 5_000 });
  client.on("error", () => {});
  await client.connect();
  await client.query(text);
  await client.end();
}
