import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { between, fraction, drawBytes, seededRandom, systemRandom } from "./random.ts";

describe("seeded chance", () => {
  test("gives the same numbers for the same seed on every machine", () => {
    const random = seededRandom(42);
    const drawn = Array.from({ length: 4 }, () => random.uint32());
    expect(drawn).toEqual(fixed42);
  });

  test("differs between seeds", () => {
    const firsts = Array.from({ length: 1_000 }, (_, seed) => seededRandom(seed).uint32());
    expect(new Set(firsts).size).toBe(1_000);
  });

  test("spreads evenly", () => {
    const random = seededRandom(7);
    const buckets = Array.from({ length: 16 }, () => 0);
    for (let draw = 0; draw < 16_000; draw++) buckets[random.uint32() >>> 28]!++;
    for (const bucket of buckets) expect(Math.abs(bucket - 1_000)).toBeLessThan(200);
  });
});

describe.each([
  ["the system's chance", () => systemRandom],
  ["seeded chance", () => seededRandom(1)],
])("%s", (_, make) => {
  test("stays within its ranges", () => {
    const random = make();
    // More draws than one filling of the pool.
    for (let draw = 0; draw < 3_000; draw++) {
      const number = random.uint32();
      expect(Number.isInteger(number) && number >= 0 && number < 2 ** 32).toBe(true);
    }
  });
});

test("between gives both ends and nothing outside", () => {
  fc.assert(
    fc.property(fc.integer(), fc.nat(1_000), fc.nat(1_000), (seed, low, width) => {
      const drawn = between(seededRandom(seed), low, low + width);
      expect(drawn >= low && drawn <= low + width && Number.isInteger(drawn)).toBe(true);
    }),
  );
  expect(between({ uint32: () => 0 }, 3, 5)).toBe(3);
  expect(between({ uint32: () => 2 ** 32 - 1 }, 3, 5)).toBe(5);
  expect(fraction({ uint32: () => 2 ** 32 - 1 })).toBeLessThan(1);
});

test("random bytes are as many as asked for, and take any value at any place", () => {
  fc.assert(
    fc.property(fc.integer(), fc.nat(100), (seed, count) => {
      expect(drawBytes(seededRandom(seed), count)).toHaveLength(count);
    }),
  );
  const random = seededRandom(1);
  const drawn = Array.from({ length: 8_000 }, () => drawBytes(random, 7));
  for (let place = 0; place < 7; place++) {
    expect(new Set(drawn.map((bytes) => bytes[place])).size).toBe(256);
  }
});

// Simulations that are replayed from their seed depend on these never changing.
const fixed42 = [551831576, 144025891, 322543647, 3034809370];
