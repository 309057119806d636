import type { Database } from "../store/database.ts";
import type { MovableClock } from "./clock.ts";
import { nextDueMs } from "./skip.ts";
import { turn } from "./turns.ts";

export type Moving = {
  /** Lets one thing happen that is due by then. Gives whether there was one; else time is there. */
  step(untilMs: number): Promise<boolean>;
  /** Something was done from outside, so time goes on step by step for a while. */
  stir(): void;
};

/**
 * Moves time on timer by timer, and in leaps while nothing can happen: pods beat and poll every second,
 * and a test that waits for a schedule of tomorrow shouldn't wait for all of that. A leap ends well
 * before what is due next, and to pods it is as if the machine had been asleep.
 */
export function createMoving(parts: {
  store: Database;
  clock: MovableClock;
  /** How long after anything happened others may still find out, such as that a pod is dead. */
  settleMs: number;
  /** When the test's own timers are due, which aren't leapt over either. */
  ownMs: () => number;
}): Moving {
  const { store, clock, settleMs, ownMs } = parts;
  let quietMs = 0;

  const leap = async (untilMs: number): Promise<void> => {
    const nowMs = clock.monotonic();
    if (nowMs < quietMs || untilMs - nowMs < settleMs * 2) return;
    quietMs = nowMs + settleMs;
    const dueInMs = (await nextDueMs(store, clock.now())) - clock.now();
    const dueMs = Math.min(nowMs + dueInMs, ownMs());
    const leapMs = Math.min(untilMs, dueMs - settleMs);
    // Where nothing is due at all there is nowhere to leap to.
    if (leapMs <= nowMs + settleMs || leapMs === Infinity) return;
    clock.moveTo(leapMs);
    quietMs = dueMs + settleMs;
  };

  return {
    async step(untilMs) {
      await leap(untilMs);
      if (!clock.fireNext(untilMs)) return false;
      await turn();
      return true;
    },
    stir() {
      quietMs = clock.monotonic() + settleMs;
    },
  };
}
