import type { Sample } from "./sample.ts";

/**
 * How many calls the downstream works on at once: by Little's law the sum of the answered calls'
 * latencies, divided by the time they took. Refused calls don't enter it, however often they are
 * repeated, so while some are refused this is the downstream's true capacity.
 */
export type Accepted = { readonly acceptedMs: number; readonly spanMs: number };

export const nothingAccepted: Accepted = { acceptedMs: 0, spanMs: 0 };

/** Shorter spans hold too few calls' ends to be even. */
const shortestMemoryMs = 1_000;

/** What was seen fades within about a call's latency, or a second, as latencies count when calls end. */
export function moreAccepted(before: Accepted, sample: Sample): Accepted {
  if (sample.spanMs <= 0) return { ...before, acceptedMs: before.acceptedMs + sample.acceptedMs };
  const answered = sample.counts.success + sample.earlier.success;
  const latencyMs = answered > 0 ? sample.acceptedMs / answered : 0;
  const kept = Math.exp(-sample.spanMs / Math.max(shortestMemoryMs, latencyMs));
  return {
    acceptedMs: before.acceptedMs * kept + sample.acceptedMs,
    spanMs: before.spanMs * kept + sample.spanMs,
  };
}

/** Undefined as long as too little was seen. */
export function acceptedAtOnce({ acceptedMs, spanMs }: Accepted): number | undefined {
  return acceptedMs > 0 && spanMs > 0 ? acceptedMs / spanMs : undefined;
}
