import type { Head } from "../journal.ts";
import type { StreamEngine } from "./engine.ts";
import { damaged, missing, notThere } from "./log-errors.ts";
import { decodeMessage, firstChain, fromBody, type LogMessage, messageSubject } from "./message.ts";
import { type Deployment, type LogLife, streamName, subjectPrefix } from "./streams.ts";

/** The last message of a log, and the hash over all up to it. */
export type LogEnd = { readonly head: Head; readonly chain: string };

/**
 * The same as a server says it. `isLeft`: its owner goes on in another stream. `isClosed`: it goes on in the
 * database, and nothing comes behind it.
 */
export type ReadEnd = LogEnd & {
  readonly bytes: number;
  readonly isLeft: boolean;
  readonly isClosed: boolean;
};

/** Messages of others at the end of a log, before it counts as damaged. */
const maxStrays = 1_000;

/** Reads where the stream of a log ends. A server that is behind or was deposed names an earlier end. */
export function createEndReads({
  engine,
  deployment,
}: {
  engine: StreamEngine;
  deployment: Deployment;
}) {
  const streamOf = (life: LogLife): string => streamName(deployment, life);
  const prefixOf = (life: LogLife): string => subjectPrefix(deployment, life);

  /**
   * The last message at or before an offset that is Flotilla's; undefined before the first one. `first`: the
   * first that the stream still has, where that is known.
   */
  const messageAt = async (
    life: LogLife,
    offset: number,
    first = life.firstSequence,
  ): Promise<LogMessage | undefined> => {
    const lowest = Math.max(life.firstSequence, first, offset - maxStrays);
    for (let sequence = offset; sequence >= lowest; sequence--) {
      const stored = await engine.read(streamOf(life), sequence);
      if (!stored) throw notThere(life, sequence);
      const decoded = decodeMessage(prefixOf(life), stored);
      if (decoded.type === "message") return decoded.message;
      if (decoded.type === "damaged") throw damaged(life, `message ${sequence} ${decoded.why}`);
    }
    if (lowest > life.firstSequence) {
      const why = `message ${offset} isn't Flotilla's, nor is any before it down to ${lowest}`;
      throw damaged(life, why);
    }
    return undefined;
  };

  /** The process of a log's owner, from the message that it took the log with. */
  const hostOf = async (life: LogLife, { term, owner }: LogMessage): Promise<string | null> => {
    const stored = await engine.lastOn(streamOf(life), messageSubject(prefixOf(life), "owner"));
    const decoded = stored && decodeMessage(prefixOf(life), stored);
    if (decoded?.type !== "message") return null;
    const { message } = decoded;
    return message.term === term && message.owner === owner ? message.host : null;
  };

  /** What the stream says of its end, which may be old. */
  const readEnd = async (life: LogLife): Promise<ReadEnd> => {
    const state = await engine.state(streamOf(life));
    if (!state) throw missing(life);
    const { logId, incarnation } = life;
    const { bytes } = state;
    const offset = Math.max(state.lastSequence, life.firstSequence - 1);
    if (offset >= life.firstSequence && state.firstSequence > offset) {
      const advice = "put back copies of the servers' folders";
      throw damaged(life, `its messages were purged by hand: ${advice}`);
    }
    const message = await messageAt(life, offset, state.firstSequence);
    if (!message) {
      const head = { ...headBefore(life), offset };
      return { head, chain: firstChain(incarnation), bytes, isLeft: false, isClosed: false };
    }
    const { term, owner, recordId, chain } = message;
    const host = message.kind === "owner" ? message.host : await hostOf(life, message);
    const head = { logId, incarnation, term, owner, host, offset, recordId };
    const [isLeft, isClosed] = [says(message, "isLeft"), says(message, "isClosed")];
    return { head, chain, bytes, isLeft, isClosed };
  };

  return { messageAt, readEnd };
}

/** The head of a log that no pod has taken yet. */
export function headBefore({ logId, incarnation, firstSequence, term = 0 }: LogLife): Head {
  const offset = firstSequence - 1;
  return { logId, incarnation, term, owner: null, host: null, offset, recordId: "" };
}

/** Whether the message of an owner says that it is the last one. */
function says({ kind, body }: LogMessage, what: "isLeft" | "isClosed"): boolean {
  if (kind !== "owner") return false;
  const found = fromBody(body);
  return typeof found === "object" && found !== null && what in found;
}
