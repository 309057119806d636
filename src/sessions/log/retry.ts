import { contentionMs } from "../../base/backoff.ts";
import { type Clock, sleep } from "../../base/clock.ts";
import { FlotillaError, hasCode } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";

/** How long what is asked of a session is tried, whatever keeps it from being stored. */
export const patienceMs = 15_000;

/** What can be known for certain is known this long after time was up. */
export const graceMs = 1_000;

/** A store that is away is asked again after this time at the latest. */
export const maxRetryDelayMs = 250;

/** What a store says that is away or too busy, and that asking again may change. */
export const transientStoreCodes = ["store_busy", "store_unavailable"] as const;

/** The time of one call, of which what it looks up takes some and what it then asks for has the rest. */
export type CallDeadline = {
  /** At least 1. */
  readonly leftMs: number;
  /** Reads, and again while the store is away and there is time. */
  read<Found>(read: () => Promise<Found>): Promise<Found>;
};

export function startDeadline({ clock, random }: { clock: Clock; random: Random }): CallDeadline {
  const endMs = clock.monotonic() + patienceMs;
  const leftMs = () => Math.max(1, endMs - clock.monotonic());

  /** A store that says nothing at all keeps no caller for longer than its time. */
  const inTime = <Found>(reading: Promise<Found>): Promise<Found> =>
    new Promise((resolve, reject) => {
      const cancel = clock.after(leftMs() + graceMs, () =>
        reject(new FlotillaError("store_unavailable", "the store hasn't answered in time")),
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
          if (!hasCode(error, ...transientStoreCodes) || clock.monotonic() >= endMs) throw error;
        }
        await sleep(clock, Math.min(contentionMs(tries, random), maxRetryDelayMs, leftMs()));
      }
    },
  };
}
