import { fraction, type Random } from "./random.ts";

/** How long to wait between attempts. */
export type Backoff = {
  /** The wait after the first failure. Default 1,000. */
  baseMs?: number;
  /** What each further failure multiplies it by. Default 2. */
  factor?: number;
  /** No wait is longer. Default 5 minutes. */
  maxMs?: number;
  /** Up to this share of the wait is added by chance. Default 0.25. */
  jitter?: number;
};

/** The wait after the `failures`-th failure, 1 being the first. */
export function backoffMs(failures: number, random: Random, backoff: Backoff = {}): number {
  const { baseMs = 1_000, factor = 2, maxMs = 300_000, jitter = 0.25 } = backoff;
  // Bounded, because zero times infinity is no number.
  const grown = Math.min(Number.MAX_VALUE, factor ** (Math.max(1, failures) - 1));
  const wait = Math.min(maxMs, baseMs * grown);
  return Math.min(maxMs, Math.round(wait * (1 + jitter * fraction(random))));
}

/** Claims that collide or find the store away wait 100–150 ms, 200–300, 400–600 … at most 5 s. */
export function contentionMs(retries: number, random: Random): number {
  return backoffMs(retries, random, { baseMs: 100, maxMs: 5_000, jitter: 0.5 });
}
