import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  addPods,
  addTimes,
  bucketCount,
  durationBucket,
  type Counts,
  countDurationOf,
  countOf,
  durationCount,
  encodeCounts,
  newTally,
  parseCounts,
  percentileOf,
} from "./counts.ts";

const nothing = parseCounts("{}");

function durationsOf(given: readonly number[]) {
  const tally = newTally();
  for (const durationMs of given) countDurationOf(tally.run, durationMs);
  return tally.run;
}

const numbers = fc.dictionary(
  fc.constantFrom("completed", "failed", "inFlight", "bound", "lagMs"),
  fc.nat({ max: 1_000_000 }),
);
const durations = fc
  .array(fc.double({ min: 0, max: 1e9, noNaN: true }))
  .map((given) => durationsOf(given.map(Math.round)));
const counts: fc.Arbitrary<Counts> = fc
  .record({ counts: numbers, gauges: numbers, wait: durations, run: durations })
  .map((given) => parseCounts(encodeCounts(given)));

describe("buckets of durations", () => {
  test.each([
    [0, 0],
    [1, 0],
    [1.5, 1],
    [2, 1],
    [3, 2],
    [4, 2],
    [4.1, 3],
    [1_024, 10],
    [1_025, 11],
    [2 ** 22, 22],
    [2 ** 22 + 1, 23],
    [2 ** 40, 23],
    [Infinity, 23],
    [Number.NaN, 0],
    [-5, 0],
  ])("put %d ms into bucket %d", (durationMs, bucket) => {
    expect(durationBucket(durationMs)).toBe(bucket);
  });

  test("hold every duration below their upper end and above that of the one before", () => {
    fc.assert(
      fc.property(fc.double({ min: 0, max: 2 ** 22, noNaN: true }), (durationMs) => {
        const bucket = durationBucket(durationMs);
        expect(durationMs).toBeLessThanOrEqual(2 ** bucket);
        expect(durationMs).toBeGreaterThan(bucket === 0 ? -1 : 2 ** (bucket - 1));
      }),
    );
  });

  test("give percentiles that are right within a factor of 2", () => {
    const given = Array.from({ length: 1_000 }, (_, at) => at + 1);
    const counted = durationsOf(given);
    expect(durationCount(counted)).toBe(1_000);
    expect(counted.sumMs).toBe(500_500);
    for (const share of [0.01, 0.5, 0.95, 1]) {
      const found = percentileOf(counted, share)!;
      expect(found).toBeGreaterThanOrEqual((share * 1_000) / 2);
      expect(found).toBeLessThanOrEqual(share * 1_000 * 2);
    }
    expect(percentileOf(durationsOf([]), 0.5)).toBeNull();
    expect(percentileOf(durationsOf([2 ** 30]), 0.95)).toBeGreaterThanOrEqual(2 ** 22);
  });
});

describe("counts", () => {
  test("are read as they were stored", () => {
    fc.assert(
      fc.property(counts, (given) => {
        expect(parseCounts(encodeCounts(given))).toEqual(given);
      }),
    );
  });

  test("add up in any order and grouping, over pods as over time", () => {
    for (const add of [addPods, addTimes]) {
      fc.assert(
        fc.property(counts, counts, counts, (a, b, c) => {
          const stored = (of: Counts) => encodeCounts(parseCounts(encodeCounts(of)));
          const sorted = (of: Counts) => JSON.stringify(parseCounts(stored(of)), sortedKeys);
          expect(sorted(add(a, b))).toBe(sorted(add(b, a)));
          expect(sorted(add(add(a, b), c))).toBe(sorted(add(a, add(b, c))));
          expect(sorted(add(a, nothing))).toBe(sorted(a));
        }),
      );
    }
  });

  test("add what pods have side by side, and take the highest of what they have alike", () => {
    const pod = (inFlight: number, bound: number) =>
      parseCounts(JSON.stringify({ counts: { throttled: 1 }, gauges: { inFlight, bound } }));
    expect(addPods(pod(2, 8), pod(3, 9))).toMatchObject({
      counts: { throttled: 2 },
      gauges: { inFlight: 5, bound: 9 },
    });
    expect(addTimes(pod(2, 8), pod(3, 7))).toMatchObject({
      counts: { throttled: 2 },
      gauges: { inFlight: 3, bound: 8 },
    });
  });

  test("take few bytes: only what isn't zero", () => {
    const tally = newTally();
    countOf(tally, "completed", 3);
    countOf(tally, "failed", 0);
    countDurationOf(tally.run, 3);
    expect(encodeCounts(tally)).toBe(
      `{"counts":{"completed":3},"run":{"sumMs":3,"buckets":[0,0,1]}}`,
    );
  });

  test.each([
    ["nothing", null],
    ["no JSON", "{"],
    ["a list", "[1]"],
    ["other types", `{"counts":{"a":"1","b":-1,"c":null},"run":{"buckets":{},"sumMs":"x"}}`],
  ])("are zero where a row has %s", (_, stored) => {
    expect(encodeCounts(parseCounts(stored))).toBe("{}");
  });

  test("have no more buckets than there are, whatever a row has", () => {
    const stored = JSON.stringify({ run: { sumMs: 1, buckets: Array(1_000).fill(1) } });
    expect(parseCounts(stored).run.buckets).toHaveLength(bucketCount);
  });
});

function sortedKeys(_: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}
