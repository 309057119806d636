import { describe, expect, test } from "vitest";
import { sleep, systemClock } from "./clock.ts";
import { movableClock, eventLoopTurns } from "./contract/movable-clock.ts";

describe("sleep", () => {
  test("ends when its time has come and not before", async () => {
    const clock = movableClock();
    let over = false;
    void sleep(clock, 100).then(() => (over = true));
    await clock.advance(99);
    expect(over).toBe(false);
    await clock.advance(1);
    expect(over).toBe(true);
  });

  test("rejects with `cancelled` when its signal fires, and leaves no timer", async () => {
    const clock = movableClock();
    const stop = new AbortController();
    const wait = sleep(clock, 100, stop.signal);
    stop.abort();
    await expect(wait).rejects.toMatchObject({ code: "cancelled" });
    expect(clock.timers).toBe(0);
  });

  test("doesn't begin when its signal has fired already", async () => {
    const clock = movableClock();
    const wait = sleep(clock, 100, AbortSignal.abort());
    await expect(wait).rejects.toMatchObject({ code: "cancelled" });
    expect(clock.timers).toBe(0);
  });
});

describe("the system's clock", () => {
  test("gives wall time and a time that only rises", () => {
    const beforeMs = Date.now();
    const nowMs = systemClock.now();
    expect(nowMs).toBeGreaterThanOrEqual(beforeMs - 1_000);
    expect(nowMs).toBeLessThanOrEqual(Date.now() + 1_000);
    const first = systemClock.monotonic();
    expect(systemClock.monotonic()).toBeGreaterThanOrEqual(first);
  });

  test("doesn't fire at once what lies beyond the longest timer", async () => {
    let fired = false;
    const cancel = systemClock.after(2 ** 33, () => (fired = true));
    const soon = new Promise<void>((resolve) => systemClock.after(-5, resolve));
    await soon;
    await eventLoopTurns();
    expect(fired).toBe(false);
    cancel();
  });
});
