import type { Clock } from "./clock.ts";

type Timer = Pick<Clock, "after">;

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

/** Waits until nothing is left to do. The caller calls `check` whenever something has ended. */
export function untilIdle(clock: Timer, isIdle: () => boolean) {
  let onIdle: (() => void) | undefined;
  const check = () => {
    if (isIdle()) onIdle?.();
  };
  return {
    check,
    /** Resolves when nothing is left, or after `limitMs`. */
    async within(limitMs: number): Promise<void> {
      const idle = new Promise<void>((resolve) => {
        onIdle = resolve;
        check();
      });
      await settledWithin(clock, limitMs, idle);
    },
  };
}
