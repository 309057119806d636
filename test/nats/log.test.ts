import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { hasCode } from "../../src/base/errors.ts";
import { uuidv7 } from "../../src/base/ids.ts";
import { silentLogger } from "../../src/base/log.ts";
import { systemRandom } from "../../src/base/random.ts";
import { readMonitor } from "../../src/bus/nats/monitor.ts";
import {
  busyRecord,
  header,
  headOf,
  messageRecord,
  take,
  turn,
} from "../../src/sessions/contract/journal-harness.ts";
import { logContract } from "../../src/sessions/contract/log.ts";
import type { CommitResult } from "../../src/sessions/log/journal.ts";
import { connectStreams } from "../../src/sessions/log/jetstream/connect.ts";
import { checkStreams } from "../../src/sessions/log/jetstream/create-streams.ts";
import type { StreamEngine } from "../../src/sessions/log/jetstream/engine.ts";
import { createStreamLog, type StreamLog } from "../../src/sessions/log/jetstream/log.ts";
import { checkServers, maxBodyBytes } from "../../src/sessions/log/jetstream/requirements.ts";
import {
  type Deployment,
  logStream,
  streamName,
} from "../../src/sessions/log/jetstream/streams.ts";
import { retriedLog, untilAnswered } from "./retried.ts";
import { type NatsCluster, type NatsServer, startNats, startNatsCluster } from "./server.ts";

const clock = systemClock;
const ids = uuidv7(clock, systemRandom);
const usual = { clusterId: "c1", replicas: 3, maxLogBytes: 16 * 1_024 * 1_024 } as const;
/** A disk that others use too may stand still for a minute. */
const publishMs = 90_000;

let cluster: NatsCluster;
let used = 0;
const opened: StreamEngine[] = [];
beforeAll(async () => {
  cluster = await startNatsCluster();
});
afterAll(async () => {
  await Promise.all(opened.map((each) => each.close()));
  await cluster.stop();
});

async function engineOf(
  urls: readonly string[] = cluster.urls,
  servers: readonly NatsServer[] = cluster.servers,
  credentials: { user?: string; pass?: string } = {},
): Promise<StreamEngine> {
  const connection = await connect({
    ...credentials,
    servers: [...urls],
    maxReconnectAttempts: -1,
    reconnectTimeWait: 100,
    pingInterval: 1_000,
    noAsyncTraces: true,
  });
  const monitors = servers.map(({ monitorUrl }) => monitorUrl);
  const readJson = (url: string) => readMonitor(url, { clock });
  const engine = await connectStreams({ connection, clock, monitors, readJson });
  opened.push(engine);
  return engine;
}

const logOn = (engine: StreamEngine, deployment: Deployment): StreamLog =>
  retriedLog(
    createStreamLog({
      engine,
      deployment,
      clock,
      random: systemRandom,
      ids,
      log: silentLogger,
      maxRecordBytes: 8 * 1_024 * 1_024 - 64 * 1_024,
    }),
  );

const nextDeployment = (): Deployment => ({ ...usual, namespace: `test_${++used}` });

logContract({
  name: "on three NATS servers",
  async open() {
    const deployment = nextDeployment();
    const log = logOn(await engineOf(), deployment);
    const another = async () => logOn(await engineOf(), deployment);
    return { log, another, close: async () => {} };
  },
});

test("a stream is asked again while it doesn't answer, because its next leader knows of nothing before", async () => {
  // A server without streams, so that what stands in for them may answer.
  const server = await startNats();
  const connection = await connect({ servers: server.url });
  const asked = new Map<string, number>();
  connection.subscribe("$JS.API.STREAM.>", {
    callback(_, message) {
      const times = (asked.get(message.subject) ?? 0) + 1;
      asked.set(message.subject, times);
      const error = { code: 404, err_code: 10059, description: "stream not found" };
      if (times >= 2) message.respond(JSON.stringify({ error }));
    },
  });
  const engine = await connectStreams({ connection, clock, readJson: async () => undefined });
  expect(await engine.state("S")).toBeUndefined();
  expect(await engine.lastOn("S", "s")).toBeUndefined();
  expect([...asked.keys()]).toEqual(["$JS.API.STREAM.INFO.S", "$JS.API.STREAM.MSG.GET.S"]);
  // More often where an answer comes too late.
  for (const times of asked.values()) expect(times).toBeGreaterThanOrEqual(2);
  await connection.close();
  await server.stop();
});

describe("a log on three NATS servers", () => {
  test("has streams as they were meant, which servers flush before they acknowledge", async () => {
    const deployment = nextDeployment();
    const engine = await engineOf();
    const facts = await checkServers(
      engine,
      { replicas: 3, durability: "flushed" },
      { haveLogs: async () => false },
    );
    expect(facts).toMatchObject({ hasJetStream: true, flushes: [true, true, true] });
    expect(maxBodyBytes(facts)).toBe(8 * 1_024 * 1_024 - 64 * 1_024);
    const log = logOn(engine, deployment);
    await log.create(2);
    const lives = (await log.heads()).map((head) => ({ ...head, firstSequence: 1 }));
    await untilAnswered(() => checkStreams(engine, deployment, lives));
    for (const life of lives) {
      const state = await untilAnswered(() => engine.state(streamName(deployment, life)));
      const { metadata, ...settings } = logStream(deployment, life);
      expect(state).toMatchObject({ settings, firstSequence: 1, lastSequence: 0 });
      expect(state!.settings.metadata).toMatchObject(metadata);
    }
  });

  test("begins behind another's offsets, if it is told so", async () => {
    const deployment = nextDeployment();
    const engine = await engineOf();
    const life = { logId: 0, incarnation: "later", firstSequence: 1_001 };
    const made = await untilAnswered(() => engine.create(logStream(deployment, life)));
    expect(made).toEqual({ type: "made" });
    const stream = streamName(deployment, life);
    const state = await untilAnswered(() => engine.state(stream));
    expect(state).toMatchObject({ firstSequence: 1_001, lastSequence: 1_000 });
    const message = { subject: `flotilla.${deployment.namespace}.log.0.later.r`, headers: {} };
    const publish = (lastSequence: number) =>
      engine.publish(
        { ...message, body: Buffer.from("x") },
        { stream, lastSequence, limitMs: publishMs },
      );
    expect(await publish(0)).toEqual({ type: "wrong_last", lastSequence: 1_000 });
    expect(await publish(1_000)).toEqual({ type: "acked", stream, sequence: 1_001 });
  });

  test("is marked, trimmed, and replayed from its mark", async () => {
    const deployment = nextDeployment();
    const log = logOn(await engineOf(), deployment);
    await log.create(1);
    let head = await take(log, 0, "pod-1");
    await log.recover(head);
    const users = Array.from({ length: 100 }, (_, nth) => `user-${nth}-ü`);
    const early = header("early", { lastSeq: 1, work: turn(), users });
    head = headOf(await log.commit(head, busyRecord("early", 1, { headers: [early] })));
    for (let seq = 1; seq <= 300; seq++) {
      head = headOf(await log.commit(head, messageRecord("s", seq)));
    }
    head = headOf(await log.mark(head, { archived: 200, busy: [early] }));
    await log.trim(head, 200);
    const another = logOn(await engineOf(), deployment);
    const taken = await take(another, 0, "pod-2");
    const offsets: number[] = [];
    const { busy } = await another.recover(taken, ({ offset }) => offsets.push(offset));
    expect(busy).toEqual([early]);
    expect(offsets).toEqual(Array.from({ length: 102 }, (_, nth) => 201 + nth));
    expect(await log.commit(head, messageRecord("s", 301))).toEqual({ type: "fenced" });
    // From below where it was trimmed: what there is, in order and once, and nothing beyond the end.
    const stream = streamName(deployment, { ...head, firstSequence: 1 });
    const sequences: number[] = [];
    for await (const { sequence } of (await engineOf()).readFrom(stream, { from: 1, to: 290 })) {
      if (sequence <= 290) sequences.push(sequence);
    }
    expect(sequences).toEqual(Array.from({ length: 91 }, (_, nth) => 200 + nth));
  });

  test("is replayed whole where messages are larger than what a request asks for", async () => {
    const deployment = nextDeployment();
    const log = logOn(await engineOf(), deployment);
    await log.create(1);
    let head = await take(log, 0, "pod-1");
    await log.recover(head);
    const sizes = [1, 3, 400_000, 1, 3_000_000, 2_500_000, 1, 1];
    for (const [nth, chars] of sizes.entries()) {
      const parts = [{ type: "text", text: "x".repeat(chars) }];
      const { entries, ...rest } = messageRecord("s", nth + 1);
      const sent = { ...rest, entries: entries.map((each) => ({ ...each, parts })) };
      head = headOf(await log.commit(head, sent));
    }
    const found: number[] = [];
    await log.recover(head, ({ record }) => {
      found.push(String(record.entries[0]!.parts[0]!["text"]).length);
    });
    expect(found).toEqual(sizes);
  });

  test("refuses records when it is full, and owners and marks later", async () => {
    const deployment = { ...nextDeployment(), maxLogBytes: 64 * 1_024 };
    const log = logOn(await engineOf(), deployment);
    await log.create(1);
    let head = await take(log, 0, "pod-1");
    await log.recover(head);
    for (;;) {
      const result = await log
        .commit(head, messageRecord("s", head.offset))
        .catch((error) => error);
      if (hasCode(result, "overloaded")) break;
      head = headOf(result as CommitResult);
    }
    const engine = await engineOf();
    const stream = streamName(deployment, { ...head, firstSequence: 1 });
    const message = { subject: `flotilla.${deployment.namespace}.log.0.${head.incarnation}.x` };
    const answer = await engine.publish(
      { ...message, headers: {}, body: Buffer.alloc(64 * 1_024) },
      { stream, lastSequence: head.offset, limitMs: publishMs },
    );
    expect(answer).toEqual({ type: "full" });
    head = await take(logOn(engine, deployment), 0, "pod-2");
    expect(head.term).toBe(2);
  });

  test("O7: is read from its last mark, though another program publishes to the subject of marks", async () => {
    const deployment = nextDeployment();
    const engine = await engineOf();
    const log = logOn(engine, deployment);
    await log.create(1);
    let head = await take(log, 0, "pod-1");
    await log.recover(head);
    for (let nth = 0; nth < 200; nth++) {
      head = headOf(await log.commit(head, messageRecord("s", head.offset)));
    }
    const archived = head.offset;
    const early = header("early", { lastSeq: 1, work: turn() });
    head = headOf(await log.mark(head, { archived, busy: [early] }));
    await log.trim(head, archived);
    head = headOf(await log.commit(head, busyRecord("late", 1)));
    const stream = streamName(deployment, { ...head, firstSequence: 1 });
    const subject = `flotilla.${deployment.namespace}.log.0.${head.incarnation}.m`;
    for (let nth = 0; nth < 100; nth++) {
      const condition = { stream, lastSequence: head.offset + nth, limitMs: publishMs };
      const stray = { subject, headers: {}, body: Buffer.from("?") };
      expect(await engine.publish(stray, condition)).toMatchObject({ type: "acked" });
    }
    const another = logOn(await engineOf(), deployment);
    const taken = await take(another, 0, "pod-2");
    const { busy } = await another.recover(taken);
    expect(busy.map(({ sessionId }) => sessionId)).toEqual(["early", "late"]);
    expect(another.lastMark(0)).toMatchObject({ archived });
    headOf(await another.commit(taken, messageRecord("s", 999)));
  });

  test("O2, O3: loses nothing that it has acked when the leader of its stream is killed", async () => {
    const deployment = nextDeployment();
    const engine = await engineOf();
    const log = logOn(engine, deployment);
    await log.create(1);
    let head = await take(log, 0, "pod-1");
    await log.recover(head);
    const acked: string[] = [];
    const append = async (count: number): Promise<void> => {
      for (let nth = 0; nth < count; nth++) {
        const sent = messageRecord("s", head.offset);
        head = headOf(await log.commit(head, sent));
        acked.push(sent.recordId);
      }
    };
    await append(20);
    const leader = await leaderOf(streamName(deployment, { ...head, firstSequence: 1 }));
    const killing = leader.kill();
    await append(20);
    await killing;
    const another = logOn(await engineOf(), deployment);
    const taken = await take(another, 0, "pod-2");
    const found: string[] = [];
    await another.recover(taken, ({ record }) => found.push(record.recordId));
    expect(found).toEqual(acked);
    expect(await log.commit(head, messageRecord("s", 99))).toEqual({ type: "fenced" });
    await leader.start();
    headOf(await another.commit(taken, messageRecord("s", 99)));
  });
});

describe("servers that can't keep logs are refused", () => {
  test("one alone, which could keep one copy", async () => {
    const server = await startNats({ jetStream: true });
    try {
      const engine = await engineOf([server.url], [server]);
      await expect(logOn(engine, nextDeployment()).create(2)).rejects.toMatchObject({
        code: "unsupported",
        message: expect.stringContaining("needs 3 NATS servers"),
      });
      const own = { ...nextDeployment(), replicas: 1 } as const;
      const log = logOn(engine, own);
      await log.create(2);
      expect(await log.heads()).toHaveLength(2);
      await engine.close();
    } finally {
      await server.stop();
    }
  });

  test.each([
    ["without JetStream", { jetStream: false }, /set jetstream in their config/],
    [
      "with little payload",
      { jetStream: true, config: "max_payload: 1MB" },
      /max_payload of the NATS servers is 1048576 bytes: set it to 8MB/,
    ],
  ])("ones %s", async (_, options, sentence) => {
    const server = await startNats(options);
    const wanted = { replicas: 3, durability: "flushed" } as const;
    try {
      const engine = await engineOf([server.url], [server]);
      await expect(checkServers(engine, wanted, { haveLogs: async () => false })).rejects.toThrow(
        sentence,
      );
      await engine.close();
    } finally {
      await server.stop();
    }
  });

  test("ones that don't let their user make streams", async () => {
    const allowed = `["flotilla.>", "$JS.API.INFO", "$JS.API.STREAM.INFO.>"]`;
    const server = await startNats({
      jetStream: true,
      config: `authorization {
  users: [
    { user: ann, password: pass, permissions: { publish: ${allowed}, subscribe: "_INBOX.>" } }
  ]
}`,
    });
    try {
      const engine = await engineOf([server.url], [server], { user: "ann", pass: "pass" });
      const own = { ...nextDeployment(), replicas: 1 } as const;
      await expect(logOn(engine, own).create(1)).rejects.toMatchObject({
        code: "unsupported",
        message: expect.stringContaining("allow it what `flotilla cluster permissions` prints"),
      });
      await engine.close();
    } finally {
      await server.stop();
    }
  });

  describe("ones whose streams were", () => {
    const made = async () => {
      const deployment = nextDeployment();
      const engine = await engineOf();
      const log = logOn(engine, deployment);
      await log.create(1);
      const life = { ...(await log.heads())[0]!, firstSequence: 1 };
      const connection = await connect({ servers: [...cluster.urls] });
      onTestFinished(() => connection.close());
      const { streams } = await jetstreamManager(connection, { timeout: 60_000 });
      const name = streamName(deployment, life);
      const check = () => untilAnswered(() => checkStreams(engine, deployment, [life]));
      return { log, name, streams, check };
    };

    test.each([
      [{ max_age: 3_600_000_000_000 }, "maxAgeMs is 3600000, not 0"],
      [{ discard: "old" as never }, 'discard is "old", not "new"'],
      [{ num_replicas: 1 }, "replicas is 1, not 3"],
      [{ subjects: ["elsewhere"] }, 'subjects is ["elsewhere"], not ["flotilla.'],
      [{ max_bytes: 1_000_000 }, "maxBytes is 1000000, not 16777216"],
      [{ max_msgs: 10 }, "maxMessages is 10, not -1"],
      [{ allow_direct: false }, "allowDirect is false, not true"],
    ])("changed by hand: %o", async (change, told) => {
      const { name, streams, check } = await made();
      await check();
      await streams.update(name, change);
      const refusal = await check().catch((error: unknown) => error as Error);
      expect(refusal).toMatchObject({ code: "unsupported" });
      expect((refusal as Error).message).toContain(
        `the stream ${name} was changed by hand: set it back (${told}`,
      );
    });

    test("deleted, and made by hand under the same name", async () => {
      const { name, streams, check } = await made();
      await streams.delete(name);
      await expect(check()).rejects.toMatchObject({
        code: "unsupported",
        message: `the stream ${name} of log 0 is gone: restore it from a backup of the servers`,
      });
      await streams.add({ name, subjects: [name], num_replicas: 3 });
      await expect(check()).rejects.toMatchObject({
        code: "unsupported",
        message: `the stream ${name} isn't Flotilla's: set nats.namespace to one that is free in this account`,
      });
    });

    test("purged, which the pod that takes the log says, and never serves it", async () => {
      const { log, name, streams } = await made();
      const head = await take(log, 0);
      headOf(await log.commit(head, messageRecord("s", 1)));
      await streams.purge(name);
      const [seen] = await log.heads();
      const owner = { podId: "pod-2", host: null, recordId: ids.next() };
      await expect(log.take(seen!, owner)).rejects.toMatchObject({
        code: "store_corrupt",
        message: `log 0 (${head.incarnation}) can't be served: its messages were purged by hand: put back copies of the servers' folders`,
      });
    });
  });

  test("ones without the storage that the logs reserve", async () => {
    const large = { ...nextDeployment(), maxLogBytes: 64 * 1_024 ** 3 };
    await expect(logOn(await engineOf(), large).create(1)).rejects.toMatchObject({
      code: "unsupported",
      message: expect.stringContaining("raise max_file_store"),
    });
  });

  test("ones with the streams of another deployment", async () => {
    const deployment = nextDeployment();
    const engine = await engineOf();
    await logOn(engine, deployment).create(1);
    const theirs = { ...deployment, clusterId: "c2" };
    for (const call of [(log: StreamLog) => log.heads(), (log: StreamLog) => log.create(1)]) {
      await expect(call(logOn(engine, theirs))).rejects.toMatchObject({ code: "unsupported" });
    }
  });
});

/** The server that leads a stream, as one of them says. */
async function leaderOf(stream: string): Promise<NatsServer> {
  type Page = {
    account_details?: { stream_detail?: { name: string; cluster?: { leader?: string } }[] }[];
  };
  const url = `${cluster.servers[0]!.monitorUrl}/jsz?streams=true&accounts=true`;
  let leader: NatsServer | undefined;
  // It has none for as long as an election takes.
  const isLed = async () => {
    const page = (await (await fetch(url)).json()) as Page;
    const details = page.account_details?.flatMap((each) => each.stream_detail ?? []) ?? [];
    const name = details.find((each) => each.name === stream)?.cluster?.leader;
    leader = cluster.servers.find((each) => each.name === name);
    return leader !== undefined;
  };
  await expect.poll(isLed).toBe(true);
  return leader!;
}
