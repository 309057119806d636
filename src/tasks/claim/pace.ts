import { contentionMs } from "../../base/backoff.ts";
import type { Clock } from "../../base/clock.ts";
import type { Random } from "../../base/random.ts";

export type Pace = {
  /** How long the next claim has to wait yet. */
  waitMs(): number;
  /** Whether the last claim failed. */
  readonly failing: boolean;
  succeeded(): void;
  /** Gives how long the next claim has to wait for it. */
  failed(): number;
  foundNothing(): void;
};

// Hints come with every commit of anybody; claims that find nothing are kept to this many a second.
const emptyClaimsPerSecond = 50;

/** How soon a pod may claim again: after failures it waits longer each time, in vain it only claims so often. */
export function createPace({ clock, random }: { clock: Clock; random: Random }): Pace {
  let notBeforeMs = 0;
  let failures = 0;
  let tokens = emptyClaimsPerSecond;
  let tokensAtMs = clock.monotonic();
  return {
    waitMs: () => notBeforeMs - clock.monotonic(),
    get failing() {
      return failures > 0;
    },
    succeeded() {
      failures = 0;
    },
    failed() {
      const waitMs = contentionMs(++failures, random);
      notBeforeMs = clock.monotonic() + waitMs;
      return waitMs;
    },
    foundNothing() {
      const nowMs = clock.monotonic();
      const earned = ((nowMs - tokensAtMs) / 1_000) * emptyClaimsPerSecond;
      tokens = Math.min(emptyClaimsPerSecond, tokens + earned) - 1;
      tokensAtMs = nowMs;
      if (tokens < 0) notBeforeMs = nowMs + 1_000 / emptyClaimsPerSecond;
    },
  };
}
