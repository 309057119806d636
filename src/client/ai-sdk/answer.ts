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

/** What happens in a session from now on, kept until somebody takes it. */
export type EventBuffer = {
  drainTo(take: (event: SessionEvent) => void): void;
  leave(): void;
};

/** Listens before something is asked for, so that not a word of the answer is missed. */
export function bufferEvents(session: Session): EventBuffer {
  const waiting: SessionEvent[] = [];
  // That there is no session is old news, which what is asked for proves or disproves.
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

export type AnswerOptions = {
  target: AnswerTarget;
  /** What the reader has of the message already, where the answer goes on with it. */
  initial?: UIMessage;
  signal?: AbortSignal | undefined;
  /** Whether what can't be streamed is shown by other means. */
  isSynced: () => boolean;
  clock: Clock;
  onEnd: (end: AnswerEnd) => void;
};

/** How it ended for its reader; of a turn that may still be running. */
export type AnswerEnd = {
  readonly type: "stored" | "over" | "restarted" | "detached" | "gone";
  readonly turn?: { readonly epoch: number; readonly attempt: number };
};

/** How soon after an entry it is known whether somebody is at work on it. */
const settleMs = 500;

/** What a reader may leave lying before it is taken for dead. */
const maxWaitingChunks = 100_000;

/**
 * One answer as `useChat` reads it: from `start` with an id that stays, over however many connections,
 * to how it ended. What was said while nobody was connected comes in one piece.
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

type Output = {
  write(chunk: Chunk): void;
  isFull(): boolean;
  close(): void;
  fail(error: unknown): void;
};

function pipeAnswer(events: EventBuffer, options: AnswerOptions, output: Output) {
  const { target, initial, signal, isSynced, clock, onEnd } = options;
  let reader: ChunkReader | undefined;
  let turn: { epoch: number; attempt: number } | undefined;
  let state: SessionState = { state: "idle" };
  /** The entries that are on their way. */
  let historySeq = Infinity;
  let lastSeq = 0;
  let hasEnded = false;
  /** It was told of from its start, though nothing of it has come yet. */
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
  /** It began anew, and a reader can't go back: whoever follows the chat shows it from the start. */
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

  const chunks = (event: Extract<SessionEvent, { type: "chunks" }>): void => {
    if (event.epoch !== turn?.epoch || !isTurn(state)) return;
    // Of another attempt nothing was heard yet.
    hasStart = event.fromStart || (hasStart && event.attempt === turn.attempt);
    turn = { epoch: event.epoch, attempt: event.attempt };
    if (!reader && hasStart && areTransient(event.chunks)) {
      for (const chunk of event.chunks) write(chunk);
      return;
    }
    // A reader who has nothing takes it as it comes.
    const isNew = !reader && !initial;
    const fromStart = event.fromStart || (!reader && hasStart);
    // What came before was heard when it wasn't known yet whose it is.
    if (!reader && !fromStart) return restart();
    const ownReader = begin(state.messageId);
    if (!fromStart || isNew) {
      for (const chunk of event.chunks) {
        ownReader.push(chunk);
        if (chunk.type !== "start") write(chunk);
        else if (chunk["messageMetadata"] !== undefined) write(chunk);
      }
    } else {
      const next = createChunkReader({ messageId: state.messageId });
      for (const chunk of event.chunks) next.push(chunk);
      const missing = ownReader.catchUpTo(next.message(), next.openIds());
      if (!missing) return restart();
      // What belongs to no part is passed on as it is.
      const rest = event.chunks.filter(({ type, transient }) => transient === true || isEnd(type));
      for (const chunk of [...missing, ...rest]) write(chunk);
    }
    if (output.isFull()) end("gone", new Error("the reader of this answer has stopped reading"));
  };

  const stored = (entry: Entry): void => {
    const [message] = viewOf([entry]);
    // Where nothing was said, it isn't the message that it should have gone on with.
    const missing = message && begin(initial?.id ?? message.id).catchUpTo(message, new Map());
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
    // Whoever was at it left nothing behind, or there is nobody who answers.
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
        // That somebody is at work on it comes right behind it, though not always with it.
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
        // What happens meanwhile is known only when it is joined again.
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

/** Which answer is waited for. */
type AnswerTarget = {
  isTurn(turn: TurnState): boolean;
  /** Of an answer whose turn was over before it could be seen. */
  isAnswer(entry: Entry): boolean;
  /** The entry that asks for it: where all is said up to it and nobody is at work, there is no answer. */
  readonly seq?: number;
};

/** The answer to what was said there. */
export function answerTo(seq: number): AnswerTarget {
  return {
    seq,
    isTurn: ({ upToSeq }) => upToSeq >= seq,
    isAnswer: ({ role, upToSeq = 0 }) => role === "assistant" && upToSeq >= seq,
  };
}

/** The rest of a message, after what was decided there. */
export function continuationOf(messageId: string, seq: number): AnswerTarget {
  return {
    seq,
    isTurn: (turn) => turn.messageId === messageId && turn.upToSeq >= seq,
    isAnswer: (entry) => isAnother(entry, messageId, seq),
  };
}

/** A message made anew. That is asked for without an entry: `after` is the last one before it. */
export function regenerationOf(messageId: string, after: number): AnswerTarget {
  return {
    isTurn: (turn) => turn.messageId === messageId,
    isAnswer: (entry) => isAnother(entry, messageId, after),
  };
}

/** The answer of a turn that goes on. */
export function answerOfTurn(epoch: number): AnswerTarget {
  return { isTurn: (turn) => turn.epoch === epoch, isAnswer: (entry) => entry.epoch === epoch };
}

/**
 * A message that is made once more has its id again. Only where nothing was said, so that there is
 * nothing to take the place of what was there, it has another: then it tells how that ended.
 */
function isAnother(entry: Entry, messageId: string, after: number): boolean {
  if (entry.kind !== "message" || entry.role !== "assistant" || entry.seq <= after) return false;
  if (entry.messageId === messageId) return true;
  return entry.upToSeq === undefined && entry.parts.length === 0 && entry.outcome !== "completed";
}
