import type { Histogram } from "./histogram.ts";

/**
 * How a call ended, as far as the downstream's capacity is concerned. `ignored` says nothing about it:
 * a mistake of the caller's, or a call that the caller gave up.
 */
export const outcomeKinds = ["success", "throttled", "timeout", "server_error", "ignored"] as const;

export type OutcomeKind = (typeof outcomeKinds)[number];

export type Outcome = {
  readonly kind: OutcomeKind;
  /** From the permit to the end of the call. */
  readonly latencyMs: number;
  /** From the permit to the first piece of a streamed answer. */
  readonly firstTokenMs?: number;
  /** How long the downstream asks everybody to stay away. */
  readonly retryAfterMs?: number;
  /** Whether it said which of its limits was met: of calls per time, or of calls at once. */
  readonly limitedBy?: "rate" | "concurrency";
  /** What the call cost in the bucket's unit, where that is known by now. */
  readonly used?: number;
};

export type Counts = Readonly<Record<OutcomeKind, number>>;

/**
 * What the calls of a while amount to, of one pod or of several: samples add up, and one call is a
 * sample of one. An epoch is a stretch in which the limit didn't change; calls that began in an
 * earlier one tell of a limit that is no more.
 */
export type Sample = {
  readonly epoch: number;
  /** How calls ended that began in this epoch. */
  readonly counts: Counts;
  /** How calls ended that began before it. */
  readonly earlier: Counts;
  /** Over how long this was gathered. */
  readonly spanMs: number;
  /** The sum of the successful calls' latencies: divided by the span, how many the downstream took at once. */
  readonly acceptedMs: number;
  readonly latencies: Histogram;
  readonly firstTokens: Histogram;
  /** The most calls in flight at once. */
  readonly peak: number;
  /** Whether some call had to wait because the limit was reached. */
  readonly limited: boolean;
  /** The longest that the downstream asked to stay away, from the end of the span on. */
  readonly retryAfterMs: number;
  /** How many were told that a limit per time was met, and what calls used in the bucket's unit. */
  readonly rateLimited: number;
  readonly used: number;
};
