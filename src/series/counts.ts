import { isJsonObject } from "../base/json.ts";

/**
 * What is counted of one subject over a span: a minute of one pod, or all pods over a minute or an hour.
 * Such counts can be added, in any order and grouping.
 */
export type Counts = {
  readonly counts: Readonly<Record<string, number>>;
  /** What was so many at a time: added over pods, or the highest of them; over time always the highest. */
  readonly gauges: Readonly<Record<string, number>>;
  readonly wait: DurationCounts;
  readonly run: DurationCounts;
};

/** How many durations fell into each bucket, and their sum. */
export type DurationCounts = { readonly buckets: readonly number[]; readonly sumMs: number };

/** The same while it is counted, without an allocation per task. */
export type Tally = {
  readonly counts: Record<string, number>;
  readonly gauges: Record<string, number>;
  readonly wait: MutableDurationCounts;
  readonly run: MutableDurationCounts;
};

type MutableDurationCounts = { readonly buckets: number[]; sumMs: number };

/** Bucket `i` holds durations up to `2 ** i` ms, the last one all that are longer than 70 minutes. */
export const bucketCount = 24;
const lastBucket = bucketCount - 1;
const longestMs = 2 ** (lastBucket - 1);

/** What pods have side by side. Every other gauge is the same for all pods, or of the worst one. */
const addedGauges: ReadonlySet<string> = new Set(["inFlight", "waiting", "held"]);

export function newTally(): Tally {
  return { counts: {}, gauges: {}, wait: noDurationsYet(), run: noDurationsYet() };
}

function noDurationsYet(): MutableDurationCounts {
  return { buckets: Array.from({ length: bucketCount }, () => 0), sumMs: 0 };
}

export function durationBucket(durationMs: number): number {
  if (!(durationMs > 1)) return 0;
  // The number of bits of a whole number below the next power of two.
  return durationMs > longestMs ? lastBucket : 32 - Math.clz32(Math.ceil(durationMs) - 1);
}

export function countDurationOf(into: Tally["wait"], durationMs: number): void {
  into.buckets[durationBucket(durationMs)]!++;
  into.sumMs += durationMs;
}

export function countOf(tally: Tally, what: string, by = 1): void {
  tally.counts[what] = (tally.counts[what] ?? 0) + by;
}

/** Adds what pods counted over the same time. */
export function addPods(a: Counts, b: Counts): Counts {
  return added(a, b, (name, one, other) =>
    addedGauges.has(name) ? one + other : Math.max(one, other),
  );
}

/** Adds what was counted at different times. */
export function addTimes(a: Counts, b: Counts): Counts {
  return added(a, b, (_, one, other) => Math.max(one, other));
}

function added(
  a: Counts,
  b: Counts,
  gauge: (name: string, one: number, other: number) => number,
): Counts {
  return {
    counts: merged(a.counts, b.counts, (_, one, other) => one + other),
    gauges: merged(a.gauges, b.gauges, gauge),
    wait: addedDurations(a.wait, b.wait),
    run: addedDurations(a.run, b.run),
  };
}

function merged(
  a: Readonly<Record<string, number>>,
  b: Readonly<Record<string, number>>,
  merge: (name: string, one: number, other: number) => number,
): Record<string, number> {
  const both: Record<string, number> = { ...a };
  for (const [name, other] of Object.entries(b)) {
    const one = both[name];
    both[name] = one === undefined ? other : merge(name, one, other);
  }
  return both;
}

function addedDurations(a: DurationCounts, b: DurationCounts): DurationCounts {
  const buckets = Array.from(
    { length: Math.max(a.buckets.length, b.buckets.length) },
    (_, at) => (a.buckets[at] ?? 0) + (b.buckets[at] ?? 0),
  );
  return { buckets, sumMs: a.sumMs + b.sumMs };
}

export function durationCount({ buckets }: DurationCounts): number {
  return buckets.reduce((all, count) => all + count, 0);
}

/** The duration that the given share (0…1) of all doesn't exceed, estimated within its bucket; null if there are none. */
export function percentileOf(durations: DurationCounts, share: number): number | null {
  const wanted = durationCount(durations) * share;
  if (wanted === 0) return null;
  let before = 0;
  for (const [bucket, count] of durations.buckets.entries()) {
    if (count > 0 && before + count >= wanted) {
      const part = (wanted - before) / count;
      return Math.round(bucket === 0 ? part : 2 ** (bucket - 1 + part));
    }
    before += count;
  }
  return longestMs;
}

/** The stored form: only what isn't zero, whole milliseconds. */
export function encodeCounts({ counts, gauges, wait, run }: Counts): string {
  const shown = (durations: DurationCounts) => {
    const last = durations.buckets.findLastIndex((count) => count > 0);
    return last < 0
      ? undefined
      : { sumMs: Math.round(durations.sumMs), buckets: durations.buckets.slice(0, last + 1) };
  };
  return JSON.stringify({
    counts: nonZero(counts),
    gauges: nonZero(gauges),
    wait: shown(wait),
    run: shown(run),
  });
}

/** Reads the stored form. What isn't a number there counts as zero. */
export function parseCounts(stored: unknown): Counts {
  return countsOf(parsed(stored));
}

/** Reads several of them, with commas between. */
export function parseCountsList(stored: unknown): Counts[] {
  if (typeof stored !== "string") return [];
  const { list } = parsed(`{"list":[${stored}]}`);
  return Array.isArray(list) ? list.map((each) => countsOf(isJsonObject(each) ? each : {})) : [];
}

function countsOf(found: Readonly<Record<string, unknown>>): Counts {
  return {
    counts: numbersOf(found["counts"]),
    gauges: numbersOf(found["gauges"]),
    wait: durationsOf(found["wait"]),
    run: durationsOf(found["run"]),
  };
}

function parsed(stored: unknown): Readonly<Record<string, unknown>> {
  try {
    const found: unknown = typeof stored === "string" ? JSON.parse(stored) : undefined;
    return isJsonObject(found) ? found : {};
  } catch {
    return {};
  }
}

function numbersOf(value: unknown): Record<string, number> {
  const entries = Object.entries(isJsonObject(value) ? value : {});
  return Object.fromEntries(entries.filter((each): each is [string, number] => isCount(each[1])));
}

function durationsOf(value: unknown): DurationCounts {
  const { sumMs, buckets } = isJsonObject(value) ? value : {};
  const listed: unknown[] = Array.isArray(buckets) ? buckets.slice(0, bucketCount) : [];
  return {
    buckets: listed.map((count) => (isCount(count) ? count : 0)),
    sumMs: isCount(sumMs) ? sumMs : 0,
  };
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value) && value >= 0;
}

function nonZero(numbers: Readonly<Record<string, number>>): Record<string, number> | undefined {
  const kept = Object.entries(numbers).filter(([, count]) => count > 0);
  return kept.length === 0 ? undefined : Object.fromEntries(kept);
}
