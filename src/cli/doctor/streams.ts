import { systemClock as clock } from "../../base/clock.ts";
import { hasCode, messageOf } from "../../base/errors.ts";
import type { Nats } from "../../bus/nats/nats.ts";
import { deploymentOf, openEngine, requirementsOf } from "../../runtime/logs/stream-logs.ts";
import {
  areLive,
  checkStreams,
  readDeployment,
  readLives,
} from "../../sessions/log/jetstream/create-streams.ts";
import type { StreamEngine } from "../../sessions/log/jetstream/engine.ts";
import {
  checkPermissions,
  checkServers,
  warnOfServers,
} from "../../sessions/log/jetstream/requirements.ts";
import {
  type Deployment,
  type LogLife,
  publishedStreams,
  streamName,
} from "../../sessions/log/jetstream/streams.ts";
import { asideCount, logPlaceOf, readWatermarks } from "../../sessions/log/place.ts";
import type { Database } from "../../store/database.ts";
import { openStore, type Store } from "../../store/open.ts";
import { type Check, failed, ok, warn } from "./check.ts";
import { checkCopies } from "./copies.ts";

/** Messages that a log may have beyond what the database has, before it is worth a word. */
const usualLag = 5_000;

/** Whether a store's logs are on streams. False where that can't be read: other checks say so. */
export async function hasStreamLogs(store: Store): Promise<boolean> {
  try {
    const database = await openStore(store, { migrate: "check", create: false, notifies: false });
    try {
      return (await logPlaceOf(database)).place === "nats";
    } finally {
      await database.close();
    }
  } catch {
    return false;
  }
}

/**
 * Whether the servers can keep the logs of sessions, whether streams and database belong together, what the
 * user may do, whether copies are the same, how far the database is behind, and what it has refused. Changes
 * nothing.
 */
export async function checkStreamLogs(store: Store, nats: Nats): Promise<Check[]> {
  const engine = await openEngine({ nats, clock });
  const servers = await serversCheck(engine, nats);
  if (servers.verdict === "fail") return [servers];
  let database: Database;
  try {
    database = await openStore(store, { migrate: "check", create: false, notifies: false });
  } catch (error) {
    return [servers, failed("streams", messageOf(error))];
  }
  try {
    return [servers, ...(await logChecks(engine, nats, database))];
  } finally {
    await database.close();
  }
}

async function serversCheck(engine: StreamEngine, { settings }: Nats): Promise<Check> {
  const name = "servers";
  try {
    const { namespace } = settings;
    const haveLogs = () => areLive(engine, { namespace });
    const facts = await checkServers(engine, requirementsOf(settings), { haveLogs });
    const { version, versions, flushes, maxPayloadBytes } = facts;
    const shown = versions.length > 0 ? versions : [version];
    const flushing =
      flushes.length > 0 && flushes.every(Boolean)
        ? "flush before they acknowledge"
        : "may acknowledge before they flush";
    const text = `${shown.join(", ")}; they ${flushing}, and take ${maxPayloadBytes} bytes`;
    const fault = warnOfServers(facts);
    if (fault !== undefined) return warn(name, fault);
    if (settings.durability === "flushed") return ok(name, text);
    return warn(name, `${text}: nats.durability is ${settings.durability}`);
  } catch (error) {
    return failed(name, messageOf(error));
  }
}

async function logChecks(engine: StreamEngine, nats: Nats, database: Database): Promise<Check[]> {
  const { place, clusterId } = await logPlaceOf(database);
  if (place === "sql") {
    const text = 'the logs of sessions are in the database, and nats.use is "all"';
    return [
      warn(
        "streams",
        `${text}, which is refused where there are sessions: set it to "bus", and run \`flotilla promote --to nats\` to move them`,
      ),
    ];
  }
  const deployment = deploymentOf(nats, clusterId);
  let lives: readonly LogLife[];
  try {
    lives = await readLives(engine, deployment);
    await checkStreams(engine, deployment, lives);
  } catch (error) {
    return [failed("streams", messageOf(error))];
  }
  if (lives.length === 0) return [await noStreamsCheck(engine, deployment, database)];
  const text = `${lives.length} logs in ${deployment.replicas} copies, of the deployment ${clusterId}`;
  return [
    ok("streams", text),
    await permissionsCheck(engine, deployment, lives),
    await checkCopies(engine, deployment, lives),
    await lagCheck(engine, deployment, lives, database),
    await asideCheck(database),
  ];
}

/** There are no logs that pods may take, though the database says that they are on streams. */
async function noStreamsCheck(
  engine: StreamEngine,
  { namespace }: Deployment,
  database: Database,
): Promise<Check> {
  const state = (await readDeployment(engine, { namespace }))?.state;
  if (state === "moving") {
    const text = "the logs are on their way to NATS, and no pod takes them there yet";
    return failed("streams", `${text}: run \`flotilla promote --to nats\` again`);
  }
  const isUsed = (await readWatermarks(database)).length > 0;
  if (state === "prepared" || !isUsed) {
    return warn("streams", "they aren't all made yet: the first pod makes them");
  }
  const text = `the logs of sessions are on NATS, and there are none in the namespace ${namespace} of these servers`;
  return failed(
    "streams",
    `${text}: give this config the \`nats\` of the pods, or restore the servers`,
  );
}

async function permissionsCheck(
  engine: StreamEngine,
  deployment: Deployment,
  lives: readonly LogLife[],
): Promise<Check> {
  const name = "rights on streams";
  try {
    await checkPermissions(engine, publishedStreams(deployment, lives));
    return ok(name, "this user may do all that a pod does");
  } catch (error) {
    if (hasCode(error, "forbidden")) return failed(name, messageOf(error));
    return warn(name, messageOf(error));
  }
}

/** How many messages of each log the database doesn't have, marks and changes of owners among them. */
async function lagCheck(
  engine: StreamEngine,
  deployment: Deployment,
  lives: readonly LogLife[],
  database: Database,
): Promise<Check> {
  const name = "archive";
  const watermarks = new Map((await readWatermarks(database)).map((each) => [each.logId, each]));
  const lags = await Promise.all(
    lives.map(async (life) => {
      const state = await engine.state(streamName(deployment, life));
      const watermark = watermarks.get(life.logId);
      const lives = [life.incarnation, ...(life.follows?.incarnations ?? [])];
      if (watermark && !lives.includes(watermark.incarnation)) return Number.NaN;
      return (state?.lastSequence ?? 0) - (watermark?.offset ?? life.firstSequence - 1);
    }),
  );
  const other = lags.findIndex((lag) => Number.isNaN(lag));
  if (other >= 0) {
    const text = `the database has another life of log ${other} than the streams`;
    return failed(name, `${text}: restore both from back-ups of the same time`);
  }
  const ahead = lags.findIndex((lag) => lag < 0);
  if (ahead >= 0) {
    const text = `the database has ${-lags[ahead]!} messages of log ${ahead} that its stream lacks`;
    return failed(name, `${text}: the servers have lost what they had acknowledged`);
  }
  const most = Math.max(...lags);
  const text = `the database is at most ${most} messages behind each log`;
  return most > usualLag
    ? warn(name, `${text}: look at its load and at the pods' logs`)
    : ok(name, text);
}

/** What was acknowledged and the database has refused, which is kept in a table of its own. */
async function asideCheck(database: Database): Promise<Check> {
  const name = "set aside";
  const { items, lastAtMs } = await asideCount(database);
  if (items === 0) return ok(name, "the database has taken all that it was given");
  const last = new Date(lastAtMs).toISOString();
  const text = `the database has refused ${items} parts of records, the last at ${last}`;
  return warn(name, `${text}: they are in the table archive_aside, each with its reason`);
}
