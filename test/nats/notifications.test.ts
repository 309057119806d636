import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { connect as connectDriver } from "@nats-io/transport-node";
import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type Config, connect, startPod, task } from "flotilla";
import { silentLogger } from "../../src/base/log.ts";
import { runDoctor } from "../../src/cli/doctor/doctor.ts";
import { credentialChannel } from "../../src/keys/keys.ts";
import { temporaryDatabase } from "../../src/store/contract/kinds.ts";
import { hintChannel, secretChannel } from "../../src/store/postgres/notifications.ts";
import type { PodGiven } from "./pod-process.ts";
import { type NatsServer, startNats } from "./server.ts";

const program = fileURLToPath(new URL("pod-process.ts", import.meta.url));
const hops = 20;
// Before the next poll, by far.
const beforeThePoll = { timeoutMs: 45_000 };

let server: NatsServer;
let place: Awaited<ReturnType<typeof temporaryDatabase>>;
let nats: NonNullable<Config["nats"]>;
const cleanUps: (() => unknown)[] = [];

beforeEach(async () => {
  server = await startNats();
  place = await temporaryDatabase();
  nats = { servers: server.url };
});
afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).toReversed()) await cleanUp();
  await place.remove();
  await server.stop();
});

async function startProcess(given: Omit<PodGiven, "store">): Promise<ChildProcess> {
  const text = JSON.stringify({ store: place.url, ...given });
  const child = spawn(process.execPath, ["--conditions=flotilla:source", program, text], {
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
  const ended = once(child, "exit");
  cleanUps.push(async () => {
    child.kill("SIGTERM");
    await ended;
  });
  await Promise.race([
    once(child, "message"),
    ended.then(() => Promise.reject(new Error("the pod has ended"))),
  ]);
  return child;
}

/** What Postgres is told to notify, by all processes: of work, and of keys. */
async function hearing(): Promise<string[]> {
  const heard: string[] = [];
  const client = new pg.Client(place.url);
  await client.connect();
  cleanUps.push(() => client.end());
  const { rows } = await client.query("select secret from flotilla.bus_secret");
  const key = { schema: "flotilla", secret: rows[0].secret as string };
  client.on("notification", ({ channel }) => heard.push(channel));
  await client.query(`listen ${hintChannel("flotilla")}`);
  await client.query(`listen ${secretChannel(key, credentialChannel)}`);
  return heard;
}

/** Two pods that each run one task and enqueue the other's, and what Postgres was told to notify. */
async function passing(given: Config["nats"]) {
  await startProcess({ nats: given, runs: "ping", enqueues: "pong" });
  await startProcess({ nats: given, runs: "pong", enqueues: "ping" });
  await using flotilla = connect(place.url, given ? { nats: given } : {});
  const heard = await hearing();
  const first = await flotilla.enqueue("ping", hops);
  await flotilla.waitFor(first);
  await expect
    .poll(async () => (await flotilla.tasks.list({ status: "completed", limit: 100 })).tasks.length)
    .toBe(hops + 1);
  await flotilla.keys.create({ name: "one", role: "viewer" });
  return heard;
}

describe("pods in processes of their own, which poll once a minute", () => {
  test("wake each other over NATS, and no process sends a notification of Postgres", async () => {
    expect(await passing(nats)).toEqual([]);
  });

  test("would be seen to send notifications without NATS", async () => {
    const heard = await passing(undefined);
    expect(new Set(heard).size).toBe(2);
  });
});

describe("a pod with NATS", () => {
  const double = task("double", {}, ({ input }: { input: number }) => input * 2);
  const config = () => ({
    store: place.url,
    use: [double],
    log: silentLogger,
    dataDir: false as const,
    nats,
  });

  test("is woken for what a transaction of the caller's enqueues, once that is committed", async () => {
    await using _pod = await startPod({ ...config(), pollMs: 60_000 });
    await using flotilla = connect(place.url, { nats });
    const client = new pg.Client(place.url);
    await client.connect();
    try {
      await client.query("begin");
      const task = await flotilla.enqueue(double, 21, { tx: client });
      await client.query("commit");
      expect(await flotilla.waitFor(task, beforeThePoll)).toBe(42);
    } finally {
      await client.end();
    }
  });

  test("works on by polling while NATS is away, says so, and is woken again when it is back", async () => {
    const logged: string[] = [];
    const noting = (_: unknown, text?: string) => void logged.push(text ?? "");
    const log = { ...silentLogger, info: noting, warn: noting };
    await using _pod = await startPod({ ...config(), log, pollMs: 500 });
    await using flotilla = connect(place.url, { nats });
    expect(await flotilla.waitFor(await flotilla.enqueue(double, 1))).toBe(2);
    await expect.poll(() => flotilla.natsState).toBe("connected");
    await server.kill();
    await expect.poll(() => flotilla.natsState).toBe("away");
    expect(await flotilla.waitFor(await flotilla.enqueue(double, 2))).toBe(4);
    await expect.poll(() => logged.some((text) => text.startsWith("NATS is away"))).toBe(true);
    await server.start();
    await expect.poll(() => flotilla.natsState).toBe("connected");
    await expect.poll(() => logged.includes("NATS is back")).toBe(true);
    expect(await flotilla.waitFor(await flotilla.enqueue(double, 3))).toBe(6);
  });

  test("isn't hurt by strange wake-ups", async () => {
    await using _pod = await startPod({ ...config(), pollMs: 60_000 });
    await using flotilla = connect(place.url, { nats });
    const stranger = await connectDriver({ servers: server.url });
    for (const data of ["", "garbage", Buffer.alloc(100_000, 0xff)]) {
      for (let nth = 0; nth < 50; nth++) stranger.publish("flotilla.flotilla.wake.tasks", data);
    }
    await stranger.flush();
    await stranger.close();
    expect(await flotilla.waitFor(await flotilla.enqueue(double, 4), beforeThePoll)).toBe(8);
  });

  test("doesn't start where NATS can't be used, and has stored nothing of itself", async () => {
    await server.kill();
    await expect(startPod(config())).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringContaining("no NATS server answers"),
    });
    const client = new pg.Client(place.url);
    await client.connect();
    const { rows } = await client.query("select to_regclass('flotilla.pod') as there");
    await client.end();
    expect(rows).toEqual([{ there: null }]);
    await server.start();
  });

  test("among pods without it says that they miss each other's envelopes, and so does the doctor", async () => {
    const warned: string[] = [];
    const warn = (_: unknown, text: string) => {
      // A beat that fails once is told too.
      if (text.includes("`nats`")) warned.push(text);
    };
    const log = { ...silentLogger, warn };
    const { nats: _nats, ...without } = { ...config(), log };
    await using _plain = await startPod(without);
    expect(warned).toEqual([]);
    await using _pod = await startPod({ ...config(), log });
    expect(warned).toEqual([expect.stringContaining("pods differ in `nats`")]);
    const doctor = async (own?: Config["nats"]) => {
      const checks = await runDoctor(place.url, "full", own ? { nats: own } : {});
      return checks.find(({ name }) => name === "bus");
    };
    expect(await doctor()).toMatchObject({
      verdict: "warn",
      message: expect.stringContaining("1 of 2 running pods use NATS, and this config doesn't"),
    });
    expect(await doctor(nats)).toMatchObject({
      verdict: "warn",
      message: expect.stringContaining("1 of 2 running pods don't use NATS as flotilla"),
    });
    await _plain.stop();
    expect(await doctor(nats)).toMatchObject({ verdict: "ok" });
  });

  test("answers what is asked of it over NATS, and revoked keys are known in moments", async () => {
    await using pod = await startPod(config());
    await using flotilla = connect(place.url, { nats });
    const { answered } = await flotilla.throttles.holders("none");
    expect(answered).toEqual([pod.podId]);
    await using other = connect(place.url, { nats });
    expect(await other.credentials.ready()).toBe(0);
    await flotilla.keys.create({ name: "one", role: "viewer" });
    await expect.poll(() => other.credentials.ready()).toBe(1);
  });
});
