import { expect, test } from "vitest";
import { movableClock } from "./contract/movable-clock.ts";
import { settledWithin, withTimeout } from "./timeout.ts";

const late = () => new Error("late");

test("what is there in time is passed on, and its timer is gone", async () => {
  const clock = movableClock();
  expect(await settledWithin(clock, 10, Promise.resolve(1))).toBe(1);
  expect(await withTimeout(clock, 10, Promise.resolve(2), late)).toBe(2);
  await expect(settledWithin(clock, 10, Promise.reject(late()))).rejects.toThrow("late");
  expect(clock.timers).toBe(0);
});

test("what is late is undefined, or fails", async () => {
  const clock = movableClock();
  const never = new Promise<void>(() => {});
  const waits = [settledWithin(clock, 10, never), withTimeout(clock, 10, never, late)];
  waits[1]!.catch(() => {});
  await clock.advance(10);
  expect(await waits[0]).toBeUndefined();
  await expect(waits[1]).rejects.toThrow("late");
});
