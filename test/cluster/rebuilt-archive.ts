import process from "node:process";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import pg from "pg";
import { systemClock } from "../../src/base/clock.ts";
import { uuidv7 } from "../../src/base/ids.ts";
import { silentLogger } from "../../src/base/log.ts";
import { systemRandom } from "../../src/base/random.ts";
import { createFlusher, type FlushedLog } from "../../src/sessions/log/archive/flusher.ts";
import { createUnarchived } from "../../src/sessions/log/archive/unarchived.ts";
import { createBodies } from "../../src/sessions/log/jetstream/bodies.ts";
import { connectStreams } from "../../src/sessions/log/jetstream/connect.ts";
import type { StreamEngine } from "../../src/sessions/log/jetstream/engine.ts";
import { decodeMessage, firstChain } from "../../src/sessions/log/jetstream/message.ts";
import { createRecordReads } from "../../src/sessions/log/jetstream/record-reads.ts";
import {
  type Deployment,
  type LogLife,
  streamName,
  subjectPrefix,
} from "../../src/sessions/log/jetstream/streams.ts";
import type { Head } from "../../src/sessions/log/journal.ts";
import { migrate } from "../../src/store/migrate.ts";
import { openPostgres } from "../../src/store/postgres/postgres.ts";
import type { NatsCluster } from "../nats/server.ts";
import type { Archives, ArchiveTables } from "./evidence.ts";
import { readLives, untilTold } from "./log-reader.ts";
import { placeOnStreams } from "../../src/sessions/log/place.ts";

export type RebuildParts = {
  readonly nats: Pick<NatsCluster, "urls">;
  /** What subjects and streams of pods begin with. */
  readonly namespace: string;
  /** The database that pods archive into. */
  readonly store: string;
  /** A database of the same server, as a role that may make another beside it. */
  readonly server: string;
};

let rebuilds = 0;

/** What the database has of a log, and says of where it stands. */
type Watermark = { readonly offset: number; readonly stands: string };

/**
 * The tables that records are stored in, each with its key, and columns that say when or in which
 * transaction a row was stored rather than what it is.
 */
const tables: Readonly<Record<string, { key: readonly string[]; without?: readonly string[] }>> = {
  session: { key: ["session_id"], without: ["last_offset"] },
  session_user: { key: ["session_id", "user_id"] },
  message: { key: ["session_id", "seq"] },
  turn: { key: ["session_id", "epoch", "attempt"] },
  turn_checkpoint: { key: ["session_id"] },
  step_journal: { key: ["owner_id", "part", "key"], without: ["started_at", "at"] },
  tenant_count: { key: ["tenant", "log_id"] },
  archive_aside: { key: ["log_id", "log_offset", "place"], without: ["at"] },
};

/**
 * The archive as it is, and one that the flusher makes in an empty database of nothing but the logs, each up
 * to the watermark that the archive has of it. It needs no quiet: rows and watermarks are of one snapshot.
 */
export async function rebuildArchive(parts: RebuildParts): Promise<Archives> {
  await using opened = new AsyncDisposableStack();
  const { live, watermarks } = await snapshot(parts.store);
  const connection = await connect({ servers: [...parts.nats.urls], noAsyncTraces: true });
  opened.defer(() => connection.close());
  const manager = await jetstreamManager(connection, { checkAPI: false, timeout: 5_000 });
  const engine = await connectStreams({
    connection,
    clock: systemClock,
    readJson: async () => undefined,
  });
  // Names of streams and subjects are made of the namespace alone.
  const deployment = { namespace: parts.namespace, clusterId: "", replicas: 3, maxLogBytes: 0 };
  const logs: Logs = { engine, deployment: deployment as Deployment };

  const name = `rebuilt_${process.pid}_${++rebuilds}`;
  const place = new URL(parts.server);
  place.pathname = `/${name}`;
  await ask(parts.server, (client) => client.query(`create database ${name}`));
  opened.defer(async () => {
    await ask(parts.server, (client) => client.query(`drop database ${name} with (force)`));
  });
  const trimmed: number[] = [];
  const behind: number[] = [];
  const stands: Record<string, string> = {};
  const database = await openPostgres({ url: place.href });
  opened.defer(() => database.close());
  await migrate(database);
  await placeOnStreams(database);
  const ids = uuidv7(systemClock, systemRandom);
  const flusher = createFlusher({ database, ids, log: silentLogger });
  for (const life of await untilTold(() => readLives(manager, logs.deployment))) {
    const { logId } = life;
    const { offset = 0 } = watermarks.get(logId) ?? {};
    const log = await logUpTo(logs, life, offset);
    if (log === "trimmed") trimmed.push(logId);
    else while (log.unarchived.records > 0) await flusher.flush(log);
    if (watermarks.has(logId)) stands[String(logId)] = await standOf(logs, life, offset);
    if (await hasRecordsBehind(logs, life, offset)) behind.push(logId);
  }
  const { live: rebuilt } = await snapshot(place.href);
  return {
    live: { ...live, log_watermark: standsOf(watermarks) },
    rebuilt: { ...rebuilt, log_watermark: stands },
    trimmed,
    behind,
  };
}

type Logs = { readonly engine: StreamEngine; readonly deployment: Deployment };

/** A log with everything up to an offset still to be archived. */
async function logUpTo(
  { engine, deployment }: Logs,
  life: LogLife,
  through: number,
): Promise<FlushedLog | "trimmed"> {
  const { logId, incarnation, firstSequence } = life;
  // What came before is in another stream.
  if (life.follows) return "trimmed";
  const { opened } = createBodies(undefined);
  const reads = createRecordReads({ engine, deployment, lifeOf: async () => life, opened });
  const head: Head = {
    logId,
    incarnation,
    term: 0,
    owner: null,
    host: null,
    offset: through,
    recordId: "",
  };
  const first = { archived: firstSequence - 1, chain: firstChain(incarnation) };
  const unarchived = createUnarchived();
  if (through > first.archived) {
    const range = { after: first.archived, chain: first.chain, through };
    const read = await reads.readRange(head, range, (each) => unarchived.add(each, 0));
    if (read === "trimmed") return read;
    if (read === "different") throw new Error(`log ${logId} begins with another message`);
  }
  return {
    logId,
    incarnation,
    unarchived,
    load: (offset) => reads.readRecord(head, offset),
    archivedTo: first.archived,
    watermark: undefined,
    refusal: undefined,
    ahead: undefined,
    follows: undefined,
    lastOffset: through,
    chainAt: async (offset) => (await messageAt({ engine, deployment }, life, offset))!.chain,
    lastMark: () => first,
    idleEnd: () => undefined,
    refill: async () => "different",
  };
}

/** What a watermark at this offset says, as the log has it. */
async function standOf(logs: Logs, life: LogLife, offset: number): Promise<string> {
  if (offset < life.firstSequence) return standing(offset, "", firstChain(life.incarnation));
  const message = await messageAt(logs, life, offset);
  return message ? standing(offset, message.recordId, message.chain) : `nothing at ${offset}`;
}

async function messageAt({ engine, deployment }: Logs, life: LogLife, offset: number) {
  const stored = await engine.read(streamName(deployment, life), offset);
  const decoded = stored && decodeMessage(subjectPrefix(deployment, life), stored);
  return decoded?.type === "message" ? decoded.message : undefined;
}

async function hasRecordsBehind(logs: Logs, life: LogLife, offset: number): Promise<boolean> {
  const stream = streamName(logs.deployment, life);
  const to = (await logs.engine.state(stream))?.lastSequence ?? 0;
  const prefix = subjectPrefix(logs.deployment, life);
  for await (const stored of logs.engine.readFrom(stream, { from: offset + 1, to })) {
    const decoded = decodeMessage(prefix, stored);
    if (decoded.type === "message" && decoded.message.kind === "record") return true;
  }
  return false;
}

/** All rows that records make, and where the archive of each log stands, as of one moment. */
async function snapshot(
  url: string,
): Promise<{ live: ArchiveTables; watermarks: Map<number, Watermark> }> {
  return ask(url, async (client) => {
    await client.query("begin isolation level repeatable read read only");
    const live: Record<string, Record<string, string>> = {};
    for (const [table, { key, without = [] }] of Object.entries(tables)) {
      // What the leader corrects isn't of any log.
      const where = table === "tenant_count" ? "where log_id >= 0" : "";
      const { rows } = await client.query(`select * from flotilla.${table} ${where}`);
      const named = rows.map((row: Record<string, unknown>) => {
        const kept = Object.entries(row).filter(([column]) => !without.includes(column));
        const inOrder = kept.toSorted(([a], [b]) => (a < b ? -1 : 1));
        const facts = JSON.stringify(Object.fromEntries(inOrder));
        return [key.map((column) => String(row[column])).join(" "), facts] as const;
      });
      live[table] = Object.fromEntries(named);
    }
    const { rows } = await client.query("select * from flotilla.log_watermark order by log_id");
    await client.query("commit");
    const watermarks = rows.map((row: Record<string, unknown>): [number, Watermark] => {
      const offset = Number(row["log_offset"]);
      const stands = standing(offset, String(row["record_id"]), String(row["chain"]));
      return [Number(row["log_id"]), { offset, stands }];
    });
    return { live, watermarks: new Map(watermarks) };
  });
}

function standing(offset: number, recordId: string, chain: string): string {
  return JSON.stringify({ offset, recordId, chain });
}

function standsOf(watermarks: ReadonlyMap<number, Watermark>): Record<string, string> {
  return Object.fromEntries([...watermarks].map(([logId, { stands }]) => [String(logId), stands]));
}

async function ask<Answer>(
  url: string,
  act: (client: pg.Client) => Promise<Answer>,
): Promise<Answer> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    return await act(client);
  } finally {
    await client.end();
  }
}
