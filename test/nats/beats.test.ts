import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { connect as connectDriver } from "@nats-io/transport-node";
import { movableClock, until } from "../../src/base/contract/movable-clock.ts";
import { systemClock } from "../../src/base/clock.ts";
import { uuidv7 } from "../../src/base/ids.ts";
import { silentLogger } from "../../src/base/log.ts";
import { seededRandom, systemRandom } from "../../src/base/random.ts";
import { createBeatChannel } from "../../src/bus/nats/beat-channel.ts";
import { checkNats } from "../../src/bus/nats/config.ts";
import { connectNats, type NatsConnection } from "../../src/bus/nats/connection.ts";
import { presenceOfPods } from "../../src/sessions/contract/memory-channel.ts";
import { presenceContract } from "../../src/sessions/contract/presence.ts";
import { type Beats, createBeats } from "../../src/sessions/log/beats/beats.ts";
import { connectStreams } from "../../src/sessions/log/jetstream/connect.ts";
import { createStreamLog } from "../../src/sessions/log/jetstream/log.ts";
import { type NatsCluster, type NatsServer, startNats, startNatsCluster } from "./server.ts";

const clock = systemClock;
const random = seededRandom(1);
const ids = uuidv7(clock, systemRandom);
const limitMs = 60_000;

const cleanUps: (() => Promise<unknown> | void)[] = [];
const cleanUp = async () => {
  for (const each of cleanUps.splice(0).toReversed()) await each();
};

async function connected(
  servers: string | readonly string[],
  namespace = "beats",
): Promise<NatsConnection> {
  const settings = checkNats({ servers, namespace });
  const nats = connectNats(settings, { clock, random, log: silentLogger });
  cleanUps.push(() => nats.close());
  await nats.started;
  return nats;
}

let server: NatsServer;
beforeAll(async () => {
  server = await startNats({ jetStream: true });
});
afterAll(() => server.stop());

presenceContract({
  name: "by beats over NATS",
  async open() {
    const connection = await connectDriver({ servers: server.url, noAsyncTraces: true });
    const readJson = () => Promise.reject(new Error("no monitor is read here"));
    const engine = await connectStreams({ connection, clock, readJson });
    const deployment = {
      namespace: "contract",
      clusterId: "c1",
      replicas: 1,
      maxLogBytes: 16 * 1_024 * 1_024,
    } as const;
    const parts = { clock, random, ids, log: silentLogger };
    const log = createStreamLog({ ...parts, engine, deployment, maxRecordBytes: 4_000_000 });
    // All connections are there before the first beat. Time stands still, so that no pod beats by itself.
    const standing = movableClock();
    const names = ["first", "watching", "beating", "leaving", "pod-1"];
    const own = new Map<string, NatsConnection>();
    for (const name of names) own.set(name, await connected(server.url, "contract"));
    const presence = presenceOfPods((podId) => {
      const nats = own.get(podId)!;
      const channel = createBeatChannel({ nats, clock, origin: podId });
      const shared = { clock: standing, log: silentLogger, clusterId: "c1", release: "1" };
      const beats = createBeats({ ...shared, channel, journal: log, podId });
      beats.start();
      return beats;
    });
    return {
      log,
      presence,
      async close() {
        presence.close();
        await engine.close();
        await cleanUp();
      },
    };
  },
});

describe("a channel of beats on NATS", () => {
  afterEach(cleanUp);

  const open = async (origin: string, namespace?: string) => {
    const nats = await connected(server.url, namespace);
    return { nats, channel: createBeatChannel({ nats, clock, origin }) };
  };

  test("carries beats to all pods of its namespace, the sender among them", async () => {
    const [one, two, other] = [await open("a"), await open("b"), await open("c", "another")];
    const heard: string[] = [];
    for (const [name, { nats, channel }] of Object.entries({ one, two, other })) {
      channel.subscribe((data) => heard.push(`${name} ${Buffer.from(data).toString()}`));
      await nats.flush();
    }
    one.channel.publish(Buffer.from("beat"));
    await until("both have it", () => heard.length === 2);
    await other.nats.flush();
    expect(heard.toSorted()).toEqual(["one beat", "two beat"]);
  });

  test("brings the answer of a pod, and says at once that none is there", async () => {
    const [one, two] = [await open("a"), await open("b")];
    const stop = two.channel.serve("pod-2", () => Buffer.from("its agents"));
    await two.nats.flush();
    const answer = await one.channel.ask("pod-2", { limitMs });
    expect(answer.type === "answered" && Buffer.from(answer.data).toString()).toBe("its agents");
    expect(await one.channel.ask("pod-3", { limitMs: 600_000 })).toEqual({ type: "absent" });
    stop();
    await two.nats.flush();
    expect(await one.channel.ask("pod-2", { limitMs: 600_000 })).toEqual({ type: "absent" });
  });

  test("knows a process that was cut off for absent, and a server that is away for silent", async () => {
    const [one, two] = [await open("a"), await open("b")];
    two.channel.serve("pod-2", () => Buffer.from("here"));
    await two.nats.flush();
    await two.nats.close();
    // What reaches the server before it knows gets no answer.
    const ask = () => one.channel.ask("pod-2", { limitMs: 250 });
    await until("it is known for absent", async () => (await ask()).type === "absent");
    await one.nats.close();
    expect(await one.channel.ask("pod-2", { limitMs: 600_000 })).toEqual({ type: "silent" });
  });

  test("answers no question that names no place for the answer", async () => {
    const [one, two] = [await open("a"), await open("b")];
    let answers = 0;
    two.channel.serve("pod-2", () => (answers++, Buffer.from("here")));
    await two.nats.flush();
    const stranger = await connectDriver({ servers: server.url, noAsyncTraces: true });
    cleanUps.push(() => stranger.close());
    const subjects: string[] = [];
    const watched = stranger.subscribe("flotilla.beats.beat.of.*", {
      callback: (_, { subject }) => void subjects.push(subject),
    });
    await stranger.flush();
    await one.channel.ask("pod-2", { limitMs });
    await until("the question is seen", () => subjects.length === 1);
    watched.unsubscribe();
    expect(answers).toBe(1);
    for (const text of ["", "mail.pod-1", "a.b.c", "x".repeat(100_000)]) {
      stranger.publish(subjects[0]!, Buffer.from(text));
    }
    await stranger.flush();
    await one.channel.ask("pod-2", { limitMs });
    expect(answers).toBe(2);
  });
});

describe("pods on three NATS servers", () => {
  let cluster: NatsCluster;
  beforeAll(async () => {
    cluster = await startNatsCluster({ jetStream: false });
  });
  afterAll(() => cluster.stop());
  afterEach(cleanUp);

  const start = async (podId: string): Promise<{ beats: Beats; nats: NatsConnection }> => {
    const nats = await connected(cluster.urls);
    const channel = createBeatChannel({ nats, clock, origin: podId });
    const head = { incarnation: "life", term: 1, offset: 0, recordId: "r" };
    const log0 = { ...head, logId: 0, owner: "a", host: null };
    const journal = { heads: async () => [log0] };
    const shared = { clock, log: silentLogger, clusterId: "c1", release: "1" };
    const beats = createBeats({ ...shared, channel, journal, podId });
    const heads = podId === "a" ? [log0] : [];
    beats.listening.speakFor(() => ({ heads, isDraining: false }));
    cleanUps.push(() => beats.close());
    beats.start();
    return { beats, nats };
  };
  const heardBy = (beats: Beats) => beats.present().map(({ podId }) => podId);

  test("hear each other, and know within moments that one is gone", async () => {
    const [a, b] = [await start("a"), await start("b")];
    await until("both hear both", () => heardBy(a.beats).length + heardBy(b.beats).length === 4);
    const [head] = await b.beats.heads();
    expect([head!.owner, b.beats.listening.freeSinceMs(head!)]).toEqual(["a", undefined]);
    a.beats.close();
    await a.nats.close();
    await until("its log is free", () => b.beats.listening.freeSinceMs(head!) !== undefined);
    expect(heardBy(b.beats)).toEqual(["b"]);
  });

  test("hear each other again when a server is lost", async () => {
    const pods = [await start("a"), await start("b"), await start("c")];
    const allHeard = () =>
      pods.every(({ beats }) => beats.listening.isHeard && heardBy(beats).length === 3);
    await until("all hear all", allHeard);
    const [server] = cluster.servers;
    await server!.kill();
    try {
      await until("pods have changed their server", () =>
        pods.every(({ nats }) => nats.state === "connected"),
      );
      await until("all hear all again", allHeard);
      expect(allHeard()).toBe(true);
    } finally {
      await server!.start();
    }
  });
});
