import type { Clock } from "./clock.ts";

/** A rate limit: `burst` at once, and `perSecond` in the long run. */
export type TokenBucket = {
  /** Takes a token and returns 0, or returns how long to wait. */
  take(): number;
};

/** Creates a full bucket. */
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
