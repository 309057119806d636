/**
 * A thread of a simulated process: what happens to it waits while the thread is held, and never
 * happens once it is dead. A held thread's timers and answers all come at once when it goes on.
 */
import type { Clock } from "../../src/base/clock.ts";
import type { Scheduler } from "./scheduler.ts";

export type Lane = {
  readonly dead: boolean;
  /** Runs this on the thread: now, or when it goes on. */
  enter(happen: () => void): void;
  /** Stops the thread for a while. Holds add up. */
  hold(durationMs: number): void;
  /** Lets it go on at once. */
  release(): void;
  kill(): void;
};

export function createLane(scheduler: Scheduler): Lane {
  let dead = false;
  let heldUntilMs = -1;
  let waiting: (() => void)[] = [];

  const goOn = () => {
    if (scheduler.nowMs < heldUntilMs) return;
    const all = waiting;
    waiting = [];
    // Each is an event of its own, because on a real thread promises settle between two of them.
    for (const happen of all) scheduler.after(0, () => lane.enter(happen));
  };
  const lane: Lane = {
    get dead() {
      return dead;
    },
    enter(happen) {
      if (dead) return;
      if (scheduler.nowMs < heldUntilMs) waiting.push(happen);
      else happen();
    },
    hold(durationMs) {
      heldUntilMs = Math.max(heldUntilMs, scheduler.nowMs + durationMs);
      scheduler.after(heldUntilMs - scheduler.nowMs, goOn);
    },
    release() {
      heldUntilMs = -1;
      goOn();
    },
    kill() {
      dead = true;
      waiting = [];
    },
  };
  return lane;
}

/** The clock of one thread. Its wall time can be set wrong, and each has a monotonic time of its own. */
export function laneClock(
  scheduler: Scheduler,
  lane: Lane,
  { wallMs, startMs }: { wallMs: () => number; startMs: number },
): Clock {
  return {
    now: () => Math.floor(wallMs()),
    monotonic: () => startMs + scheduler.nowMs,
    after(delayMs, callback) {
      let live = true;
      const cancel = scheduler.after(delayMs, () =>
        lane.enter(() => {
          if (live) callback();
        }),
      );
      return () => {
        live = false;
        cancel();
      };
    },
  };
}
