import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { capacityOf, nextShare, type Pressure } from "./capacity.ts";

const limits = { eventLoopMs: 200, memory: 0.9 };
const calm: Pressure = { lateMs: 5, memory: 0.3 };

describe("the share of its target that a pod goes by", () => {
  test.each([
    { why: "all is calm", share: 1, seen: {}, becomes: 1 },
    { why: "it has become calm", share: 0.5, seen: {}, becomes: 0.55 },
    { why: "it is nearly back", share: 0.98, seen: {}, becomes: 1 },
    { why: "the loop is at its limit", share: 0.5, seen: { lateMs: 200 }, becomes: 0.5 },
    { why: "the loop isn't well below it", share: 0.5, seen: { lateMs: 101 }, becomes: 0.5 },
    { why: "the loop is half of it", share: 0.5, seen: { lateMs: 100 }, becomes: 0.55 },
    { why: "the loop is a little late", share: 1, seen: { lateMs: 250 }, becomes: 0.8 },
    { why: "the loop is very late", share: 1, seen: { lateMs: 60_000 }, becomes: 0.5 },
    { why: "memory is at its limit", share: 0.5, seen: { memory: 0.9 }, becomes: 0.5 },
    { why: "memory isn't well below it", share: 0.5, seen: { memory: 0.86 }, becomes: 0.5 },
    { why: "memory is well below it", share: 0.5, seen: { memory: 0.84 }, becomes: 0.55 },
    { why: "memory is short", share: 1, seen: { memory: 0.925 }, becomes: 0.8 },
    { why: "memory is gone", share: 1, seen: { memory: 1 }, becomes: 0.5 },
    {
      why: "both are short, by the worse",
      share: 1,
      seen: { memory: 0.925, lateMs: 400 },
      becomes: 0.5,
    },
    { why: "it can't get less", share: 0.01, seen: { lateMs: 9_999 }, becomes: 0.01 },
  ])("where $why: $share becomes $becomes", ({ share, seen, becomes }) => {
    expect(nextShare(share, { ...calm, ...seen }, limits)).toBeCloseTo(becomes, 6);
  });

  const pressures = fc.record({
    lateMs: fc.double({ min: 0, max: 100_000, noNaN: true }),
    memory: fc.double({ min: 0, max: 1.5, noNaN: true }),
  });

  test("stays in bounds, never jumps, and always leaves one slot", () => {
    fc.assert(
      fc.property(fc.array(pressures), (looks) => {
        let share = 1;
        for (const seen of looks) {
          const next = nextShare(share, seen, limits);
          expect(next).toBeGreaterThanOrEqual(Math.max(0.01, share * 0.5));
          expect(next).toBeLessThanOrEqual(Math.min(1, share + 0.05));
          expect(capacityOf({ slots: 100, target: 0.8 * next })).toBeGreaterThanOrEqual(1);
          share = next;
        }
      }),
    );
  });

  test("comes back to the whole once it is calm, whatever came before", () => {
    let share = 1;
    for (let look = 0; look < 20; look++)
      share = nextShare(share, { lateMs: 1e6, memory: 1 }, limits);
    expect(share).toBe(0.01);
    for (let look = 0; look < 20; look++) share = nextShare(share, calm, limits);
    expect(share).toBe(1);
  });
});
