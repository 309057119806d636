import { cpSync, rmSync } from "node:fs";
import { join } from "node:path";
import { connect } from "@nats-io/transport-node";
import { afterAll, beforeAll, expect, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { uuidv7 } from "../../src/base/ids.ts";
import { silentLogger } from "../../src/base/log.ts";
import { systemRandom } from "../../src/base/random.ts";
import { headOf, messageRecord, take } from "../../src/sessions/contract/journal-harness.ts";
import { createArchivedJournal } from "../../src/sessions/log/archive/journal.ts";
import { connectStreams } from "../../src/sessions/log/jetstream/connect.ts";
import type { StreamEngine } from "../../src/sessions/log/jetstream/engine.ts";
import { createStreamLog } from "../../src/sessions/log/jetstream/log.ts";
import { createSqlReads } from "../../src/sessions/log/sql-journal.ts";
import { memoryKind } from "../../src/store/contract/kinds.ts";
import { migrate } from "../../src/store/migrate.ts";
import { untilAnswered } from "./retried.ts";
import { type NatsCluster, startNatsCluster } from "./server.ts";
import { placeOnStreams } from "../../src/sessions/log/place.ts";

const clock = systemClock;
const random = systemRandom;

let cluster: NatsCluster;
let engine: StreamEngine;
beforeAll(async () => {
  cluster = await startNatsCluster();
  const connection = await connect({
    servers: [...cluster.urls],
    maxReconnectAttempts: -1,
    reconnectTimeWait: 100,
    noAsyncTraces: true,
  });
  const readJson = async (url: string) => (await fetch(url)).json() as Promise<unknown>;
  engine = await connectStreams({ connection, clock, monitors: [], readJson });
});
afterAll(async () => {
  await engine.close();
  await cluster.stop();
});

const deployment = {
  namespace: "lost",
  clusterId: "c1",
  replicas: 3,
  maxLogBytes: 16 * 1_024 * 1_024,
} as const;

const stopAll = () => Promise.all(cluster.servers.map((each) => each.kill("SIGTERM")));
const startAll = () => Promise.all(cluster.servers.map((each) => each.start()));
/** Copies what each server has stored into its folder, or back. */
function copyStores(from: string, to: string): void {
  for (const { folder } of cluster.servers) {
    rmSync(join(folder, to), { recursive: true, force: true });
    cpSync(join(folder, from), join(folder, to), { recursive: true });
  }
}

test(
  "S2: what three servers have lost, because older copies of their disks were put back, is stored again by its owner",
  { timeout: 400_000 },
  async () => {
    const { database } = await memoryKind.open();
    await migrate(database);
    await placeOnStreams(database);
    const parts = { clock, random, ids: uuidv7(clock, random), log: silentLogger };
    const stream = createStreamLog({ ...parts, engine, deployment, maxRecordBytes: 1_000_000 });
    const journal = createArchivedJournal({ ...parts, stream, database });
    await untilAnswered(() => journal.create(1));
    const first = await untilAnswered(() => take(journal, 0, "pod-1"));
    await untilAnswered(() => journal.recover(first));
    let head = first;
    const append = async (...seqs: number[]): Promise<void> => {
      for (const seq of seqs) {
        const next = messageRecord("s", seq);
        head = headOf(await untilAnswered(() => journal.commit(head, next)));
      }
    };
    await append(1, 2, 3);
    await journal.flush();
    await stopAll();
    copyStores("store", "copy");
    await startAll();
    await append(4, 5, 6);
    await stopAll();
    copyStores("copy", "store");
    await startAll();

    const lost = messageRecord("s", 7);
    expect(await untilAnswered(() => journal.commit(head, lost))).toEqual({ type: "fenced" });
    head = await untilAnswered(() => take(journal, 0, "pod-1"));
    await untilAnswered(() => journal.recover(head));
    expect(head.incarnation).not.toBe(first.incarnation);
    await append(7);
    const page = { after: 0, limit: 100 };
    const seqs = (await untilAnswered(() => journal.entries("s", page))).map(({ seq }) => seq);
    expect(seqs).toEqual([1, 2, 3, 4, 5, 6, 7]);
    await journal.flush();
    const archived = await createSqlReads({ database }).entries("s", page);
    expect(archived.map(({ seq }) => seq)).toEqual(seqs);
    await journal.stop();
    await database.close();
  },
);
