import { dayMs } from "./durations.ts";
import { checkNumber, checkOptions } from "./options.ts";
import { fraction, type Random } from "./random.ts";

/** How long to wait between attempts. */
export type Backoff = {
  /** The wait after the first failure. Default 1,000. */
  baseMs?: number;
  /** The factor of each further failure. Default 2. */
  factor?: number;
  /** The longest wait. Default 5 minutes. */
  maxMs?: number;
  /** The largest random share that is added to the wait. Default 0.25. */
  jitter?: number;
};

export function checkBackoff(what: string, backoff: Backoff): void {
  checkOptions(`${what}: backoff`, backoff, ["baseMs", "factor", "maxMs", "jitter"]);
  const { baseMs = 0, factor = 1, maxMs = 0, jitter = 0 } = backoff;
  checkNumber(`${what}: backoff.baseMs`, baseMs, { min: 0, max: dayMs });
  checkNumber(`${what}: backoff.factor`, factor, { min: 1, max: 100, whole: false });
  checkNumber(`${what}: backoff.maxMs`, maxMs, { min: 0, max: 30 * dayMs });
  checkNumber(`${what}: backoff.jitter`, jitter, { min: 0, max: 10, whole: false });
}

/** The wait after the `failures`-th failure, 1 being the first. */
export function backoffMs(failures: number, random: Random, backoff: Backoff = {}): number {
  const { baseMs = 1_000, factor = 2, maxMs = 300_000, jitter = 0.25 } = backoff;
  // Bounded, because zero times infinity is NaN.
  const grown = Math.min(Number.MAX_VALUE, factor ** (Math.max(1, failures) - 1));
  const wait = Math.min(maxMs, baseMs * grown);
  return Math.min(maxMs, Math.round(wait * (1 + jitter * fraction(random))));
}

/** The backoff of contended or unavailable stores: 100–150 ms, 200–300, 400–600 … at most 5 s. */
export function contentionMs(retries: number, random: Random): number {
  return backoffMs(retries, random, { baseMs: 100, maxMs: 5_000, jitter: 0.5 });
}
