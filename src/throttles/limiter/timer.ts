import type { Clock } from "../../base/clock.ts";

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
