import { FlotillaError } from "../../base/errors.ts";
import type { Priority } from "./priority.ts";

export type LimiterErrors = ReturnType<typeof createLimiterErrors>;

/** The errors of a limiter that grants no permit. */
export function createLimiterErrors(name: string, key: string) {
  const label = key === "" ? `the throttle "${name}"` : `the throttle "${name}" (${key})`;
  const details = { throttle: name, key };
  return {
    open: (retryAfterMs: number) =>
      new FlotillaError(
        "throttle_open",
        `${label} stops all calls for now, because too many have failed: try again later`,
        { retryAfterMs, details: { ...details, retryAfterMs } },
      ),

    full: (priority: Priority, maxWaiting: number) =>
      new FlotillaError(
        "throttle_full",
        `${maxWaiting} calls of priority ${priority} already wait for ${label}: slow down, or raise maxWaiting`,
        { details: { ...details, priority, maxWaiting } },
      ),

    waitTimedOut: (maxWaitMs: number) =>
      new FlotillaError("timeout", `got no permit of ${label} within ${maxWaitMs} ms`, {
        details: { ...details, maxWaitMs },
      }),

    closed: () =>
      new FlotillaError("closed", `${label} belongs to a pod that has stopped`, { details }),
  };
}
