import { FlotillaError } from "./errors.ts";

/** All that the program knows of time. Tests and simulations bring their own. */
export type Clock = {
  /** Milliseconds since 1970. For people and due times, never to decide who is alive. */
  now(): number;
  /** Milliseconds that only ever rise. For durations. */
  monotonic(): number;
  /** Calls back once, unless cancelled by the function it returns. */
  after(delayMs: number, callback: () => void): () => void;
};

// Node fires a timer with a larger delay at once instead of late.
const maxTimerMs = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.timeOrigin + performance.now(),
  after(delayMs, callback) {
    const timer = setTimeout(callback, Math.min(Math.max(0, delayMs), maxTimerMs));
    return () => clearTimeout(timer);
  },
};

/** The same on the system's clock, but a process that has nothing else to do ends without it. */
export function afterUnref(delayMs: number, callback: () => void): () => void {
  const timer = setTimeout(callback, delayMs);
  timer.unref();
  return () => clearTimeout(timer);
}

/** Waits, or rejects with `cancelled` when the signal fires first. */
export function sleep(clock: Clock, delayMs: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stopped = () => reject(new FlotillaError("cancelled", "the wait was cut short"));
    if (signal?.aborted) return stopped();
    const onAbort = () => {
      cancel();
      stopped();
    };
    const cancel = clock.after(delayMs, () => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    });
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}
