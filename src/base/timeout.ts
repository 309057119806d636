import type { Clock } from "./clock.ts";

/** Waits, but not for ever. */
export function settledWithin(
  clock: Clock,
  limitMs: number,
  wait: Promise<void> | undefined,
): Promise<void> {
  return new Promise((resolve) => {
    const cancel = clock.after(limitMs, resolve);
    void Promise.resolve(wait).then(() => {
      cancel();
      resolve();
    });
  });
}

/** Waits, and gives up with an error when it is late. */
export function withTimeout(
  clock: Clock,
  limitMs: number,
  wait: Promise<void>,
  late: () => Error,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const cancel = clock.after(limitMs, () => reject(late()));
    void wait.then(() => {
      cancel();
      resolve();
    });
  });
}
