import { contentionMs } from "../../base/backoff.ts";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError, hasCode, storeAwayCodes } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";
import { withTimeout } from "../../base/timeout.ts";
import { callUntilAnswered } from "../../store/retry.ts";

/** How long a command or a read is retried, whatever prevents it. */
export const callLimitMs = 15_000;

/** How long after the deadline a caller still waits for a definite result. */
export const graceMs = 1_000;

/** After how long a caller may ask again for what only a database has that is away. */
const inVainMs = 5_000;

/** The longest delay between two tries while the store is unreachable. */
const maxRetryDelayMs = 250;

/** The delay after the `tries`-th failure. Shorter than elsewhere, because a caller waits. */
export function retryDelayMs(tries: number, random: Random): number {
  return Math.min(contentionMs(tries, random), maxRetryDelayMs);
}

/** The deadline of one call, shared by its reads and the command that it then submits. */
export type CallDeadline = {
  /** At least 1. */
  readonly leftMs: number;
  /** Reads, and retries while the store is unreachable and time is left. */
  read<Found>(read: () => Promise<Found>): Promise<Found>;
};

/** Only the database has what was asked for, and it has been away for longer than a caller is kept waiting. */
export function waitsInVain(): FlotillaError {
  const message = "the database is away, and only it has this: try again later";
  return new FlotillaError("store_unavailable", message, {
    retryAfterMs: inVainMs,
    details: { retries: "in vain" },
  });
}

/** Whether a call that is tried again within its time would find the same. */
export function isInVain(error: unknown): boolean {
  return error instanceof FlotillaError && error.details?.["retries"] === "in vain";
}

/** Whether the store may answer a call that is tried again within its time. */
export function mayAnswerSoon(error: unknown): boolean {
  return hasCode(error, ...storeAwayCodes) && !isInVain(error);
}

export function startDeadline({ clock, random }: { clock: Clock; random: Random }): CallDeadline {
  const endMs = clock.monotonic() + callLimitMs;
  const leftMs = () => Math.max(1, endMs - clock.monotonic());

  /** Bounds the wait when the store does not respond at all. */
  const inTime = <Found>(reading: Promise<Found>): Promise<Found> =>
    withTimeout(
      clock,
      leftMs() + graceMs,
      reading,
      () => new FlotillaError("store_unavailable", "the store did not answer in time"),
    );

  return {
    get leftMs() {
      return leftMs();
    },
    read: (read) =>
      callUntilAnswered(() => inTime(read()), {
        clock,
        random,
        mayRetry: mayAnswerSoon,
        limitMs: endMs - clock.monotonic(),
        waitMs: (tries) => Math.min(retryDelayMs(tries, random), leftMs()),
      }),
  };
}
