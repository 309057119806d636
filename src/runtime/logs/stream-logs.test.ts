import { beforeEach, expect, test } from "vitest";
import { type MovableClock, movableClock, settledBy } from "../../base/contract/movable-clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { uuidv7 } from "../../base/ids.ts";
import { silentLogger } from "../../base/log.ts";
import { seededRandom } from "../../base/random.ts";
import {
  noStreamTroubles,
  type SimulatedStreams,
  simulateStreams,
} from "../../sessions/contract/simulated-streams.ts";
import { createStreams } from "../../sessions/log/jetstream/create-streams.ts";
import type { StreamEngine } from "../../sessions/log/jetstream/engine.ts";
import { usualLogBytes } from "../../sessions/log/jetstream/streams.ts";
import { logPlaceOf } from "../../sessions/log/place.ts";
import { memoryKind } from "../../store/contract/kinds.ts";
import type { Database } from "../../store/database.ts";
import { migrate } from "../../store/migrate.ts";
import { sql, table } from "../../store/sql.ts";
import { openMadeLogs, placeOfLogs, type StreamLogsParts } from "./stream-logs.ts";

const random = seededRandom(5);
const namespace = "test";
let clock: MovableClock;
let database: Database;
let servers: SimulatedStreams;
let engine: StreamEngine;

beforeEach(async () => {
  clock = movableClock();
  servers = simulateStreams({ clock, random });
  engine = servers.connect();
  ({ database } = await memoryKind.open());
  await migrate(database);
});

const settled = <Value>(call: Promise<Value>) => settledBy(clock, call);
const place = (of: Pick<Database, "read"> = database, openStreams = async () => engine) =>
  settled(placeOfLogs(of, { clock, random, namespace, openStreams }));
const move = (to: "sql" | "nats") =>
  database.write([sql`update ${table("log_place")} set place = ${to}`]);

/** Streams whose logs pods take. */
async function goLive(clusterId: string): Promise<void> {
  const deployment = { namespace, clusterId, replicas: 3, maxLogBytes: usualLogBytes } as const;
  const ids = uuidv7(clock, random);
  await settled(createStreams({ engine, deployment, ids, clock, random }).create(1));
}

test("a database that was restored from before its logs were moved is refused, and moves nothing", async () => {
  expect(await place()).toBe("sql");
  const { clusterId } = await logPlaceOf(database);
  await goLive(clusterId);
  await expect(place()).rejects.toThrow("one of the two was restored from a back-up");
  await move("nats");
  expect(await place()).toBe("nats");
});

test("logs that are moved while a pod looks where they are aren't taken for a back-up", async () => {
  const { clusterId } = await logPlaceOf(database);
  const moving = async () => {
    await move("nats");
    await goLive(clusterId);
    return engine;
  };
  expect(await place(database, moving)).toBe("nats");
});

test("streams of another deployment, and servers that don't tell, say nothing of the logs", async () => {
  await goLive("another");
  expect(await place()).toBe("sql");
  expect(await place(database, () => Promise.reject(new Error("no streams here")))).toBe("sql");
});

/** Servers that answer no read until some time has passed. */
function silentFor(ms: number): void {
  servers.troubles = { ...noStreamTroubles, unread: 1 };
  clock.after(ms, () => (servers.troubles = noStreamTroubles));
}

test("servers that are slow to say whether they have the logs are waited for", async () => {
  await goLive((await logPlaceOf(database)).clusterId);
  silentFor(20_000);
  await expect(place()).rejects.toThrow("one of the two was restored from a back-up");
});

test("servers that say nothing for half a minute refuse the pod, which may have an old database", async () => {
  await goLive((await logPlaceOf(database)).clusterId);
  silentFor(600_000);
  const beganMs = clock.monotonic();
  await expect(place()).rejects.toThrow(
    /said nothing for 30 s: look whether a majority of the NATS servers is up/,
  );
  expect(clock.monotonic() - beganMs).toBeGreaterThanOrEqual(30_000);
  expect(clock.monotonic() - beganMs).toBeLessThan(35_000);
});

test("servers without streams, and a user that may not read them, aren't waited for", async () => {
  silentFor(600_000);
  servers.facts = { ...servers.facts, hasJetStream: false };
  const beganMs = clock.monotonic();
  expect(await place()).toBe("sql");
  servers.facts = { ...servers.facts, hasJetStream: true };
  const forbidden: StreamEngine = {
    ...engine,
    async lastOn() {
      const details = { mayNot: "publish to $JS.API.STREAM.MSG.GET.FLOTILLA_test_META" };
      throw new FlotillaError("store_unavailable", "the servers didn't answer", { details });
    },
  };
  expect(await place(database, async () => forbidden)).toBe("sql");
  expect(clock.monotonic() - beganMs).toBeLessThan(1_000);
});

test("a pod that follows logs to streams waits for servers that are slow to say whether they have them", async () => {
  const { clusterId } = await logPlaceOf(database);
  await goLive(clusterId);
  const nats = {
    settings: { namespace, monitors: [], durability: "flushed" },
    connection: () => ({ subscribe: () => () => {} }),
  } as unknown as StreamLogsParts["nats"];
  const ids = uuidv7(clock, random);
  const parts = { nats, database, clock, random, ids, log: silentLogger };
  silentFor(20_000);
  const { deployment } = await settled(openMadeLogs(parts, async () => engine));
  expect(deployment).toMatchObject({ namespace, clusterId });
});
