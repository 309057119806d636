import { addHistograms, type Histogram, noDurations, withDuration } from "./histogram.ts";

/**
 * How a call ended, as far as the downstream's capacity is concerned. `ignored` says nothing about it:
 * an error of the caller, or a call that the caller aborted.
 */
export const outcomeKinds = ["success", "throttled", "timeout", "server_error", "ignored"] as const;

export type OutcomeKind = (typeof outcomeKinds)[number];

export type MeasuredOutcome = {
  readonly kind: OutcomeKind;
  /** From the permit to the end of the call. */
  readonly latencyMs: number;
  /** From the permit to the first piece of a streamed answer. */
  readonly firstTokenMs?: number;
  /** How long the downstream wants no calls. */
  readonly retryAfterMs?: number;
  /** Which limit was met, where the downstream names it: calls per time, or calls at once. */
  readonly limitedBy?: "rate" | "concurrency";
  /** What the call cost in the bucket's unit, where that is known. */
  readonly used?: number;
};

export type OutcomeCounts = Readonly<Record<OutcomeKind, number>>;

/**
 * A summary of calls over a span, of one pod or of several; samples can be added. An epoch is a time in
 * which the limit didn't change. Calls that began in an earlier one say nothing about the present limit.
 */
export type Sample = {
  readonly epoch: number;
  /** Outcomes of calls that began in this epoch. */
  readonly counts: OutcomeCounts;
  /** Outcomes of calls that began before it. */
  readonly earlier: OutcomeCounts;
  /** The length of the span. */
  readonly spanMs: number;
  /** The sum of the successful calls' latencies. Divided by the span: how many calls ran at once. */
  readonly acceptedMs: number;
  readonly latencies: Histogram;
  readonly firstTokens: Histogram;
  /** The most calls in flight at once. */
  readonly peak: number;
  /** Whether a call had to wait because the limit was reached. */
  readonly limited: boolean;
  /** The longest remaining `Retry-After` at the end of the span. */
  readonly retryAfterMs: number;
  /** How many calls met a rate limit, and what calls used in the bucket's unit. */
  readonly rateLimited: number;
  readonly used: number;
  /** The requests per second that the downstream's answers state as its limit; 0 where they don't. */
  readonly promisedPerS: number;
  /** How many calls were refused although the answers before had said that something remained. */
  readonly broken: number;
};

export const noCounts: OutcomeCounts = {
  success: 0,
  throttled: 0,
  timeout: 0,
  server_error: 0,
  ignored: 0,
};

export function emptySample(epoch: number): Sample {
  return {
    epoch,
    counts: noCounts,
    earlier: noCounts,
    spanMs: 0,
    acceptedMs: 0,
    latencies: noDurations,
    firstTokens: noDurations,
    peak: 0,
    limited: false,
    retryAfterMs: 0,
    rateLimited: 0,
    used: 0,
    promisedPerS: 0,
    broken: 0,
  };
}

/** Adds the outcome of a call that began in `epoch`. Only a success counts for latencies. */
export function addOutcome(sample: Sample, outcome: MeasuredOutcome, epoch: number): Sample {
  const { kind, latencyMs, firstTokenMs, retryAfterMs = 0, used = 0 } = outcome;
  const answered = kind === "success";
  const which = epoch === sample.epoch ? "counts" : "earlier";
  return {
    ...sample,
    [which]: { ...sample[which], [kind]: sample[which][kind] + 1 },
    acceptedMs: sample.acceptedMs + (answered ? latencyMs : 0),
    latencies: answered ? withDuration(sample.latencies, latencyMs) : sample.latencies,
    firstTokens:
      answered && firstTokenMs !== undefined
        ? withDuration(sample.firstTokens, firstTokenMs)
        : sample.firstTokens,
    retryAfterMs: Math.max(sample.retryAfterMs, retryAfterMs),
    rateLimited:
      sample.rateLimited + (kind === "throttled" && outcome.limitedBy === "rate" ? 1 : 0),
    used: sample.used + used,
  };
}

export function addCounts(a: OutcomeCounts, b: OutcomeCounts): OutcomeCounts {
  return {
    success: a.success + b.success,
    throttled: a.throttled + b.throttled,
    timeout: a.timeout + b.timeout,
    server_error: a.server_error + b.server_error,
    ignored: a.ignored + b.ignored,
  };
}

/**
 * Adds the samples of two pods over the same time. Their spans are seldom equal, so the number of calls
 * at once is added as a rate, not as a sum of times.
 */
export function addSamples(a: Sample, b: Sample): Sample {
  const spanMs = Math.max(a.spanMs, b.spanMs);
  return {
    ...merged(a, b),
    spanMs,
    acceptedMs: acceptedOver(a, spanMs) + acceptedOver(b, spanMs),
    peak: a.peak + b.peak,
    retryAfterMs: Math.max(a.retryAfterMs, b.retryAfterMs),
    promisedPerS: lowestKnown(a.promisedPerS, b.promisedPerS),
  };
}

function lowestKnown(a: number, b: number): number {
  return a > 0 && b > 0 ? Math.min(a, b) : Math.max(a, b);
}

function acceptedOver(sample: Sample, spanMs: number): number {
  return sample.spanMs > 0 ? (sample.acceptedMs * spanMs) / sample.spanMs : sample.acceptedMs;
}

type Merged = Omit<Sample, "spanMs" | "acceptedMs" | "peak" | "retryAfterMs" | "promisedPerS">;

function merged(a: Sample, b: Sample): Merged {
  const epoch = Math.max(a.epoch, b.epoch);
  const [ofA, ofB] = [asOf(a, epoch), asOf(b, epoch)];
  return {
    epoch,
    counts: addCounts(ofA.counts, ofB.counts),
    earlier: addCounts(ofA.earlier, ofB.earlier),
    latencies: addHistograms(a.latencies, b.latencies),
    firstTokens: addHistograms(a.firstTokens, b.firstTokens),
    limited: a.limited || b.limited,
    rateLimited: a.rateLimited + b.rateLimited,
    used: a.used + b.used,
    broken: a.broken + b.broken,
  };
}

/** The counts of a sample for an epoch. For another epoch than its own, all calls are earlier ones. */
export function asOf(sample: Sample, epoch: number): Pick<Sample, "counts" | "earlier"> {
  if (sample.epoch === epoch) return sample;
  return { counts: noCounts, earlier: addCounts(sample.counts, sample.earlier) };
}
