import { countsIn, noRollingCounts, rolled, type RollingCounts, withCounts } from "./windows.ts";
import { addCounts, type OutcomeCounts, noCounts, type Sample } from "./sample.ts";
import type { BreakerSettings } from "../settings.ts";

/**
 * The hard stop above an error rate. Closed: calls pass, and are counted. Open: no call passes, for a
 * time that doubles whenever it proves too short. Half open: a few calls pass, and decide.
 */
export type Breaker =
  | { readonly state: "closed"; readonly lately: RollingCounts }
  | { readonly state: "open"; readonly remainingMs: number; readonly coolMs: number }
  | { readonly state: "half_open"; readonly successes: number; readonly coolMs: number };

export const closedBreaker: Breaker = { state: "closed", lately: noRollingCounts };

/** Ten to twenty seconds: enough for twenty calls of a slow downstream, and an outage is noticed soon. */
const halfMs = 10_000;

/** The breaker after `elapsedMs`: an open one that has cooled becomes half open. */
export function cooledBreaker(breaker: Breaker, elapsedMs: number): Breaker {
  switch (breaker.state) {
    case "closed":
      return { ...breaker, lately: rolled(breaker.lately, noCounts, { elapsedMs, halfMs }) };
    case "open": {
      const remainingMs = breaker.remainingMs - elapsedMs;
      if (remainingMs > 0) return { ...breaker, remainingMs };
      return { state: "half_open", successes: 0, coolMs: breaker.coolMs };
    }
    case "half_open":
      return breaker;
  }
}

/**
 * The breaker after these calls. `counts` are those of the present epoch, which began since the breaker's
 * last change. A throttled call shows that the downstream is up, but not that it works.
 */
export function nextBreaker(
  breaker: Breaker,
  settings: BreakerSettings,
  { sample, counts }: { sample: Sample | undefined; counts: OutcomeCounts },
): Breaker {
  switch (breaker.state) {
    case "closed": {
      if (!sample) return breaker;
      const lately = withCounts(breaker.lately, addCounts(sample.counts, sample.earlier));
      return isOutage(countsIn(lately), settings)
        ? opened(settings.coolMs)
        : { state: "closed", lately };
    }
    case "open":
      return breaker;
    case "half_open": {
      if (counts.timeout + counts.server_error > 0) {
        return opened(Math.min(settings.maxCoolMs, breaker.coolMs * 2));
      }
      const successes = breaker.successes + counts.success;
      return successes >= settings.probes ? closedBreaker : { ...breaker, successes };
    }
  }
}

function isOutage(lately: OutcomeCounts, { rate, minCalls }: BreakerSettings): boolean {
  const failed = lately.timeout + lately.server_error;
  const answered = lately.success + failed;
  return failed > 0 && answered >= minCalls && failed / answered >= rate;
}

function opened(coolMs: number): Breaker {
  return { state: "open", remainingMs: coolMs, coolMs };
}
