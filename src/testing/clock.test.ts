import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { realTimeLimit } from "./clock.ts";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["performance"] });
});
afterEach(() => {
  vi.useRealTimers();
});

test("a limit of real time is over once the process has run for so long, however often it looks", () => {
  const isLate = realTimeLimit(1_000);
  for (let look = 1; look <= 40; look++) {
    vi.advanceTimersByTime(25);
    expect(isLate()).toBe(false);
  }
  vi.advanceTimersByTime(1);
  expect(isLate()).toBe(true);
});

test("a machine that is busy or stands still doesn't take the time of what is waited for", () => {
  const isLate = realTimeLimit(1_000);
  vi.advanceTimersByTime(60_000);
  expect(isLate()).toBe(false);
  for (let look = 1; look <= 39; look++) {
    vi.advanceTimersByTime(500);
    expect(isLate()).toBe(false);
  }
  vi.advanceTimersByTime(500);
  expect(isLate()).toBe(true);
});
