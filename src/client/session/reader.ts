import { FlotillaError } from "../../base/errors.ts";
import { errorFromWire } from "../http.ts";
import type { SessionFeed } from "./feed.ts";
import type { SessionEvent, SessionEventsOptions } from "./session.ts";

// How many events may wait for a reader, besides the replayed ones.
const maxQueued = 20_000;

/**
 * Iterates over a session's replayed events, then over new ones. It begins with the first `next`, so that
 * an iterator that isn't read holds nothing.
 */
export function readEvents(
  feed: Pick<SessionFeed, "replay" | "on">,
  { signal, after = 0 }: SessionEventsOptions,
  // A parameter, because bundlers would put a shared import into a third chunk that is loaded at once.
  makeError: typeof errorFromWire,
): AsyncIterableIterator<SessionEvent> {
  let queue: SessionEvent[] = [];
  let nextIndex = 0;
  let replayed = 0;
  let error: FlotillaError | undefined;
  let isOver = false;
  let wake = () => {};
  let stop = () => {};

  const finish = () => {
    isOver = true;
    stop();
    signal?.removeEventListener("abort", abort);
    wake();
  };
  const abort = () => {
    queue = [];
    nextIndex = 0;
    finish();
  };
  const push = (event: SessionEvent) => {
    if (event.type === "entry" && event.entry.seq <= after) return;
    if (queue.length - nextIndex >= maxQueued + replayed) {
      const message = `${maxQueued} events are unread: read faster`;
      error = makeError({ code: "overloaded", message, details: { queueMost: maxQueued } });
      return finish();
    }
    queue.push(event);
    if (event.type === "gone") finish();
    else wake();
  };

  const events = (async function* () {
    replayed = feed.replay(after).length;
    stop = feed.on(push);
    signal?.addEventListener("abort", abort);
    if (signal?.aborted) abort();
    // The replay contained `gone`, before `stop` was set.
    else if (isOver) finish();
    for (;;) {
      while (nextIndex < queue.length) yield queue[nextIndex++]!;
      queue = [];
      nextIndex = replayed = 0;
      if (error) throw error;
      if (isOver) return;
      await new Promise<void>((resolve) => (wake = resolve));
    }
  })();

  return {
    next: () => events.next(),
    return() {
      // Wakes the generator, which would otherwise end only with its next event.
      abort();
      return events.return();
    },
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}
