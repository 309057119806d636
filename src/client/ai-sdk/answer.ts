import type { Clock } from "../../base/clock.ts";
import type { Chunk } from "../../protocol/chunk.ts";
import {
  type Entry,
  isTurn,
  type SessionState,
  type TurnState,
  type UIMessage,
} from "../../protocol/message.ts";
import { viewOf } from "../../protocol/view.ts";
import { areTransient } from "../../protocol/waiting.ts";
import type { Session, SessionEvent } from "../session/session.ts";
import { createChunkReader, type ChunkReader } from "./chunk-reader.ts";

/** Buffers the events of a session until `drainTo` is called. */
export type EventBuffer = {
  drainTo(take: (event: SessionEvent) => void): void;
  leave(): void;
};

export type AnswerOptions = {
  target: AnswerTarget;
  /** The message that the reader has already, where the answer continues it. */
  initial?: UIMessage;
  signal?: AbortSignal | undefined;
  /** Whether `follow` shows what can't be streamed. */
  isSynced: () => boolean;
  /** Whether the reader takes `reset-step`, which takes back what it has of an unfinished step. */
  takesReset: () => boolean;
  clock: Clock;
  onEnd: (end: AnswerEnd) => void;
};

/** How the stream ended for its reader. The turn may still be running. */
export type AnswerEnd = {
  readonly type: "stored" | "over" | "restarted" | "detached" | "gone";
  readonly turn?: { readonly epoch: number; readonly attempt: number };
};

/** Which answer the stream waits for. */
type AnswerTarget = {
  isTurn(turn: TurnState): boolean;
  /** Of an answer whose turn ended before its state was seen. */
  isAnswer(entry: Entry): boolean;
  /** The entry that it answers: where the log reaches it and no turn runs, there is no answer. */
  readonly seq?: number;
};

type Output = {
  write(chunk: Chunk): void;
  isFull(): boolean;
  close(): void;
  fail(error: unknown): void;
};

/** How long after an entry a turn that answers it is known. */
const settleMs = 500;
/** How many chunks a reader may leave unread before it counts as dead. */
const maxWaitingChunks = 100_000;

/**
 * One answer as `useChat` reads it: from a `start` with a stable id, over any number of connections, to
 * its outcome. What was streamed while there was no connection comes in one piece.
 */
export function streamAnswer(events: EventBuffer, options: AnswerOptions): ReadableStream<Chunk> {
  let stop: (how: AnswerEnd["type"]) => void = () => {};
  return new ReadableStream<Chunk>({
    start(controller) {
      stop = pipeAnswer(events, options, {
        write: (chunk) => controller.enqueue(chunk),
        isFull: () => (controller.desiredSize ?? 0) < -maxWaitingChunks,
        close: () => controller.close(),
        fail: (error) => controller.error(error),
      });
    },
    cancel: () => stop("detached"),
  });
}

/** Listens before an answer is requested, so that none of it is missed. */
export function bufferEvents(session: Session): EventBuffer {
  const waiting: SessionEvent[] = [];
  // Ignore `gone` on subscribing: it is the last known status, and the request will tell the current one.
  let take = (event: SessionEvent): void => void (event.type !== "gone" && waiting.push(event));
  const leave = session.on((event) => take(event));
  take = (event) => void waiting.push(event);
  return {
    leave,
    drainTo(to) {
      take = to;
      for (const event of waiting.splice(0)) to(event);
    },
  };
}

/** The answer to an entry. */
export function answerTo(seq: number): AnswerTarget {
  return {
    seq,
    isTurn: ({ upToSeq }) => upToSeq >= seq,
    isAnswer: ({ role, upToSeq = 0 }) => role === "assistant" && upToSeq >= seq,
  };
}

/** The rest of a message, after the tool results of an entry. */
export function continuationOf(messageId: string, seq: number): AnswerTarget {
  return {
    seq,
    isTurn: (turn) => turn.messageId === messageId && turn.upToSeq >= seq,
    isAnswer: (entry) => isAnother(entry, messageId, seq),
  };
}

/** A regenerated message. A regeneration has no entry of its own: `after` is the last one before it. */
export function regenerationOf(messageId: string, after: number): AnswerTarget {
  return {
    isTurn: (turn) => turn.messageId === messageId,
    isAnswer: (entry) => isAnother(entry, messageId, after),
  };
}

/** The answer of a running turn. */
export function answerOfTurn(epoch: number): AnswerTarget {
  return { isTurn: (turn) => turn.epoch === epoch, isAnswer: (entry) => entry.epoch === epoch };
}

function pipeAnswer(events: EventBuffer, options: AnswerOptions, output: Output) {
  const { target, initial, signal, isSynced, takesReset, clock, onEnd } = options;
  let reader: ChunkReader | undefined;
  /** The answer as it is made anew, while the reader has more of an earlier attempt at it. */
  let anew: ChunkReader | undefined;
  let turn: { epoch: number; attempt: number } | undefined;
  let state: SessionState = { state: "idle" };
  /** The last entry of the history that is still arriving. */
  let historySeq = Infinity;
  let lastSeq = 0;
  let hasEnded = false;
  /** The turn's chunks were received from its start, though no part has come yet. */
  let hasStart = false;
  let isOver = false;
  let cancelCheck: (() => void) | undefined;

  const end = (type: AnswerEnd["type"], error?: unknown): void => {
    if (isOver) return;
    isOver = true;
    cancelCheck?.();
    events.leave();
    signal?.removeEventListener("abort", onAbort);
    if (error !== undefined) output.fail(error);
    else if (type !== "detached") output.close();
    onEnd({ type, ...(turn && { turn }) });
  };
  const onAbort = () => {
    output.close();
    end("detached");
  };
  /** The answer began again, and a reader can't go back: `follow` shows it from the start. */
  const restart = () =>
    isSynced()
      ? end("restarted")
      : end("restarted", new TypeError("network: the answer began anew; resume to see it"));

  const write = (chunk: Chunk): void => {
    hasEnded ||= chunk.type === "finish" || chunk.type === "abort" || chunk.type === "error";
    output.write(chunk);
  };
  const begin = (messageId: string): ChunkReader => {
    if (reader) return reader;
    write({ type: "start", messageId });
    return (reader = createChunkReader({ messageId, initial }));
  };

  const bringTo = (
    own: ChunkReader,
    wanted: UIMessage,
    wantedIds: ReadonlyMap<number, string> = new Map(),
  ): Chunk[] | undefined =>
    own.catchUpTo(wanted, wantedIds) ?? (takesReset() ? own.resetTo(wanted, wantedIds) : undefined);

  /**
   * Brings the reader to the answer as it is made anew. Half words of a lost call stay until others come
   * in their place.
   */
  const renew = (own: ChunkReader, next: ChunkReader, chunks: readonly Chunk[]): void => {
    for (const chunk of chunks) next.push(chunk);
    // Chunks that belong to no part are passed on as they are.
    const rest = chunks.filter(({ type, transient }) => transient === true || isEnd(type));
    const isOver = rest.some(({ type }) => isEnd(type));
    const isAhead = takesReset() && !isOver && own.isAheadOf(next.message());
    anew = isAhead ? next : undefined;
    const missing = isAhead ? [] : bringTo(own, next.message(), next.openIds());
    if (!missing) return restart();
    for (const chunk of [...missing, ...rest]) write(chunk);
  };

  const chunks = (event: Extract<SessionEvent, { type: "chunks" }>): void => {
    if (event.epoch !== turn?.epoch || !isTurn(state)) return;
    // No chunks of another attempt have been received yet.
    hasStart = event.fromStart || (hasStart && event.attempt === turn.attempt);
    turn = { epoch: event.epoch, attempt: event.attempt };
    if (!reader && hasStart && areTransient(event.chunks)) {
      for (const chunk of event.chunks) write(chunk);
      return;
    }
    // A reader that has nothing takes the chunks as they are.
    const isNew = !reader && !initial;
    const fromStart = event.fromStart || (!reader && hasStart);
    // Earlier chunks arrived before it was known that this turn is the target.
    if (!reader && !fromStart) return restart();
    const ownReader = begin(state.messageId);
    if (fromStart && !isNew) {
      renew(ownReader, createChunkReader({ messageId: state.messageId }), event.chunks);
    } else if (anew) {
      renew(ownReader, anew, event.chunks);
    } else {
      for (const chunk of event.chunks) {
        ownReader.push(chunk);
        if (chunk.type !== "start") write(chunk);
        else if (chunk["messageMetadata"] !== undefined) write(chunk);
      }
    }
    if (output.isFull()) end("gone", new Error("the reader of this answer has stopped reading"));
  };

  const stored = (entry: Entry): void => {
    const [message] = viewOf([entry]);
    // An entry without parts doesn't have the id of the message that it should continue.
    const missing = message && bringTo(begin(initial?.id ?? message.id), message);
    for (const chunk of missing ?? []) write(chunk);
    if (!hasEnded) write(endOf(entry));
    end("stored");
  };

  const checkTurn = (): void => {
    if (isTurn(state) && target.isTurn(state)) {
      const { epoch, attempt } = state;
      turn ??= { epoch, attempt };
      if (turn.epoch === epoch) return;
    }
    if (lastSeq < historySeq || (!turn && lastSeq < (target.seq ?? Infinity))) return;
    // The turn ended without an entry, or no agent answers.
    if (turn ? !isInTurn(state, turn.epoch) : state.state === "idle") end("over");
  };

  const take = (event: SessionEvent): void => {
    if (isOver) return;
    switch (event.type) {
      case "joined":
        state = event.state;
        historySeq = event.lastSeq;
        return checkTurn();
      case "state":
        state = event.state;
        return checkTurn();
      case "entry": {
        const { entry } = event;
        lastSeq = entry.seq;
        if (turn ? entry.epoch === turn.epoch : target.isAnswer(entry)) return stored(entry);
        // The state of a turn that answers it follows right behind the entry, though not always with it.
        cancelCheck?.();
        if (lastSeq >= historySeq) cancelCheck = clock.after(settleMs, checkTurn);
        return;
      }
      case "chunks":
        return chunks(event);
      case "reset":
        return restart();
      case "gone":
        return end("gone", event.error);
      case "away":
        // Events are missed until the session is joined again.
        hasStart = false;
        cancelCheck?.();
    }
  };

  if (signal?.aborted) {
    onAbort();
  } else {
    signal?.addEventListener("abort", onAbort, { once: true });
    events.drainTo(take);
  }
  return end;
}

function isInTurn(state: SessionState, epoch: number): boolean {
  return isTurn(state) && state.epoch === epoch;
}

function isEnd(type: string): boolean {
  return type === "finish" || type === "abort" || type === "error";
}

function endOf({ outcome, error }: Entry): Chunk {
  if (outcome === "stopped") return { type: "abort", reason: "the answer was stopped" };
  if (outcome === "cut" || outcome === "failed") {
    return { type: "error", errorText: error?.message ?? "the answer ended early" };
  }
  return { type: "finish" };
}

/**
 * A regenerated message has the same id. Only where it has no parts, so that nothing replaces the old
 * message, the entry has another id and only tells the outcome.
 */
function isAnother(entry: Entry, messageId: string, after: number): boolean {
  if (entry.kind !== "message" || entry.role !== "assistant" || entry.seq <= after) return false;
  if (entry.messageId === messageId) return true;
  return entry.upToSeq === undefined && entry.parts.length === 0 && entry.outcome !== "completed";
}
