import { FlotillaError } from "../../base/errors.ts";
import { errorFromWire } from "../http.ts";
import type { SessionFeed } from "./feed.ts";
import type { SessionEvent, SessionEventsOptions } from "./session.ts";

// What may wait for a reader, besides what there was when it began.
const maxQueued = 20_000;

/**
 * What there is of a session and then what happens, one after the other. It begins with the first
 * `next`, so that one that nobody reads holds nothing.
 */
export function readEvents(
  feed: Pick<SessionFeed, "replay" | "on">,
  { signal, after = 0 }: SessionEventsOptions,
  // Not imported: of a module that both files need, bundlers make a third one, loaded at once as well.
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
      const message = `${maxQueued} events wait to be read: read faster`;
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
    // It was gone already, and that was told before there was anything to leave.
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
      // A generator that waits for an event would end with the next one only.
      abort();
      return events.return();
    },
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}
