import type { Clock } from "../base/clock.ts";
import { FlotillaError, hasCode } from "../base/errors.ts";
import { withTimeout } from "../base/timeout.ts";

/** How long a caller waits for a store that doesn't answer. */
const limitMs = 5_000;
/** How often one that is away is tried again, and after how long a caller may come back. */
const askMs = 1_000;

/**
 * Calls of a store that may be away while conversations go on. A caller with a file is told so within seconds:
 * it would wait for as long as the store is away. Then others are told at once, but for one a second that
 * tries again.
 *
 * A call that is given up may still land, so only reads and writes that nothing depends on go through it.
 */
export type Outage = <Found>(call: () => Promise<Found>) => Promise<Found>;

/** Where nothing goes on without the store, its own limits count. */
export const unguarded: Outage = (call) => call();

export function createOutage(clock: Clock): Outage {
  /** When a call may be made again; undefined while the store answers. */
  let againMs: number | undefined;

  return async (call) => {
    const nowMs = clock.monotonic();
    if (againMs !== undefined) {
      if (nowMs < againMs) throw isAway();
      againMs = nowMs + limitMs;
    }
    try {
      const found = await withTimeout(clock, limitMs, call(), isAway);
      againMs = undefined;
      return found;
    } catch (error) {
      if (hasCode(error, "store_unavailable")) {
        againMs = clock.monotonic() + askMs;
        throw isAway(error);
      }
      againMs = undefined;
      throw error;
    }
  };
}

function isAway(cause?: unknown): FlotillaError {
  return new FlotillaError(
    "store_unavailable",
    "the store is away, and it has to know of each file: try again later",
    { retryAfterMs: limitMs, ...(cause !== undefined && { cause }) },
  );
}
