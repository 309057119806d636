import { describe, expect, test } from "vitest";
import { createRateLimit, createTokenBucket } from "./token-bucket.ts";

function open() {
  let nowMs = 0;
  const clock = { monotonic: () => nowMs };
  const rate = { perSecond: 10, burst: 3 };
  const limit = createRateLimit(clock, rate);
  const takes = (count: number) => Array.from({ length: count }, () => limit.take());
  const advance = (delayMs: number) => (nowMs += delayMs);
  return { limit, takes, advance, spend: createTokenBucket(clock, rate) };
}

describe("a token bucket", () => {
  test("gives a burst, then as much as comes in, and never more than it holds", () => {
    const { limit, takes, advance } = open();
    expect(takes(4)).toEqual([0, 0, 0, 100]);
    advance(50);
    expect(limit.take()).toBe(50);
    advance(50);
    expect(takes(2)).toEqual([0, 100]);
    advance(60_000);
    expect(takes(4)).toEqual([0, 0, 0, 100]);
  });

  test("lets a caller spend what isn't there yet, and pay it back", () => {
    const { spend, advance } = open();
    expect(spend(0)).toBe(3);
    expect(spend(2)).toBe(1);
    expect(spend(2)).toBe(-1);
    advance(100);
    expect(spend(0)).toBe(0);
    advance(60_000);
    expect(spend(0)).toBe(3);
  });
});
