import type { Clock } from "../../base/clock.ts";
import type { LimiterErrors } from "./errors.ts";
import type { HeldPermit } from "./permit.ts";

/** Who goes first where not all can: the earlier in this list, the sooner. */
export const priorities = ["control", "interactive", "retry", "batch"] as const;

export type Priority = (typeof priorities)[number];

// So that a steady stream of urgent calls slows the others down and never stops them.
const oldestFirstEvery = 16;

/** One place in a queue. The links are the queue's own. */
export type WaitEntry<Item> = {
  readonly item: Item;
  readonly priority: Priority;
  readonly number: number;
  previous: WaitEntry<Item> | undefined;
  next: WaitEntry<Item> | undefined;
  /** Whether it still waits. */
  isWaiting: boolean;
};

type PriorityList<Item> = {
  first: WaitEntry<Item> | undefined;
  last: WaitEntry<Item> | undefined;
  size: number;
};

/**
 * Those who wait for a permit: first come, first served within a priority, the higher priority first,
 * and every 16th time the one that has waited longest of all. Leaving costs the same anywhere in a line,
 * since callers give up by the thousand when something hangs.
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

    /** Whose turn it is among those priorities that may have a permit now. */
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

    /** Takes it out because it has got its permit, which counts as a turn. */
    take(entry: WaitEntry<Item>): void {
      if (remove(entry)) taken++;
    },

    /** Everybody, in the order in which they are served, but for every 16th turn. */
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

export type AcquireOptions = {
  /** Ends the waiting, and tells the call to end. */
  readonly signal?: AbortSignal | undefined;
  /** `batch`, unless the task or session that it is made for has another. */
  readonly priority?: Priority | undefined;
  /** What the call will probably cost in the bucket's unit. */
  readonly estimate?: number | undefined;
  /** How long the call may take, if that is less than `callTimeoutMs`. */
  readonly timeoutMs?: number | undefined;
  /** How long to wait for a permit at most. */
  readonly maxWaitMs?: number | undefined;
  /** Told where it stands while it waits: after a quarter of a second, and then every second or so. */
  readonly onWaiting?: ((at: QueuePosition) => void) | undefined;
};

/** Where a call stands that waits for a permit, on its pod. */
export type QueuePosition = {
  /** How many other calls of the same throttle and key wait on this pod and are served before it. */
  readonly ahead: number;
  /** About how long it will wait; absent where no call has ended yet. */
  readonly aboutMs?: number;
};

/** What stands in line: what was asked for, and how to end the waiting. */
type Waiter = {
  readonly asked: AcquireOptions;
  readonly estimate: number;
  /** When it has joined, of `clock.monotonic`. */
  readonly sinceMs: number;
  grant(permit: HeldPermit): void;
  refuse(error: unknown): void;
};

/** Those who wait for a permit, each of whom may give up at any time. */
export function createWaitQueue(clock: Clock, errors: LimiterErrors) {
  const waiting = createPriorityQueue<Waiter>();
  return {
    waiting,

    /** Stands in line. `onLeft` is told of those who give up, as others may go then. */
    join(
      { asked, priority, estimate }: Pick<Waiter, "asked" | "estimate"> & { priority: Priority },
      onLeft: () => void,
    ): Promise<HeldPermit> {
      const { signal, maxWaitMs } = asked;
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
          asked,
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

    refuseAll(error: () => unknown): void {
      for (const entry of waiting) {
        waiting.remove(entry);
        entry.item.refuse(error());
      }
    },
  };
}
