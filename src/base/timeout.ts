import type { Clock } from "./clock.ts";

type Timer = Pick<Clock, "after">;

/** The limits of many waits, of which most end in time. They share one timer. */
export type Timeouts = {
  /** Calls `onLate` after the limit, unless the returned function is called before. */
  start(limitMs: number, onLate: () => void): () => void;
};

export function createTimeouts(clock: Pick<Clock, "after" | "monotonic">): Timeouts {
  const waits = new Set<{ readonly endMs: number; readonly onLate: () => void }>();
  let armedMs = Infinity;
  let cancel = () => {};

  const arm = (endMs: number, nowMs: number): void => {
    cancel();
    armedMs = endMs;
    cancel = clock.after(endMs - nowMs, check);
  };
  const check = (): void => {
    armedMs = Infinity;
    const nowMs = clock.monotonic();
    let nextMs = Infinity;
    for (const wait of waits) {
      if (wait.endMs > nowMs) nextMs = Math.min(nextMs, wait.endMs);
      else {
        waits.delete(wait);
        wait.onLate();
      }
    }
    if (nextMs < armedMs) arm(nextMs, nowMs);
  };

  return {
    start(limitMs, onLate) {
      const nowMs = clock.monotonic();
      const wait = { endMs: nowMs + limitMs, onLate };
      waits.add(wait);
      if (wait.endMs < armedMs) arm(wait.endMs, nowMs);
      return () => {
        if (!waits.delete(wait) || waits.size > 0) return;
        // A timer without a wait would keep the process alive.
        cancel();
        armedMs = Infinity;
      };
    },
  };
}

/** Waits for a promise up to a limit: undefined if it is late. A rejection is passed on. */
export function settledWithin<Value>(
  clock: Timer,
  limitMs: number,
  wait: Promise<Value>,
): Promise<Value | undefined> {
  const { promise, resolve, reject } = Promise.withResolvers<Value | undefined>();
  const cancel = clock.after(limitMs, () => resolve(undefined));
  wait.then(resolve, reject).finally(cancel);
  return promise;
}

/** Waits for a promise up to a limit, and rejects with `late()` if it is late. */
export function withTimeout<Value>(
  clock: Timer,
  limitMs: number,
  wait: Promise<Value>,
  late: () => Error,
): Promise<Value> {
  const { promise, resolve, reject } = Promise.withResolvers<Value>();
  const cancel = clock.after(limitMs, () => reject(late()));
  wait.then(resolve, reject).finally(cancel);
  return promise;
}
