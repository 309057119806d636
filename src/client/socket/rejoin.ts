import type { Clock } from "../../base/clock.ts";
import { fraction, type Random } from "../../base/random.ts";
import { jitteredMs } from "../../base/backoff.ts";

/** When to join again after something went wrong: at once the first time, then ever later. */
export type Rejoin = {
  /** `moreMs`: how much later than `atLeastMs`, at most. */
  plan(join: () => void, atLeastMs?: number, moreMs?: number): void;
  cancel(): void;
  /** What went wrong before has nothing to do with what goes wrong next. */
  forget(): void;
};

// Trouble that is longer ago has nothing to do with what goes wrong now.
const forgottenMs = 30_000;

export function createRejoin(clock: Clock, random: Random): Rejoin {
  let tries = 0;
  let lastMs = -Infinity;
  let cancel: (() => void) | undefined;
  return {
    plan(join, atLeastMs = 0, moreMs?: number) {
      const nowMs = clock.monotonic();
      tries = nowMs - lastMs > forgottenMs ? 0 : tries + 1;
      lastMs = nowMs;
      cancel?.();
      const waitMs = tries === 0 ? 0 : jitteredMs(tries, fraction(random), moreMs);
      cancel = clock.after(waitMs + atLeastMs, join);
    },
    cancel: () => cancel?.(),
    forget() {
      lastMs = -Infinity;
    },
  };
}
