import type { Clock } from "../base/clock.ts";
import type { Database } from "../store/database.ts";
import { readNextDue } from "./sql.ts";

/** A clock that stands still until it is moved. */
type MovableClock = Clock & {
  /** When the next timer is due, by `monotonic`. */
  nextMs(): number | undefined;
  /** Moves to the next timer, if it is due by `byMs`, and fires it. Returns whether there was one. */
  fireNext(byMs: number): boolean;
  /** Moves the time without firing timers. */
  moveTo(atMs: number): void;
};

type Timer = { readonly atMs: number; readonly callback: () => void };

/** Starts at `startMs` since 1970. Timers of the same time fire in the order they were set. */
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

/** The clock for the test itself. Time never leaps over its timers. */
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

type TimeTravel = {
  /** Fires the next timer that is due by `untilMs`. Returns whether there was one. */
  step(untilMs: number): Promise<boolean>;
  /** The test has done something, so for a while time moves timer by timer, without leaps. */
  markActive(): void;
};

/**
 * Moves time timer by timer, and in leaps while nothing is due: pods beat and poll every second, and a
 * test that waits for a schedule of tomorrow shouldn't fire all these timers. A leap ends well before
 * the next due time. To pods it looks as if the machine had been asleep.
 */
export function createTimeTravel(parts: {
  store: Database;
  clock: MovableClock;
  /** How long after an event pods may still react to it, for example detect that a pod is dead. */
  settleMs: number;
  /** When the test's own next timer is due. Time doesn't leap over it. */
  ownMs: () => number;
}): TimeTravel {
  const { store, clock, settleMs, ownMs } = parts;
  let quietFromMs = 0;

  const leap = async (untilMs: number): Promise<void> => {
    const nowMs = clock.monotonic();
    if (nowMs < quietFromMs || untilMs - nowMs < settleMs * 2) return;
    quietFromMs = nowMs + settleMs;
    const dueInMs = (await nextDueMs(store, clock.now())) - clock.now();
    const dueMs = Math.min(nowMs + dueInMs, ownMs());
    const leapMs = Math.min(untilMs, dueMs - settleMs);
    // If nothing is due at all, there is no time to leap to.
    if (leapMs <= nowMs + settleMs || leapMs === Infinity) return;
    clock.moveTo(leapMs);
    quietFromMs = dueMs + settleMs;
  };

  return {
    async step(untilMs) {
      await leap(untilMs);
      if (!clock.fireNext(untilMs)) return false;
      await eventLoopTurn();
      return true;
    },
    markActive() {
      quietFromMs = clock.monotonic() + settleMs;
    },
  };
}

/**
 * The next due time in the store, in milliseconds since 1970: `Infinity` if nothing is due, and 0 if work
 * is in progress, such as a claimed task or an answer. It may wait for any timer, so time must not leap.
 */
async function nextDueMs(database: Database, nowMs: number): Promise<number> {
  const [row] = await database.read(readNextDue(nowMs));
  if (Number(row!["busy"]) > 0) return 0;
  return Math.min(Number(row!["task_at"] ?? Infinity), Number(row!["schedule_at"] ?? Infinity));
}

/** Lets all promises settle that wait for nothing real. */
export function eventLoopTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Waits in real time, for handlers that await real I/O. */
export function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 1));
}

// Between two looks lie a turn of the event loop and a pause of a millisecond. What takes longer is a machine that
// is busy or stood still, which says nothing of what is waited for.
const longestLookMs = 25;

/** Returns a function that checks whether so much real time has passed, while the process was running. */
export function realTimeLimit(limitMs: number): () => boolean {
  let lookedMs = performance.now();
  let passedMs = 0;
  return () => {
    const nowMs = performance.now();
    passedMs += Math.min(nowMs - lookedMs, longestLookMs);
    lookedMs = nowMs;
    return passedMs > limitMs;
  };
}
