import type { NatsConnection } from "@nats-io/transport-node";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError, hasCode, messageOf } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import type { Logger } from "../../base/log.ts";
import type { Random } from "../../base/random.ts";
import { subjectOf } from "../../bus/nats/connection.ts";
import { readMonitor } from "../../bus/nats/monitor.ts";
import type { Nats } from "../../bus/nats/nats.ts";
import { readSecret } from "../../bus/secret.ts";
import { retryDelayMs } from "../../sessions/log/call-deadline.ts";
import { connectStreams } from "../../sessions/log/jetstream/connect.ts";
import {
  areElsewhere,
  areLive,
  checkStreams,
  createStreams,
  isOfOthers,
  readDeployment,
  type Streams,
} from "../../sessions/log/jetstream/create-streams.ts";
import type { StreamEngine } from "../../sessions/log/jetstream/engine.ts";
import { createStreamLog, type StreamLog } from "../../sessions/log/jetstream/log.ts";
import {
  checkPermissions,
  checkServers,
  maxBodyBytes,
  mayNotOf,
  type Requirements,
  warnOfServers,
} from "../../sessions/log/jetstream/requirements.ts";
import { createShareDocuments } from "../../sessions/log/jetstream/share-documents.ts";
import {
  type Deployment,
  publishedStreams,
  usualLogBytes,
} from "../../sessions/log/jetstream/streams.ts";
import { type LogPlace, logPlaceOf, placeOnStreams } from "../../sessions/log/place.ts";
import type { StoredText } from "../../store/codec/codec.ts";
import type { Database } from "../../store/database.ts";
import { callUntilAnswered } from "../../store/retry.ts";
import type { ShareDocuments } from "../../throttles/shares/documents.ts";

/** Longer than servers take for an election. */
const startLimitMs = 30_000;

/** What logs on streams are made of. */
export type StreamLogsParts = {
  nats: Nats;
  database: Database;
  clock: Clock;
  random: Random;
  ids: Ids;
  log: Logger;
  /** Encodes what is stored, as it does in the database. Default: it is stored as it is. */
  text?: StoredText | undefined;
  /** The id of the deployment, where the database is away and the streams have said it. */
  clusterId?: string | undefined;
};

/** The logs of sessions on streams, as one process uses them. */
export type StreamLogs = {
  readonly streamLog: StreamLog;
  readonly deployment: Deployment;
};

/** What a pod has on streams beside the logs of sessions. */
export type PodStreams = StreamLogs & { readonly shares: ShareDocuments };

/** What a deployment on these servers wants of them. */
export function requirementsOf({ durability }: Nats["settings"]): Requirements {
  return durability === "single"
    ? { replicas: 1, durability: "replicas" }
    : { replicas: 3, durability };
}

/** The streams of a deployment on the connection that its envelopes use. */
export function openEngine({
  nats,
  clock,
}: Pick<StreamLogsParts, "nats" | "clock">): Promise<StreamEngine> {
  return connectStreams({
    connection: () => nats.connection().client as NatsConnection | undefined,
    clock,
    monitors: nats.settings.monitors,
    readJson: (url) => readMonitor(url, { clock }),
  });
}

export function deploymentOf({ settings }: Pick<Nats, "settings">, clusterId: string): Deployment {
  const { replicas } = requirementsOf(settings);
  return { namespace: settings.namespace, clusterId, replicas, maxLogBytes: usualLogBytes };
}

/**
 * Opens the logs for a pod: checks the servers, creates the streams unless they are there, and tries
 * everything that the pod will ask of them. Whatever can't work is refused here, in one sentence.
 */
export function openStreamLogs(
  parts: StreamLogsParts,
  { logs }: { logs: number },
): Promise<PodStreams> {
  return openChecked(parts, async ({ engine }) => {
    const clusterId = parts.clusterId ?? (await placeOnStreams(parts.database));
    const deployment = deploymentOf(parts.nats, clusterId);
    const streams = createStreams({ ...parts, engine, deployment });
    await streams.create(logs);
    return { deployment, streams };
  });
}

/** The same for streams that are there, or were made for logs that are still in the database. */
export function openMadeLogs(
  parts: StreamLogsParts,
  openStreams = () => openEngine(parts),
): Promise<PodStreams> {
  const open = async ({ engine, untilAnswered }: CheckedServers) => {
    const clusterId = parts.clusterId ?? (await logPlaceOf(parts.database)).clusterId;
    const deployment = deploymentOf(parts.nats, clusterId);
    const streams = createStreams({ ...parts, engine, deployment, seesMoving: true });
    const { namespace } = deployment;
    if ((await untilAnswered(() => streams.state())) !== undefined) return { deployment, streams };
    throw new FlotillaError(
      "unsupported",
      `there are none in the namespace ${namespace}: give this pod the \`nats\` of the others`,
    );
  };
  return openChecked(parts, open, openStreams);
}

async function openChecked(
  parts: StreamLogsParts,
  open: (servers: CheckedServers) => Promise<{ deployment: Deployment; streams: Streams }>,
  openStreams?: () => Promise<StreamEngine>,
): Promise<PodStreams> {
  const servers = await openServers(parts, openStreams);
  const { engine, facts, untilAnswered } = servers;
  const { deployment, streams } = await open(servers);
  const lives = await untilAnswered(() => streams.lives());
  await untilAnswered(() => checkStreams(engine, deployment, lives));
  await untilAnswered(() => streams.createShares());
  await untilAnswered(() => checkPermissions(engine, publishedStreams(deployment, lives)));
  const maxRecordBytes = maxBodyBytes(facts);
  return {
    deployment,
    streamLog: createStreamLog({ ...parts, engine, deployment, maxRecordBytes }),
    shares: sharesOn({ ...parts, engine, deployment }),
  };
}

/** Opens the shares of throttles for a pod that has no sessions: others have theirs there. */
export async function openStreamShares(parts: StreamLogsParts): Promise<ShareDocuments> {
  const { engine, untilAnswered } = await openServers(parts);
  const clusterId = parts.clusterId ?? (await placeOnStreams(parts.database));
  const deployment = deploymentOf(parts.nats, clusterId);
  await untilAnswered(() => createStreams({ ...parts, engine, deployment }).createShares());
  await untilAnswered(() => checkPermissions(engine, publishedStreams(deployment, [])));
  return sharesOn({ ...parts, engine, deployment });
}

/** What processes of a deployment have to know of it before they reach its database. */
export type KnownDeployment = { readonly clusterId: string; readonly secret: string };

/**
 * What the streams say of the deployment, for a pod that starts while the database is away. Undefined where that
 * isn't enough: there are no streams, their logs are elsewhere or on their way, or no copy of the secret is there.
 */
export async function deploymentOnStreams(
  parts: Pick<StreamLogsParts, "nats" | "clock" | "random" | "text">,
): Promise<KnownDeployment | undefined> {
  const { nats, text } = parts;
  const engine = await openEngine(parts);
  const untilAnswered = untilAnsweredWithin(parts);
  const { hasJetStream } = await untilAnswered(() => engine.facts());
  if (!hasJetStream) return undefined;
  const { namespace } = nats.settings;
  const found = await untilAnswered(() => readDeployment(engine, { namespace, text }));
  if (found?.state !== "live" || found.secret === undefined) return undefined;
  return { clusterId: found.clusterId, secret: found.secret };
}

/** Refuses a database that isn't the one that the streams follow. */
export async function checkDatabase(
  database: Pick<Database, "read">,
  known: KnownDeployment,
  parts: Pick<StreamLogsParts, "nats" | "clock">,
): Promise<void> {
  const { namespace } = parts.nats.settings;
  const { place, clusterId } = await logPlaceOf(database);
  const { clusterId: found } = known;
  if (clusterId !== found) throw isOfOthers({ namespace, clusterId, found });
  if (place === "sql") {
    // They may have been moved since, which this pod follows as any other does.
    const now = await readDeployment(await openEngine(parts), { namespace });
    if (now?.state === "live") throw areElsewhere({ namespace });
  }
  if ((await readSecret(database)) === known.secret) return;
  throw new FlotillaError(
    "conflict",
    "the database has another secret than its pods had: start this pod again, so that it takes that one",
  );
}

export type PlaceOfLogsParts = Pick<StreamLogsParts, "clock" | "random"> & {
  readonly namespace: string;
  readonly openStreams: () => Promise<Pick<StreamEngine, "lastOn" | "facts">>;
};

/**
 * Where the database says that the logs are. Refuses one that was restored from before they were moved: it says
 * that they are its own, while the streams have what came later. Servers that keep no streams are passed over, and
 * those whose user may not read one: where only envelopes go over them, they need neither. Servers that are slow
 * to answer are waited for, and refused if they go on being silent.
 */
export async function placeOfLogs(
  database: Pick<Database, "read">,
  { namespace, openStreams, ...parts }: PlaceOfLogsParts,
): Promise<LogPlace["place"]> {
  const { place, clusterId } = await logPlaceOf(database);
  if (place === "nats") return place;
  const look = async () => {
    const engine = await openStreams();
    try {
      return await readDeployment(engine, { namespace });
    } catch (error) {
      if (mayNotOf(error) !== undefined || (await haveNoStreams(engine))) return undefined;
      throw error;
    }
  };
  const found = await untilAnsweredWithin(parts)(look).catch((error: unknown) => {
    if (hasCode(error, "store_unavailable")) throw isUntold(error);
    return undefined;
  });
  if (found?.state !== "live" || found.clusterId !== clusterId) return place;
  // They may have been moved since the database was asked.
  const now = await logPlaceOf(database);
  if (now.place === "sql") throw areElsewhere({ namespace });
  return now.place;
}

/** A server that keeps no streams doesn't answer what is asked of one. */
async function haveNoStreams(engine: Pick<StreamEngine, "facts">): Promise<boolean> {
  return engine.facts().then(
    ({ hasJetStream }) => !hasJetStream,
    () => false,
  );
}

function isUntold(error: FlotillaError): FlotillaError {
  return new FlotillaError(
    "store_unavailable",
    `whether the logs of this store's sessions were moved to NATS isn't known, because the streams there have said nothing for ${startLimitMs / 1_000} s: look whether a majority of the NATS servers is up, and start this pod again (${messageOf(error)})`,
    { cause: error },
  );
}

/** The same, where the servers are such that logs could have been moved there. */
export function placeOnServers({
  database,
  ...parts
}: Pick<StreamLogsParts, "nats" | "clock" | "random" | "database">): Promise<LogPlace["place"]> {
  const { namespace, monitors, durability } = parts.nats.settings;
  const mayHaveLogs = monitors.length > 0 || durability !== "flushed";
  const openStreams = async () => {
    if (mayHaveLogs) return openEngine(parts);
    throw new FlotillaError("unsupported", "nothing tells whether these servers flush");
  };
  return placeOfLogs(database, { ...parts, namespace, openStreams });
}

/** Refuses servers that can't keep logs, before any are moved there. */
export async function tryServers(parts: StreamLogsParts): Promise<void> {
  await openServers(parts);
}

type CheckedServers = Awaited<ReturnType<typeof openServers>>;

async function openServers(parts: StreamLogsParts, openStreams = () => openEngine(parts)) {
  const { nats, log } = parts;
  const engine = await openStreams();
  const untilAnswered = untilAnsweredWithin(parts);
  const { namespace } = nats.settings;
  const haveLogs = () => areLive(engine, { namespace });
  const facts = await untilAnswered(() =>
    checkServers(engine, requirementsOf(nats.settings), { haveLogs }),
  );
  const warning = warnOfServers(facts);
  if (warning !== undefined) log.warn({ advice: warning }, "NATS servers that need a look");
  if (nats.settings.durability !== "flushed") {
    log.warn(
      { durability: nats.settings.durability },
      "messages of sessions are acknowledged before two servers have flushed them",
    );
  }
  return { engine, facts, untilAnswered };
}

/** Servers that were just started, or have lost one of them, elect leaders for some seconds. */
function untilAnsweredWithin({ clock, random }: Pick<StreamLogsParts, "clock" | "random">) {
  const endMs = clock.monotonic() + startLimitMs;
  return async <Value>(ask: () => Promise<Value>): Promise<Value> => {
    return await callUntilAnswered(ask, {
      clock,
      random,
      mayRetry: (error) => hasCode(error, "store_unavailable") && mayNotOf(error) === undefined,
      limitMs: endMs - clock.monotonic(),
      waitMs: (tries) => retryDelayMs(tries, random),
    });
  };
}

function sharesOn({
  nats,
  engine,
  deployment,
}: Pick<StreamLogsParts, "nats"> & {
  engine: StreamEngine;
  deployment: Deployment;
}): ShareDocuments {
  const subject = subjectOf(deployment.namespace, "demand");
  return createShareDocuments({
    engine,
    deployment,
    talk: {
      announce: (text) => void nats.connection().publish(subject, [new TextEncoder().encode(text)]),
      onAnnounced: (listener) =>
        nats
          .connection()
          .subscribe(subject, ({ data }) => listener(new TextDecoder().decode(data))),
    },
  });
}

/** Opens the logs for a process that owns none, and stores nothing there. */
export async function connectStreamLogs(parts: StreamLogsParts): Promise<StreamLogs> {
  const engine = await openEngine(parts);
  const { clusterId } = await logPlaceOf(parts.database);
  const deployment = deploymentOf(parts.nats, clusterId);
  const streamLog = createStreamLog({ ...parts, engine, deployment, maxRecordBytes: Infinity });
  return { deployment, streamLog };
}

/** Opens the logs for a promotion, which sees them on their way too. */
export async function openMovingLogs(parts: StreamLogsParts): Promise<StreamLogs> {
  const { nats, database } = parts;
  const engine = await openEngine(parts);
  // Whether logs may be moved there was checked before anything was; back they may go beside a server that is gone.
  const haveLogs = async () => true;
  const check = () => checkServers(engine, requirementsOf(nats.settings), { haveLogs });
  const maxRecordBytes = maxBodyBytes(await untilAnsweredWithin(parts)(check));
  const deployment = deploymentOf(nats, (await logPlaceOf(database)).clusterId);
  const moving = { ...parts, engine, deployment, maxRecordBytes, seesMoving: true };
  return { deployment, streamLog: createStreamLog(moving) };
}
