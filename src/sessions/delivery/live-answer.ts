import type { LiveChunks } from "../runner.ts";
import type { FeedEvent } from "../service.ts";
import { chunksFor, type Subscriber } from "./replay.ts";

/** Delivers the answer in progress to a session's live subscribers. */
export type AnswerDelivery = {
  /** Sets the turn that is shown from now on, if there is one. */
  turn(turn: TurnName | undefined): void;
  /** A subscriber is live from now on. Settles once it has the answer so far. */
  joined(): Promise<void> | undefined;
  chunks(live: LiveChunks): void;
  reportProgress(turn: TurnName & { nextIndex: number }): void;
};

type TurnName = { readonly epoch: number; readonly attempt: number };

export type AnswerDeliveryParts = {
  live: () => Iterable<Subscriber>;
  push: (subscriber: Subscriber, event: FeedEvent | undefined) => void;
  /** The answer so far. Synchronous if this pod is its runner. */
  readAnswer: () => LiveChunks | undefined | Promise<LiveChunks | undefined>;
  isCurrent: (turn: TurnName) => boolean;
};

// How many batches of chunks to keep while the answer so far is being read.
const maxHeld = 1_000;

export function createAnswerDelivery({
  live,
  push,
  readAnswer,
  isCurrent,
}: AnswerDeliveryParts): AnswerDelivery {
  let current: TurnName | undefined;
  let reading: Promise<void> | undefined;
  let isStale = false;
  /** An answer arrived that could not be shown yet. */
  let missed = false;
  let held: LiveChunks[] = [];

  /** False if a subscriber misses earlier chunks. */
  const offer = (chunks: LiveChunks): boolean => {
    let complete = true;
    let shared: FeedEvent | undefined;
    for (const subscriber of live()) {
      const isNext = subscriber.nextIndex === chunks.index && !chunks.fromStart;
      const event = chunksFor(subscriber, chunks);
      if (event === "gap") complete = false;
      // Most subscribers have the same position, and share one event object.
      else push(subscriber, isNext ? (shared ??= event) : event);
    }
    return complete;
  };

  const show = (answer: LiveChunks | undefined) => {
    if (!answer) return;
    missed = !isCurrent(answer);
    if (!missed) offer(answer);
  };

  const refresh = (): Promise<void> | undefined => {
    if (reading) {
      isStale = true;
      return reading;
    }
    const found = readAnswer();
    if (!(found instanceof Promise)) {
      show(found);
      return undefined;
    }
    reading = found
      .catch(() => undefined)
      .then((answer) => {
        reading = undefined;
        show(answer);
        const kept = held;
        held = [];
        const complete = kept.filter(isCurrent).every(offer);
        if (!isStale && (complete || !answer)) return undefined;
        isStale = false;
        return refresh();
      });
    return reading;
  };

  return {
    turn(turn) {
      const isSame = current?.epoch === turn?.epoch && current?.attempt === turn?.attempt;
      if (isSame && !missed) return;
      current = turn;
      missed = false;
      if (turn) void refresh();
    },
    joined: refresh,
    chunks(chunks) {
      if (!isCurrent(chunks) || offer(chunks)) return;
      if (reading && held.length < maxHeld) held.push(chunks);
      else void refresh();
    },
    reportProgress(turn) {
      if (reading || !isCurrent(turn)) return;
      for (const { nextIndex } of live()) if (nextIndex < turn.nextIndex) return void refresh();
    },
  };
}
