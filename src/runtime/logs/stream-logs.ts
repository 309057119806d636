import type { NatsConnection } from "@nats-io/transport-node";
import { type Clock, sleep } from "../../base/clock.ts";
import { hasCode } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import type { Logger } from "../../base/log.ts";
import type { Random } from "../../base/random.ts";
import { readMonitor } from "../../bus/nats/monitor.ts";
import type { Nats } from "../../bus/nats/nats.ts";
import { retryDelayMs } from "../../sessions/log/call-deadline.ts";
import { connectStreams } from "../../sessions/log/jetstream/connect.ts";
import { checkStreams, createStreams } from "../../sessions/log/jetstream/create-streams.ts";
import type { StreamEngine } from "../../sessions/log/jetstream/engine.ts";
import { createStreamLog, type StreamLog } from "../../sessions/log/jetstream/log.ts";
import {
  checkPermissions,
  checkServers,
  maxBodyBytes,
  type Requirements,
  warnOfServers,
} from "../../sessions/log/jetstream/requirements.ts";
import {
  type Deployment,
  publishedStreams,
  usualLogBytes,
} from "../../sessions/log/jetstream/streams.ts";
import { logPlaceOf, placeOnStreams } from "../../sessions/log/place.ts";
import type { StoredText } from "../../store/codec/codec.ts";
import type { Database } from "../../store/database.ts";

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
};

/** The logs of sessions on streams, as one process uses them. */
export type StreamLogs = {
  readonly streamLog: StreamLog;
  readonly deployment: Deployment;
};

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
export async function openStreamLogs(
  parts: StreamLogsParts,
  { logs }: { logs: number },
): Promise<StreamLogs> {
  const { nats, database, log } = parts;
  const engine = await openEngine(parts);
  const endMs = parts.clock.monotonic() + startLimitMs;
  /** Servers that were just started, or have lost one of them, elect leaders for some seconds. */
  const untilAnswered = async <Value>(ask: () => Promise<Value>): Promise<Value> => {
    for (let tries = 1; ; tries++) {
      try {
        return await ask();
      } catch (error) {
        const mayRetry = hasCode(error, "store_unavailable") && parts.clock.monotonic() < endMs;
        if (!mayRetry) throw error;
      }
      await sleep(parts.clock, retryDelayMs(tries, parts.random));
    }
  };
  const facts = await untilAnswered(() => checkServers(engine, requirementsOf(nats.settings)));
  const warning = warnOfServers(facts);
  if (warning !== undefined) log.warn({ advice: warning }, "NATS servers with a known fault");
  if (nats.settings.durability !== "flushed") {
    log.warn(
      { durability: nats.settings.durability },
      "messages of sessions are acknowledged before two servers have flushed them",
    );
  }
  const deployment = deploymentOf(nats, await placeOnStreams(database));
  const streams = createStreams({ ...parts, engine, deployment });
  await streams.create(logs);
  const lives = await untilAnswered(() => streams.lives());
  await untilAnswered(() => checkStreams(engine, deployment, lives));
  await untilAnswered(() => checkPermissions(engine, publishedStreams(deployment, lives)));
  const maxRecordBytes = maxBodyBytes(facts);
  return {
    deployment,
    streamLog: createStreamLog({ ...parts, engine, deployment, maxRecordBytes }),
  };
}

/** Opens the logs for a process that owns none, and stores nothing there. */
export async function connectStreamLogs(parts: StreamLogsParts): Promise<StreamLogs> {
  const engine = await openEngine(parts);
  const { clusterId } = await logPlaceOf(parts.database);
  const deployment = deploymentOf(parts.nats, clusterId);
  const streamLog = createStreamLog({ ...parts, engine, deployment, maxRecordBytes: Infinity });
  return { deployment, streamLog };
}
