import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { capacityOf, claimLimit, freeSlots } from "./capacity.ts";

const capacities = fc.record({
  slots: fc.integer({ min: 1, max: 100_000 }),
  target: fc.double({ min: 0.01, max: 1, noNaN: true }),
});

describe("a pod's capacity", () => {
  test.each([
    { slots: 100, target: 0.8, holds: 80 },
    { slots: 10, target: 0.75, holds: 7 },
    { slots: 1, target: 0.8, holds: 1 },
    { slots: 1, target: 1, holds: 1 },
    { slots: 3, target: 0.1, holds: 1 },
  ])("of $slots slots at $target holds $holds", ({ holds, ...capacity }) => {
    expect(capacityOf(capacity)).toBe(holds);
  });

  test("is the target's share rounded down, but never less than one slot", () => {
    fc.assert(
      fc.property(capacities, (capacity) => {
        const { slots, target } = capacity;
        const holds = capacityOf(capacity);
        expect(Number.isInteger(holds)).toBe(true);
        expect(holds).toBeGreaterThanOrEqual(1);
        expect(holds).toBeLessThanOrEqual(Math.max(1, Math.floor(slots * target)));
        expect(holds).toBeLessThanOrEqual(slots);
      }),
    );
  });

  test("is never passed, however claims follow each other", () => {
    const answers = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 60 });
    fc.assert(
      fc.property(
        capacities,
        answers,
        fc.array(fc.nat(50), { maxLength: 60 }),
        (capacity, filled, ended) => {
          let held = 0;
          filled.forEach((share, at) => {
            const limit = claimLimit(capacity, held);
            expect(limit).toBeGreaterThanOrEqual(0);
            expect(limit).toBeLessThanOrEqual(500);
            held += Math.floor(limit * share);
            expect(held).toBeLessThanOrEqual(capacityOf(capacity));
            held -= Math.min(held, ended[at] ?? 0);
          });
        },
      ),
    );
  });

  test("is used up by claims that are always answered in full", () => {
    fc.assert(
      fc.property(capacities, (capacity) => {
        let held = 0;
        for (
          let limit = claimLimit(capacity, held);
          limit > 0;
          limit = claimLimit(capacity, held)
        ) {
          held += limit;
        }
        expect(held).toBe(capacityOf(capacity));
        expect(freeSlots(capacity, held)).toBe(0);
        expect(freeSlots(capacity, held + 5)).toBe(0);
      }),
    );
  });
});
