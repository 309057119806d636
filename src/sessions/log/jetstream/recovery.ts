import type { Logger } from "../../../base/log.ts";
import type { Head, Recovered } from "../journal.ts";
import type { StreamEngine } from "./engine.ts";
import { beginsLate, damaged, takenSince, unavailable } from "./log-errors.ts";
import { decodeMark, decodeMessage, firstChain, type Mark, messageSubject } from "./message.ts";
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

/** Opens the tail of a log's life. */
export type OpenTail = (
  life: LogLife,
  onRecord: (record: ReplayedRecord) => void,
) => Promise<LogTail>;

export function createRecovery({ engine, deployment, log, opened }: RecoveryParts): OpenTail {
  /** The last mark of a log, as far as the server that answers knows, and where it is. */
  const readMark = async (life: LogLife): Promise<{ mark: Mark; at: number } | undefined> => {
    const prefix = subjectPrefix(deployment, life);
    const subject = messageSubject(prefix, "mark");
    const stored = await engine.lastOn(streamName(deployment, life), subject);
    const decoded = stored && decodeMessage(prefix, stored);
    if (decoded?.type !== "message") return undefined;
    const mark = decodeMark(opened(decoded.message.body));
    if (!mark) throw damaged(life, `message ${stored!.sequence} is no mark`);
    return { mark, at: stored!.sequence };
  };

  return async (life, onRecord) => {
    const stream = streamName(deployment, life);
    const found = await readMark(life);
    const from = found ? found.mark.archived + 1 : life.firstSequence;
    const chain = found?.mark.chain ?? firstChain(life.incarnation);
    const prefix = subjectPrefix(deployment, life);
    const replay: Replay = startReplay({ prefix, from, chain, mark: found?.mark, opened });

    const readTo = async (offset: number): Promise<void> => {
      for await (const stored of engine.readFrom(stream, { from: replay.next, to: offset })) {
        // The mark may be an old one, of a server that is behind.
        if (replay.next === from && stored.sequence > from) {
          throw beginsLate(life, from, stored.sequence);
        }
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
