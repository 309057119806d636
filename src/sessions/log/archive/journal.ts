import { backoffMs } from "../../../base/backoff.ts";
import { type Clock, sleep } from "../../../base/clock.ts";
import {
  FlotillaError,
  hasCode,
  messageOf,
  ownerAwayCodes,
  storeAwayCodes,
  transientCodes,
} from "../../../base/errors.ts";
import type { Ids } from "../../../base/ids.ts";
import type { Json } from "../../../base/json.ts";
import type { Logger } from "../../../base/log.ts";
import type { Random } from "../../../base/random.ts";
import { settledWithin } from "../../../base/timeout.ts";
import type { Bus } from "../../../bus/bus.ts";
import type { Database } from "../../../store/database.ts";
import { callUntilAnswered } from "../../../store/retry.ts";
import { callLimitMs, retryDelayMs } from "../call-deadline.ts";
import type { StreamLog } from "../jetstream/log.ts";
import type { Head, Journal } from "../journal.ts";
import { createHeads, type Heads } from "../heads.ts";
import { logOf as placedLogOf } from "../placement.ts";
import { readFirstWatermark } from "../sql/archive.ts";
import { readBusy, toHeader } from "../sql/reading.ts";
import { createSqlReads } from "../sql-journal.ts";
import { createFlusher } from "./flusher.ts";
import { createMergedReads } from "./merged-reads.ts";
import { createPeeks, type FactsPart, peekNames, type Peeks, type Unsure } from "./peek.ts";
import { createServedLog, type ServedLog } from "./served-log.ts";
import { createStoredIds } from "./stored-ids.ts";
import { createTails, type WarmLog } from "./tails.ts";
import { createUnarchived } from "./unarchived.ts";

/** How far the archive of a pod's logs is behind, for metrics and health. */
export type ArchiveState = {
  /** The database didn't take the last flush. */
  readonly isAway: boolean;
  readonly unarchivedEntries: number;
  readonly unarchivedBytes: number;
  /** How long the oldest record has waited for the archive. */
  readonly lagMs: number;
  /** How often logs were trimmed. */
  readonly trims: number;
  /** How much the database has refused for good. */
  readonly aside: number;
  /** Client ids that were left out, because they were stored before under another seq. */
  readonly leftOut: number;
};

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
  /** How much of a log isn't archived if its backlog is large. Default 16 MiB. */
  largeBacklogBytes?: number | undefined;
  /** What records of one log take in memory at most. Default 32 MiB. */
  maxHeldBytes?: number | undefined;
};

const topic = "session.peek";
/** Of a log with more than this that isn't archived, the next pod in its order reads along. */
const usualBacklogBytes = 16 * 1_024 * 1_024;
/** Between two transactions of one log. */
const flushMs = 100;
const tendMs = 1_000;
const awayBackoff = { baseMs: 100, maxMs: 5_000 };
/** What a new owner waits for the archive before it serves. */
const beginMs = 500;
const peekMs = 2_000;
/** An owner that wants a proof takes one that is as old as this. */
const recentMs = 250;
/** How long a log is replayed again that wasn't read whole, before it is given up. */
const replayRetryMs = 5_000;
/** A log that can't be served is taken again after this long: each take is a message of it. */
const unservedMs = 5_000;
/** How often no log is found before there is none. */
const emptyTries = 3;
/** How old the owners of logs may be before the first try. */
const headsMs = 1_000;

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
  const archive = createSqlReads({ database });
  const flusher = createFlusher({ database, ids, log, onEnqueued: parts.onEnqueued });
  const served = new Map<number, ServedLog>();
  const tails = createTails(parts);
  /** When the messages were sent that logs were taken with. */
  const takes = new Map<number, { readonly term: number; readonly sentMs: number }>();
  /** Logs that were taken and can't be served, and why. */
  const unserved = new Map<number, { readonly error: unknown; readonly untilMs: number }>();
  const nothing = createPeeks(createUnarchived(), async (offset) => {
    throw new FlotillaError("internal", `there is no record ${offset}`);
  });
  let failures = 0;
  let trims = 0;
  let isRunning = false;
  let flushing: Promise<void> | undefined;
  let cancelFlush: (() => void) | undefined;
  let tending: Promise<void> | undefined;
  let cancelTend = () => {};

  const logOf = async (sessionId: string): Promise<number> => {
    const { length } = await heads.all(Infinity);
    return length === 0 ? -1 : placeOf(sessionId, length);
  };

  /** Has the logs flushed soon, each once. */
  const wake = (delayMs = flushMs): void => {
    if (!isRunning || flushing || cancelFlush) return;
    cancelFlush = clock.after(delayMs, () => {
      cancelFlush = undefined;
      flushing = flushAll().finally(() => {
        flushing = undefined;
        const isBehind = (each: ServedLog) =>
          each.refusal === undefined && each.unarchived.records > 0;
        if ([...served.values()].some(isBehind)) {
          wake(failures === 0 ? flushMs : backoffMs(failures, random, awayBackoff));
        }
      });
    });
  };

  const flushAll = async (): Promise<void> => {
    for (const each of served.values()) {
      if (each.refusal !== undefined || each.isOver) continue;
      try {
        const { sessionIds, bytes } = await flusher.flush(each);
        each.addArchived(bytes);
        if (failures > 0) log.info({ log: each.logId }, "the archive is back");
        failures = 0;
        if (sessionIds.size > 0) parts.onArchived?.(sessionIds);
      } catch (error) {
        if (each.isOver) continue;
        failures++;
        const fields = { log: each.logId, error: messageOf(error) };
        if (failures === 1) log.warn(fields, "the archive doesn't take records, retrying");
        // Another log would wait for the same database.
        return;
      }
    }
  };

  /** Marks and trims logs, and proves that they are this pod's while that is of use. */
  const tendAll = async (): Promise<void> => {
    for (const each of served.values()) {
      try {
        // An operator may have restored what it lacks.
        if (each.refusal !== undefined) await flusher.begin(each);
        if (each.ahead) await followArchive(each);
        const isWanted = isFollowed(each.logId) || each.busy > 0;
        if (await each.tend({ isWanted })) trims++;
      } catch (error) {
        const fields = { log: each.logId, error: messageOf(error) };
        if (!each.isOver) log.warn(fields, "a session log isn't marked, retrying");
      }
      if (each.isOver) drop(each);
    }
    // What comes without records, such as marks, is moved over too.
    wake();
    void tails.follow(parts.standbyFor?.() ?? []);
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
    if (served.get(each.logId) === each) served.delete(each.logId);
  };

  /** A log that this process owns for certain; undefined if it doesn't, or not any more. */
  const provenLog = async (logId: number): Promise<ServedLog | undefined> => {
    const each = served.get(logId);
    if (!each) return undefined;
    if (each.refusal !== undefined) throw new FlotillaError("unavailable", each.refusal);
    const isProven = await settledWithin(clock, peekMs, each.prove(proofMs));
    if (isProven === undefined) throw noProof(logId);
    if (!isProven) {
      drop(each);
      return undefined;
    }
    if (!each.watermark) await beginShortly(each);
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

  /** Reads what isn't archived here, or at the pod that owns the log, and waits while there is none. */
  const peek = async (sessionId: string, name: keyof Peeks, args: readonly unknown[]) => {
    const endMs = clock.monotonic() + callLimitMs;
    for (let tries = 1; ; tries++) {
      let why = "its log has no owner";
      try {
        const logId = await logOf(sessionId);
        if (logId < 0) {
          if (tries >= emptyTries && (await isNew())) return await call(nothing, name, args);
          throw unread(sessionId, "no log is found");
        }
        const own = await provenLog(logId);
        if (own) return await callOwn(own, name, args);
        const all = await heads.all(tries === 1 ? headsMs : 0);
        const { owner = null, incarnation = "" } = all[logId] ?? {};
        if (bus && owner !== null && owner !== bus.address) {
          const body = { logId, incarnation, read: name, args } as unknown as Json;
          return await bus.request(owner, topic, body, { timeoutMs: peekMs });
        }
      } catch (error) {
        if (!hasCode(error, ...ownerAwayCodes)) throw error;
        why = error.message;
      }
      if (clock.monotonic() >= endMs) throw unread(sessionId, why);
      await sleep(clock, retryDelayMs(tries, random));
    }
  };

  const peeks = (sessionId: string): Peeks => {
    const remote = (name: keyof Peeks) => [
      name,
      (...args: readonly unknown[]) => peek(sessionId, name, args),
    ];
    return Object.fromEntries((Object.keys(peekNames) as (keyof Peeks)[]).map(remote)) as Peeks;
  };

  /** Another pod reads what this one has. */
  const answer = async (body: Json): Promise<Json> => {
    const { logId, incarnation, read, args } = body as Record<string, unknown>;
    const isKnown = typeof read === "string" && Object.hasOwn(peekNames, read);
    if (!isKnown || typeof logId !== "number" || !Array.isArray(args)) {
      throw new FlotillaError("invalid_input", `there is no read ${String(read)} of a log`);
    }
    const each = served.get(logId);
    const own = each?.incarnation === incarnation ? await provenLog(logId) : undefined;
    if (!own) throw new FlotillaError("not_owner", `this pod doesn't own log ${logId}`);
    return (await callOwn(own, read as keyof Peeks, args)) as Json;
  };

  const reads = createMergedReads({ peeks, logOf, archive });
  const unserve = bus?.serve(topic, answer);

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
      // What this process has of an earlier term isn't served any more, whatever becomes of this.
      served.delete(seen.logId);
      const taken = await stream.take(seen, owner);
      if (taken) takes.set(taken.logId, { term: taken.term, sentMs });
      return taken;
    },

    async recover(head) {
      const taken = takes.get(head.logId);
      const takenMs = taken?.term === head.term ? taken.sentMs : -Infinity;
      const { maxHeldBytes } = parts;
      // Others may have stored ids since this process had the log last, so it begins with none.
      const storedIds = createStoredIds({ database, clock, isAway: () => failures > 0 });
      const replayed = (tail?: WarmLog) => {
        const warm = tail && { warm: tail };
        const own = { head, takenMs, stream, storedIds, clock, ids, log, maxHeldBytes };
        return createServedLog({ ...own, ...warm });
      };
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
      served.set(head.logId, next);
      wake();
      return { busy: next.busyHeaders() };
    },

    async commit(at, record) {
      const each = served.get(at.logId);
      if (!each || each.incarnation !== at.incarnation) return stream.commit(at, record);
      const result = await each.commit(at, record);
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
      const release = async (head: Head): Promise<void> => {
        const each = served.get(head.logId);
        if (!each || each.term !== head.term) return stream.release(podId, [head]);
        drop(each);
        return each.release(podId, head);
      };
      await Promise.all(known.map(release));
    },

    async header(sessionId) {
      const each = served.get(await logOf(sessionId));
      // An owner needs its ids with the next command.
      if (each) void each.prepareIds(sessionId);
      return reads.header(sessionId);
    },

    start() {
      if (isRunning) return;
      isRunning = true;
      tendLater();
      wake();
    },

    async stop() {
      isRunning = false;
      unserve?.();
      cancelTend();
      cancelFlush?.();
      cancelFlush = undefined;
      await flushing;
      await tending;
    },

    async flush() {
      await flushing;
      await flushAll();
    },

    state() {
      const all = [...served.values()].map(({ unarchived }) => unarchived);
      const sum = (pick: (each: (typeof all)[number]) => number) =>
        all.reduce((total, each) => total + pick(each), 0);
      const nowMs = clock.monotonic();
      return {
        isAway: failures > 0,
        unarchivedEntries: sum(({ entries }) => entries),
        unarchivedBytes: sum(({ bytes }) => bytes),
        lagMs: Math.max(0, ...all.map(({ oldestMs = nowMs }) => nowMs - oldestMs)),
        trims,
        aside: flusher.aside,
        leftOut: flusher.leftOut,
      };
    },

    backlogged: () =>
      [...served.values()]
        .filter(({ unarchived }) => unarchived.bytes > largeBacklogBytes)
        .map(({ logId }) => logId),
    unarchivedFacts: (sessionId) => peeks(sessionId).facts(sessionId),
    provenMs: (logId) => served.get(logId)?.provenMs,
  };
}

/** The names are those of the type, so the arguments that came with one are what it takes. */
function call(peeks: Peeks, name: keyof Peeks, args: readonly unknown[]): Promise<Unsure> {
  return (peeks[name] as (...all: readonly unknown[]) => Promise<Unsure>)(...args);
}

/** What the archive has is only known once its owner has reached it. */
async function callOwn(
  own: ServedLog,
  name: keyof Peeks,
  args: readonly unknown[],
): Promise<Unsure> {
  const { watermark } = own;
  const part = await call(own.peeks, name, args);
  return watermark ? part : { ...part, isUnsure: true };
}

function noProof(logId: number): FlotillaError {
  const message = `it isn't known whether this pod still owns log ${logId}: its servers don't answer`;
  return new FlotillaError("store_unavailable", message);
}

function unread(sessionId: string, why: string): FlotillaError {
  const message = `session ${sessionId} can't be read now: ${why}`;
  return new FlotillaError("store_unavailable", message, { retryAfterMs: 1_000 });
}
