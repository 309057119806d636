import { contentionMs } from "../../base/backoff.ts";
import { type Clock, sleep } from "../../base/clock.ts";
import { FlotillaError, hasCode, storeAwayCodes } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";

/** How long a command or a read is retried, whatever prevents it. */
export const patienceMs = 15_000;

/** How long after the deadline a caller still waits for a definite result. */
export const graceMs = 1_000;

/** The longest delay between two tries while the store is unreachable. */
export const maxRetryDelayMs = 250;

/** The deadline of one call, shared by its reads and the command that it then submits. */
export type CallDeadline = {
  /** At least 1. */
  readonly leftMs: number;
  /** Reads, and retries while the store is unreachable and time is left. */
  read<Found>(read: () => Promise<Found>): Promise<Found>;
};

export function startDeadline({ clock, random }: { clock: Clock; random: Random }): CallDeadline {
  const endMs = clock.monotonic() + patienceMs;
  const leftMs = () => Math.max(1, endMs - clock.monotonic());

  /** Bounds the wait when the store does not respond at all. */
  const inTime = <Found>(reading: Promise<Found>): Promise<Found> =>
    new Promise((resolve, reject) => {
      const cancel = clock.after(leftMs() + graceMs, () =>
        reject(new FlotillaError("store_unavailable", "the store did not answer in time")),
      );
      void reading.finally(cancel).then(resolve, reject);
    });

  return {
    get leftMs() {
      return leftMs();
    },
    async read(read) {
      for (let tries = 1; ; tries++) {
        try {
          return await inTime(read());
        } catch (error) {
          if (!hasCode(error, ...storeAwayCodes) || clock.monotonic() >= endMs) throw error;
        }
        await sleep(clock, Math.min(contentionMs(tries, random), maxRetryDelayMs, leftMs()));
      }
    },
  };
}
