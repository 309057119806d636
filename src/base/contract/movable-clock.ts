import { movableClock as standingClock } from "../../testing/clock.ts";
import type { Clock } from "../clock.ts";

/** A clock for tests: it stands still until it is moved. */
export type MovableClock = Clock & {
  /** Moves on, firing what falls due on the way, each at its own time and with its work done. */
  advance(byMs: number): Promise<void>;
  /** Moves on as it does for a paused process: what falls due on the way fires late, by `advance`. */
  jump(byMs: number): void;
  /** How many timers are set. */
  readonly timers: number;
};

export function movableClock(startMs = 1_800_000_000_000): MovableClock {
  const clock = standingClock(startMs);
  const set = new Set<object>();
  return {
    ...clock,
    after(delayMs, callback) {
      const timer = {};
      set.add(timer);
      const cancel = clock.after(delayMs, () => {
        set.delete(timer);
        callback();
      });
      return () => {
        set.delete(timer);
        cancel();
      };
    },
    async advance(byMs) {
      const untilMs = clock.monotonic() + byMs;
      await eventLoopTurns();
      while (clock.fireNext(untilMs)) await eventLoopTurns();
      clock.moveTo(untilMs);
      await eventLoopTurns();
    },
    jump: (byMs) => clock.moveTo(clock.monotonic() + byMs),
    get timers() {
      return set.size;
    },
  };
}

/** Moves the clock until a call has ended. */
export async function settledBy<Value>(
  clock: Pick<MovableClock, "advance">,
  call: Promise<Value>,
  stepMs = 50,
): Promise<Value> {
  let hasEnded = false;
  const ending = call.finally(() => (hasEnded = true));
  ending.catch(() => {});
  while (!hasEnded) await clock.advance(stepMs);
  return ending;
}

/** Lets everything that is ready run: promises first, then what they have scheduled. */
export async function eventLoopTurns(count = 3): Promise<void> {
  for (let turn = 0; turn < count; turn++) await new Promise((resolve) => setImmediate(resolve));
}

const lookEveryMs = { least: 2, most: 50 };
// A look takes the machine's time from what it waits for, so a test that has waited long looks rarely.
const waitedShare = 0.05;

/** Waits for something that happens on another thread or in another process. */
export async function until<Found>(
  what: string,
  condition: () => Found | Promise<Found>,
  limitMs = 90_000,
): Promise<NonNullable<Found>> {
  const startedMs = performance.now();
  for (;;) {
    const found = await condition();
    if (found) return found;
    const waitedMs = performance.now() - startedMs;
    if (waitedMs > limitMs) throw new Error(`${what} didn't happen in ${limitMs} ms`);
    const { least, most } = lookEveryMs;
    const pauseMs = Math.min(Math.max(waitedMs * waitedShare, least), most);
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}
