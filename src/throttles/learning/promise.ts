import { type Histogram, percentile } from "./histogram.ts";
import type { Sample } from "./sample.ts";

/**
 * What the downstream's answers promise, and how far that is believed. A rate lets the limit grow at once
 * to the number of calls that the rate amounts to. The rate itself is kept on each pod, by what remains.
 *
 * A call that is refused although something remained breaks the promise: the limit is then learned from
 * outcomes alone, for a minute at first, and for twice as long each time. A promise that then holds for as
 * long as it was doubted for the last time is doubted for half as long the next time.
 */
export type Promised = {
  /** The requests per second that are promised; 0 where none are. */
  readonly perS: number;
  /** How long the promise isn't believed, and how often it was broken, less what has been made up for. */
  readonly doubtMs: number;
  readonly broken: number;
  /** For how long it has held since it was broken, or since one break was made up for. */
  readonly heldMs: number;
};

export const nothingPromised: Promised = { perS: 0, doubtMs: 0, broken: 0, heldMs: 0 };

const firstDoubtMs = 60_000;
const maxDoubtMs = 3_600_000;
/** The doubt is the longest from here on, so further breaks would only have to be made up for. */
const maxBroken = 7;
/** Refusals up to this share are strays, as at a limit that was proven. */
const strayShare = 0.005;
/** Of a longer time between two samples it isn't known that calls were made. */
const longestGapMs = 10_000;

export function nextPromised(
  before: Promised,
  elapsedMs: number,
  sample: Sample | undefined,
): Promised {
  const doubtMs = Math.max(0, before.doubtMs - elapsedMs);
  if (!sample) return { ...before, doubtMs };
  const { counts, earlier, promisedPerS, broken } = sample;
  const perS = promisedPerS > 0 ? promisedPerS : before.perS;
  const succeeded = counts.success + earlier.success;
  if (broken > Math.max(1, succeeded * strayShare)) {
    // Calls that were in flight together are refused together, and break one promise.
    if (doubtMs > 0) return { ...before, perS, doubtMs };
    const times = Math.min(maxBroken, before.broken + 1);
    return { perS, broken: times, doubtMs: doubtAfter(times), heldMs: 0 };
  }
  const next = { ...before, perS, doubtMs };
  // Only where calls are answered, and under a promise that is believed, has it held.
  if (before.broken === 0 || succeeded === 0 || promisedPerS <= 0 || doubtMs > 0) return next;
  const believedMs = Math.min(elapsedMs - before.doubtMs, longestGapMs);
  const heldMs = before.heldMs + Math.max(0, believedMs);
  if (heldMs < doubtAfter(before.broken)) return { ...next, heldMs };
  return { ...next, broken: before.broken - 1, heldMs: 0 };
}

/** How long a promise isn't believed that was broken for the n-th time. */
function doubtAfter(times: number): number {
  return Math.min(maxDoubtMs, firstDoubtMs * 2 ** (times - 1));
}

/** The most calls at once that a promise alone allows. More have to be proven. */
const maxPromisedCalls = 256;
/** Half of all calls take longer than half of them, and shares of pods are whole numbers. */
const spare = 1;
const durationShare = 0.9;

/**
 * How many calls at once the promised rate amounts to, by Little's law, with the duration of a long call.
 * Undefined where nothing is promised or believed, and where no call has succeeded yet.
 */
export function promisedCalls(
  { perS, doubtMs }: Promised,
  latencies: Histogram,
): number | undefined {
  if (perS <= 0 || doubtMs > 0) return undefined;
  const durationMs = percentile(latencies, durationShare);
  if (durationMs === undefined) return undefined;
  return Math.min(maxPromisedCalls, Math.ceil((perS * durationMs) / 1_000) + spare);
}
