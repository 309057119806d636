/** What was promised of logs with an archive, compared with every record that was ever stored. */
import { isDeepStrictEqual } from "node:util";
import type { Entry } from "../../../src/protocol/message.ts";
import { storedEntry } from "../../../src/sessions/contract/journal-harness.ts";
import type { StoredMessage } from "../../../src/sessions/log/jetstream/engine.ts";
import { decodeMessage } from "../../../src/sessions/log/jetstream/message.ts";
import {
  decodeMeta,
  type Deployment,
  metaStreamName,
  streamName,
  subjectPrefix,
} from "../../../src/sessions/log/jetstream/streams.ts";
import { changesOf } from "../../../src/sessions/log/changes.ts";
import { decodeRecord } from "../../../src/sessions/log/record-codec.ts";
import type { Header } from "../../../src/sessions/conversation/header.ts";
import type { Head, LogRecord } from "../../../src/sessions/log/journal.ts";
import { startFold } from "../../../src/sessions/log/archive/fold.ts";
import { insertWatermark, storeFlush } from "../../../src/sessions/log/sql/archive.ts";
import type { Database } from "../../../src/store/database.ts";
import { migrate } from "../../../src/store/migrate.ts";
import { sql, table } from "../../../src/store/sql.ts";
import { spareDatabase } from "../spare-stores.ts";
import { archivedTables } from "./store.ts";
import { placeOnStreams } from "../../../src/sessions/log/place.ts";

export type ArchiveLedger = {
  stored(stream: string, message: StoredMessage): void;
  /** The servers have lost the last messages of a stream, while its owner is alive. */
  wentBack(stream: string): void;
  /** A pod begins to take a log, and forgets what it has of it. Returns what is called once it has ended. */
  taking(podId: string, logId: number): () => void;
  /** The stream of a log that a pod has all of, and no other is about to take. */
  servedStream(logId: number): string | undefined;
  /** Whether a log has lost messages, and its owner is there, but goes on in no new stream yet. */
  isBack(logId: number): boolean;
  acked(head: Head, record: LogRecord): void;
  /** A pod has replayed its log, and serves it from here on. */
  recovered(head: Head, busy: readonly Header[]): void;
  /** How many entries of a session are acknowledged, for a read that begins now. */
  ackedSeq(sessionId: string): number;
  /** What a read that began when so many were acknowledged has found. */
  read(podId: string, sessionId: string, ackedSeq: number, entries: readonly Entry[]): void;
  beginQuiet(): void;
  judge(rows: Database): Promise<void>;
};

type Log = {
  readonly logId: number;
  readonly incarnation: string;
  /** Who has sent the last message, and in which term. */
  owner: string | null;
  term: number;
  /** The last term in which a pod has read all that it needs to serve the log. */
  servedTerm: number;
  /** By offset. */
  records: Map<number, LogRecord>;
  /** The ids of all its messages, by offset. */
  messages: Map<number, string>;
};

export function createLedger({
  deployment,
  violate,
  count,
  note,
}: {
  deployment: Deployment;
  violate: (invariant: string, what: string) => void;
  count: (what: string) => void;
  note: (line: string) => void;
}): ArchiveLedger {
  const streams = new Map<string, Log>();
  /** The present life of each log. */
  const present = new Map<number, Log>();
  const entries = new Map<string, Entry[]>();
  const acked = new Map<string, number>();
  /** The records of each log that were acked, by their offsets. */
  const ackedRecords = new Map<number, Map<number, string>>();
  const back = new Set<number>();
  /** How many pods are taking a log. */
  const takes = new Map<number, number>();
  let acks = 0;
  let acksBefore = 0;
  let reads = 0;

  const addEntries = (record: LogRecord): void => {
    for (const entry of record.entries) {
      const all = entries.get(entry.sessionId) ?? [];
      entries.set(entry.sessionId, all);
      all.push(storedEntry(entry));
      if (entry.seq !== all.length) violate("S2", `${entry.sessionId} has ${entry.seq} next`);
    }
  };

  /** The log goes on in another stream, which must have all that was acked. */
  const replace = (next: Log, before: Log, firstSequence: number): void => {
    const { logId } = next;
    count("new life");
    back.delete(logId);
    const kept = [...before.records].filter(([offset]) => offset < firstSequence);
    next.records = new Map([...kept, ...next.records]);
    present.set(logId, next);
    for (const [offset, recordId] of ackedRecords.get(logId) ?? []) {
      if (next.records.get(offset)?.recordId === recordId) continue;
      return violate("S2", `log ${logId} has lost ${offset} in its new stream, which was acked`);
    }
    const changed = new Set([...before.records.values()].flatMap((each) => sessionsOf(each)));
    for (const sessionId of changed) entries.delete(sessionId);
    for (const record of next.records.values()) addEntries(record);
  };

  return {
    stored(stream, stored) {
      if (stream === metaStreamName(deployment)) {
        for (const [logId, life] of (decodeMeta(stored.body)?.logs ?? []).entries()) {
          const before = present.get(logId);
          if (!before || before.incarnation === life.incarnation) continue;
          const next = [...streams.values()].find((each) => each.incarnation === life.incarnation);
          if (!next) return violate("S2", `log ${logId} goes on in a stream that is empty`);
          replace(next, before, life.firstSequence);
        }
        return;
      }
      const [, logId, incarnation] = /_(\d+)_([\w-]+)$/.exec(stream) ?? [];
      if (logId === undefined) return;
      const life = { logId: Number(logId), incarnation: incarnation!, firstSequence: 1 };
      const decoded = decodeMessage(subjectPrefix(deployment, life), stored);
      if (decoded.type !== "message") return violate("stored", `${stream} has a ${decoded.type}`);
      const { kind, owner, term, recordId, body } = decoded.message;
      const log: Log = streams.get(stream) ?? {
        ...life,
        owner,
        term,
        servedTerm: 0,
        records: new Map(),
        messages: new Map(),
      };
      streams.set(stream, log);
      if (!present.has(life.logId)) present.set(life.logId, log);
      const isPresent = present.get(life.logId) === log;
      if (isPresent && back.has(life.logId) && term !== log.term) {
        violate("S2", `log ${logId} is taken, and only its owner has what it lacks`);
      }
      Object.assign(log, { owner, term });
      const { sequence } = stored;
      // What was lost in doubt fits once more, and with the last of it nothing is lost any more.
      const isAgain = log.messages.get(sequence) === recordId;
      if (isAgain && !log.messages.has(sequence + 1)) back.delete(life.logId);
      log.messages.set(sequence, recordId);
      if (kind !== "record" || isAgain) return;
      const record = decodeRecord(body);
      log.records.set(stored.sequence, record);
      if (isPresent) addEntries(record);
    },

    wentBack(stream) {
      const { logId } = streams.get(stream)!;
      back.add(logId);
    },

    taking(podId, logId) {
      const log = present.get(logId);
      if (log?.owner === podId) log.servedTerm = 0;
      takes.set(logId, (takes.get(logId) ?? 0) + 1);
      return () => void takes.set(logId, takes.get(logId)! - 1);
    },

    servedStream(logId) {
      const log = present.get(logId);
      const isServed = log?.owner !== null && log?.term === log?.servedTerm;
      const isStill = (takes.get(logId) ?? 0) === 0;
      return log && isServed && isStill
        ? streamName(deployment, { ...log, firstSequence: 1 })
        : undefined;
    },

    isBack: (logId) => back.has(logId),

    acked({ offset, logId }, record) {
      acks++;
      note(`acked ${offset} of log ${logId}`);
      const records = ackedRecords.get(logId) ?? new Map<number, string>();
      ackedRecords.set(logId, records.set(offset, record.recordId));
      for (const { sessionId, seq } of record.entries) acked.set(sessionId, seq);
    },

    recovered(head, busy) {
      const log = present.get(head.logId);
      if (log?.incarnation !== head.incarnation) return;
      log.servedTerm = head.term;
      const headers = new Map<string, Header>();
      for (const [offset, record] of log.records) {
        if (offset > head.offset) continue;
        for (const header of record.headers) headers.set(header.sessionId, header);
      }
      const wanted = [...headers.values()].filter(({ work }) => work !== null);
      const shown = (all: readonly Header[]) =>
        all
          .map(({ sessionId, lastSeq }) => `${sessionId} ${lastSeq}`)
          .toSorted()
          .join(", ");
      if (shown(wanted) !== shown(busy)) {
        violate("O7", `${shown(busy)} is found busy at ${head.offset}, not ${shown(wanted)}`);
      }
    },

    ackedSeq: (sessionId) => acked.get(sessionId) ?? 0,

    read(podId, sessionId, ackedSeq, found) {
      reads++;
      count("read");
      const truth = (entries.get(sessionId) ?? []).slice(0, found.length);
      if (found.length < ackedSeq) {
        violate("S8", `${podId} reads ${found.length} of ${ackedSeq} acked in ${sessionId}`);
      } else if (!isDeepStrictEqual(found, truth)) {
        violate("S8", `${podId} reads of ${sessionId} what wasn't stored`);
      }
    },

    beginQuiet() {
      acksBefore = acks;
    },

    async judge(rows) {
      if (acks === acksBefore) violate("quiet", "nothing was acked once all was well");
      if (reads === 0) violate("quiet", "nothing was read");
      if (back.size > 0) violate("quiet", `log ${[...back].join()} has no new stream`);
      const rebuilt = await rebuild([...present.values()]);
      const [found, wanted] = [await rowsOf(rows), await rowsOf(rebuilt)];
      await rebuilt.close();
      for (const [at, name] of archivedTables.entries()) {
        if (JSON.stringify(found[at]) === JSON.stringify(wanted[at])) continue;
        const where = found[at]!.findIndex(
          (row, each) => JSON.stringify(row) !== JSON.stringify(wanted[at]![each]),
        );
        const [has, lacks] = [found[at]!, wanted[at]!].map((all) => all[Math.max(0, where)]);
        const what = `${JSON.stringify(has)}, not ${JSON.stringify(lacks)}`;
        violate("archive", `${name} has ${found[at]!.length} rows: ${what}`.slice(0, 600));
        return;
      }
    },
  };
}

function sessionsOf({ entries }: LogRecord): string[] {
  return entries.map(({ sessionId }) => sessionId);
}

/** An archive that is made of nothing but the logs, one record at a time. */
async function rebuild(logs: readonly Log[]): Promise<Database> {
  const rows = spareDatabase({ now: () => 0, note: () => {} });
  await migrate(rows);
  await placeOnStreams(rows);
  for (const { logId, incarnation, records } of logs) {
    let at = { logId, incarnation, offset: 0, recordId: "", chain: "" };
    await rows.write([insertWatermark(at)]);
    for (const [offset, record] of records) {
      const fold = startFold();
      fold.add(changesOf(record));
      const to = { ...at, offset, recordId: record.recordId };
      const flushId = `${logId} ${offset}`;
      await rows.write(
        storeFlush({ from: at.offset, to, flushId, changes: fold.changes, aside: [] }),
      );
      at = to;
    }
  }
  return rows;
}

/** All that is archived, but for when and from which transaction. */
async function rowsOf(rows: Database) {
  return Promise.all(
    archivedTables.map(async (name) => {
      if (name === "log_watermark") return [];
      const all = await rows.read(sql`select * from ${table(name)}`);
      return all
        .map((row) => sorted({ ...row, last_offset: 0, started_at: 0, at: 0 }))
        .toSorted((one, other) => (JSON.stringify(one) < JSON.stringify(other) ? -1 : 1));
    }),
  );
}

function sorted(value: object): object {
  return Object.fromEntries(
    Object.entries(value).toSorted(([one], [other]) => (one < other ? -1 : 1)),
  );
}
