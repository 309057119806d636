import type { Clock } from "../../base/clock.ts";
import type { LimiterErrors } from "./limiter-errors.ts";
import type { HeldPermit } from "./permit.ts";
import { createWaiting, type Priority } from "./wait-queue.ts";

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
export type Waiter = {
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
