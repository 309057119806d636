import type { Clock } from "./clock.ts";

export type Rate = {
  /** In the long run. */
  readonly perSecond: number;
  /** At once. */
  readonly burst: number;
};

/**
 * A bucket that tokens drip into, full at first. Takes `count` of them, also those that aren't there
 * yet, and returns how many are left: below 0 is a debt. With 0 it only returns what is left.
 */
export type TokenBucket = (count: number) => number;

/** A bucket that never has a debt. */
export type RateLimit = {
  /** Takes a token and returns 0, or returns how long to wait. */
  take(): number;
};

export function createTokenBucket(
  clock: Pick<Clock, "monotonic">,
  { perSecond, burst }: Rate,
): TokenBucket {
  let left = burst;
  let atMs = clock.monotonic();
  return (count) => {
    const nowMs = clock.monotonic();
    left = Math.min(burst, left + ((nowMs - atMs) * perSecond) / 1_000) - count;
    atMs = nowMs;
    return left;
  };
}

export function createRateLimit(clock: Pick<Clock, "monotonic">, rate: Rate): RateLimit {
  const spend = createTokenBucket(clock, rate);
  return {
    take() {
      const left = spend(0);
      if (left < 1) return Math.ceil(((1 - left) * 1_000) / rate.perSecond);
      spend(1);
      return 0;
    },
  };
}
