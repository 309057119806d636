import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect, type NatsConnection } from "@nats-io/transport-node";
import { systemClock } from "../../src/base/clock.ts";
import { hasCode } from "../../src/base/errors.ts";
import { uuidv7 } from "../../src/base/ids.ts";
import { silentLogger } from "../../src/base/log.ts";
import { systemRandom } from "../../src/base/random.ts";
import { newHeader } from "../../src/sessions/conversation/header.ts";
import { connectStreams } from "../../src/sessions/log/jetstream/connect.ts";
import type { StreamEngine } from "../../src/sessions/log/jetstream/engine.ts";
import { createStreamLog, type StreamLog } from "../../src/sessions/log/jetstream/log.ts";
import { messageSubject } from "../../src/sessions/log/jetstream/message.ts";
import {
  type Deployment,
  type LogLife,
  metaStreamName,
  streamName,
  subjectPrefix,
} from "../../src/sessions/log/jetstream/streams.ts";
import type { Head, LogRecord } from "../../src/sessions/log/journal.ts";
import { encodeRecord } from "../../src/sessions/log/record-codec.ts";
import { parts } from "../sessions/frames.ts";

/** Who appends: our log, or the engine alone with the same bytes under the same condition. */
export type System = "flotilla" | "bare";

/** Appends records to logs on three servers, one at a time to each. */
export type Appender = {
  readonly log: StreamLog;
  readonly connection: NatsConnection;
  /** The streams of the logs. */
  readonly streams: readonly string[];
  /** Where our log stands, once it was appended to. */
  headOf(logId: number): Head;
  /** Stores a record of so many messages, and sends it again until it is known to be stored. */
  append(logId: number, messages: number): Promise<void>;
  close(): Promise<void>;
};

export type AppenderOptions = {
  readonly servers: readonly string[];
  /** Of streams that no other has. */
  readonly namespace: string;
  readonly logs: number;
  readonly system: System;
};

const ids = uuidv7(systemClock, systemRandom);
const maxRecordBytes = 4 * 1_024 * 1_024;
const maxLogBytes = 256 * 1_024 * 1_024;
const publishLimitMs = 700;
const againMs = 20;

export async function openAppender(options: AppenderOptions): Promise<Appender> {
  const { servers, namespace, logs, system } = options;
  const connection = await connect({
    servers: [...servers],
    maxReconnectAttempts: -1,
    reconnectTimeWait: 100,
    pingInterval: 500,
    maxPingOut: 2,
    noAsyncTraces: true,
  });
  const readJson = async () => undefined;
  const engine: StreamEngine = await connectStreams({ connection, clock: systemClock, readJson });
  const deployment: Deployment = { namespace, clusterId: namespace, replicas: 3, maxLogBytes };
  const log = createStreamLog({
    engine,
    deployment,
    clock: systemClock,
    random: systemRandom,
    ids,
    log: silentLogger,
    maxRecordBytes,
  });
  await log.create(logs);
  const lives = (await log.heads()).map((head): LogLife => ({ ...head, firstSequence: 1 }));
  const heads: Head[] = [];
  for (const seen of await log.heads()) heads.push(await taken(log, seen));

  const appendOurs = async (logId: number, messages: number): Promise<void> => {
    const record = recordOf(logId, messages);
    for (;;) {
      try {
        const outcome = await log.commit(heads[logId]!, record);
        if (outcome.type !== "committed") throw new Error(`a record was ${outcome.type}`);
        heads[logId] = outcome.head;
        return;
      } catch (error) {
        if (!hasCode(error, "unknown_outcome", "store_unavailable")) throw error;
        await pause(againMs);
      }
    }
  };

  const client = jetstream(connection, { timeout: publishLimitMs });
  const subjects = lives.map((life) => messageSubject(subjectPrefix(deployment, life), "record"));
  const places = heads.map(({ offset }) => offset);
  const bodies = new Map<number, Uint8Array>();
  const bodyOf = (messages: number): Uint8Array => {
    const made =
      bodies.get(messages) ?? encodeRecord(recordOf(0, messages), { maxBytes: maxRecordBytes });
    bodies.set(messages, made);
    return made;
  };
  const appendBare = async (logId: number, messages: number): Promise<void> => {
    const lastSequence = places[logId]!;
    for (;;) {
      try {
        const ack = await client.publish(subjects[logId]!, bodyOf(messages), {
          expect: { lastSequence },
          timeout: publishLimitMs,
        });
        places[logId] = ack.seq;
        return;
      } catch {
        // It is alone on its streams: what is at the next place is what it sent.
        const state = await engine
          .state(streamName(deployment, lives[logId]!))
          .catch(() => undefined);
        if (state && state.lastSequence > lastSequence) {
          places[logId] = state.lastSequence;
          return;
        }
        await pause(againMs);
      }
    }
  };

  const streams = lives.map((life) => streamName(deployment, life));
  return {
    log,
    connection,
    streams,
    headOf: (logId) => heads[logId]!,
    append: system === "flotilla" ? appendOurs : appendBare,
    async close() {
      // Each reserves its space on all servers.
      const manager = await jetstreamManager(connection, { checkAPI: false });
      for (const name of [...streams, metaStreamName(deployment)]) {
        await manager.streams.delete(name).catch(() => false);
      }
      await connection.close();
    },
  };
}

/** A stream that was just made may have no leader yet. */
async function taken(log: StreamLog, seen: Head): Promise<Head> {
  const owner = { podId: "bench", host: null, recordId: ids.next() };
  for (let tries = 1; ; tries++) {
    try {
      const head = await log.take(seen, owner);
      if (!head) throw new Error(`log ${seen.logId} is another's`);
      await log.recover(head);
      return head;
    } catch (error) {
      const mayRetry = hasCode(error, "unknown_outcome", "store_unavailable");
      if (!mayRetry || tries === 100) throw error;
      await pause(againMs * 5);
    }
  }
}

/** So many messages of 200 bytes, in sessions of ten each. */
function recordOf(logId: number, messages: number): LogRecord {
  const atMs = systemClock.now();
  const sessions = Array.from(
    { length: Math.ceil(messages / 10) },
    (_, nth) => `s-${logId}-${nth}`,
  );
  const made = { tenant: "default", agents: [], users: ["ada"] };
  return {
    recordId: ids.next(),
    entries: Array.from({ length: messages }, (_, at) => ({
      sessionId: sessions[Math.floor(at / 10)]!,
      seq: (at % 10) + 1,
      kind: "message",
      role: "user",
      author: "ada",
      messageId: `message-${at}`,
      clientId: `client-${at}`,
      tokens: 50,
      parts: [...parts],
      atMs,
    })),
    headers: sessions.map((sessionId) => newHeader({ sessionId, ...made }, { nowMs: atMs })),
    metadata: [],
    reads: [],
    checkpoints: [],
    steps: [],
    stepsOver: [],
  };
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
