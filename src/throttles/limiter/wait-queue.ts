import type { Clock } from "../../base/clock.ts";
import type { LimiterErrors } from "./errors.ts";
import type { AcquireOptions, HeldPermit } from "./permit.ts";
import { priorities, type Priority } from "./priority.ts";

// So that a steady stream of urgent calls slows the others down, and never starves them.
const oldestFirstEvery = 16;

/** An entry of a doubly linked list. Only the queue changes the links. */
export type WaitEntry<Item> = {
  readonly item: Item;
  readonly priority: Priority;
  readonly number: number;
  previous: WaitEntry<Item> | undefined;
  next: WaitEntry<Item> | undefined;
  isWaiting: boolean;
};

type PriorityList<Item> = {
  first: WaitEntry<Item> | undefined;
  last: WaitEntry<Item> | undefined;
  size: number;
};

/**
 * Waiting calls: the higher priority first, first come, first served within a priority, and every 16th
 * time the call that has waited longest of all. Removal is O(1) anywhere in the queue, because callers
 * give up by the thousand when a downstream hangs.
 */
export function createPriorityQueue<Item>() {
  const lists: Record<Priority, PriorityList<Item>> = {
    control: emptyList(),
    interactive: emptyList(),
    retry: emptyList(),
    batch: emptyList(),
  };
  let size = 0;
  let numbers = 0;
  let taken = 0;

  const remove = (entry: WaitEntry<Item>): boolean => {
    if (!entry.isWaiting) return false;
    entry.isWaiting = false;
    const list = lists[entry.priority];
    if (entry.previous) entry.previous.next = entry.next;
    else list.first = entry.next;
    if (entry.next) entry.next.previous = entry.previous;
    else list.last = entry.previous;
    list.size--;
    size--;
    return true;
  };

  return {
    get size() {
      return size;
    },
    sizeOf: (priority: Priority) => lists[priority].size,

    add(priority: Priority, item: Item): WaitEntry<Item> {
      const list = lists[priority];
      const entry: WaitEntry<Item> = {
        item,
        priority,
        number: ++numbers,
        previous: list.last,
        next: undefined,
        isWaiting: true,
      };
      if (list.last) list.last.next = entry;
      else list.first = entry;
      list.last = entry;
      list.size++;
      size++;
      return entry;
    },

    remove,

    /** The next entry among the priorities that may have a permit now. */
    next(admits: (priority: Priority) => boolean): WaitEntry<Item> | undefined {
      if (size === 0) return undefined;
      const oldestFirst = (taken + 1) % oldestFirstEvery === 0;
      let found: WaitEntry<Item> | undefined;
      for (const priority of priorities) {
        const { first } = lists[priority];
        if (!first || (found && found.number < first.number) || !admits(priority)) continue;
        if (!oldestFirst) return first;
        found = first;
      }
      return found;
    },

    /** Removes an entry that gets its permit, which counts as a turn. */
    take(entry: WaitEntry<Item>): void {
      if (remove(entry)) taken++;
    },

    /** All entries, in the order in which they are served, except for every 16th turn. */
    *[Symbol.iterator](): Iterator<WaitEntry<Item>> {
      for (const priority of priorities) {
        for (let entry = lists[priority].first; entry; entry = entry.next) yield entry;
      }
    },
  };
}

function emptyList<Item>(): PriorityList<Item> {
  return { first: undefined, last: undefined, size: 0 };
}

/** A waiting call: its request, and how its wait ends. */
type Waiter = {
  readonly request: AcquireOptions;
  readonly estimate: number;
  /** When it joined, by `clock.monotonic`. */
  readonly sinceMs: number;
  grant(permit: HeldPermit): void;
  refuse(error: unknown): void;
};

/** `onWaiting` isn't called for waits that are shorter than this. */
export const reportPositionAfterMs = 250;
const reportPositionEveryMs = 1_000;
/** The shortest time between two passes over the queue, because every waiter is due at its own time. */
const positionIntervalMs = 50;

/** The queue of one limiter. A waiting call may give up at any time. */
export function createWaitQueue(clock: Clock, errors: LimiterErrors) {
  const waiting = createPriorityQueue<Waiter>();
  return {
    waiting,

    /** Adds a call. `onLeft` is called when it gives up, because others may be next then. */
    join(
      {
        request,
        priority,
        estimate,
      }: Pick<Waiter, "request" | "estimate"> & { priority: Priority },
      onLeft: () => void,
    ): Promise<HeldPermit> {
      const { signal, maxWaitMs } = request;
      return new Promise((resolve, reject) => {
        let cancelTimer: (() => void) | undefined;
        const end = () => {
          cancelTimer?.();
          signal?.removeEventListener("abort", onAbort);
        };
        const giveUp = (error: unknown) => {
          if (!waiting.remove(entry)) return;
          end();
          reject(error);
          onLeft();
        };
        const onAbort = () => giveUp(signal!.reason);
        const entry = waiting.add(priority, {
          request,
          estimate,
          sinceMs: clock.monotonic(),
          grant(permit) {
            end();
            resolve(permit);
          },
          refuse(error) {
            end();
            reject(error);
          },
        });
        signal?.addEventListener("abort", onAbort, { once: true });
        if (maxWaitMs !== undefined) {
          cancelTimer = clock.after(maxWaitMs, () => giveUp(errors.waitTimedOut(maxWaitMs)));
        }
      });
    },

    /**
     * Tells calls their positions, and returns when to do so next. One pass over the whole queue, so that
     * the cost per waiting call doesn't grow with the queue.
     */
    reportPositions(nowMs: number, waitMsBehind: (ahead: number) => number | undefined): number {
      let nextMs = Infinity;
      let ahead = 0;
      for (const { item } of waiting) {
        const { onWaiting } = item.request;
        const reportMs = item.sinceMs + reportPositionAfterMs;
        if (onWaiting && nowMs < reportMs) {
          nextMs = Math.min(nextMs, Math.max(reportMs, nowMs + positionIntervalMs));
        } else if (onWaiting) {
          const aboutMs = waitMsBehind(ahead);
          onWaiting({ ahead, ...(aboutMs !== undefined && { aboutMs }) });
          nextMs = Math.min(nextMs, nowMs + reportPositionEveryMs);
        }
        ahead++;
      }
      return nextMs;
    },

    refuseAll(error: () => unknown): void {
      for (const entry of waiting) {
        waiting.remove(entry);
        entry.item.refuse(error());
      }
    },
  };
}
