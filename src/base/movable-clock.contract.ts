import type { Clock } from "./clock.ts";

/** A clock for tests: it stands still until it is moved. */
export type MovableClock = Clock & {
  /** Moves on, firing what falls due on the way, each at its own time and with its work done. */
  advance(byMs: number): Promise<void>;
  /** Moves on as it does for a paused process: what falls due on the way fires late, by `advance`. */
  jump(byMs: number): void;
  /** How many timers are set. */
  readonly timers: number;
};

type Timer = { readonly dueMs: number; readonly callback: () => void };

export function movableClock(startMs = 1_800_000_000_000): MovableClock {
  const timers = new Set<Timer>();
  let elapsedMs = 0;
  let wallMs = startMs;

  const nextDue = (limitMs: number): Timer | undefined => {
    let next: Timer | undefined;
    for (const timer of timers) {
      if (timer.dueMs <= limitMs && (!next || timer.dueMs < next.dueMs)) next = timer;
    }
    return next;
  };
  const move = (byMs: number) => {
    wallMs += byMs;
    elapsedMs += byMs;
  };
  return {
    now: () => wallMs,
    monotonic: () => elapsedMs,
    after(delayMs, callback) {
      const timer = { dueMs: elapsedMs + Math.max(0, delayMs), callback };
      timers.add(timer);
      return () => timers.delete(timer);
    },
    async advance(byMs) {
      const untilMs = elapsedMs + byMs;
      await turns();
      for (let timer = nextDue(untilMs); timer; timer = nextDue(untilMs)) {
        timers.delete(timer);
        move(Math.max(0, timer.dueMs - elapsedMs));
        timer.callback();
        await turns();
      }
      move(untilMs - elapsedMs);
      await turns();
    },
    jump: move,
    get timers() {
      return timers.size;
    },
  };
}

/** Lets everything that is ready run: promises first, then what they have scheduled. */
export async function turns(count = 3): Promise<void> {
  for (let turn = 0; turn < count; turn++) await new Promise((resolve) => setImmediate(resolve));
}

/** Waits for something that happens on another thread or in another process. */
export async function until<Found>(
  what: string,
  condition: () => Found | Promise<Found>,
  limitMs = 30_000,
): Promise<NonNullable<Found>> {
  const deadlineMs = performance.now() + limitMs;
  for (;;) {
    const found = await condition();
    if (found) return found;
    if (performance.now() > deadlineMs) throw new Error(`${what} didn't happen in ${limitMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
