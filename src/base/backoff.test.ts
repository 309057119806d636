import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { backoffMs, contentionMs } from "./backoff.ts";
import { type Random, seededRandom } from "./random.ts";

const lowest: Random = { uint32: () => 0 };
const highest: Random = { uint32: () => 2 ** 32 - 1 };

describe("waits between claims that collide", () => {
  test.each([
    { retries: 1, low: 100, high: 150 },
    { retries: 2, low: 200, high: 300 },
    { retries: 3, low: 400, high: 650 },
  ])("are $low to $high ms after try $retries", ({ retries, low, high }) => {
    expect(contentionMs(retries, lowest)).toBe(low);
    expect(contentionMs(retries, highest)).toBeGreaterThan(low * 1.4);
    expect(contentionMs(retries, highest)).toBeLessThanOrEqual(high);
  });

  test("never pass five seconds", () => {
    for (const retries of [7, 20, 1_000, 1e6]) {
      expect(contentionMs(retries, highest)).toBe(5_000);
    }
  });
});

describe("waits between attempts", () => {
  const policies = fc.record(
    {
      baseMs: fc.integer({ min: 0, max: 86_400_000 }),
      factor: fc.double({ min: 1, max: 100, noNaN: true }),
      maxMs: fc.integer({ min: 0, max: 30 * 86_400_000 }),
      jitter: fc.double({ min: 0, max: 10, noNaN: true }),
    },
    { requiredKeys: [] },
  );
  const failures = fc.integer({ min: 1, max: 1_000 });

  test("are whole milliseconds from zero to the longest that the policy allows", () => {
    fc.assert(
      fc.property(policies, failures, fc.integer(), (policy, count, seed) => {
        const waitMs = backoffMs(count, seededRandom(seed), policy);
        expect(Number.isInteger(waitMs)).toBe(true);
        expect(waitMs).toBeGreaterThanOrEqual(0);
        expect(waitMs).toBeLessThanOrEqual(policy.maxMs ?? 300_000);
      }),
      { examples: [[{ baseMs: 0, factor: 100 }, 1_000, 1]] },
    );
  });

  test("never get shorter with more failures, chance being equal", () => {
    fc.assert(
      fc.property(policies, failures, fc.nat(), (policy, count, fixed) => {
        const random = { uint32: () => fixed };
        const now = backoffMs(count, random, policy);
        expect(backoffMs(count + 1, random, policy)).toBeGreaterThanOrEqual(now);
      }),
    );
  });

  test("add at most the jitter's share", () => {
    fc.assert(
      fc.property(failures, fc.integer(), (count, seed) => {
        const policy = { baseMs: 100, maxMs: 1e9, jitter: 0.25 };
        const bare = backoffMs(count, seededRandom(seed), { ...policy, jitter: 0 });
        const waitMs = backoffMs(count, seededRandom(seed), policy);
        expect(waitMs).toBeGreaterThanOrEqual(bare);
        expect(waitMs).toBeLessThanOrEqual(Math.ceil(bare * 1.25));
      }),
    );
  });

  test("double from one second up to five minutes by default", () => {
    const waits = [1, 2, 3, 9, 10, 50].map((count) => backoffMs(count, lowest));
    expect(waits).toEqual([1_000, 2_000, 4_000, 256_000, 300_000, 300_000]);
  });
});
