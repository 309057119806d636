import type { Clock } from "../../base/clock.ts";
import type { AcquireOptions } from "../../throttles/limiter/wait-queue.ts";
import type { Limiter } from "../../throttles/limiter/limiter.ts";
import type { Line } from "./throttle-demand.ts";

// A share comes within a second, and nobody knows how long calls take before the first has ended.
const unknownMs = 500;
// Then each waits a little longer than the one before: they would come back all at once else, ahead of
// others whose permits are free.
const apartMs = 20;
const leastMs = 50;
// What the fleet learns meanwhile may be that there is room, and a task that is put off doesn't hear of it.
const mostMs = 10_000;
// One that is due again isn't claimed in the same moment.
const lingersMs = 1_000;

/**
 * Tasks that were claimed and given back because there was no permit for them, as happens where only
 * their input says which permit they need. They still wait for it, so they are counted.
 */
export function createReturned(clock: Clock) {
  const untilMs = new Map<Limiter, number[]>();
  const tryFromMs = new Map<Line, number>();
  return {
    /** How long such a task should be put off. */
    giveBack(limiter: Limiter, line: Line, asked: AcquireOptions): number {
      const known = untilMs.get(limiter) ?? [];
      const waitMs = limiter.whyNot(asked)?.waitMs ?? unknownMs + known.length * apartMs;
      const delayMs = Math.ceil(Math.min(mostMs, Math.max(leastMs, waitMs)));
      const nowMs = clock.monotonic();
      known.push(nowMs + delayMs + lingersMs);
      untilMs.set(limiter, known);
      tryFromMs.set(line, nowMs + Math.min(delayMs, lingersMs));
      return delayMs;
    },

    /** The same where there is no limiter for its key. */
    putOff(line: Line): number {
      tryFromMs.set(line, clock.monotonic() + lingersMs);
      return lingersMs;
    },

    /** How many of those wait for permits of this limiter. */
    of(limiter: Limiter): number {
      const known = untilMs.get(limiter);
      if (known === undefined) return 0;
      const nowMs = clock.monotonic();
      const left = known.filter((each) => each > nowMs);
      if (left.length > 0) untilMs.set(limiter, left);
      else untilMs.delete(limiter);
      return left.length;
    },

    /** Whether one may be claimed to see whose permit it needs. */
    mayTry: (line: Line): boolean => clock.monotonic() >= (tryFromMs.get(line) ?? 0),

    /** How long it is until one may; undefined where it may now. */
    tryInMs(line: Line): number | undefined {
      const inMs = (tryFromMs.get(line) ?? 0) - clock.monotonic();
      return inMs > 0 ? inMs : undefined;
    },

    /** One has found its permit, so another may, too. */
    came: (line: Line): void => void tryFromMs.delete(line),

    /** Those of which some may wait. */
    limiters: (): Limiter[] => [...untilMs.keys()],
  };
}
