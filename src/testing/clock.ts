import type { Clock } from "../base/clock.ts";

/** A clock that stands still until it is moved. */
export type MovableClock = Clock & {
  /** When the next timer is due, by `monotonic`. */
  nextMs(): number | undefined;
  /** Moves to the next timer, if it is due by then, and fires it. Gives whether there was one. */
  fireNext(byMs: number): boolean;
  /** Moves on without firing anything. */
  moveTo(atMs: number): void;
};

type Timer = { readonly atMs: number; readonly callback: () => void };

/** Starts at `startMs` since 1970; timers of the same moment fire in the order they were set. */
export function movableClock(startMs: number): MovableClock {
  let nowMs = 0;
  let timers: Timer[] = [];

  const next = (): Timer | undefined => {
    let first: Timer | undefined;
    for (const timer of timers) if (!first || timer.atMs < first.atMs) first = timer;
    return first;
  };
  const drop = (timer: Timer) => {
    timers = timers.filter((each) => each !== timer);
  };
  return {
    now: () => startMs + Math.floor(nowMs),
    monotonic: () => nowMs,
    after(delayMs, callback) {
      const timer = { atMs: nowMs + Math.max(0, delayMs), callback };
      timers.push(timer);
      return () => drop(timer);
    },
    nextMs: () => next()?.atMs,
    fireNext(byMs) {
      const timer = next();
      if (!timer || timer.atMs > byMs) return false;
      nowMs = Math.max(nowMs, timer.atMs);
      drop(timer);
      timer.callback();
      return true;
    },
    moveTo(atMs) {
      nowMs = Math.max(nowMs, atMs);
    },
  };
}

/** The same clock for the test itself, whose own timers are never leapt over. */
export function watchedClock(clock: Clock): Clock & { nextMs(): number } {
  const due = new Set<{ readonly atMs: number }>();
  return {
    now: clock.now,
    monotonic: clock.monotonic,
    after(delayMs, callback) {
      const timer = { atMs: clock.monotonic() + Math.max(0, delayMs) };
      due.add(timer);
      const cancel = clock.after(delayMs, () => {
        due.delete(timer);
        callback();
      });
      return () => {
        due.delete(timer);
        cancel();
      };
    },
    nextMs: () => Math.min(Infinity, ...[...due].map((timer) => timer.atMs)),
  };
}
