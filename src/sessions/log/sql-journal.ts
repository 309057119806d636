import { type Clock, systemClock } from "../../base/clock.ts";
import { hasCode, storeWideCodes } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import type { Database } from "../../store/database.ts";
import { type JournalOwner, readSteps, readStepValue, toStoredStep } from "../../steps/sql.ts";
import { isAnyDue } from "../../tasks/enqueue/logged-tasks.ts";
import { type Changes, changesOf } from "./changes.ts";
import type {
  CommitResult,
  Head,
  Journal,
  Log,
  Presence,
  Reads,
  StoredClientId,
  TurnRef,
} from "./journal.ts";
import { createForkReads, type ForkReadsParts, type RowReads } from "./forks.ts";
import {
  beatHeads,
  insertHeads,
  readHeads,
  releaseHeads,
  takeHead,
  toHead,
  toLiveHead,
} from "./sql/heads.ts";
import {
  findIds,
  partOf,
  readBusy,
  readCheckpoint,
  readEntries,
  readHeader,
  readNewest,
  readTail,
  readTurns,
  toEndedTurn,
  toEntry,
  toHeader,
} from "./sql/reading.ts";
import type { PlacedRecord } from "./sql/placed-changes.ts";
import { storeRecords } from "./sql/records.ts";

type SqlJournalParts = {
  database: Database;
  ids: Ids;
  clock?: Clock;
  /** Called when tasks are stored with records, so that a pod in this process claims at once. */
  onEnqueued?: (() => void) | undefined;
};

/** The heads of all logs, for operators. */
export async function readLogHeads(database: Pick<Database, "read">): Promise<Head[]> {
  return (await database.read(readHeads())).map(toHead);
}

/** The logs that each pod owns. */
export function logsByOwner(heads: readonly Head[]): ReadonlyMap<string | null, readonly number[]> {
  const owners = Map.groupBy(heads, ({ owner }) => owner);
  return new Map([...owners].map(([owner, owned]) => [owner, owned.map(({ logId }) => logId)]));
}

/** Log and reads in the shared database, which see the same rows. */
export function createSqlJournal(parts: SqlJournalParts): Journal {
  return { ...createSqlLog(parts), ...createSqlReads(parts) };
}

/** A log in the shared database. Records of several logs share a transaction, in one round trip. */
function createSqlLog(parts: SqlJournalParts): Log {
  const { database, ids, clock = systemClock, onEnqueued } = parts;
  const { storedIds } = createSqlReads({ database });

  /** Client ids that were stored before under another seq. */
  const findStored = async ({ entries }: Changes): Promise<StoredClientId[]> => {
    const ids = entries.flatMap(({ sessionId, clientId }) =>
      clientId === null ? [] : [{ sessionId, clientId }],
    );
    const found = await storedIds(ids);
    const ownKeys = new Set(entries.map((each) => keyOf(each)));
    return found.filter((each) => !ownKeys.has(keyOf(each)));
  };

  const store = async (records: readonly PlacedRecord[]): Promise<CommitResult[]> => {
    try {
      const starts = records.some(({ changes }) => isAnyDue(changes.tasks));
      const [moved] = await database.write(storeRecords(records), starts ? { notify: true } : {});
      if (starts) onEnqueued?.();
      const heads = new Map(moved!.map(toHead).map((head) => [head.logId, head]));
      return records.map(({ at }) => {
        const head = heads.get(at.logId);
        return head ? { type: "committed", head } : { type: "fenced" };
      });
    } catch (error) {
      // The database's error has no code of its own. Most likely a client id exists already, so read it.
      const [record] = records;
      if (records.length > 1 || !hasCode(error, "internal")) throw error;
      const found = await findStored(record!.changes);
      if (found.length === 0) throw error;
      return [{ type: "duplicate", found }];
    }
  };
  const shared = shareTransactions(store, clock);

  return {
    // A record becomes rows, each of which is bounded where its content comes in.
    maxRecordBytes: Infinity,

    async heads() {
      return (await database.read(readHeads())).map(toHead);
    },

    async create(logs) {
      if ((await database.read(readHeads())).length > 0) return;
      await database.write(insertHeads(Array.from({ length: logs }, () => ids.next())));
    },

    async take(seen, owner) {
      const [taken] = await database.write([takeHead(seen, owner)]);
      return taken!.map(toHead)[0];
    },

    async recover({ logId }) {
      return { busy: (await database.read(readBusy(logId))).map(toHeader) };
    },

    async commit(at, record) {
      return shared.store({ at, recordId: record.recordId, changes: changesOf(record) });
    },

    async release(podId, heads) {
      if (heads.length > 0) await database.write([releaseHeads(podId, heads)]);
    },

    whenFree: shared.whenFree,
  };
}

/** Reads of sessions from the shared database. `unstored` reads the header of one that it doesn't have yet. */
export function createSqlReads({
  database,
  unstored,
}: Pick<SqlJournalParts, "database"> & Pick<ForkReadsParts, "unstored">): Reads {
  const rows: RowReads = {
    async entries(sessionId, page) {
      return (await database.read(readEntries(sessionId, page))).map(toEntry);
    },

    async tail(sessionId, page) {
      return (await database.read(readTail(sessionId, page))).map(toEntry).toReversed();
    },

    async newest(sessionId, messageId, upTo) {
      return (await database.read(readNewest(sessionId, messageId, upTo))).map(toEntry)[0];
    },
  };
  return {
    ...createForkReads({ database, rows, unstored }),

    async header(sessionId) {
      return (await database.read(readHeader(sessionId))).map(toHeader)[0];
    },

    async storedIds(ids) {
      return (await database.read(findIds(ids))).map((row) => ({
        sessionId: row["session_id"] as string,
        clientId: row["client_id"] as string,
        seq: Number(row["seq"]),
      }));
    },

    async checkpoint(sessionId) {
      const [row] = await database.read(readCheckpoint(sessionId));
      if (!row) return undefined;
      const epoch = Number(row["epoch"]);
      // A checkpoint left by an interrupted turn does not belong to the current turn.
      if (toHeader(row).work?.epoch !== epoch) return undefined;
      return { sessionId, epoch, attempt: Number(row["attempt"]), body: row["body"] };
    },

    async steps(turn) {
      return (await database.read(readSteps(journalOf(turn)))).map(toStoredStep);
    },

    async stepValue(turn, key) {
      const [row] = await database.read(readStepValue(journalOf(turn), key));
      return row?.["value"] as string | undefined;
    },

    async turns(sessionId, page) {
      return (await database.read(readTurns(sessionId, page))).map(toEndedTurn);
    },
  };
}

/** Beats in the rows of the heads, which all pods read. */
export function createSqlPresence({ database }: Pick<SqlJournalParts, "database">): Presence {
  return {
    async beat(podId, heads) {
      if (heads.length === 0) {
        return { owned: [], heads: (await database.read(readHeads())).map(toLiveHead) };
      }
      const [beaten, after] = await database.write([beatHeads(podId, heads), readHeads()]);
      const owned = beaten!.map((row) => Number(row["log_id"]));
      return { owned: owned.toSorted((one, other) => one - other), heads: after!.map(toLiveHead) };
    },
  };
}

function journalOf({ sessionId, epoch }: TurnRef): JournalOwner {
  return { ownerId: sessionId, part: partOf(epoch) };
}

function keyOf(each: { sessionId: string; clientId: string | null; seq: number }): string {
  return JSON.stringify([each.sessionId, each.clientId, each.seq]);
}

type WaitingRecord = PlacedRecord & {
  readonly resolve: (result: CommitResult) => void;
  readonly reject: (error: unknown) => void;
};

// One at a time makes the largest transactions, which cost least for each entry. Others begin only beside
// one that takes this long: its connection may be silent, or wait for a lock.
const slowMs = 1_000;
const maxTransactions = 4;
/** Bounds how long the first record of a transaction waits for the last. A record may have more. */
const maxSharedEntries = 1_000;

/**
 * Stores records that arrive while others are being stored in one transaction, at most one of each log. If
 * a transaction is refused because of one record, each of its records gets a transaction of its own.
 */
function shareTransactions(
  store: (records: readonly PlacedRecord[]) => Promise<CommitResult[]>,
  clock: Clock,
) {
  let waiting: WaitingRecord[] = [];
  const underWay = new Set<{ isSlow: boolean }>();
  let scheduled = false;
  let freed = Promise.withResolvers<void>();

  const isFree = (): boolean => {
    for (const { isSlow } of underWay) if (!isSlow) return false;
    return underWay.size < maxTransactions;
  };

  const take = (): WaitingRecord[] => {
    const taken = new Map<number, WaitingRecord>();
    const left: WaitingRecord[] = [];
    let entries = 0;
    for (const record of waiting) {
      const { logId } = record.at;
      const more = record.changes.entries.length;
      const fits = taken.size === 0 || entries + more <= maxSharedEntries;
      if (!fits || taken.has(logId)) left.push(record);
      else {
        taken.set(logId, record);
        entries += more;
      }
    }
    waiting = left;
    return [...taken.values()];
  };

  const send = async (records: readonly WaitingRecord[]): Promise<void> => {
    try {
      const results = await store(records);
      records.forEach(({ resolve }, at) => resolve(results[at]!));
    } catch (error) {
      // Nothing was stored, and one record may be at fault. Or all of them have the same outcome.
      if (records.length > 1 && !hasCode(error, ...storeWideCodes)) {
        await Promise.all(records.map((record) => send([record])));
      } else for (const { reject } of records) reject(error);
    }
  };

  const sendNext = (): void => {
    scheduled = false;
    while (waiting.length > 0 && isFree()) {
      const transaction = { isSlow: false };
      underWay.add(transaction);
      const cancel = clock.after(slowMs, () => {
        transaction.isSlow = true;
        wake();
      });
      void send(take()).finally(() => {
        cancel();
        underWay.delete(transaction);
        wake();
      });
    }
  };

  const wake = (): void => {
    sendNext();
    if (!isFree()) return;
    freed.resolve();
    freed = Promise.withResolvers();
  };

  return {
    store: (record: PlacedRecord): Promise<CommitResult> =>
      new Promise((resolve, reject) => {
        waiting.push({ ...record, resolve, reject });
        if (scheduled || !isFree()) return;
        scheduled = true;
        // Owners that have something to store in this turn of the event loop share a transaction.
        queueMicrotask(sendNext);
      }),
    whenFree: (): Promise<void> | undefined => (isFree() ? undefined : freed.promise),
  };
}
