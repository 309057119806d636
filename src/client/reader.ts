import { FlotillaError } from "../base/errors.ts";
import type { Followed } from "./followed.ts";
import type { SessionEvent, SessionEventsOptions } from "./session.ts";

// What may wait for a reader, besides what there was when it began.
const queueMost = 20_000;

type Step = IteratorResult<SessionEvent, undefined>;
const over: Step = { done: true, value: undefined };

/**
 * What there is of a session and then what happens, one after the other. It begins with the first
 * `next`, so that one that nobody reads holds nothing.
 */
export function readEvents(
  followed: Pick<Followed, "known" | "on">,
  { signal, after = 0 }: SessionEventsOptions,
): AsyncIterableIterator<SessionEvent> {
  let queue: SessionEvent[] = [];
  let at = 0;
  let most = 0;
  let error: FlotillaError | undefined;
  let isOver = false;
  let waiting: PromiseWithResolvers<Step>[] = [];
  let stop: (() => void) | undefined;

  const finish = () => {
    isOver = true;
    stop?.();
    signal?.removeEventListener("abort", abort);
    settle();
  };
  const abort = () => {
    queue = [];
    at = 0;
    finish();
  };
  const settle = () => {
    while (waiting.length > 0) {
      const event = queue[at];
      if (event !== undefined) {
        at++;
        waiting.shift()!.resolve({ done: false, value: event });
      } else if (error) {
        waiting.shift()!.reject(error);
        error = undefined;
      } else if (isOver) waiting.shift()!.resolve(over);
      else break;
    }
    if (at === queue.length) {
      queue = [];
      at = most = 0;
    }
  };
  const push = (event: SessionEvent) => {
    if (event.type === "entry" && event.entry.seq <= after) return;
    if (queue.length - at >= queueMost + most) {
      const message = `${queueMost} events wait to be read: read faster`;
      error = new FlotillaError("overloaded", message, { details: { queueMost } });
      return finish();
    }
    queue.push(event);
    if (event.type === "gone") finish();
    else settle();
  };
  const begin = () => {
    most = followed.known(after).length;
    stop = followed.on(push);
    signal?.addEventListener("abort", abort);
    if (signal?.aborted) abort();
    // It was gone already, and that was told before there was anything to leave.
    else if (isOver) finish();
  };

  return {
    next() {
      const step = Promise.withResolvers<Step>();
      waiting.push(step);
      if (!stop && !isOver) begin();
      settle();
      return step.promise;
    },
    return() {
      abort();
      return Promise.resolve(over);
    },
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}
