import { FlotillaError } from "./errors.ts";

/** The program's only source of time. Tests and simulations have their own. */
export type Clock = {
  /** Milliseconds since 1970. For display and due times, never to decide which pod is alive. */
  now(): number;
  /** Milliseconds that only grow. For durations. */
  monotonic(): number;
  /** Calls back once, unless cancelled by the function it returns. */
  after(delayMs: number, callback: () => void): () => void;
};

// Node fires a timer with a larger delay at once.
const maxTimerMs = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.timeOrigin + performance.now(),
  after(delayMs, callback) {
    const timer = setTimeout(callback, Math.min(Math.max(0, delayMs), maxTimerMs));
    return () => clearTimeout(timer);
  },
};

/** Like `systemClock.after`, but the timer does not keep the process alive. */
export function afterUnref(delayMs: number, callback: () => void): () => void {
  const timer = setTimeout(callback, delayMs);
  timer.unref();
  return () => clearTimeout(timer);
}

/** Waits, or rejects with `cancelled` when the signal aborts first. */
export function sleep(clock: Clock, delayMs: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stopped = () => reject(new FlotillaError("cancelled", "the wait was aborted"));
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

export type FollowHooks<Item> = {
  signal?: AbortSignal;
  /** Called with each state that was read. */
  onProgress?: (item: Item) => void;
};

const followPollMs = 250;

/** Reads something again and again until it has ended. Rejects with `cancelled` when the signal aborts. */
export async function followUntil<Item>(
  clock: Clock,
  read: () => Promise<Item>,
  { hasEnded, signal, onProgress }: FollowHooks<Item> & { hasEnded: (item: Item) => boolean },
): Promise<Item> {
  for (;;) {
    const item = await read();
    onProgress?.(item);
    if (hasEnded(item)) return item;
    await sleep(clock, followPollMs, signal);
  }
}
