import type { Clock } from "../../src/base/clock.ts";

type Event = { readonly atMs: number; readonly order: number; callback: (() => void) | undefined };

export type VirtualTime = Clock & {
  /** The same as `after` for what is never cancelled. */
  in(delayMs: number, callback: () => void): void;
  /** Fires all that is due by then. */
  runTo(untilMs: number): void;
  /** The same; whatever a callback has set off has come to rest before the next one fires. */
  settledTo(untilMs: number): Promise<void>;
};

/** Time that passes as fast as events are worked off; what is due at once fires in the order it was set. */
export function virtualTime(): VirtualTime {
  const heap: Event[] = [];
  let nowMs = 0;
  let order = 0;

  const earlier = (a: Event, b: Event) =>
    a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);

  function push(event: Event): void {
    let at = heap.length;
    heap.push(event);
    while (at > 0) {
      const above = (at - 1) >> 1;
      if (!earlier(event, heap[above]!)) break;
      heap[at] = heap[above]!;
      at = above;
    }
    heap[at] = event;
  }

  function pop(): Event {
    const first = heap[0]!;
    const last = heap.pop()!;
    const { length } = heap;
    if (length === 0) return first;
    let at = 0;
    for (;;) {
      let below = 2 * at + 1;
      if (below >= length) break;
      if (below + 1 < length && earlier(heap[below + 1]!, heap[below]!)) below++;
      if (!earlier(heap[below]!, last)) break;
      heap[at] = heap[below]!;
      at = below;
    }
    heap[at] = last;
    return first;
  }

  function add(delayMs: number, callback: () => void): Event {
    const event = { atMs: nowMs + Math.max(0, delayMs), order: order++, callback };
    push(event);
    return event;
  }

  /** Gives whether something fired. */
  function fire(untilMs: number): boolean {
    while (heap.length > 0 && heap[0]!.atMs <= untilMs) {
      const event = pop();
      if (!event.callback) continue;
      nowMs = event.atMs;
      event.callback();
      return true;
    }
    return false;
  }

  return {
    now: () => 1_700_000_000_000 + Math.floor(nowMs),
    monotonic: () => nowMs,
    after(delayMs, callback) {
      const event = add(delayMs, callback);
      return () => {
        event.callback = undefined;
      };
    },
    in(delayMs, callback) {
      add(delayMs, callback);
    },
    runTo(untilMs) {
      while (fire(untilMs));
      nowMs = untilMs;
    },
    async settledTo(untilMs) {
      while (fire(untilMs)) await rest();
      nowMs = untilMs;
    },
  };
}

/** All promises that are resolved by now have been followed to their ends when the next turn begins. */
function rest(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
