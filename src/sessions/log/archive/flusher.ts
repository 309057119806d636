import { FlotillaError, hasCode, messageOf, storeWideCodes } from "../../../base/errors.ts";
import type { Ids } from "../../../base/ids.ts";
import type { Logger } from "../../../base/log.ts";
import type { Database } from "../../../store/database.ts";
import type { Statement } from "../../../store/sql.ts";
import { isAnyDue } from "../../../tasks/enqueue/logged-tasks.ts";
import { probeTask } from "../../../tasks/sql/enqueue.ts";
import { changesOf, type Changes } from "../changes.ts";
import { firstChain, type Mark } from "../jetstream/message.ts";
import type { EarlierLives } from "../jetstream/streams.ts";
import type { RecordReads } from "../jetstream/record-reads.ts";
import type { LogRecord } from "../journal.ts";
import {
  type AsideItem,
  findSeqs,
  insertWatermark,
  moveToLife,
  probeEntry,
  readWatermark,
  storeFlush,
  toWatermark,
  type Watermark,
} from "../sql/archive.ts";
import { logPlaceOf } from "../place.ts";
import { findIds } from "../sql/reading.ts";
import { startFold } from "./fold.ts";
import { readingLog } from "./log-faults.ts";
import type { LoadRecord } from "./peek.ts";
import { asideOf, placeholderOf, type Reduced, waysToStore } from "./refused-record.ts";
import type { KeptRecord, Unarchived } from "./unarchived.ts";

/** A log that is moved into the archive, by the pod that owns it. */
export type FlushedLog = {
  readonly logId: number;
  readonly incarnation: string;
  readonly unarchived: Unarchived;
  readonly load: LoadRecord;
  /** Up to where the archive is known to have had the log, at some time. */
  archivedTo: number;
  /** Where the archive stands, as it was last seen; undefined if that isn't known. */
  watermark: Watermark | undefined;
  /** Why the log can't be served. */
  refusal: string | undefined;
  /** Where the archive stands, if that is behind the end of the log: servers have lost what it has. */
  ahead: Watermark | undefined;
  /** The lives of the log before this one, and where its own offsets begin. */
  readonly follows: (EarlierLives & { readonly from: number }) | undefined;
  /** The offset of the last message. */
  readonly lastOffset: number;
  /** The chain at a message of the log. */
  chainAt(offset: number): Promise<string>;
  /** The last mark that is stored. */
  lastMark(): Pick<Mark, "archived" | "chain">;
  /** The last message of the log, if all records up to it are archived. */
  idleEnd(): Watermark | undefined;
  /**
   * Takes records from the log that the archive has lost, from behind this watermark up to `archivedTo`, if
   * the log still has them, and its message there is the one that the archive has.
   */
  refill(from: Watermark): ReturnType<RecordReads["readRange"]>;
};

export type Flushed = {
  /** Whether there is more to store. */
  readonly isBehind: boolean;
  readonly sessionIds: ReadonlySet<string>;
  readonly bytes: number;
  /** Whether the database was asked. A log that has nothing to store says nothing of it. */
  readonly hasAnswered: boolean;
};

/** Moves what logs have into the database: each transaction moves the watermark and what it stands for. */
export type Flusher = {
  /** Learns where the archive stands. Sets the refusal of a log whose archive lacks too much. */
  begin(log: FlushedLog): Promise<void>;
  /** Stores the next records of a log in one transaction. Rejects if the database didn't take them now. */
  flush(log: FlushedLog): Promise<Flushed>;
  /** How much the database has refused, and client ids that were stored before under another seq. */
  readonly aside: number;
  readonly leftOut: number;
};

export type FlusherParts = {
  database: Database;
  ids: Ids;
  log: Logger;
  /** Called when tasks are stored with records, so that a pod in this process claims at once. */
  onEnqueued?: (() => void) | undefined;
};

const maxEntries = 1_000;
const maxBytes = 4 * 1_024 * 1_024;
const maxRecords = 1_000;
/** Marks and owners above the watermark, before it is moved over them. */
const maxIdleMessages = 60;

type Batch = { readonly changes: Changes; readonly last: KeptRecord; readonly records: number };
export function createFlusher(parts: FlusherParts): Flusher {
  const { database, ids, log: logger } = parts;
  let setAside = 0;
  let leftOut = 0;

  const readStanding = async (logId: number): Promise<Watermark | undefined> =>
    (await database.read(readWatermark(logId))).map(toWatermark)[0];

  /** Says so where the database has the log itself, and with that no archive of it. */
  const isHere = async (logId: number): Promise<string | undefined> => {
    if ((await logPlaceOf(database)).place === "nats") return undefined;
    return `log ${logId} is in the database by now: what this process has of it on streams isn't archived`;
  };

  const begin: Flusher["begin"] = async (log) => {
    const { logId, incarnation, follows } = log;
    const mark = log.lastMark();
    log.ahead = undefined;
    const isNew = mark.chain === firstChain(incarnation) && !follows?.archived;
    let found = await readStanding(logId);
    if (!found && isNew) {
      const first = { logId, incarnation, offset: mark.archived, recordId: "", chain: mark.chain };
      await database.write([insertWatermark(first)]);
      found = await readStanding(logId);
      if (!found) {
        log.refusal =
          (await isHere(logId)) ??
          `log ${logId} can't be archived: the database has sessions of other logs. Use a database without sessions, or the one that belongs to these logs`;
        return;
      }
    }
    log.archivedTo = Math.max(log.archivedTo, mark.archived);
    const { archivedTo } = log;
    if (found && follows?.incarnations.includes(found.incarnation)) {
      if (found.offset < follows.archived) {
        log.refusal = `log ${logId} can't be served: the database was set back to ${found.offset}, and the log begins later. Restore a backup that reaches ${follows.archived}, or ${goOn(logId)}`;
        return;
      }
      if (found.offset <= log.lastOffset) found = await moveOver(log, found, follows.from);
    }
    const lives = [incarnation, ...(follows?.incarnations ?? [])];
    if (!found || !lives.includes(found.incarnation)) {
      log.refusal =
        (found ? undefined : await isHere(logId)) ??
        `log ${logId} can't be served: the database has nothing of its archive, which reached ${archivedTo}. Restore a backup that has it, or ${goOn(logId)}`;
      return;
    }
    if (found.offset > log.lastOffset) {
      log.refusal = `log ${logId} can't be served: the database has it up to ${found.offset}, and servers have lost what is behind ${log.lastOffset}`;
      log.ahead = found;
      return;
    }
    if (found.offset >= mark.archived && !(await isSame(log, found))) {
      log.refusal = `log ${logId} can't be served: at ${found.offset} the database has another record than the log, of which servers have lost messages. Restore the streams or the database, so that both have the same, or ${goOn(logId)}`;
      return;
    }
    if (found.offset < archivedTo) {
      const refilled = await readingLog(logId, log.refill(found));
      if (refilled !== "whole") {
        const why = refilled === "trimmed" ? "the log begins later" : "the log has other records";
        log.refusal = `log ${logId} can't be served: the database was set back to ${found.offset}, and ${why}. Restore a backup that reaches ${archivedTo}, or ${goOn(logId)}`;
        return;
      }
      const lost = { log: logId, from: found.offset, to: archivedTo };
      logger.warn(lost, "the archive was set back, and is filled again from the log");
    }
    log.refusal = undefined;
    stand(log, found);
  };

  /** What the database has of an earlier life of a log is the same in this one. */
  const moveOver = async (log: FlushedLog, found: Watermark, from: number): Promise<Watermark> => {
    const { logId, incarnation } = log;
    // Between the last archived record and the first of this life there is none.
    const isBefore = found.offset < from;
    const offset = isBefore ? from - 1 : found.offset;
    const chain = isBefore ? firstChain(incarnation) : await chainAt(log, offset);
    const to = { logId, incarnation, offset, recordId: found.recordId, chain };
    await database.write([moveToLife(found, to)]);
    const moved = await readStanding(logId);
    if (moved?.incarnation !== incarnation) throw notStored(log);
    return moved;
  };

  /** Whether the message of the log that the archive stands at is the one that it had. */
  const isSame = async (log: FlushedLog, { offset, chain }: Watermark): Promise<boolean> => {
    const mark = log.lastMark();
    return chain === (offset === mark.archived ? mark.chain : await chainAt(log, offset));
  };

  /** The archive is here now. Returns the sessions of which it has more than before. */
  const stand = (log: FlushedLog, watermark: Watermark): ReadonlySet<string> => {
    log.watermark = watermark;
    log.archivedTo = Math.max(log.archivedTo, watermark.offset);
    return log.unarchived.archived(watermark.offset);
  };

  const recordOf = async (log: FlushedLog, kept: KeptRecord): Promise<LogRecord> =>
    kept.record ?? readingLog(log.logId, log.load(kept.offset));

  /** The changes of the first records behind a watermark, as many as one transaction takes. */
  const batchOf = async (
    log: FlushedLog,
    from: Watermark,
    most: number,
  ): Promise<Batch | undefined> => {
    const fold = startFold();
    let last: KeptRecord | undefined;
    let [entries, bytes, records] = [0, 0, 0];
    for (const kept of log.unarchived.first(most)) {
      if (kept.offset <= from.offset) continue;
      entries += kept.entries;
      bytes += kept.bytes;
      if (last && (entries > maxEntries || bytes > maxBytes)) break;
      if (!fold.add(changesOf(await recordOf(log, kept)))) break;
      last = kept;
      records++;
    }
    return last && { changes: fold.changes, last, records };
  };

  /** Stores changes with the watermark. Rejects if they aren't stored, or not for certain. */
  const store = async (
    log: FlushedLog,
    { offset: from }: Watermark,
    to: Watermark,
    changes: Changes,
    aside: readonly AsideItem[] = [],
  ): Promise<ReadonlySet<string>> => {
    try {
      const flush = { from, to, flushId: ids.next(), changes, aside };
      const starts = isAnyDue(changes.tasks);
      const [moved] = await database.write(storeFlush(flush), starts ? { notify: true } : {});
      if (moved!.length > 0) {
        if (starts) parts.onEnqueued?.();
        setAside += aside.length;
        return stand(log, to);
      }
    } catch (error) {
      if (!hasCode(error, "unknown_outcome")) throw error;
    }
    return resolve(log, from, to);
  };

  /** Reads what became of a flush whose answer was lost, or that met another watermark. */
  const resolve = async (
    log: FlushedLog,
    from: number,
    to: Watermark,
  ): Promise<ReadonlySet<string>> => {
    const found = await readStanding(log.logId);
    const isSame = found?.incarnation === log.incarnation;
    if (found && isSame && found.offset === to.offset && found.recordId === to.recordId) {
      return stand(log, to);
    }
    // The next owner of the log has moved it, with the same records.
    if (found && isSame && found.offset > from) return stand(log, found);
    // It isn't stored, or not yet: sent again, it moves the watermark once.
    if (found && isSame && found.offset === from) throw notStored(log);
    log.watermark = undefined;
    await begin(log);
    return new Set();
  };

  /** What of a record that the database refuses can be stored after all. */
  const reduce = async ({ offset }: KeptRecord, record: LogRecord): Promise<Reduced> => {
    const changes = changesOf(record);
    const { entries } = changes;
    const taken = new Set(
      (await database.read(findSeqs(entries))).map((row) => keyOf(row["session_id"], row["seq"])),
    );
    const named = entries.flatMap(({ sessionId, clientId }) =>
      clientId === null ? [] : [{ sessionId, clientId }],
    );
    const used = new Set(
      (await database.read(findIds(named))).map((row) =>
        keyOf(row["session_id"], row["client_id"]),
      ),
    );
    const aside: AsideItem[] = [];
    const kept: Changes["entries"][number][] = [];
    for (const entry of entries) {
      const place = record.entries.indexOf(entry);
      const item = (why: string) => asideOf(offset, place, entry, why);
      if (taken.has(keyOf(entry.sessionId, entry.seq))) {
        aside.push(item("another entry is in its place"));
        continue;
      }
      const isUsed = entry.clientId !== null && used.has(keyOf(entry.sessionId, entry.clientId));
      if (isUsed) leftOut++;
      else if (entry.clientId !== null) used.add(keyOf(entry.sessionId, entry.clientId));
      const stored = isUsed ? { ...entry, clientId: null } : entry;
      const refused = await refusalOf(probeEntry(stored));
      if (refused !== undefined) aside.push(item(refused));
      kept.push(refused === undefined ? stored : placeholderOf(entry));
    }
    const refusals = new Map<string, string>();
    for (const task of changes.tasks) {
      const refused = await refusalOf(probeTask(task));
      if (refused !== undefined) refusals.set(task.taskId, refused);
    }
    return { changes: { ...changes, entries: kept }, aside, refusals };
  };

  /** Why the database doesn't take the values of an entry or a task. */
  const refusalOf = async (probe: Statement): Promise<string | undefined> => {
    try {
      await database.read(probe);
      return undefined;
    } catch (error) {
      if (hasCode(error, ...storeWideCodes)) throw error;
      return messageOf(error);
    }
  };

  /** Stores a record that was refused: what can be stored of it, and the rest where operators find it. */
  const storeRefused = async (
    log: FlushedLog,
    from: Watermark,
    kept: KeptRecord,
    error: unknown,
  ): Promise<ReadonlySet<string>> => {
    const record = await recordOf(log, kept);
    const to = watermarkAt(log, kept);
    const reason = messageOf(error);
    const reduced = await reduce(kept, record);
    let last = error;
    for (const way of waysToStore(reduced, kept.offset, record, reason)) {
      try {
        const changed = await store(log, from, to, way.changes, way.aside);
        const fields = { log: log.logId, offset: kept.offset, aside: way.aside.length };
        logger.error({ ...fields, error: reason }, "the archive refused a part of a record");
        return changed;
      } catch (again) {
        if (hasCode(again, ...storeWideCodes)) throw again;
        last = again;
      }
    }
    throw last;
  };

  const flushRecords = async (log: FlushedLog): Promise<Flushed> => {
    for (let most = maxRecords; ; most = Math.ceil(most / 2)) {
      // What this owner found stored late, the next one may have archived.
      const from = log.watermark!;
      stand(log, from);
      const batch = await batchOf(log, from, most);
      if (!batch) return flushIdle(log);
      const bytesBefore = log.unarchived.bytes;
      const done = (sessionIds: ReadonlySet<string>): Flushed => ({
        isBehind: log.unarchived.records > 0,
        sessionIds,
        bytes: Math.max(0, bytesBefore - log.unarchived.bytes),
        hasAnswered: true,
      });
      try {
        return done(await store(log, from, watermarkAt(log, batch.last), batch.changes));
      } catch (error) {
        if (hasCode(error, ...storeWideCodes)) throw error;
        // One of its records may be at fault, so store halves until that one is alone.
        if (batch.records === 1) return done(await storeRefused(log, from, batch.last, error));
        most = batch.records;
      }
    }
  };

  /** Moves the watermark over marks and owners, so that a log without records can be trimmed too. */
  const flushIdle = async (log: FlushedLog): Promise<Flushed> => {
    const end = log.idleEnd();
    const isFar = end && end.offset - log.watermark!.offset >= maxIdleMessages;
    if (isFar) await store(log, log.watermark!, end, startFold().changes);
    return { isBehind: false, sessionIds: new Set(), bytes: 0, hasAnswered: isFar === true };
  };

  return {
    begin,
    async flush(log) {
      const hasBegun = !log.watermark;
      if (hasBegun) await begin(log);
      if (log.refusal !== undefined) throw new FlotillaError("store_missing", log.refusal);
      const flushed = await flushRecords(log);
      return hasBegun ? { ...flushed, hasAnswered: true } : flushed;
    },
    get aside() {
      return setAside;
    },
    get leftOut() {
      return leftOut;
    },
  };
}

const chainAt = (log: FlushedLog, offset: number): Promise<string> =>
  readingLog(log.logId, log.chainAt(offset));

/** What an operator can do without a backup. */
function goOn(logId: number): string {
  return `go on without what it lacks: \`flotilla cluster rebase --log ${logId}\``;
}

function watermarkAt({ logId, incarnation }: FlushedLog, kept: KeptRecord): Watermark {
  const { offset, recordId, chain } = kept;
  return { logId, incarnation, offset, recordId, chain };
}

function keyOf(...parts: readonly unknown[]): string {
  return JSON.stringify(parts.map(String));
}

function notStored({ logId }: FlushedLog): FlotillaError {
  return new FlotillaError("store_unavailable", `a flush of log ${logId} wasn't stored`);
}
