import { FlotillaError } from "../../../base/errors.ts";
import type { Head, LogRecord } from "../journal.ts";
import { decodeRecord } from "../record-codec.ts";
import type { StreamEngine } from "./engine.ts";
import { decodeMessage } from "./message.ts";
import { readInOrder } from "./ordered-reads.ts";
import { type ReplayedRecord, startReplay } from "./replay.ts";
import { type Deployment, type LogLife, streamName, subjectPrefix } from "./streams.ts";

/** Reads of records that a log has, by their offsets. They need no owner. */
export type RecordReads = {
  /** The record at an offset. Rejects with `store_unavailable` if the server that answers hasn't got it. */
  readRecord(at: Head, offset: number): Promise<LogRecord>;
  /** The chain at a message of the log. Rejects with `store_unavailable` if the server hasn't got it. */
  chainAt(at: Head, offset: number): Promise<string>;
  /**
   * Hands over the records behind `after` up to `through`, in order. `trimmed`: the log doesn't have all of
   * them any more. `different`: the message at `after` isn't the one with this chain.
   */
  readRange(
    at: Head,
    range: { readonly after: number; readonly chain: string; readonly through: number },
    onRecord: (record: ReplayedRecord) => void,
  ): Promise<"whole" | "trimmed" | "different">;
  /**
   * Hands over every record up to a head that the log still has, archived or not, with its offset. Rejects
   * with `store_unavailable` if the server that answers hasn't got all of them, or has lost them.
   */
  readKept(
    head: Head,
    onRecord: (record: LogRecord, offset: number) => void | Promise<void>,
  ): Promise<void>;
};

export type RecordReadsParts = {
  engine: StreamEngine;
  deployment: Deployment;
  /** The present life of a head's log; undefined if the head is of another one. */
  lifeOf: (head: Head) => Promise<LogLife | undefined>;
  /** What a body holds. */
  opened: (body: Uint8Array) => Uint8Array;
};

export function createRecordReads(parts: RecordReadsParts): RecordReads {
  const { engine, deployment, lifeOf, opened } = parts;
  const placeOf = async (head: Head) => {
    const life = await lifeOf(head);
    if (!life) throw unread(head, "another log has taken its place");
    return { stream: streamName(deployment, life), prefix: subjectPrefix(deployment, life) };
  };

  return {
    async readRecord(head, offset) {
      const { stream, prefix } = await placeOf(head);
      const stored = await engine.read(stream, offset);
      const decoded = stored && decodeMessage(prefix, stored);
      const isRecord = decoded?.type === "message" && decoded.message.kind === "record";
      if (!isRecord) throw unread(head, `the server that answered has no record ${offset}`);
      return decodeRecord(opened(decoded.message.body));
    },

    async chainAt(head, offset) {
      const { stream, prefix } = await placeOf(head);
      const stored = await engine.read(stream, offset);
      const decoded = stored && decodeMessage(prefix, stored);
      if (decoded?.type === "message") return decoded.message.chain;
      throw unread(head, `the server that answered has no message ${offset}`);
    },

    async readRange(head, { after, chain, through }, onRecord) {
      const { stream, prefix } = await placeOf(head);
      const replay = startReplay({ prefix, from: after + 1, chain, mark: undefined, opened });
      let next = after + 1;
      for await (const stored of readInOrder(engine, {
        stream,
        from: next,
        to: through,
        lost: lostOf(head),
      })) {
        if (stored.sequence > next) break;
        const { record, wrong } = replay.add(stored);
        if (wrong !== undefined && next === after + 1) return "different";
        if (wrong !== undefined) throw unread(head, wrong);
        if (record) onRecord(record);
        next++;
      }
      if (next === through + 1) return "whole";
      const state = await engine.state(stream);
      if (state && state.firstSequence > next && state.lastSequence >= through) return "trimmed";
      throw unread(head, `it ends at ${next - 1}, before ${through}`);
    },

    async readKept(head, onRecord) {
      const { stream, prefix } = await placeOf(head);
      const { offset: to } = head;
      const from = (await engine.state(stream))?.firstSequence ?? to + 1;
      let last = from - 1;
      let lastId = "";
      for await (const stored of readInOrder(engine, { stream, from, to, lost: lostOf(head) })) {
        last = stored.sequence;
        const decoded = decodeMessage(prefix, stored);
        if (decoded.type === "message") lastId = decoded.message.recordId;
        const isRecord = decoded.type === "message" && decoded.message.kind === "record";
        if (isRecord) await onRecord(decodeRecord(opened(decoded.message.body)), stored.sequence);
      }
      if (last < to) throw unread(head, `it ends at ${last}, before ${to}`);
      // Servers have lost messages, and have others in their places.
      if (lastId !== head.recordId) throw unread(head, `${to} is another's`);
    },
  };
}

const lostOf = (head: Head) => (missing: number) =>
  unread(head, `the servers have lost ${missing}`);

function unread({ logId }: Head, why: string): FlotillaError {
  return new FlotillaError("store_unavailable", `log ${logId} can't be read: ${why}`);
}
