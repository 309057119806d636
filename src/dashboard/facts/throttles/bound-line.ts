import type { PlotMark } from "../../parts/plot.tsx";
import { causeText, changeText, type ThrottleEventFacts } from "./throttle.ts";

/**
 * Events in the order in which they came, with times that don't fall: where the store's clock was set
 * back, what came later is shown no earlier.
 */
export function eventsInOrder(events: readonly ThrottleEventFacts[]): ThrottleEventFacts[] {
  let latestMs = -Infinity;
  return events
    .toSorted((one, other) => one.seq - other.seq)
    .map((event) => {
      latestMs = Math.max(latestMs, event.atMs);
      return latestMs === event.atMs ? event : { ...event, atMs: latestMs };
    });
}

/**
 * The bound at the end of each stretch of an axis: by the events, which are exact, and before the first
 * that is known by what was counted. What isn't known is a gap.
 */
export function boundLine(
  timesMs: readonly number[],
  events: readonly ThrottleEventFacts[],
  counted: readonly (number | null)[],
): (number | null)[] {
  const ordered = eventsInOrder(events);
  const [first] = ordered;
  let next = 0;
  let bound: number | null = null;
  return timesMs.map((_, row) => {
    const endMs = timesMs[row + 1] ?? Infinity;
    while (next < ordered.length && ordered[next]!.atMs < endMs) bound = ordered[next++]!.bound;
    if (bound !== null) return bound;
    return counted[row] ?? (first === undefined ? null : first.before);
  });
}

/** The changes within a time, for a plot. */
export function boundMarks(
  events: readonly ThrottleEventFacts[],
  { fromMs, toMs }: { readonly fromMs: number; readonly toMs: number },
): PlotMark[] {
  return eventsInOrder(events)
    .filter(({ atMs }) => atMs >= fromMs && atMs <= toMs)
    .map((event) => ({
      atMs: event.atMs,
      text: `the limit ${changeText(event)}: ${causeText(event.cause)}${event.by === null ? "" : `, by ${event.by}`}`,
    }));
}

/** The same values with what is the case now at the end, which isn't counted yet. */
export function withPresent(
  values: readonly (number | null)[],
  present: number | undefined,
): (number | null)[] {
  if (present === undefined || values.length === 0) return [...values];
  return [...values.slice(0, -1), present];
}
