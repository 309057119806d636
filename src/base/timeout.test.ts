import { expect, test } from "vitest";
import { movableClock } from "./contract/movable-clock.ts";
import { createTimeouts, settledWithin, withTimeout } from "./timeout.ts";

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

test("many waits share a timer, and each is late at its own time", async () => {
  const clock = movableClock();
  const timeouts = createTimeouts(clock);
  const lateOnes: string[] = [];
  const start = (name: string, limitMs: number) =>
    timeouts.start(limitMs, () => lateOnes.push(name));
  start("second", 20);
  const end = start("ended", 15);
  start("first", 10);
  expect(clock.timers).toBe(1);
  end();
  await clock.advance(9);
  start("third", 21);
  expect(lateOnes).toEqual([]);
  await clock.advance(1);
  expect(lateOnes).toEqual(["first"]);
  await clock.advance(10);
  expect(lateOnes).toEqual(["first", "second"]);
  await clock.advance(10);
  expect(lateOnes).toEqual(["first", "second", "third"]);
  expect(clock.timers).toBe(0);
});

test("when all waits have ended, their timer is gone", async () => {
  const clock = movableClock();
  const timeouts = createTimeouts(clock);
  const ends = [10, 20].map((limitMs) => timeouts.start(limitMs, () => {}));
  for (const end of ends) end();
  expect(clock.timers).toBe(0);
  let calls = 0;
  timeouts.start(5, () => calls++);
  await clock.advance(5);
  expect(calls).toBe(1);
});
