import { describe, expect, test } from "vitest";
import { hasExpired, nothingObserved, type ObservedMarks, observeMarks } from "./lease.ts";

const leaseMs = 60_000;
const longestMs = 10_000;

/** Looks that each take a tenth of a second. */
const looks = (marks: readonly (number | undefined)[], everyMs: number): ObservedMarks<number> => {
  let seen: ObservedMarks<number> = nothingObserved;
  for (const [nth, mark] of marks.entries()) {
    const sentMs = 5_000 + nth * everyMs;
    const all = new Map(mark === undefined ? [] : [["a", mark]]);
    seen = observeMarks(seen, all, { sentMs, answeredMs: sentMs + 100 });
  }
  return seen;
};
const expired = (seen: ObservedMarks<number>) =>
  hasExpired({ leaseMs, longestMs }, seen.seen.get("a"));
const same = (count: number) => Array.from({ length: count }, () => 1);

describe("a share", () => {
  test("has expired when its renewal was the same for its lease and its pod's longest call", () => {
    expect(expired(looks(same(72), 1_000))).toBe(false);
    expect(expired(looks(same(73), 1_000))).toBe(true);
  });

  test("is counted from after the first answer until before the last question", () => {
    expect(looks(same(11), 1_000).seen.get("a")).toEqual({
      mark: 1,
      sinceMs: 5_100,
      forMs: 9_900,
    });
  });

  test("is counted anew with every renewal", () => {
    expect(expired(looks([...same(60), 2, ...same(60).map(() => 2)], 1_000))).toBe(false);
  });

  test("is counted anew after a gap, in which no pod may have been able to renew", () => {
    expect(expired(looks(same(9), 11_000))).toBe(false);
    expect(expired(looks(same(9), 10_000))).toBe(true);
  });

  test("of which nothing was seen yet hasn't expired", () => {
    expect(expired(looks([undefined], 1_000))).toBe(false);
  });
});
