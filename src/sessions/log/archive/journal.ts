import type { Clock } from "../../../base/clock.ts";
import {
  FlotillaError,
  hasCode,
  messageOf,
  storeAwayCodes,
  transientCodes,
} from "../../../base/errors.ts";
import type { Ids } from "../../../base/ids.ts";
import type { Logger } from "../../../base/log.ts";
import type { Random } from "../../../base/random.ts";
import { settledWithin } from "../../../base/timeout.ts";
import type { Bus } from "../../../bus/bus.ts";
import type { Database } from "../../../store/database.ts";
import { callUntilAnswered } from "../../../store/retry.ts";
import { retryDelayMs } from "../call-deadline.ts";
import type { StreamLog } from "../jetstream/log.ts";
import type { Head, Journal } from "../journal.ts";
import { createHeads, type Heads } from "../heads.ts";
import { logOf as placedLogOf } from "../placement.ts";
import { readFirstWatermark } from "../sql/archive.ts";
import { readBusy, toHeader } from "../sql/reading.ts";
import { createSqlReads } from "../sql-journal.ts";
import { createArchiveReads } from "./away.ts";
import { createFlusher } from "./flusher.ts";
import { createFlushes } from "./flushes.ts";
import { createLogFaults } from "./log-faults.ts";
import { createMergedReads, eitherOf } from "./merged-reads.ts";
import { createOwnerPeeks } from "./owner-peeks.ts";
import type { FactsPart } from "./peek.ts";
import { createServedLog, type ServedLog } from "./served-log.ts";
import { type ArchiveState, backlogsOf } from "./state.ts";
import { createLookUps, createStoredIds } from "./stored-ids.ts";
import { createStreamChecks } from "./stream-checks.ts";
import { createTails, type WarmLog } from "./tails.ts";

/** A journal whose log is ahead of its database. */
export type ArchivedJournal = Journal & {
  /** Begins to archive, mark and trim the logs that this process owns. */
  start(): void;
  stop(): Promise<void>;
  /** Moves one transaction of each log into the archive now. */
  flush(): Promise<void>;
  state(): ArchiveState;
  /** The logs of this process of which much isn't archived. */
  backlogged(): readonly number[];
  /** What isn't archived of a session beside what can be read with it. */
  unarchivedFacts(sessionId: string): Promise<FactsPart>;
  /** When the last message of a log was sent that is known to be stored; undefined if it isn't served here. */
  provenMs(logId: number): number | undefined;
};

export type ArchivedJournalParts = {
  stream: StreamLog;
  database: Database;
  /** Without it, sessions of logs that other processes own can't be read. */
  bus?: Bus | undefined;
  clock: Clock;
  random: Random;
  ids: Ids;
  log: Logger;
  /** Who owns which log, where that is known already. Default: the log is asked. */
  heads?: Pick<Heads, "all"> | undefined;
  /** The log of a session out of so many. Default: where sessions are placed. */
  logOf?: ((sessionId: string, logs: number) => number) | undefined;
  /** Whether clients follow sessions of a log, so that its owner proves every second that it is one. */
  isFollowed?: ((logId: number) => boolean) | undefined;
  /** Called when the archive has more of these sessions. */
  onArchived?: ((sessionIds: ReadonlySet<string>) => void) | undefined;
  /** Called when tasks of records are in the database, so that a pod in this process claims at once. */
  onEnqueued?: (() => void) | undefined;
  /** Logs of other pods with a large backlog that this one is the next to take. Default: none. */
  standbyFor?: (() => readonly Head[]) | undefined;
  /** How old the last proof may be that no other pod has taken a log. Default 2,000. */
  proofMs?: number | undefined;
  /** Whether the database was away when this process started. Default: it was there. */
  isAway?: boolean | undefined;
  /** How much of a log isn't archived if its backlog is large. Default 16 MiB. */
  largeBacklogBytes?: number | undefined;
  /** What records of one log take in memory at most. Default 32 MiB. */
  maxHeldBytes?: number | undefined;
};

/** Of a log with more than this that isn't archived, the next pod in its order reads along. */
const usualBacklogBytes = 16 * 1_024 * 1_024;
const tendMs = 1_000;
/** What a new owner waits for the archive before it serves. */
const beginMs = 500;
/** How long a read waits for a proof. */
const proveMs = 2_000;
/** An owner that wants a proof takes one that is as old as this. */
const recentMs = 250;
/** What a new owner waits for the settings of a log's stream before it serves. */
const lookMs = 500;
/** How long a log is replayed again that wasn't read whole, before it is given up. */
const replayRetryMs = 5_000;
/** A log that can't be served is taken again after this long: each take is a message of it. */
const unservedMs = 5_000;

/**
 * A journal on a log whose records reach the database later. A record is acknowledged once the log has it.
 * The owner of a log keeps what isn't archived, moves it into the database, marks the log up to there, and
 * trims it. Reads see both.
 */
export function createArchivedJournal(parts: ArchivedJournalParts): ArchivedJournal {
  const { stream, database, bus, clock, random, ids, log } = parts;
  const { logOf: placeOf = placedLogOf, isFollowed = () => false, proofMs = 2_000 } = parts;
  const { largeBacklogBytes = usualBacklogBytes } = parts;
  const heads = parts.heads ?? createHeads({ journal: stream, clock });
  const unstored = async (sessionId: string) => (await peeks(sessionId).header(sessionId)).header;
  const archive = createArchiveReads(createSqlReads({ database, unstored }), parts);
  const flusher = createFlusher({ database, ids, log, onEnqueued: parts.onEnqueued });
  const served = new Map<number, ServedLog>();
  /** Logs among them that were to be released and aren't yet. They are released again. */
  const kept = new Map<number, { readonly podId: string; readonly head: Head }>();
  const tails = createTails(parts);
  const checks = createStreamChecks(parts);
  const notMarked = "a session log isn't marked, retrying";
  const tendFaults = createLogFaults<ServedLog>({ ...parts, message: notMarked });
  /** When the messages were sent that logs were taken with. */
  const takes = new Map<number, { readonly term: number; readonly sentMs: number }>();
  /** Logs that were taken and can't be served, and why. */
  const unserved = new Map<number, { readonly error: unknown; readonly untilMs: number }>();
  const flushes = createFlushes({ ...parts, flusher, served });
  const { wake } = flushes;
  const lookUps = createLookUps({ clock, isAway: () => flushes.isAway });
  let trims = 0;
  let isRunning = false;
  let tending: Promise<void> | undefined;
  let cancelTend = () => {};

  const logOf = async (sessionId: string): Promise<number> => {
    const { length } = await heads.all(Infinity);
    return length === 0 ? -1 : placeOf(sessionId, length);
  };

  /** Marks and trims logs, and proves that they are this pod's while that is of use. */
  const tendAll = async (): Promise<void> => {
    for (const each of served.values()) {
      try {
        // An operator may have restored what it lacks.
        if (each.refusal !== undefined) await flusher.begin(each);
        if (each.ahead) await followArchive(each);
        const leaving = kept.get(each.logId);
        const isWanted = isFollowed(each.logId) || each.busy > 0;
        if (leaving) await release(leaving.podId, leaving.head);
        else if (await each.tend({ isWanted })) trims++;
        tendFaults.worked(each);
      } catch (error) {
        if (!each.isOver) tendFaults.failed(each, error);
      }
      if (each.isOver) drop(each);
    }
    // What comes without records, such as marks, is moved over too.
    wake();
    void tails.follow(parts.standbyFor?.() ?? []);
    void checks.look([...served.values()]);
  };

  const tendLater = (): void => {
    cancelTend = clock.after(tendMs, () => {
      tending = tendAll().finally(() => {
        tending = undefined;
        if (isRunning) tendLater();
      });
    });
  };

  const drop = (each: ServedLog): void => {
    if (served.get(each.logId) !== each) return;
    served.delete(each.logId);
    kept.delete(each.logId);
  };

  const release = async (podId: string, head: Head): Promise<void> => {
    const each = served.get(head.logId);
    if (!each || each.term !== head.term) return stream.release(podId, [head]);
    try {
      await each.release(podId, head);
    } catch (error) {
      if (!each.isOver) {
        if (!kept.has(head.logId)) {
          const fields = { log: head.logId, error: messageOf(error) };
          log.warn(fields, "a session log isn't released, and this process keeps it: retrying");
        }
        kept.set(head.logId, { podId, head });
        throw error;
      }
    }
    drop(each);
  };

  /** A log that this process owns for certain; undefined if it doesn't, or not any more. */
  const provenLog = async (logId: number): Promise<ServedLog | undefined> => {
    const each = served.get(logId);
    if (!each) return undefined;
    if (each.refusal !== undefined) throw new FlotillaError("unavailable", each.refusal);
    const isProven = await settledWithin(clock, proveMs, each.prove(proofMs));
    if (isProven === undefined) throw noProof(logId);
    if (!isProven) {
      drop(each);
      return undefined;
    }
    // The flusher goes on trying while the database is away.
    if (!each.watermark && !flushes.isAway) await beginShortly(each);
    return each;
  };

  /** Learns where the archive of a log stands, if the database answers. */
  const beginShortly = async (each: ServedLog): Promise<void> => {
    await settledWithin(clock, beginMs, flusher.begin(each)).catch((error: unknown) => {
      if (!hasCode(error, ...transientCodes)) throw error;
    });
    if (each.refusal !== undefined) throw new FlotillaError("unavailable", each.refusal);
  };

  /**
   * Servers have lost what the database has of a log, and no owner has more: it goes on behind that, and is
   * taken again. An owner that has stored records since keeps its refusal.
   */
  const followArchive = async (each: ServedLog): Promise<void> => {
    const { logId } = each;
    const busy = (await database.read(readBusy(logId))).map(toHeader);
    await each.followArchive(busy);
    drop(each);
    const through = each.ahead?.offset;
    log.error(
      { log: logId, through },
      "servers have lost messages of a session log: it goes on with what the database has",
    );
  };

  const serve = async (logId: number, replay: () => Promise<ServedLog>): Promise<ServedLog> => {
    // A server that is behind has the rest in a moment.
    const next = await callUntilAnswered(replay, {
      clock,
      random,
      codes: storeAwayCodes,
      limitMs: replayRetryMs,
      waitMs: (tries) => retryDelayMs(tries, random),
    });
    // What was lost of the archive is seen before anything is served, if the database answers.
    try {
      await beginShortly(next);
    } catch (error) {
      if (!next.ahead) throw error;
      await followArchive(next);
      throw new FlotillaError("store_unavailable", `log ${logId} has a new stream`);
    }
    return next;
  };

  /** Whether no log was ever archived. A server that is behind may not know of logs that there are. */
  const isNew = async (): Promise<boolean> =>
    (await database.read(readFirstWatermark())).length === 0;

  const ownerPeeks = createOwnerPeeks({
    bus,
    clock,
    random,
    heads,
    logOf,
    provenLog,
    isNew,
    servedLog: (logId) => served.get(logId),
  });
  const peeks = ownerPeeks.of;

  /** While the database is away, everything that the log still has stands in for it, as far as that goes. */
  const whileAway = createMergedReads({ peeks: (id) => peeks(id, true), logOf, archive });
  const reads = eitherOf(
    createMergedReads({ peeks, logOf, archive }),
    whileAway,
    () => flushes.isAway,
  );

  return {
    ...reads,
    maxRecordBytes: stream.maxRecordBytes,
    heads: () => stream.heads(),
    create: (logs) => stream.create(logs),

    async take(seen, owner) {
      const sentMs = clock.monotonic();
      const known = unserved.get(seen.logId);
      if (known && sentMs < known.untilMs) throw known.error;
      unserved.delete(seen.logId);
      const before = served.get(seen.logId);
      // What servers have lost, only this process has.
      await before?.rescue();
      // What it has of an earlier term isn't served any more, whatever becomes of this.
      if (before) drop(before);
      const taken = await stream.take(seen, owner);
      if (taken) takes.set(taken.logId, { term: taken.term, sentMs });
      return taken;
    },

    async recover(head) {
      const taken = takes.get(head.logId);
      const takenMs = taken?.term === head.term ? taken.sentMs : -Infinity;
      const { maxHeldBytes } = parts;
      // Others may have stored ids since this process had the log last, so it begins with none.
      const storedIds = createStoredIds({ database, clock, lookUps });
      const replayed = (tail?: WarmLog) => {
        const warm = tail && { warm: tail };
        const refusal = () => checks.refusalOf(head);
        const own = { head, takenMs, stream, storedIds, clock, ids, log, refusal, maxHeldBytes };
        return createServedLog({ ...own, ...warm });
      };
      const looking = settledWithin(clock, lookMs, checks.lookAt(head));
      let known = await tails.take(head);
      const replay = (): Promise<ServedLog> => {
        const warm = known;
        known = undefined;
        // Whatever doesn't fit of it, the log itself may.
        return warm ? replayed(warm).catch(() => replayed()) : replayed();
      };
      const next = await serve(head.logId, replay).catch((error: unknown) => {
        const isLasting = hasCode(error, "store_corrupt", "unavailable");
        const untilMs = clock.monotonic() + unservedMs;
        if (isLasting) unserved.set(head.logId, { error, untilMs });
        throw error;
      });
      await looking;
      served.set(head.logId, next);
      wake();
      return { busy: next.busyHeaders() };
    },

    async commit(at, record) {
      const each = served.get(at.logId);
      if (!each || each.incarnation !== at.incarnation) return stream.commit(at, record);
      const result = await each.commit(at, record).catch((error: unknown) => {
        checks.doubt(at);
        throw error;
      });
      if (each.isOver) drop(each);
      else wake();
      return result;
    },

    async prove(at) {
      const each = served.get(at.logId);
      if (each?.incarnation !== at.incarnation || each.term !== at.term) return { type: "fenced" };
      const isProven = await each.prove(recentMs);
      if (!isProven) drop(each);
      // A mark is a message of the log that its owner need not know of.
      return isProven ? { type: "committed", head: at } : { type: "fenced" };
    },

    async release(podId, known) {
      const released = await Promise.allSettled(known.map((head) => release(podId, head)));
      const failed = released.find(({ status }) => status === "rejected");
      if (failed?.status === "rejected") throw failed.reason;
    },

    kept: () => [...kept.values()].map(({ head }) => head),

    async header(sessionId, { isFresh = false } = {}) {
      const each = served.get(await logOf(sessionId));
      // An owner needs its ids with the next command.
      if (each) void each.prepareIds(sessionId);
      try {
        return await reads.header(sessionId);
      } catch (error) {
        if (!isFresh || !hasCode(error, ...storeAwayCodes)) throw error;
        return (await peeks(sessionId, true).header(sessionId)).header;
      }
    },

    start() {
      if (isRunning) return;
      isRunning = true;
      tendLater();
      flushes.start();
    },

    async stop() {
      isRunning = false;
      ownerPeeks.close();
      cancelTend();
      await flushes.stop();
      await tending;
    },

    flush: () => flushes.now(),

    state: () => ({
      isAway: flushes.isAway,
      ...backlogsOf([...served.values()], clock.monotonic()),
      lost: [...served.values()].filter(({ isLost }) => isLost).length,
      changedStreams: checks.changedOf([...served.values()]),
      trims,
      aside: flusher.aside,
      leftOut: flusher.leftOut,
    }),

    backlogged: () =>
      [...served.values()]
        .filter(({ unarchived }) => unarchived.bytes > largeBacklogBytes)
        .map(({ logId }) => logId),
    unarchivedFacts: (sessionId) => peeks(sessionId).facts(sessionId),
    provenMs: (logId) => served.get(logId)?.provenMs,
  };
}

function noProof(logId: number): FlotillaError {
  const message = `it isn't known whether this pod still owns log ${logId}: its servers don't answer`;
  return new FlotillaError("store_unavailable", message);
}
