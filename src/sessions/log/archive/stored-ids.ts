import type { Clock } from "../../../base/clock.ts";
import { FlotillaError, hasCode, storeAwayCodes } from "../../../base/errors.ts";
import { settledWithin } from "../../../base/timeout.ts";
import type { Database } from "../../../store/database.ts";
import type { LogRecord, StoredClientId } from "../journal.ts";
import { keyOfId } from "../record.ts";
import { findIds } from "../sql/reading.ts";
import { readLastIds } from "../sql/archive.ts";
import { entryIdsOf } from "../record-codec.ts";
import type { Unarchived } from "./unarchived.ts";

/**
 * Finds client ids of a record that were stored before. A log of messages can't compare them, so its owner
 * does: with all that isn't archived, and with the last of each session, which are read with its header. An
 * id of a longer session that isn't among them is looked up. While the database is away, or answers too late,
 * it is looked for in what the log still has, and counts as new if it isn't there.
 */
export type StoredIds = {
  /** Reads the last ids of a session, so that its next record needs no read. Never rejects. */
  prepare(sessionId: string, unarchived: Unarchived): Promise<void>;
  /**
   * Ids of the record's entries that have another seq. Throws `internal` if a seq is taken, and
   * `store_unavailable` if neither the database nor the log can be read.
   */
  find(record: LogRecord, unarchived: Unarchived, readKept: ReadKept): Promise<StoredClientId[]>;
  /** The record is stored. */
  add(record: LogRecord): void;
  /** The archive takes records: what the log has isn't kept in memory if the database is asked instead. */
  forgetKept(): void;
};

/** Reads of the database that appends wait for, of all logs of a process. */
export type LookUps = {
  /** Looks something up, and waits shortly. Undefined if the database is away, or answers too late. */
  shortly<Found>(look: () => Promise<Found>): Promise<Found | undefined>;
  /** Waits shortly for a larger read that is under way, unless the database is away or answers too late. */
  wait(reading: Promise<void>): Promise<void>;
  /** Whether the database is there, and has answered in time. */
  readonly areAnswered: boolean;
};

/** Hands over the records that the log still has. */
export type ReadKept = (onRecord: (record: LogRecord) => void) => Promise<void>;

type KnownSession = {
  lastSeq: number;
  ids: Map<string, number>;
  /** Whether these are all ids that the session has. */
  readonly isWhole: boolean;
};

/** What isn't in the database yet, or comes while it is read. */
type Reading = { ended: Promise<void>; readonly added: AddedEntry[] };
type AddedEntry = { readonly seq: number; readonly clientId: string | null };

/** How many of its last entries are read with a session. Repeats come soon after their first send. */
const maxPerSession = 4_096;
/** Of all sessions of a log together. A session counts as one more, because it may have none. */
const maxIds = 65_536;
/** What all appends of a log wait at most for an id that isn't known. */
const lookUpMs = 250;
/** How long what the log has is kept in memory after it was needed, while the archive takes records. */
const keptIdleMs = 30_000;
/** How often a database that answers too late is asked again, without waiting for it. */
const askAgainMs = 1_000;

/**
 * One message of a log is in flight at a time, so that all appends of a log wait while an id of one is looked up. A
 * database that didn't answer one in time keeps no other waiting, until it has answered one in time again.
 */
export function createLookUps({
  clock,
  isAway = () => false,
}: {
  clock: Clock;
  /** Whether the database didn't answer lately, so that it isn't waited for. Default: it always did. */
  isAway?: () => boolean;
}): LookUps {
  let isSlow = false;
  /** How many look-ups are under way that nothing waits for any more. */
  let late = 0;
  let askedMs = -Infinity;

  const ask = async <Found>(look: () => Promise<Found>): Promise<Found> => {
    const nowMs = clock.monotonic();
    askedMs = nowMs;
    const found = await look();
    isSlow = clock.monotonic() - nowMs > lookUpMs;
    return found;
  };

  return {
    get areAnswered() {
      return !isSlow && !isAway();
    },
    async shortly(look) {
      if (isAway()) return undefined;
      const isWaited = !isSlow;
      if (!isWaited && (late > 0 || clock.monotonic() - askedMs < askAgainMs)) return undefined;
      const asked = ask(look);
      late++;
      asked.catch(() => {}).finally(() => late--);
      if (!isWaited) return undefined;
      try {
        const found = await settledWithin(clock, lookUpMs, asked);
        if (found === undefined) isSlow = true;
        return found;
      } catch (error) {
        if (hasCode(error, ...storeAwayCodes)) return undefined;
        throw error;
      }
    },
    async wait(reading) {
      if (!isSlow && !isAway()) await settledWithin(clock, lookUpMs, reading);
    },
  };
}

export function createStoredIds({
  database,
  clock,
  lookUps = createLookUps({ clock }),
}: {
  database: Pick<Database, "read">;
  clock: Clock;
  lookUps?: LookUps;
}): StoredIds {
  const { shortly } = lookUps;
  const sessions = new Map<string, KnownSession>();
  const reading = new Map<string, Reading>();
  /**
   * The seqs of all ids that the log still has, once they were needed, until the database answers again: a log
   * may be owned for weeks.
   */
  let kept: Map<string, number> | undefined;
  let keptAskedMs = -Infinity;
  let ids = 0;

  const readIds = async (readKept: ReadKept): Promise<Map<string, number>> => {
    keptAskedMs = clock.monotonic();
    if (kept) return kept;
    const found = new Map<string, number>();
    await readKept((record) => addIds(found, record));
    kept = found;
    return found;
  };

  /** Beside a database that answers too late, the log would be read again for every id. */
  const forgetKept = (): void => {
    const isIdle = clock.monotonic() - keptAskedMs >= keptIdleMs;
    if (isIdle || lookUps.areAnswered) kept = undefined;
  };

  const keep = (sessionId: string, known: KnownSession): void => {
    drop(sessionId);
    sessions.set(sessionId, known);
    ids += sizeOf(known);
    for (const oldest of sessions.keys()) {
      if (ids <= maxIds || oldest === sessionId) return;
      drop(oldest);
    }
  };
  const drop = (sessionId: string): void => {
    const known = sessions.get(sessionId);
    if (known) ids -= sizeOf(known);
    sessions.delete(sessionId);
  };

  const read = async (sessionId: string, added: readonly AddedEntry[]): Promise<void> => {
    const rows = await database.read(readLastIds(sessionId, maxPerSession + 1));
    forgetKept();
    const stored = rows.toReversed().map((row) => ({
      seq: Number(row["seq"]),
      clientId: row["client_id"] as string | null,
    }));
    const all = [...stored, ...added];
    const lastSeq = Math.max(0, ...all.map(({ seq }) => seq));
    const seqs = new Map<string, number>();
    for (const { seq, clientId } of all) if (clientId !== null) seqs.set(clientId, seq);
    keep(sessionId, { lastSeq, ids: seqs, isWhole: rows.length <= maxPerSession });
  };

  const prepare: StoredIds["prepare"] = (sessionId, unarchived) => {
    if (sessions.has(sessionId)) return Promise.resolve();
    const known = reading.get(sessionId);
    if (known) return known.ended;
    const added: AddedEntry[] = [...unarchived.entriesOf(sessionId)];
    const ended = read(sessionId, added)
      .catch(() => {})
      .finally(() => reading.delete(sessionId));
    reading.set(sessionId, { ended, added });
    return ended;
  };

  return {
    prepare,
    forgetKept,

    async find(record, unarchived, readKept) {
      const found: StoredClientId[] = [];
      const unknown: { sessionId: string; clientId: string; seq: number }[] = [];
      for (const [sessionId, entries] of Map.groupBy(record.entries, (each) => each.sessionId)) {
        const added = unarchived.entriesOf(sessionId);
        // A session that begins here has no older ids.
        const isNew =
          entries[0]!.seq === 1 || added[0]?.seq === 1 || unarchived.isDeleted(sessionId);
        if (!isNew && !sessions.has(sessionId)) {
          await lookUps.wait(prepare(sessionId, unarchived));
        }
        const known = sessions.get(sessionId);
        const lastSeq = added.at(-1)?.seq ?? known?.lastSeq ?? 0;
        for (const { clientId, seq } of entries) {
          if (seq <= lastSeq) throw seqTaken(sessionId, seq);
          if (clientId === null) continue;
          const stored = unarchived.storedId(sessionId, clientId)?.seq ?? known?.ids.get(clientId);
          if (stored !== undefined) found.push({ sessionId, clientId, seq: stored });
          else if (!isNew && !known?.isWhole) unknown.push({ sessionId, clientId, seq });
        }
      }
      if (found.length > 0 || unknown.length === 0) return found;
      const rows = await shortly(() => database.read(findIds(unknown)));
      if (rows) {
        forgetKept();
        return rows.map((row) => ({
          sessionId: row["session_id"] as string,
          clientId: row["client_id"] as string,
          seq: Number(row["seq"]),
        }));
      }
      // What was sent shortly before another pod took the log is archived, perhaps, and is sent again now.
      const seqs = await readIds(readKept);
      return unknown.flatMap(({ sessionId, clientId }) => {
        const seq = seqs.get(keyOfId(sessionId, clientId));
        return seq === undefined ? [] : [{ sessionId, clientId, seq }];
      });
    },

    add(record) {
      if (kept) addIds(kept, record);
      for (const { sessionId, seq, clientId } of record.entries) {
        reading.get(sessionId)?.added.push({ seq, clientId });
        const isFirst = seq === 1;
        const known =
          sessions.get(sessionId) ??
          (isFirst ? { lastSeq: 0, ids: new Map<string, number>(), isWhole: true } : undefined);
        if (!known) continue;
        const next = { ...known, lastSeq: seq };
        keep(sessionId, next);
        if (clientId === null) continue;
        if (!next.ids.has(clientId)) ids++;
        next.ids.set(clientId, seq);
      }
      for (const { sessionId, status } of record.headers) {
        if (status === "deleted") drop(sessionId);
      }
    },
  };
}

function sizeOf({ ids }: KnownSession): number {
  return ids.size + 1;
}

function addIds(seqs: Map<string, number>, record: LogRecord): void {
  for (const { sessionId, clientId, seq } of entryIdsOf(record)) {
    if (clientId !== null) seqs.set(keyOfId(sessionId, clientId), seq);
  }
}

function seqTaken(sessionId: string, seq: number): FlotillaError {
  return new FlotillaError("internal", `session ${sessionId} already has an entry ${seq}`);
}
