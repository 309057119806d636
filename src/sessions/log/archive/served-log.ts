import type { Clock } from "../../../base/clock.ts";
import { FlotillaError, hasCode, messageOf } from "../../../base/errors.ts";
import type { Ids } from "../../../base/ids.ts";
import type { Logger } from "../../../base/log.ts";
import { settledWithin } from "../../../base/timeout.ts";
import type { Header } from "../../conversation/header.ts";
import { changesOf } from "../changes.ts";
import type { StreamLog } from "../jetstream/log.ts";
import type { LifeContent } from "../jetstream/new-life.ts";
import type { CommitResult, Head, LogRecord, StoredClientId } from "../journal.ts";
import type { FlushedLog } from "./flusher.ts";
import { createMargin } from "./margin.ts";
import { createPeeks, type Peeks } from "./peek.ts";
import type { StoredIds } from "./stored-ids.ts";
import { addReplayed, createReplayed, type WarmLog } from "./tails.ts";
import { createUnarchived, type LoggedRecord, type Unarchived } from "./unarchived.ts";

/**
 * A log that this process owns, from the replay on: what isn't archived of it, its marks, and its end. Marks
 * are messages of the log too, so its end may be further than the head that its owner knows; a commit at
 * that head goes behind the marks. One message is sent at a time.
 */
export type ServedLog = FlushedLog & {
  readonly term: number;
  readonly peeks: Peeks;
  /**
   * The same over every record that the log still has, archived or not, for a pod that doesn't reach the archive:
   * this one or another. It is read from the log once, and follows it from then on.
   */
  keptPeeks(): Promise<Peeks>;
  /**
   * This process reaches the archive: what the log doesn't have any more isn't kept in memory, and nothing of
   * what is archived is, once no pod has asked for it for a while.
   */
  forgetKept(): void;
  /** Another pod has taken the log, or it was released. */
  readonly isOver: boolean;
  /** Servers have lost messages of the log that only this process has. */
  readonly isLost: boolean;
  /** How many sessions have work under way. */
  readonly busy: number;
  busyHeaders(): readonly Header[];
  /** When the last message was sent that is known to be stored. */
  readonly provenMs: number;
  /** Reads the last client ids of a session, so that its next record needs no read. Never rejects. */
  prepareIds(sessionId: string): Promise<void>;
  commit(at: Head, record: LogRecord): Promise<CommitResult>;
  /** True if no other pod had taken the log when this was called, or shortly before. */
  prove(maxAgeMs: number): Promise<boolean>;
  /** So many bytes of records have come into the archive. */
  addArchived(bytes: number): void;
  /**
   * Marks the log if the archive has moved, or if `isWanted` and nothing has proven it lately. Then trims
   * it. Returns whether it has trimmed.
   */
  tend(options: { isWanted: boolean }): Promise<boolean>;
  /**
   * Releases the log. Rejects if that isn't certain: then this owner keeps it, because no other pod
   * has what servers have lost of it.
   */
  release(podId: string, head: Head): Promise<void>;
  /** Goes on in a new stream if servers have lost messages of the log. Rejects as long as there is none. */
  rescue(): Promise<void>;
  /**
   * Goes on behind what the database has, in a new stream, because servers have lost what it has. The log is
   * then to be taken again. Only an owner that has stored nothing can: what it had acked would be lost.
   */
  followArchive(busy: readonly Header[]): Promise<void>;
};

export type ServedLogParts = {
  head: Head;
  /** When the message was sent that the log was taken with. */
  takenMs: number;
  stream: StreamLog;
  storedIds: StoredIds;
  clock: Clock;
  ids: Ids;
  log: Logger;
  /** Why nothing may be acknowledged on the log now. Default: it always may. */
  refusal?: (() => string | undefined) | undefined;
  /** What records take in memory at most. */
  maxHeldBytes?: number | undefined;
  /** What this process has read of the log before it took it. Default: nothing. */
  warm?: WarmLog | undefined;
};

/** What bodies of archived records take in memory while the archive is away. The rest is read from the log. */
const keptBytes = 8 * 1_024 * 1_024;
/**
 * A pod that is cut off from the archive reads again within this time, while its clients do. An owner that forgot
 * with each flush would read the whole log for each of those reads.
 */
const keptIdleMs = 30_000;
const markMs = 1_000;
/** How long a commit waits for a mark that is on its way. */
const turnMs = 700;
/** Lives of a log of which the database may still have one. */
const maxEarlierLives = 8;

type SentMark = {
  readonly recordId: string;
  readonly archived: number;
  readonly chain: string;
  readonly busy: readonly Header[];
};

/** Replays a log that was taken at `head`. Only what this returns is served. */
export async function createServedLog(parts: ServedLogParts): Promise<ServedLog> {
  const { head: taken, stream, storedIds, clock, ids, log: logger, maxHeldBytes, warm } = parts;
  const { logId, incarnation, term } = taken;
  const life = await stream.lifeOf(taken);
  const replayed = warm?.replayed ?? createReplayed(maxHeldBytes);
  const { busy } = replayed;
  let { unarchived } = replayed;
  /** The end of the log, and the last head that the owner was given. */
  let end = taken;
  let known = taken;
  let isOver = false;
  let provenMs = parts.takenMs;
  let markedMs = -Infinity;
  /** A mark that was sent and may still be stored. Nothing else is sent before that is known. */
  let sentMark: (SentMark & { readonly sentMs: number }) | undefined;
  /** A record that was sent and may still be stored. Its owner sends it again. */
  let sentRecord: { readonly recordId: string; readonly sentMs: number } | undefined;
  let turn: Promise<unknown> = Promise.resolve();
  let inLine = 0;
  const margin = createMargin({ clock, maxLogBytes: stream.maxLogBytes });

  /** What the log still has, and what is added to it while that is read. */
  let kept: { readonly index: Unarchived; readonly peeks: Peeks } | undefined;
  let keeping: { readonly reading: Promise<Peeks>; readonly added: LoggedRecord[] } | undefined;
  let keptAskedMs = -Infinity;
  /** The log has nothing below this any more; the archive has. */
  let trimmedBelow = 0;

  const add = (logged: LoggedRecord): void => {
    addReplayed({ unarchived, busy }, logged, clock.monotonic());
    kept?.index.add(logged, clock.monotonic());
    keeping?.added.push(logged);
  };

  const recovered = warm
    ? await stream.recoverFrom(warm.tail, taken)
    : await stream.recover(taken, add);
  const first = stream.lastMark(logId)!;
  const lastMark = () => stream.lastMark(logId) ?? first;
  for (const header of recovered.busy) {
    // Only marks name it: its record is before all that was read, which may begin before what the last mark
    // calls archived.
    if (!busy.has(header.sessionId)) busy.set(header.sessionId, { header, offset: 0 });
  }
  margin.add(first.archived);

  /** One at a time, in order. Rejects if what is before it takes too long, and then does nothing. */
  const inTurn = async <Result>(act: () => Promise<Result>): Promise<Result> => {
    const before = turn;
    const own = Promise.withResolvers<void>();
    turn = before.then(() => own.promise);
    try {
      if (inLine++ > 0) {
        const free = before.then(() => true);
        const isFree = await settledWithin(clock, turnMs, free);
        if (!isFree) throw unavailable(`log ${logId} waits for an earlier message`);
      }
      return await act();
    } finally {
      inLine--;
      own.resolve();
    }
  };

  const load = (offset: number): Promise<LogRecord> => stream.readRecord(end, offset);
  let peeks = createPeeks(unarchived, load);

  const readKept = async (added: LoggedRecord[]): Promise<Peeks> => {
    const index = createUnarchived({ maxHeldBytes: keptBytes });
    const include = (each: LoggedRecord) => index.add(each, clock.monotonic());
    await stream.readKept(end, (record, offset) => include({ offset, chain: "", record }));
    added.forEach(include);
    kept = { index, peeks: createPeeks(index, load) };
    return kept.peeks;
  };

  const lose = (): void => {
    isOver = true;
  };

  const hasGoneBack = (): boolean => stream.goneBackTo(end) !== undefined;

  const renew = async (content: Omit<LifeContent, "follows">, archived: number): Promise<void> => {
    const incarnations = [...(life?.follows?.incarnations ?? []), incarnation];
    const follows = { incarnations: incarnations.slice(-maxEarlierLives), archived };
    try {
      await stream.renew(end, { ...content, follows });
    } catch (error) {
      const why = `servers have lost messages of log ${logId}, and it has no new stream yet`;
      throw unavailable(`${why}: ${messageOf(error)}`);
    }
    // This pod takes it again, as another would.
    lose();
  };

  /** Goes on in a new stream with all that isn't archived, of which servers have lost a part. */
  const restore = async (): Promise<CommitResult> => {
    const kept = unarchived.first(unarchived.records);
    const left = stream.goneBackTo(end) ?? end.offset;
    // What was too much for memory is only in the old stream, or nowhere.
    const lost = kept.find(({ offset, record }) => !record && offset > left);
    const through = lost ? lost.offset - 1 : end.offset;
    if (lost) {
      const fields = { log: logId, from: lost.offset, through: end.offset };
      logger.error(
        fields,
        "messages of a session log are lost: its servers and its owner lack them",
      );
    }
    const from = Math.min(kept[0]?.offset ?? Infinity, through + 1);
    const byOffset = new Map(kept.map((each) => [each.offset, each]));
    const recordAt = async (offset: number): Promise<LogRecord | undefined> => {
      const found = byOffset.get(offset);
      return found && (found.record ?? load(offset));
    };
    const before = [...busy.values()].filter(({ offset }) => offset < from);
    const archived = Math.min(log.archivedTo, life?.follows?.archived ?? Infinity);
    const content = { from, through, recordAt, busy: before.map(({ header }) => header) };
    await renew(content, log.watermark?.offset ?? archived);
    return { type: "fenced" };
  };

  /** Sends a mark. It is settled, or in doubt until the next message wants to be sent. */
  const sendMark = async (mark: SentMark): Promise<void> => {
    if (hasGoneBack()) return void (await restore());
    // One that is found when it is sent again may have been stored by its first send, and the log taken since.
    const sentMs = sentMark?.sentMs ?? clock.monotonic();
    try {
      const marked = await stream.mark(end, mark);
      sentMark = undefined;
      if (marked.type !== "committed") return lose();
      end = marked.head;
      provenMs = sentMs;
      markedMs = sentMs;
    } catch (error) {
      if (hasGoneBack()) return void (await restore());
      if (hasCode(error, "unknown_outcome")) sentMark = { ...mark, sentMs };
      throw error;
    }
  };

  /** Whatever comes next goes behind a mark that was sent, if it is stored. */
  const settleMark = async (): Promise<void> => {
    if (!sentMark) return;
    try {
      await sendMark(sentMark);
    } catch (error) {
      throw unavailable(`a mark of log ${logId} isn't answered: ${messageOf(error)}`);
    }
  };

  const markNow = (): Promise<void> =>
    inTurn(async () => {
      if (sentMark) return settleMark();
      // What is in doubt has the next place, perhaps.
      if (isOver || sentRecord !== undefined) return;
      const archived = Math.max(log.watermark?.offset ?? 0, lastMark().archived);
      const { chain } = archived === lastMark().archived ? lastMark() : log.watermark!;
      const headers = [...busy.values()].filter(({ offset }) => offset <= archived);
      await sendMark({
        recordId: ids.next(),
        archived,
        chain,
        busy: headers.map(({ header }) => header),
      });
    });

  /** What an owner knows of ids, and what it meets in the archive. Undefined if the log is another's by now. */
  const findIds = async (record: LogRecord): Promise<readonly StoredClientId[] | undefined> => {
    try {
      return await storedIds.find(record, unarchived, (onRecord) => stream.readKept(end, onRecord));
    } catch (error) {
      if (!hasCode(error, "internal")) throw error;
      // A pod that was paused meets what the next owner has stored before it hears of that owner.
      const head = (await stream.heads())[logId];
      if (head?.incarnation === incarnation && head.term <= term) throw error;
      lose();
      return undefined;
    }
  };

  const commitHere = async (at: Head, record: LogRecord): Promise<CommitResult> => {
    if (isOver) return { type: "fenced" };
    if (!isAt(known, at)) {
      // Sent again, because the answer to its first send was lost on the way to its owner.
      const isSame =
        at.term === term && at.offset < known.offset && record.recordId === known.recordId;
      return isSame ? { type: "committed", head: known } : { type: "fenced" };
    }
    if (log.refusal !== undefined) throw new FlotillaError("unavailable", log.refusal);
    if (sentRecord?.recordId !== record.recordId) {
      const refusal = parts.refusal?.();
      if (refusal !== undefined) throw unavailable(refusal);
      // What can't be applied must not be in the log.
      changesOf(record);
      const found = await findIds(record);
      if (!found) return { type: "fenced" };
      if (found.length > 0) return { type: "duplicate", found };
    }
    await settleMark();
    if (isOver) return { type: "fenced" };
    if (hasGoneBack()) return restore();
    const isAgain = sentRecord?.recordId === record.recordId;
    const sentMs = isAgain ? sentRecord!.sentMs : clock.monotonic();
    let result: CommitResult;
    try {
      result = await stream.commit(end, record);
    } catch (error) {
      if (hasGoneBack()) return restore();
      if (hasCode(error, "unknown_outcome")) sentRecord = { recordId: record.recordId, sentMs };
      if (hasCode(error, "overloaded")) margin.fill();
      throw error;
    }
    sentRecord = undefined;
    if (result.type !== "committed") {
      lose();
      return result;
    }
    end = known = result.head;
    provenMs = sentMs;
    add({ offset: end.offset, chain: stream.lastEnd(logId)!.chain, record });
    storedIds.add(record);
    return result;
  };

  const log: ServedLog = {
    logId,
    incarnation,
    term,
    archivedTo: first.archived,
    watermark: undefined,
    refusal: undefined,
    ahead: undefined,
    follows: life?.follows && { ...life.follows, from: life.firstSequence },
    load,
    get lastOffset() {
      return end.offset;
    },
    async chainAt(offset) {
      const kept = unarchived.first(unarchived.records).find((each) => each.offset === offset);
      return kept?.chain ?? stream.chainAt(end, offset);
    },
    get unarchived(): Unarchived {
      return unarchived;
    },
    get peeks() {
      return peeks;
    },
    async keptPeeks() {
      keptAskedMs = clock.monotonic();
      if (kept) return kept.peeks;
      if (!keeping) {
        const added: LoggedRecord[] = [];
        const reading = readKept(added).finally(() => {
          keeping = undefined;
        });
        keeping = { reading, added };
      }
      return keeping.reading;
    },
    forgetKept() {
      if (clock.monotonic() - keptAskedMs >= keptIdleMs) kept = undefined;
      kept?.index.archived(trimmedBelow - 1);
      storedIds.forgetKept();
    },
    prepareIds: (sessionId) => storedIds.prepare(sessionId, unarchived),
    get isOver() {
      return isOver;
    },
    get isLost() {
      return !isOver && hasGoneBack() && unarchived.records > 0;
    },
    get busy() {
      return busy.size;
    },
    get provenMs() {
      return provenMs;
    },
    busyHeaders: () => recovered.busy,
    lastMark,

    idleEnd() {
      const last = stream.lastEnd(logId);
      const isKnown = last && isAt(last.head, end) && unarchived.records === 0;
      if (!isKnown || sentMark || sentRecord !== undefined) return undefined;
      return { logId, incarnation, ...pick(end), chain: last.chain };
    },

    refill: (from) =>
      inTurn(async () => {
        const lost: LoggedRecord[] = [];
        const { offset: after, chain } = from;
        const range = { after, chain, through: log.archivedTo };
        const found = await stream.readRange(end, range, (each) => lost.push(each));
        if (found !== "whole") return found;
        const refilled = createUnarchived({ maxHeldBytes });
        for (const each of lost) refilled.add(each, clock.monotonic());
        for (const kept of unarchived.first(unarchived.records)) {
          if (kept.offset <= log.archivedTo) continue;
          const record = kept.record ?? (await load(kept.offset));
          refilled.add({ offset: kept.offset, chain: kept.chain, record }, kept.addedMs);
        }
        unarchived = refilled;
        peeks = createPeeks(unarchived, load);
        return found;
      }),

    commit: (at, record) => inTurn(() => commitHere(at, record)),

    async prove(maxAgeMs) {
      const isProven = () => clock.monotonic() - provenMs < maxAgeMs;
      if (!isOver && !isProven()) await markNow();
      if (!isOver && !isProven()) throw unavailable(`log ${logId} has a record in doubt`);
      return !isOver;
    },

    addArchived: margin.addArchived,

    async tend({ isWanted }) {
      const nowMs = clock.monotonic();
      if (isOver) return false;
      const marked = lastMark().archived;
      const hasMoved = (log.watermark?.offset ?? 0) > marked;
      const isUnproven = isWanted && nowMs - provenMs >= markMs;
      if ((hasMoved || isUnproven) && nowMs - markedMs >= markMs) await markNow();
      if (isOver) return false;
      const { archived } = lastMark();
      if (archived > marked) margin.add(archived);
      const below = margin.trimBelow(archived);
      if (below === undefined) return false;
      // An archive that was set back needs what it has lost.
      const limit = Math.min(below, log.watermark?.offset ?? 0);
      await stream.trim(end, limit);
      trimmedBelow = Math.max(trimmedBelow, limit);
      return true;
    },

    followArchive: (busyThere) =>
      inTurn(async () => {
        const { ahead } = log;
        if (!ahead || known.offset > taken.offset)
          throw new FlotillaError("unavailable", log.refusal ?? "");
        const { offset } = ahead;
        const none = async () => undefined;
        await renew({ from: offset + 1, through: offset, recordAt: none, busy: busyThere }, offset);
      }),

    async release(podId, head) {
      await inTurn(async () => {
        await settleMark().catch(() => {});
        if (isOver) return;
        // Another pod may have the log before this one hears that it is free.
        provenMs = -Infinity;
        try {
          await stream.release(podId, [isAt(known, head) ? end : head]);
          lose();
        } catch (error) {
          if (!hasGoneBack()) throw error;
          await restore();
        }
      });
    },

    rescue: () =>
      inTurn(async () => {
        if (!isOver && hasGoneBack()) await restore();
      }),
  };
  return log;
}

function pick({ offset, recordId }: Head): Pick<Head, "offset" | "recordId"> {
  return { offset, recordId };
}

function isAt(one: Head, other: Head): boolean {
  return (
    one.incarnation === other.incarnation &&
    one.term === other.term &&
    one.offset === other.offset &&
    one.recordId === other.recordId
  );
}

function unavailable(message: string): FlotillaError {
  return new FlotillaError("store_unavailable", message);
}
