import { snooze, unrecoverable } from "flotilla";
import { Unhealthy } from "../parts/guard.ts";
import { Refused } from "../refused.ts";

/** How long to wait before the guard is asked again. */
const againMs = 1_000;

/**
 * Around every transition: sorts what the parts throw into what a run understands. What was refused
 * fails the run now, since it is refused again. What the guard didn't let begin isn't an attempt.
 * Everything else is tried again.
 */
export async function sorted(_context: unknown, next: () => Promise<unknown>): Promise<unknown> {
  try {
    return await next();
  } catch (thrown) {
    if (thrown instanceof Refused) {
      throw unrecoverable(`${thrown.reason}: ${thrown.message}`, { by: "user", cause: thrown });
    }
    if (thrown instanceof Unhealthy) throw snooze(againMs, thrown.message);
    throw thrown;
  }
}
