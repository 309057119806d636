import { connect } from "@nats-io/transport-node";
import { afterAll, beforeAll } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { uuidv7 } from "../../src/base/ids.ts";
import { silentLogger } from "../../src/base/log.ts";
import { systemRandom } from "../../src/base/random.ts";
import { archivedKind, archivedShares } from "../../src/sessions/contract/archived-journal.ts";
import { journalContract } from "../../src/sessions/contract/journal.ts";
import { connectStreams } from "../../src/sessions/log/jetstream/connect.ts";
import type { StreamEngine } from "../../src/sessions/log/jetstream/engine.ts";
import { createStreamLog } from "../../src/sessions/log/jetstream/log.ts";
import { memoryKind } from "../../src/store/contract/kinds.ts";
import { placeOnStreams } from "../../src/sessions/log/place.ts";
import { migrate } from "../../src/store/migrate.ts";
import { retried, retriedLog } from "./retried.ts";
import { type NatsCluster, startNatsCluster } from "./server.ts";

const clock = systemClock;
const random = systemRandom;

let cluster: NatsCluster;
const opened: StreamEngine[] = [];
beforeAll(async () => {
  cluster = await startNatsCluster();
});
afterAll(async () => {
  await Promise.all(opened.map((each) => each.close()));
  await cluster.stop();
});

async function openEngine(): Promise<StreamEngine> {
  const connection = await connect({
    servers: [...cluster.urls],
    maxReconnectAttempts: -1,
    reconnectTimeWait: 100,
    noAsyncTraces: true,
  });
  const readJson = async (url: string) => (await fetch(url)).json() as Promise<unknown>;
  const engine = await connectStreams({ connection, clock, monitors: [], readJson });
  opened.push(engine);
  return engine;
}

const deployment = {
  namespace: "archive",
  clusterId: "c1",
  replicas: 3,
  maxLogBytes: 16 * 1_024 * 1_024,
} as const;

const kind = archivedKind(
  "on three NATS servers, with every third record of it in SQLite",
  async () => {
    const store = await memoryKind.open();
    await migrate(store.database);
    await placeOnStreams(store.database);
    return {
      stream: async () =>
        retriedLog(
          createStreamLog({
            engine: await openEngine(),
            deployment,
            clock,
            random,
            ids: uuidv7(clock, random),
            log: silentLogger,
            maxRecordBytes: 8 * 1_024 * 1_024 - 64 * 1_024,
          }),
        ),
      database: async () => store.database,
      close: () => store.database.close(),
    };
  },
  archivedShares["every third record"],
);

journalContract({
  ...kind,
  logs: 96,
  // What one call waits for behind another of its log, it doesn't wait for long.
  async open() {
    const { journal, another, close } = await kind.open();
    return {
      journal: retried(journal),
      another: async () => retried(await another()),
      close,
    };
  },
});
