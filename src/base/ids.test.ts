import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { idBoundAt, idTime, uuidv7 } from "./ids.ts";
import { seededRandom } from "./random.ts";

const timeOf = (id: string) => Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16);

describe("task ids", () => {
  test("are UUIDs of version 7 that carry the time", () => {
    const ids = uuidv7({ now: () => 1_800_000_000_123 }, seededRandom(1));
    const id = ids.next();
    expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(timeOf(id)).toBe(1_800_000_000_123);
  });

  test("rise strictly whatever the clock does, also when it steps back", () => {
    const steps = fc.array(fc.integer({ min: -100_000, max: 1_000 }), { maxLength: 200 });
    fc.assert(
      fc.property(steps, fc.integer(), (moves, seed) => {
        let nowMs = 1_800_000_000_000;
        const ids = uuidv7({ now: () => nowMs }, seededRandom(seed));
        const made = [ids.next()];
        for (const move of moves) {
          nowMs += move;
          made.push(ids.next());
        }
        for (let at = 1; at < made.length; at++) expect(made[at]! > made[at - 1]!).toBe(true);
      }),
    );
  });

  test("stay in order and unique past the counter of one millisecond", () => {
    const ids = uuidv7({ now: () => 1_800_000_000_000 }, seededRandom(3));
    const made = Array.from({ length: 10_000 }, () => ids.next());
    expect(made).toEqual(made.toSorted());
    expect(new Set(made).size).toBe(10_000);
    // It borrows from the next milliseconds rather than repeat itself.
    expect(timeOf(made.at(-1)!)).toBeGreaterThan(1_800_000_000_000);
  });

  test("of two processes with the same clock don't meet", () => {
    const made = new Set<string>();
    for (let seed = 0; seed < 50; seed++) {
      const ids = uuidv7({ now: () => 1_800_000_000_000 }, seededRandom(seed));
      for (let count = 0; count < 200; count++) made.add(ids.next());
    }
    expect(made.size).toBe(10_000);
  });
});

describe("the time of an id", () => {
  const ids = (ms: number) => uuidv7({ now: () => ms }, seededRandom(1));

  test("is in it, and a bound for that time has all ids of it on one side", () => {
    for (const ms of [1, 1_800_000_000_000, 1_800_000_000_001, 2 ** 47]) {
      const id = ids(ms).next();
      expect(idTime(id)).toBe(ms);
      expect(idBoundAt(ms) <= id).toBe(true);
      expect(id < idBoundAt(ms + 1)).toBe(true);
    }
  });

  test("isn't known of ids that are not ours", () => {
    for (const id of ["", "t1", "01980f6a-3c1e-4a51-8d0c-6d1f1d9a2b7e"]) {
      expect(idTime(id)).toBeUndefined();
    }
  });
});
