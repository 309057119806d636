import { isDeepStrictEqual } from "node:util";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect, type NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, expect, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { hasCode } from "../../src/base/errors.ts";
import { uuidv7 } from "../../src/base/ids.ts";
import { systemRandom } from "../../src/base/random.ts";
import { connectStreams } from "../../src/sessions/log/jetstream/connect.ts";
import { createStreams, type Streams } from "../../src/sessions/log/jetstream/create-streams.ts";
import type { StreamEngine } from "../../src/sessions/log/jetstream/engine.ts";
import { createShareDocuments } from "../../src/sessions/log/jetstream/share-documents.ts";
import { memoryKind } from "../../src/store/contract/kinds.ts";
import { awaySharesContract } from "../../src/throttles/contract/away-shares.ts";
import { closeFleets } from "../../src/throttles/contract/shares-fleet.ts";
import { sharesContract } from "../../src/throttles/contract/shares.ts";
import type { DocumentWrite, ShareDocuments } from "../../src/throttles/shares/documents.ts";
import { until } from "../crash/until.ts";
import { untilAnswered } from "./retried.ts";
import { type NatsCluster, type NatsServer, startNats, startNatsCluster } from "./server.ts";

const clock = systemClock;
const random = systemRandom;

let server: NatsServer;
let three: NatsCluster;
const opened: NatsConnection[] = [];
let used = 0;
beforeAll(async () => {
  [server, three] = await Promise.all([startNats({ jetStream: true }), startNatsCluster()]);
});
afterAll(async () => {
  await closeFleets();
  await Promise.all(opened.map((each) => each.close()));
  await Promise.all([server.stop(), three.stop()]);
});

async function open(
  servers: readonly string[],
  replicas: 1 | 3,
  namespace = `shares_${++used}`,
): Promise<{
  documents: ShareDocuments;
  engine: StreamEngine;
  stream: string;
  streams: Streams;
}> {
  const connection = await connect({
    servers: [...servers],
    maxReconnectAttempts: -1,
    noAsyncTraces: true,
  });
  opened.push(connection);
  const readJson = async (url: string) => (await fetch(url)).json() as Promise<unknown>;
  const engine = await connectStreams({ connection, clock, monitors: [], readJson });
  const deployment = { namespace, clusterId: "c1", replicas, maxLogBytes: 1_024 } as const;
  const ids = uuidv7(clock, random);
  const streams = createStreams({ engine, deployment, ids, clock, random });
  await streams.createShares();
  const subject = `flotilla.${namespace}.demand`;
  const talk = {
    announce: (text: string) => connection.publish(subject, text),
    onAnnounced(listener: (text: string) => void) {
      const subscription = connection.subscribe(subject, {
        callback: (_, message) => listener(message.string()),
      });
      return () => subscription.unsubscribe();
    },
  };
  const documents = createShareDocuments({ engine, deployment, talk });
  return { documents, engine, streams, stream: `FLOTILLA_${namespace}_SHARES` };
}

const kind = {
  ...memoryKind,
  name: "a stream of a NATS server",
  openDocuments: async () => (await open([server.url], 1)).documents,
};

sharesContract(kind);
awaySharesContract(kind);

test("of many that write the document of a throttle at once one is stored, on three servers, whatever is written of others", async () => {
  const { documents, engine, stream } = await open(three.urls, 3);
  const [one, other] = [
    { name: "api", key: "" },
    { name: "api", key: "ann" },
  ];
  const refused: DocumentWrite[] = [];
  /** A write of the other may still be on its way. */
  let isInDoubt = false;
  const writeOther = async (): Promise<void> => {
    for (;;) {
      const read = await untilAnswered(() => documents.read(other));
      const wrote = await documents.write(other, read?.rev ?? 0, "o");
      // Nothing else writes it: another's write would be that of the first document.
      const isRefused = wrote.type === "unknown" && wrote.why.includes("another write");
      if (!isInDoubt && isRefused) refused.push(wrote);
      isInDoubt = wrote.type !== "stored";
      if (!isInDoubt) return;
    }
  };
  let rev = 0;
  for (let round = 0, acked = 0; acked < 20; round++) {
    const writes = Array.from({ length: 8 }, (_, nth) =>
      documents.write(one, rev, `${round}/${nth}`),
    );
    const [answers] = await Promise.all([Promise.all(writes), writeOther()]);
    const stored = answers.flatMap((each: DocumentWrite, nth) =>
      each.type === "stored" ? [{ rev: each.rev, text: `${round}/${nth}` }] : [],
    );
    expect(stored.length).toBeLessThanOrEqual(1);
    acked += stored.length;
    const [last] = stored;
    const read = () => untilAnswered(() => documents.read(one));
    if (last) await until("it is read", async () => isDeepStrictEqual(await read(), last));
    // A write isn't acked where a disk stands still for a second. The next round goes on from what there is.
    rev = last?.rev ?? (await read())?.rev ?? 0;
  }
  expect(refused).toEqual([]);
  expect(await documents.write(one, 0, "as if it were new")).toMatchObject({ type: "unknown" });
  expect((await untilAnswered(() => engine.state(stream)))!.copies).toHaveLength(3);
});

/** What was acked, and what it took the place of. */
type Acked = { readonly over: number; readonly at: number };

const unlessAway = (error: unknown): undefined => {
  if (hasCode(error, "store_unavailable")) return undefined;
  throw error;
};

test("O2: over elections and the death of a leader, each acked write of a document or of what says where logs are takes the place of the one before", async () => {
  const namespace = `shares_${++used}`;
  const writers = await Promise.all([1, 2, 3].map(() => open(three.urls, 3, namespace)));
  const [first] = writers;
  await first!.streams.create(1);
  const id = { name: "api", key: "" };
  const acked: { documents: Acked[]; metas: Acked[] } = { documents: [], metas: [] };
  /** Every revision of the document that anybody has seen. */
  const seen = new Set<number>();
  /** What was stored over another message than the one that its writer had read. */
  const lost: object[] = [];
  let isOver = false;
  const keepWriting = async ({ documents, streams }: (typeof writers)[number], nth: number) => {
    for (let count = 0; !isOver; count++) {
      const over = (await documents.read(id).catch(unlessAway))?.rev ?? 0;
      seen.add(over);
      const wrote = await documents.write(id, over, `${nth}/${count}`);
      if (wrote.type === "stored") acked.documents.push({ over, at: wrote.rev });
      const read = await streams.meta().catch(unlessAway);
      if (!read) continue;
      const { meta, sequence } = read;
      const base = /-over-(\d+)$/.exec(meta.logs[0]!.stream ?? "")?.[1];
      if (base !== undefined && Number(base) !== sequence - 1) lost.push({ base, sequence });
      const life = { ...meta.logs[0]!, logId: 0, stream: `by-${nth}-${count}-over-${sequence}` };
      if (await streams.change(read, life)) acked.metas.push({ over: sequence, at: sequence + 1 });
    }
  };
  const writing = Promise.all(writers.map(keepWriting));
  const client = await connect({
    servers: [...three.urls],
    maxReconnectAttempts: -1,
    noAsyncTraces: true,
  });
  opened.push(client);
  const manager = await jetstreamManager(client, { timeout: 60_000 });
  const names = [first!.stream, `FLOTILLA_${namespace}_META`];
  const more = async () => {
    const before = [acked.documents.length, acked.metas.length];
    const counts = () => [acked.documents.length - before[0]!, acked.metas.length - before[1]!];
    await expect.poll(() => Math.min(...counts())).toBeGreaterThan(5);
  };
  await more();
  for (let elections = 0; elections < 4; elections++) {
    for (const name of names) {
      const stepdown = `$JS.API.STREAM.LEADER.STEPDOWN.${name}`;
      // A leader that steps down may do so without an answer.
      await client.request(stepdown, "", { timeout: 10_000 }).catch(() => undefined);
    }
    await more();
  }
  let leader: NatsServer | undefined;
  const isLed = async () => {
    const { cluster } = await manager.streams.info(names[0]!);
    leader = three.servers.find(({ name }) => name === cluster?.leader);
    return leader !== undefined;
  };
  await expect.poll(isLed).toBe(true);
  await leader!.kill();
  await more();
  await leader!.start();
  isOver = true;
  await writing;
  expect(lost).toEqual([]);
  for (const { over, at } of acked.documents) {
    expect([...seen].filter((rev) => rev > over && rev < at)).toEqual([]);
  }
  for (const each of [acked.documents, acked.metas]) {
    expect(new Set(each.map(({ over }) => over)).size).toBe(each.length);
    expect(new Set(each.map(({ at }) => at)).size).toBe(each.length);
  }
}, 600_000);
