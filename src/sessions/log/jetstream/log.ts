import { backoffMs } from "../../../base/backoff.ts";
import { type Clock, sleep } from "../../../base/clock.ts";
import { FlotillaError, hasCode } from "../../../base/errors.ts";
import type { Ids } from "../../../base/ids.ts";
import type { Logger } from "../../../base/log.ts";
import type { Random } from "../../../base/random.ts";
import { retryDelayMs } from "../call-deadline.ts";
import type { StoredText } from "../../../store/codec/codec.ts";
import type { CommitResult, Head, Log, Recovered } from "../journal.ts";
import { encodeRecord } from "../record-codec.ts";
import { createBodies } from "./bodies.ts";
import type { StreamEngine } from "./engine.ts";
import {
  toBody,
  encodeMessage,
  firstChain,
  type LogMessage,
  type Mark,
  messageOn,
} from "./message.ts";
import { type LifeContent, makeNewLife, type NewLifeParts } from "./new-life.ts";
import { isFull, lostItsEnd, missing, takenSince, tooLarge, unavailable } from "./log-errors.ts";
import { decideAnswer, decidePlace, type PublishOutcome, type SentMessage } from "./outcome.ts";
import { createEndReads, headBefore, type LogEnd } from "./log-end.ts";
import { createHeadReads } from "./head-reads.ts";
import { createRecordReads, type RecordReads } from "./record-reads.ts";
import { createRecovery, type LogTail } from "./recovery.ts";
import type { ReplayedRecord } from "./replay.ts";
import { createStreams, type Streams, type StreamsParts } from "./create-streams.ts";
import { type Deployment, type LogLife, streamName, subjectPrefix } from "./streams.ts";

export type StreamLogParts = {
  engine: StreamEngine;
  deployment: Deployment;
  clock: Clock;
  random: Random;
  ids: Ids;
  log: Logger;
  maxRecordBytes: number;
  /** Encodes the bodies of records and marks. Default: they are stored as they are. */
  text?: StoredText | undefined;
} & Pick<StreamsParts, "seesMoving">;

/**
 * A log on JetStream: one stream for each log, one message for each record, stored only if the stream's
 * last sequence is the offset that the owner knows. That condition is the only thing that keeps two owners
 * apart. One message is in flight for each log, because of two, one of another pod's in place of the first
 * would let the second in.
 */
export type StreamLog = Omit<Log, "recover"> &
  RecordReads & {
    /** How many bytes all messages of a log may have together. */
    readonly maxLogBytes: number;
    /** Like `Log.recover`, and hands over every record that isn't archived, in order. */
    recover(head: Head, onRecord?: (record: ReplayedRecord) => void): Promise<Recovered>;
    /** Begins to read a log behind its last mark, of which this process need not be the owner. */
    openTail(head: Head, onRecord: (record: ReplayedRecord) => void): Promise<LogTail>;
    /** Like `recover`, with what was read of the log before it was taken. */
    recoverFrom(tail: LogTail, head: Head): Promise<Recovered>;
    /** The last mark of a log that is known to be stored, once it was recovered. */
    lastMark(logId: number): Mark | undefined;
    /** The last message that this process has stored or read, and its chain. */
    lastEnd(logId: number): LogEnd | undefined;
    /**
     * Stores a mark right after `at`: up to where the archive has the log, and who is busy. The chain there
     * is read where it isn't given. Sent again with the same id, it is stored once.
     */
    mark(
      at: Head,
      mark: Omit<Mark, "chain"> & { readonly chain?: string; readonly recordId?: string },
    ): Promise<CommitResult>;
    /** Forgets messages below an offset, but none that the last stored mark doesn't call archived. */
    trim(at: Head, below: number): Promise<void>;
    /**
     * The last offset that servers still have of a log of which they have lost messages that they had acked;
     * undefined if they haven't. Its owner stores no more there.
     */
    goneBackTo(at: Head): number | undefined;
    /** Goes on in another stream with what the owner of a log has of it. Then the log is taken again. */
    renew(at: Head, content: LifeContent): Promise<"made" | "fenced">;
    /** The present life of a head's log; undefined if the head is of another one. */
    lifeOf(head: Head): Promise<LogLife | undefined>;
    /**
     * Like `take`, for good: nothing is stored behind this message, of whatever pod, because the log goes on
     * in the database. Returns where it ends, also if that was done before; undefined if the head has moved.
     */
    close(
      seen: Head,
      owner: { podId: string; host: string | null; recordId: string },
    ): Promise<Head | undefined>;
    readonly streams: Streams;
  };

/** Shorter than a caller waits, so that a message whose answer is lost is sent again. */
const publishLimitMs = 700;
const releaseTries = 5;
const pendingSends = 4;
const pendingBackoff = { baseMs: 20, maxMs: 250 };
/** What records may fill of a log. The rest is for owners and marks, without which it could never empty. */
const recordShare = 0.8;
/** How often a log that is full is looked at again. */
const fillMs = 1_000;
/** Subject and headers of a message, about. */
const headerBytes = 512;

type Place = Pick<Head, "offset" | "recordId">;

export function createStreamLog(parts: StreamLogParts): StreamLog {
  const { engine, deployment, clock, random, ids, log, maxRecordBytes } = parts;
  const streams = createStreams(parts);
  /** The chain at the last message of a log that this process has stored or read. */
  const ends = new Map<number, LogEnd>();
  /** The last mark of a log that is known to be stored. */
  const marks = new Map<number, Mark>();
  /** The message of a log that was sent and may still be stored. */
  const doubts = new Map<number, Place>();
  const { bodyOf, opened } = createBodies(parts.text);
  /** How full the logs are, about, and when the servers were asked for it. */
  const fills = new Map<number, { bytes: number; readonly readMs: number }>();
  /** Logs whose streams have lost their end, and what those still had. */
  const shortened = new Map<string, number>();
  /** Logs of which it isn't known whether they have. */
  const doubted = new Set<string>();

  const { messageAt, readEnd } = createEndReads({ engine, deployment });
  const streamOf = (life: LogLife): string => streamName(deployment, life);
  const prefixOf = (life: LogLife): string => subjectPrefix(deployment, life);
  /** The log's present life, unless the head is of another one. */
  const lifeOf = async ({ logId, incarnation }: Head): Promise<LogLife | undefined> => {
    const life = (await streams.lives())[logId];
    return life?.incarnation === incarnation ? life : undefined;
  };

  const { heads, isUnanswered } = createHeadReads({ clock, streams, readEnd });

  /** The chain at a head; undefined if the log has another message there. */
  const chainAt = async (life: LogLife, at: Head): Promise<string | undefined> => {
    const end = ends.get(at.logId);
    if (end && isAt(end.head, at)) return end.chain;
    const state = await engine.state(streamOf(life));
    if (!state) throw missing(life);
    // What is trimmed was archived by a later owner.
    if (at.offset >= life.firstSequence && state.firstSequence > at.offset) return undefined;
    const message = await messageAt(life, at.offset);
    if (!message)
      return at.term === headBefore(life).term ? firstChain(life.incarnation) : undefined;
    const isSame = message.recordId === at.recordId && message.term === at.term;
    return isSame ? message.chain : undefined;
  };

  const isInDoubt = ({ logId, offset }: Head, recordId: string): boolean => {
    const doubt = doubts.get(logId);
    return doubt?.offset === offset && doubt.recordId === recordId;
  };

  const addFill = ({ logId }: LogLife, bytes: number): void => {
    const known = fills.get(logId);
    if (known) known.bytes += bytes + headerBytes;
  };

  const hasSpace = async (life: LogLife, bytes: number): Promise<boolean> => {
    const limit = deployment.maxLogBytes * recordShare - bytes - headerBytes;
    const known = fills.get(life.logId);
    if (known && known.bytes <= limit) return true;
    const readMs = clock.monotonic();
    if (known && readMs - known.readMs < fillMs) return false;
    const state = await engine.state(streamOf(life));
    if (!state) throw missing(life);
    fills.set(life.logId, { bytes: state.bytes, readMs });
    return state.bytes <= limit;
  };

  /** Sends a message to the place behind `offset` once, and reads that place if the answer says nothing. */
  const send = async (life: LogLife, message: LogMessage, at: Head): Promise<PublishOutcome> => {
    const { offset } = at;
    const [stream, prefix] = [streamOf(life), prefixOf(life)];
    const isOnlySend = !isInDoubt(at, message.recordId);
    const place: Place = { offset, recordId: message.recordId };
    doubts.set(life.logId, place);
    const sent: SentMessage = { stream, prefix, offset, message, isOnlySend };
    const condition = { stream, lastSequence: offset, limitMs: publishLimitMs };
    const answer = await engine.publish(encodeMessage(prefix, message), condition);
    let outcome = decideAnswer(answer, sent);
    if (outcome.type === "read_place") {
      const { lastSequence } = outcome;
      outcome = await readPlace(life, sent);
      const isShort = outcome.type === "unknown" && lastSequence < offset && marks.has(life.logId);
      if (isShort && (await hasLostItsEnd(life, at))) throw lostItsEnd(life, offset);
    }
    if (outcome.type !== "unknown" && doubts.get(life.logId) === place) doubts.delete(life.logId);
    return outcome;
  };

  /** Sends again shortly while the leader says that the place is about to be taken. */
  const sendWhilePending: typeof send = async (life, message, at) => {
    for (let sends = 1; ; sends++) {
      const outcome = await send(life, message, at);
      if (outcome.type !== "unknown" || !outcome.isPending) return outcome;
      if (sends === pendingSends || doubted.has(logKey(life))) return outcome;
      await sleep(clock, backoffMs(sends, random, pendingBackoff));
    }
  };

  const readPlace = async (life: LogLife, sent: SentMessage): Promise<PublishOutcome> => {
    try {
      const found = await engine.read(sent.stream, sent.offset + 1);
      const state = found ? undefined : await engine.state(sent.stream);
      return decidePlace({ found, state }, sent);
    } catch (error) {
      if (!hasCode(error, "store_unavailable")) throw error;
      const why = `log ${life.logId} can't be read: ${error.message}`;
      return { type: "unknown", why, isPending: false };
    }
  };

  /**
   * Stores that the owner leaves a stream, right behind what was read as its end. False if that is another
   * owner's.
   */
  const leaveAt = async (life: LogLife, at: Head, { head, chain }: LogEnd): Promise<boolean> => {
    const { term, owner, host } = at;
    if (head.term > term || (head.term === term && head.owner !== owner)) return false;
    const body = toBody({ owner, host, term, isLeft: true });
    const message = messageOn(at, "owner", ids.next(), chain, body);
    const answer = await engine.publish(encodeMessage(prefixOf(life), message), {
      stream: streamOf(life),
      lastSequence: head.offset,
      limitMs: publishLimitMs,
    });
    if (answer.type === "acked" && answer.sequence === head.offset + 1) return true;
    throw unavailable(`it isn't known where the stream of log ${life.logId} ends`);
  };

  /**
   * Whether a stream that names an end below the owner's has really lost messages that it acked. Only a
   * message that it stores behind that end proves it: a deposed leader names an old end, too. While it isn't
   * known whether that message is stored, it may have the place of the last one that was lost, and what is
   * sent next would be stored behind it.
   */
  const hasLostItsEnd = async (life: LogLife, at: Head): Promise<boolean> => {
    const key = logKey(life);
    try {
      const end = await readEnd(life);
      const { head, isLeft } = end;
      const isOwn = head.term === at.term && head.owner === at.owner;
      if (isLeft && isOwn) shortened.set(key, head.offset - 1);
      else if (head.offset < at.offset) {
        doubted.add(key);
        if (await leaveAt(life, at, end)) shortened.set(key, head.offset);
      }
      doubted.delete(key);
    } catch (error) {
      if (!hasCode(error, "store_unavailable")) throw error;
    }
    return shortened.has(key);
  };

  /** An owner that left the stream of a life puts no other in its place any more. False if it has. */
  const keepsLife = async ({ logId, incarnation }: LogLife): Promise<boolean> => {
    const read = await streams.meta();
    if (read.meta.logs[logId]?.incarnation !== incarnation) return false;
    return (await streams.change(read)) === true;
  };

  /** Stores a message right after `at`. Throws as `Log.commit` does. */
  const store = async (
    life: LogLife,
    at: Head,
    next: {
      readonly kind: LogMessage["kind"];
      readonly recordId: string;
      readonly body: Uint8Array;
      /** Its log had it before, so it has a place. */
      readonly isKept?: boolean;
    },
    changes: Partial<Pick<Head, "term" | "owner" | "host">> = {},
  ): Promise<CommitResult> => {
    const key = logKey(life);
    if (doubted.has(key)) await hasLostItsEnd(life, at);
    if (shortened.has(key)) throw lostItsEnd(life, at.offset);
    if (doubted.has(key)) throw unavailable(`it isn't known where log ${life.logId} ends`);
    const bytes = next.body.length;
    if (bytes > maxRecordBytes) throw tooLarge(life, bytes, maxRecordBytes);
    // What may be stored already is sent again, however full the log is.
    const isNew = next.kind === "record" && !next.isKept && !isInDoubt(at, next.recordId);
    if (isNew && !(await hasSpace(life, bytes))) throw isFull(life);
    const chain = await chainAt(life, at);
    if (chain === undefined) return { type: "fenced" };
    const head = { ...at, ...changes, offset: at.offset + 1, recordId: next.recordId };
    const message = messageOn(head, next.kind, next.recordId, chain, next.body);
    const outcome = await sendWhilePending(life, message, at);
    switch (outcome.type) {
      case "committed":
        addFill(life, bytes);
        ends.set(life.logId, { head, chain: message.chain });
        return { type: "committed", head };
      case "fenced":
        return { type: "fenced" };
      case "unknown": {
        const what = `it isn't known whether log ${life.logId} has ${head.offset}`;
        throw new FlotillaError("unknown_outcome", `${what}: ${outcome.why}`);
      }
      case "full":
        throw isFull(life);
      case "too_large":
        throw tooLarge(life, bytes, maxRecordBytes);
    }
  };

  const take = async (
    seen: Head,
    { podId, host, recordId }: { podId: string; host: string | null; recordId: string },
    more: { readonly isClosed?: true },
  ): Promise<Head | undefined> => {
    const life = await lifeOf(seen);
    if (!life) return undefined;
    const end = await readEnd(life);
    if (end.isClosed) {
      ends.set(life.logId, end);
      return more.isClosed ? end.head : undefined;
    }
    const isOwn = end.head.recordId === recordId && end.head.owner === podId;
    if (isOwn && end.head.offset === seen.offset + 1) {
      ends.set(life.logId, end);
      return end.head;
    }
    if (!isAt(end.head, seen)) return undefined;
    // Once the logs are closed, no owner puts another stream in the place of this one.
    if (end.isLeft && !more.isClosed && !(await keepsLife(life))) return undefined;
    ends.set(life.logId, end);
    marks.delete(life.logId);
    shortened.delete(logKey(life));
    doubted.delete(logKey(life));
    fills.set(life.logId, { bytes: end.bytes, readMs: clock.monotonic() });
    const term = seen.term + 1;
    const body = toBody({ owner: podId, host, term, ...more });
    const changes = { term, owner: podId, host };
    const taken = await store(life, seen, { kind: "owner", recordId, body }, changes);
    if (taken.type !== "committed") return undefined;
    if (end.isLeft) {
      const fields = { log: life.logId, behind: seen.offset };
      log.error(fields, "servers have lost messages of a session log, and its owner is gone");
    }
    return taken.head;
  };

  const openTailOf = createRecovery({ engine, deployment, log, opened });
  const openTail: StreamLog["openTail"] = async (head, onRecord) => {
    const life = await lifeOf(head);
    if (!life) throw takenSince(head);
    return openTailOf(life, onRecord);
  };
  const recoverFrom: StreamLog["recoverFrom"] = async (tail, head) => {
    const recovered = await tail.end(head);
    marks.set(head.logId, tail.mark);
    return recovered;
  };

  return {
    maxRecordBytes,
    maxLogBytes: deployment.maxLogBytes,

    heads,
    create: streams.create,
    streams,

    async take(seen, owner) {
      if (!isUnanswered(seen.logId)) return take(seen, owner, {});
      // Its head isn't known, so that it could only be taken in vain.
      throw unavailable(`the stream of log ${seen.logId} has no leader`);
    },
    close: (seen, owner) => take(seen, owner, { isClosed: true }),

    openTail,
    recoverFrom,
    recover: async (head, onRecord = () => {}) => recoverFrom(await openTail(head, onRecord), head),

    lastMark: (logId) => marks.get(logId),
    lastEnd: (logId) => ends.get(logId),
    ...createRecordReads({ engine, deployment, lifeOf, opened }),
    lifeOf,
    goneBackTo: (head) => shortened.get(logKey(head)),

    renew(at, content) {
      const storeNew: NewLifeParts["store"] = (life, behind, { term, owner, host }, message) => {
        const { kind, recordId } = message;
        const encode = (): Uint8Array => {
          if (kind === "record") return encodeRecord(message.record, { maxBytes: maxRecordBytes });
          return toBody(kind === "mark" ? message.mark : { owner, host, term });
        };
        const body = kind === "owner" ? encode() : bodyOf(life.logId, recordId, encode);
        const next = { kind, recordId, body, isKept: true };
        return store(life, behind, next, { term, owner, host });
      };
      const leave = async (life: LogLife, owner: Head): Promise<boolean> =>
        leaveAt(life, owner, await readEnd(life));
      fills.delete(at.logId);
      return makeNewLife(at, content, { ...parts, streams, leave, store: storeNew });
    },

    async commit(at, record) {
      const life = await lifeOf(at);
      if (!life || at.owner === null) return { type: "fenced" };
      const { recordId } = record;
      const encode = () => encodeRecord(record, { maxBytes: maxRecordBytes });
      const body = bodyOf(at.logId, recordId, encode);
      return store(life, at, { kind: "record", recordId, body });
    },

    async mark(at, { archived, busy, chain: known, recordId = ids.next() }) {
      const life = await lifeOf(at);
      if (!life || at.owner === null) return { type: "fenced" };
      const chain = known ?? (await messageAt(life, archived))?.chain;
      const mark = { archived, chain: chain ?? firstChain(life.incarnation), busy };
      const body = bodyOf(at.logId, recordId, () => toBody(mark));
      const next = { kind: "mark", recordId, body } as const;
      const marked = await store(life, at, next);
      if (marked.type === "committed") marks.set(life.logId, mark);
      return marked;
    },

    async prove(at, recordId) {
      const life = await lifeOf(at);
      const mark = marks.get(at.logId);
      if (!life || !mark || at.owner === null) return { type: "fenced" };
      const body = bodyOf(at.logId, recordId, () => toBody(mark));
      return store(life, at, { kind: "mark", recordId, body });
    },

    async trim(at, below) {
      const life = await lifeOf(at);
      const mark = marks.get(at.logId);
      if (!life || !mark) return;
      // The message that the mark names stays, for its chain.
      const limit = Math.min(below, mark.archived);
      if (limit > life.firstSequence) await engine.purge(streamOf(life), limit);
      fills.delete(life.logId);
    },

    async release(podId, owned) {
      const release = async (head: Head): Promise<void> => {
        const life = await lifeOf(head);
        if (!life || head.owner !== podId) return;
        const { logId, term } = head;
        const body = toBody({ owner: null, host: null, term });
        const next = { kind: "owner", recordId: ids.next(), body } as const;
        for (let tries = 1; ; tries++) {
          try {
            await store(life, head, next, { owner: null, host: null });
            marks.delete(logId);
            return;
          } catch (error) {
            const mayRetry = hasCode(error, "unknown_outcome", "store_unavailable");
            if (!mayRetry || tries === releaseTries) throw error;
            await sleep(clock, retryDelayMs(tries, random));
          }
        }
      };
      await Promise.all(owned.map(release));
    },
  };
}

function isAt(one: Head, other: Head): boolean {
  return (
    one.incarnation === other.incarnation &&
    one.term === other.term &&
    one.offset === other.offset &&
    one.recordId === other.recordId
  );
}

/** Logs of a store that was moved here from one file share an incarnation. */
function logKey({ logId, incarnation }: Pick<Head, "logId" | "incarnation">): string {
  return `${logId} ${incarnation}`;
}
