import type { Logger } from "../../../base/log.ts";
import type { Head, Recovered } from "../journal.ts";
import type { StreamEngine } from "./engine.ts";
import { beginsLate, damaged, missing, notThere, takenSince, unavailable } from "./log-errors.ts";
import {
  decodeMark,
  decodeMessage,
  firstChain,
  type LogMessage,
  type Mark,
  messageSubject,
} from "./message.ts";
import { readInOrder } from "./ordered-reads.ts";
import { type Replay, type ReplayedRecord, startReplay } from "./replay.ts";
import { type Deployment, type LogLife, streamName, subjectPrefix } from "./streams.ts";

/**
 * A log as it is read from its last mark on. A pod that takes it reads it to its end at once; one that may
 * have to take it soon reads on from time to time, so that little is left then.
 */
export type LogTail = {
  readonly logId: number;
  readonly incarnation: string;
  /** The newest mark that was read. */
  readonly mark: Mark;
  /**
   * Reads on through an offset, and hands over each record. Rejects with `store_unavailable` if the server
   * that answers hasn't got all of it, and with `store_corrupt` if a message doesn't fit.
   */
  readTo(offset: number): Promise<void>;
  /** Reads on through the head that the log was taken with, which must be its end. */
  end(head: Head): Promise<Recovered>;
};

export type RecoveryParts = {
  engine: StreamEngine;
  deployment: Deployment;
  log: Logger;
  /** What a body holds. */
  opened: (body: Uint8Array) => Uint8Array;
};

/** A mark, and which message of its log it is. */
type MarkAt = { readonly mark: Mark; readonly at: number };

/** How many messages are looked at for a mark at a time: few at first, because one is near. */
const firstLookedAt = 64;
const maxLookedAt = 4_096;

/** Opens the tail of a log's life. */
export type OpenTail = (
  life: LogLife,
  onRecord: (record: ReplayedRecord) => void,
) => Promise<LogTail>;

export function createRecovery({ engine, deployment, log, opened }: RecoveryParts): OpenTail {
  const toMark = (life: LogLife, at: number, { body }: LogMessage): MarkAt => {
    const mark = decodeMark(opened(body));
    if (!mark) throw damaged(life, `message ${at} is no mark`);
    if (mark.archived >= at) throw damaged(life, `mark ${at} is below what it calls archived`);
    return { mark, at };
  };

  const readRange = (life: LogLife, from: number, to: number) =>
    readInOrder(engine, {
      stream: streamName(deployment, life),
      from,
      to,
      lost: (lost, found) => damaged(life, `${lost} is missing: ${found} follows`),
    });

  /** The last mark of a log, as far as the server that answers knows. */
  const readMark = async (life: LogLife): Promise<MarkAt | undefined> => {
    const prefix = subjectPrefix(deployment, life);
    const subject = messageSubject(prefix, "mark");
    const stored = await engine.lastOn(streamName(deployment, life), subject);
    if (!stored) return undefined;
    const decoded = decodeMessage(prefix, stored);
    if (decoded.type === "message") return toMark(life, stored.sequence, decoded.message);
    return markBeside(life, stored.sequence);
  };

  /**
   * The last mark of a log that has a message on its subject that is none. It is looked for from the end down,
   * since an owner marks its log every second or so, and from the end, since the server that knew this message as
   * the last one may be behind. What isn't a mark is told of by the replay.
   */
  const markBeside = async (life: LogLife, stray: number): Promise<MarkAt | undefined> => {
    const stream = streamName(deployment, life);
    const prefix = subjectPrefix(deployment, life);
    const subject = messageSubject(prefix, "mark");
    const state = await engine.state(stream);
    if (!state) throw missing(life);
    const { firstSequence, lastSequence } = state;
    let count = firstLookedAt;
    for (let to = lastSequence; to >= firstSequence; to -= count, count = maxLookedAt) {
      const from = Math.max(firstSequence, to - count + 1);
      let next = from;
      let found: { readonly at: number; readonly message: LogMessage } | undefined;
      for await (const stored of readRange(life, from, to)) {
        if (stored.sequence > next) throw beginsLate(life, next, stored.sequence);
        next++;
        if (stored.subject !== subject) continue;
        const decoded = decodeMessage(prefix, stored);
        if (decoded.type === "message") found = { at: stored.sequence, message: decoded.message };
      }
      if (next <= to) throw notThere(life, next);
      if (found) return toMark(life, found.at, found.message);
    }
    // A log is trimmed up to what a mark above that calls archived, which a server has that has trimmed it.
    if (firstSequence <= life.firstSequence) return undefined;
    const why = `it begins at ${firstSequence} and has no mark, and message ${stray} in place of one isn't Flotilla's`;
    throw damaged(life, `${why}: put back copies of the servers' folders`);
  };

  return async (life, onRecord) => {
    const found = await readMark(life);
    const from = found ? found.mark.archived + 1 : life.firstSequence;
    const chain = found?.mark.chain ?? firstChain(life.incarnation);
    const prefix = subjectPrefix(deployment, life);
    const replay: Replay = startReplay({ prefix, from, chain, mark: found?.mark, opened });

    const readTo = async (offset: number): Promise<void> => {
      for await (const stored of readRange(life, replay.next, offset)) {
        // The mark may be an old one, of a server that is behind, and the log be trimmed up to a newer one.
        if (stored.sequence > replay.next) throw beginsLate(life, replay.next, stored.sequence);
        const { record, wrong } = replay.add(stored);
        if (wrong !== undefined) throw damaged(life, wrong);
        if (record) onRecord(record);
      }
    };

    return {
      logId: life.logId,
      incarnation: life.incarnation,
      get mark() {
        return replay.mark ?? { archived: from - 1, chain, busy: [] };
      },
      readTo,
      async end(head) {
        // The mark leaves out sessions that were busy at this head, and have moved on since.
        if (found && found.at > head.offset) throw takenSince(life);
        await readTo(head.offset);
        // A replica that is behind ends early, and an owner serves only what it has read whole.
        const gap = replay.missing(head);
        if (gap !== undefined) throw unavailable(`log ${life.logId} isn't read whole: ${gap}`);
        const { strays, busy } = replay;
        if (strays > 0) {
          log.warn({ log: life.logId, strays }, "messages of others in a session log");
        }
        return { busy };
      },
    };
  };
}
