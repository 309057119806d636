import type { Clock } from "./clock.ts";

/** How often something may be done: `burst` at once, and `perSecond` in the long run. */
export type TokenBucket = {
  /** 0 where it may be done now, otherwise for how long to wait. */
  take(): number;
};

export function createTokenBucket(
  clock: Pick<Clock, "monotonic">,
  { perSecond, burst }: { perSecond: number; burst: number },
): TokenBucket {
  let left = burst;
  let atMs = clock.monotonic();
  return {
    take() {
      const nowMs = clock.monotonic();
      left = Math.min(burst, left + ((nowMs - atMs) * perSecond) / 1_000);
      atMs = nowMs;
      if (left < 1) return Math.ceil(((1 - left) * 1_000) / perSecond);
      left -= 1;
      return 0;
    },
  };
}
