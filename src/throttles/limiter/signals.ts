import type { Clock } from "../../base/clock.ts";

/** The subscribers of one event. */
export function createCallbacks<Said>() {
  const all = new Set<(said: Said) => void>();
  return {
    call(said: Said): void {
      for (const callback of all) callback(said);
    },
    add(callback: (said: Said) => void): () => void {
      all.add(callback);
      return () => void all.delete(callback);
    },
  };
}

/**
 * One timer that is only ever brought forward, so that a thousand calls with a deadline need no more
 * than one. The callback sets it again.
 */
export function createTimer(clock: Clock, after: Clock["after"], callback: () => void) {
  let armedMs = Infinity;
  let cancel: (() => void) | undefined;
  let stopped = false;
  return {
    isSet: () => armedMs < Infinity,
    set(atMs: number): void {
      if (atMs >= armedMs || stopped) return;
      cancel?.();
      armedMs = atMs;
      cancel = after(Math.max(0, atMs - clock.monotonic()), () => {
        armedMs = Infinity;
        cancel = undefined;
        callback();
      });
    },
    stop(): void {
      stopped = true;
      cancel?.();
    },
  };
}
