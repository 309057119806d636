import { FlotillaError } from "../../base/errors.ts";
import type { Priority } from "./wait-queue.ts";

export type LimiterErrors = ReturnType<typeof createLimiterErrors>;

/** What those get who ask a limiter for a permit and can't have one. */
export function createLimiterErrors(name: string, key: string) {
  const label = key === "" ? `the throttle "${name}"` : `the throttle "${name}" (${key})`;
  const details = { throttle: name, key };
  return {
    open: (retryAfterMs: number) =>
      new FlotillaError(
        "throttle_open",
        `${label} lets no calls through for now, since too many have failed`,
        { retryAfterMs, details: { ...details, retryAfterMs } },
      ),

    full: (priority: Priority, maxWaiting: number) =>
      new FlotillaError(
        "throttle_full",
        `${maxWaiting} calls of priority ${priority} wait for ${label} already`,
        { details: { ...details, priority, maxWaiting } },
      ),

    waitTimedOut: (maxWaitMs: number) =>
      new FlotillaError("timeout", `no permit of ${label} came free within ${maxWaitMs} ms`, {
        details: { ...details, maxWaitMs },
      }),

    closed: () =>
      new FlotillaError("closed", `${label} belongs to a pod that has stopped`, { details }),
  };
}
