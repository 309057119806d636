import { jetstream, jetstreamManager, type JetStreamClient } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { messageSubject } from "../../src/sessions/log/jetstream/message.ts";
import { type Deployment, subjectPrefix } from "../../src/sessions/log/jetstream/streams.ts";
import { readLives } from "../../test/cluster/log-reader.ts";
import type { NatsCluster, NatsServer } from "../../test/nats/server.ts";
import { withTimeout } from "../../src/base/timeout.ts";
import { systemClock } from "../../src/base/clock.ts";
import { pause } from "./appender.ts";

/** When the streams of logs have a leader again, as the servers alone show it. */
export type Elections = {
  /** How long each log's stream had none, from now on. Called once the server is gone that led it. */
  lastMs(): Promise<readonly number[]>;
  close(): Promise<void>;
};

const askEveryMs = 10;
const answerLimitMs = 100;
const electedLimitMs = 60_000;
const wrongLastSequence = 10071;

/**
 * Watches the streams that logs of pods are on through the servers that stay. Only a leader refuses a message
 * because of its condition, and none stores a message with this one.
 */
export async function watchElections(
  { servers }: NatsCluster,
  { namespace, without }: { namespace: string; without: NatsServer },
): Promise<Elections> {
  const urls = servers.filter((each) => each !== without).map(({ url }) => url);
  const connection = await connect({ servers: urls, ignoreClusterUpdates: true });
  const manager = await jetstreamManager(connection, { checkAPI: false });
  // Names of streams and subjects are made of the namespace alone.
  const deployment: Deployment = { namespace, clusterId: "", replicas: 3, maxLogBytes: 0 };
  const lives = await readLives(manager, deployment);
  const subjects = lives.map((life) => messageSubject(subjectPrefix(deployment, life), "record"));
  const client = jetstream(connection);
  return {
    async lastMs() {
      const fromMs = performance.now();
      const elected = subjects.map(async (subject) => {
        while (!(await hasLeader(client, subject))) await pause(askEveryMs);
        return performance.now() - fromMs;
      });
      const late = () => new Error(`a stream has no leader after ${electedLimitMs} ms`);
      return withTimeout(systemClock, electedLimitMs, Promise.all(elected), late);
    },
    close: () => connection.close(),
  };
}

async function hasLeader(client: JetStreamClient, subject: string): Promise<boolean> {
  const expect = { lastSequence: Number.MAX_SAFE_INTEGER };
  try {
    await client.publish(subject, new Uint8Array(), { expect, timeout: answerLimitMs });
    throw new Error(`a stream has taken a message with a condition that never holds`);
  } catch (error) {
    return (error as { code?: unknown }).code === wrongLastSequence;
  }
}
