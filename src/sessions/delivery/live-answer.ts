import type { LiveChunks } from "../runner.ts";
import type { SessionEvent } from "../service.ts";
import { chunksFor, type Subscriber } from "./replay.ts";

/** The answer that is being made in a session, as its live subscribers are told of it. */
export type Answers = {
  /** The turn that is shown from now on, if there is one. */
  turn(turn: TurnName | undefined): void;
  /** Somebody is live from now on. Settles once the answer so far has been told. */
  joined(): Promise<void> | undefined;
  chunks(live: LiveChunks): void;
  heardOf(turn: TurnName & { nextIndex: number }): void;
};

type TurnName = { readonly epoch: number; readonly attempt: number };

export type AnswersParts = {
  live: () => Iterable<Subscriber>;
  push: (subscriber: Subscriber, event: SessionEvent | undefined) => void;
  /** The answer so far. At once where its runner is this pod. */
  ask: () => LiveChunks | undefined | Promise<LiveChunks | undefined>;
  isShown: (turn: TurnName) => boolean;
};

// What comes while the answer so far is asked for is kept for after it, up to so many letters.
const heldMost = 1_000;

export function createAnswers({ live, push, ask, isShown }: AnswersParts): Answers {
  let shown: TurnName | undefined;
  let asking: Promise<void> | undefined;
  let again = false;
  /** An answer came that couldn't be shown yet. */
  let missed = false;
  let held: LiveChunks[] = [];

  /** False where somebody misses what was before. */
  const offer = (chunks: LiveChunks): boolean => {
    let complete = true;
    let shared: SessionEvent | undefined;
    for (const subscriber of live()) {
      const isNext = subscriber.nextIndex === chunks.index && !chunks.fromStart;
      const event = chunksFor(subscriber, chunks);
      if (event === "gap") complete = false;
      // Most stand at the same place, and get the very same event.
      else push(subscriber, isNext ? (shared ??= event) : event);
    }
    return complete;
  };

  const show = (answer: LiveChunks | undefined) => {
    if (!answer) return;
    missed = !isShown(answer);
    if (!missed) offer(answer);
  };

  const bring = (): Promise<void> | undefined => {
    if (asking) {
      again = true;
      return asking;
    }
    const found = ask();
    if (!(found instanceof Promise)) {
      show(found);
      return undefined;
    }
    asking = found
      .catch(() => undefined)
      .then((answer) => {
        asking = undefined;
        show(answer);
        const kept = held;
        held = [];
        const complete = kept.filter(isShown).every(offer);
        if (!again && (complete || !answer)) return undefined;
        again = false;
        return bring();
      });
    return asking;
  };

  return {
    turn(turn) {
      const isSame = shown?.epoch === turn?.epoch && shown?.attempt === turn?.attempt;
      if (isSame && !missed) return;
      shown = turn;
      missed = false;
      if (turn) void bring();
    },
    joined: bring,
    chunks(chunks) {
      if (!isShown(chunks) || offer(chunks)) return;
      if (asking && held.length < heldMost) held.push(chunks);
      else void bring();
    },
    heardOf(turn) {
      if (asking || !isShown(turn)) return;
      for (const { nextIndex } of live()) if (nextIndex < turn.nextIndex) return void bring();
    },
  };
}
