import { createHash } from "node:crypto";
import { jetstreamManager, type JetStreamManager, type StoredMsg } from "@nats-io/jetstream";
import { connect, type NatsConnection } from "@nats-io/transport-node";
import { decodeMessage, type LogMessage } from "../../src/sessions/log/jetstream/message.ts";
import {
  decodeMeta,
  type Deployment,
  livesOf,
  type LogLife,
  metaStreamName,
  metaSubject,
  streamName,
  subjectPrefix,
} from "../../src/sessions/log/jetstream/streams.ts";
import { until } from "../crash/until.ts";
import { untilAnswered } from "../nats/retried.ts";
import type { NatsCluster, NatsServer } from "../nats/server.ts";
import type { Replica, SeenHead } from "./evidence.ts";

/** Reads logs on the NATS servers from outside, past everything that is tested. */
export type LogReader = {
  /** The heads of all logs, with their owners, as far as servers answer. */
  heads(): Promise<(SeenHead & { readonly owner: string | null })[]>;
  /** Every log from each server, while that is its leader. */
  replicas(): Promise<ReadReplica[]>;
  close(): Promise<void>;
};

export type ReadReplica = Replica & { readonly stored: readonly StoredMessage[] };
export type StoredMessage = Pick<LogMessage, "kind" | "recordId" | "term" | "owner"> & {
  readonly sequence: number;
};

/** A disk that others use too may stand still for a minute. */
const leadMs = 90_000;
const wellMs = 90_000;
const readsAtOnce = 64;

export async function openLogReader(
  { urls, servers }: NatsCluster,
  namespace: string,
): Promise<LogReader> {
  // Names of streams and subjects are made of the namespace alone.
  const deployment: Deployment = { namespace, clusterId: "", replicas: 3, maxLogBytes: 0 };
  const connection = await connect({
    servers: [...urls],
    maxReconnectAttempts: -1,
    reconnectTimeWait: 200,
    pingInterval: 1_000,
    noAsyncTraces: true,
  });
  const manager = await jetstreamManager(connection, { checkAPI: false, timeout: 2_000 });

  const lives = () => readLives(manager, deployment);
  const messageOf = (life: LogLife, { seq, subject, header, data }: StoredMsg): StoredMessage => {
    const headers = Object.fromEntries(header.keys().map((key) => [key, header.get(key)]));
    const stored = { sequence: seq, subject, headers, body: data };
    const decoded = decodeMessage(subjectPrefix(deployment, life), stored);
    if (decoded.type !== "message") throw new Error(`message ${seq} is ${decoded.type}`);
    const { kind, recordId, term, owner } = decoded.message;
    return { sequence: seq, kind, recordId, term, owner };
  };

  return {
    async heads() {
      const all = (await lives()).map(async (life) => {
        const { logId: log, incarnation } = life;
        const stream = streamName(deployment, life);
        const { state } = await manager.streams.info(stream);
        const none = { log, incarnation, term: 0, offset: state.last_seq, owner: null };
        if (state.messages === 0) return none;
        const last = await manager.streams.getMessage(stream, { seq: state.last_seq });
        if (!last) return none;
        const { term, owner } = messageOf(life, last);
        return { log, incarnation, term, offset: state.last_seq, owner };
      });
      return Promise.all(all);
    },

    async replicas() {
      const found: ReadReplica[] = [];
      await until("all servers are well", () => areWell(servers), wellMs).catch(async () => {
        const said = await Promise.all(servers.map(healthOf));
        throw new Error(`servers aren't well in the end: ${said.join(", ")}`);
      });
      const all = await untilTold(lives);
      for (const life of all) {
        const stream = streamName(deployment, life);
        for (const { name: server } of servers) {
          await lead({ connection, manager, stream, server });
          const read = await readAll(manager, stream);
          const messages = read.map((each) => ({ sequence: each.seq, digest: digestOf(each) }));
          const stored = read.map((each) => messageOf(life, each));
          found.push({ log: life.logId, server, messages, stored });
        }
      }
      return found;
    },

    close: () => connection.close(),
  };
}

/** Asks again where servers don't answer in time, whatever their client says of it. */
export function untilTold<Answer>(ask: () => Promise<Answer>): Promise<Answer> {
  return untilAnswered(ask, () => true);
}

/** Which logs a deployment has. */
export async function readLives(
  manager: JetStreamManager,
  deployment: Deployment,
): Promise<LogLife[]> {
  const at = { last_by_subj: metaSubject(deployment) };
  const meta = await manager.streams.getMessage(metaStreamName(deployment), at);
  return meta ? livesOf(decodeMeta(meta.data)!) : [];
}

/** What a server says of its streams. */
async function healthOf({ name, monitorUrl }: NatsServer): Promise<string> {
  const signal = AbortSignal.timeout(2_000);
  const said = fetch(`${monitorUrl}/healthz`, { signal }).then((answer) => answer.text());
  return `${name}: ${await said.catch(String)}`;
}

async function areWell(servers: readonly NatsServer[]): Promise<boolean> {
  const all = await Promise.all(servers.map(healthOf));
  return all.every((said) => said.includes('"status":"ok"'));
}

/** Has a server lead a stream. */
export async function lead({
  connection,
  manager,
  stream,
  server,
}: {
  connection: NatsConnection;
  manager: JetStreamManager;
  stream: string;
  server: string;
}): Promise<void> {
  const leads = async () => {
    const info = await manager.streams.info(stream).catch(() => undefined);
    return info?.cluster?.leader === server;
  };
  const take = async () => {
    if (await leads()) return true;
    const subject = `$JS.API.STREAM.LEADER.STEPDOWN.${stream}`;
    const wanted = JSON.stringify({ placement: { preferred: server } });
    await connection.request(subject, wanted, { timeout: 2_000 }).catch(() => {});
    return leads();
  };
  await until(`${server} leads ${stream}`, take, leadMs);
}

/** All messages of a stream, as its leader has them. */
async function readAll(manager: JetStreamManager, stream: string): Promise<StoredMsg[]> {
  const { state } = await untilTold(() => manager.streams.info(stream));
  const found: StoredMsg[] = [];
  for (let from = state.first_seq; from <= state.last_seq; from += readsAtOnce) {
    const count = Math.min(readsAtOnce, state.last_seq - from + 1);
    const reads = Array.from({ length: count }, (_, at) =>
      untilTold(() => manager.streams.getMessage(stream, { seq: from + at })),
    );
    found.push(...(await Promise.all(reads)).filter((each) => each !== null));
  }
  return found;
}

function digestOf({ header, data }: Pick<StoredMsg, "header" | "data">): string {
  const facts = header
    .keys()
    .toSorted()
    .map((key) => `${key}: ${header.get(key)}`);
  return createHash("sha256").update(facts.join("\n")).update(data).digest("hex");
}
