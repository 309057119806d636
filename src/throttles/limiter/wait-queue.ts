import type { Clock } from "../../base/clock.ts";
import type { LimiterErrors } from "./limiter.ts";
import type { HeldPermit } from "./permit.ts";

/** Who goes first where not all can: the earlier in this list, the sooner. */
export const priorities = ["control", "interactive", "retry", "batch"] as const;

export type Priority = (typeof priorities)[number];

// So that a steady stream of urgent calls slows the others down and never stops them.
const oldestEvery = 16;

/** One place in a queue. The links are the queue's own. */
export type Place<Item> = {
  readonly item: Item;
  readonly priority: Priority;
  readonly number: number;
  previous: Place<Item> | undefined;
  next: Place<Item> | undefined;
  /** Whether it still waits. */
  waits: boolean;
};

type Line<Item> = {
  first: Place<Item> | undefined;
  last: Place<Item> | undefined;
  size: number;
};

/**
 * Those who wait for a permit: first come, first served within a priority, the higher priority first,
 * and every 16th time the one that has waited longest of all. Leaving costs the same anywhere in a line,
 * since callers give up by the thousand when something hangs.
 */
export function createWaiting<Item>() {
  const lines: Record<Priority, Line<Item>> = {
    control: line(),
    interactive: line(),
    retry: line(),
    batch: line(),
  };
  let size = 0;
  let numbers = 0;
  let taken = 0;

  const remove = (place: Place<Item>): boolean => {
    if (!place.waits) return false;
    place.waits = false;
    const at = lines[place.priority];
    if (place.previous) place.previous.next = place.next;
    else at.first = place.next;
    if (place.next) place.next.previous = place.previous;
    else at.last = place.previous;
    at.size--;
    size--;
    return true;
  };

  return {
    get size() {
      return size;
    },
    sizeOf: (priority: Priority) => lines[priority].size,

    add(priority: Priority, item: Item): Place<Item> {
      const at = lines[priority];
      const place: Place<Item> = {
        item,
        priority,
        number: ++numbers,
        previous: at.last,
        next: undefined,
        waits: true,
      };
      if (at.last) at.last.next = place;
      else at.first = place;
      at.last = place;
      at.size++;
      size++;
      return place;
    },

    remove,

    /** Whose turn it is among those priorities that may have a permit now. */
    next(mayHave: (priority: Priority) => boolean): Place<Item> | undefined {
      if (size === 0) return undefined;
      const oldestFirst = (taken + 1) % oldestEvery === 0;
      let found: Place<Item> | undefined;
      for (const priority of priorities) {
        const { first } = lines[priority];
        if (!first || (found && found.number < first.number) || !mayHave(priority)) continue;
        if (!oldestFirst) return first;
        found = first;
      }
      return found;
    },

    /** Takes it out because it has got its permit, which counts as a turn. */
    take(place: Place<Item>): void {
      if (remove(place)) taken++;
    },

    /** Everybody, in the order in which they are served, but for every 16th turn. */
    *[Symbol.iterator](): Iterator<Place<Item>> {
      for (const priority of priorities) {
        for (let place = lines[priority].first; place; place = place.next) yield place;
      }
    },
  };
}

function line<Item>(): Line<Item> {
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
  readonly onWaiting?: ((at: InLine) => void) | undefined;
};

/** Where a call stands that waits for a permit, on its pod. */
export type InLine = {
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
export function createLine(clock: Clock, errors: LimiterErrors) {
  const waiting = createWaiting<Waiter>();
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
          if (!waiting.remove(place)) return;
          end();
          reject(error);
          onLeft();
        };
        const onAbort = () => giveUp(signal!.reason);
        const place = waiting.add(priority, {
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
          cancelTimer = clock.after(maxWaitMs, () => giveUp(errors.waited(maxWaitMs)));
        }
      });
    },

    refuseAll(error: () => unknown): void {
      for (const place of waiting) {
        waiting.remove(place);
        place.item.refuse(error());
      }
    },
  };
}
