import { messageOf } from "../../../base/errors.ts";
import type { Header } from "../../conversation/header.ts";
import type { Head, LogRecord } from "../journal.ts";
import { decodeRecord } from "../record-codec.ts";
import type { StoredMessage } from "./engine.ts";
import { decodeMark, decodeMessage, type Mark, nextChain } from "./message.ts";

/** Where a replay begins: behind the last message that is archived. */
export type ReplayStart = {
  /** The prefix of the stream's subjects. */
  readonly prefix: string;
  readonly from: number;
  /** The chain at the message before `from`. */
  readonly chain: string;
  readonly mark: Mark | undefined;
  /** What a body holds. */
  readonly opened: (body: Uint8Array) => Uint8Array;
};

/** A record of the log, as a replay finds it. */
export type ReplayedRecord = {
  readonly offset: number;
  readonly chain: string;
  readonly record: LogRecord;
  /** How many bytes it has in the log. */
  readonly bytes: number;
};

/**
 * Reads a log from its last mark to its head. Every message must be there, follow the one before it by
 * number, chain and term, and be whole. What doesn't fit is a sentence: the log isn't served then.
 */
export type Replay = {
  /** Takes the next message. Returns its record, if it is one, or what is wrong with it. */
  add(stored: StoredMessage): { readonly record?: ReplayedRecord; readonly wrong?: string };
  /** The sequence of the message that it needs next. */
  readonly next: number;
  /** What is missing or wrong if the messages end here. */
  missing(head: Head): string | undefined;
  /** Headers of sessions that have work under way. */
  readonly busy: readonly Header[];
  /** The newest mark. */
  readonly mark: Mark | undefined;
  /** Messages that aren't Flotilla's. */
  readonly strays: number;
};

export function startReplay({
  prefix,
  from,
  chain: chainBefore,
  mark: markBefore,
  opened,
}: ReplayStart): Replay {
  const busy = new Map<string, Header>();
  /** Sessions with a record behind where this begins. */
  const replayed = new Set<string>();
  let mark = markBefore;
  let next = from;
  let chain = chainBefore;
  let term = 0;
  let lastRecordId = "";
  let strays = 0;

  const add: Replay["add"] = (stored) => {
    const { sequence } = stored;
    if (sequence !== next) return { wrong: `${next} is missing: ${sequence} follows` };
    next++;
    const decoded = decodeMessage(prefix, stored);
    if (decoded.type === "stray") {
      strays++;
      return {};
    }
    if (decoded.type === "damaged") return { wrong: `${sequence} ${decoded.why}` };
    const { message } = decoded;
    chain = nextChain(chain, message);
    if (message.chain !== chain) return { wrong: `the chain ends before ${sequence}` };
    if (message.term < term) return { wrong: `the term falls at ${sequence}` };
    term = message.term;
    lastRecordId = message.recordId;
    if (message.kind === "owner") return {};
    let record: LogRecord;
    try {
      const body = opened(message.body);
      if (message.kind === "mark") {
        mark = decodeMark(body);
        // Every mark behind which this begins is met, also one that the server asked for it didn't know.
        for (const header of mark?.busy ?? []) {
          if (!replayed.has(header.sessionId)) busy.set(header.sessionId, header);
        }
        return mark ? {} : { wrong: `${sequence} is no mark` };
      }
      record = decodeRecord(body);
    } catch (error) {
      return { wrong: `${sequence} can't be read: ${messageOf(error)}` };
    }
    for (const header of record.headers) {
      replayed.add(header.sessionId);
      const isBusy = header.work !== null && header.status !== "deleted";
      if (isBusy) busy.set(header.sessionId, header);
      else busy.delete(header.sessionId);
    }
    return { record: { offset: sequence, chain, record, bytes: message.body.length } };
  };

  return {
    add,
    get next() {
      return next;
    },
    missing(head) {
      if (next !== head.offset + 1) return `it ends at ${next - 1}, before ${head.offset}`;
      if (lastRecordId !== head.recordId) return `${head.offset} is another's`;
      return undefined;
    },
    get busy() {
      return [...busy.values()];
    },
    get mark() {
      return mark;
    },
    get strays() {
      return strays;
    },
  };
}
