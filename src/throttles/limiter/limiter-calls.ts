import type { AcquireOptions } from "./limiter-line.ts";
import { noneOfAny } from "./limiter-reserve.ts";
import { callsLastMs, type LimiterSettings } from "./settings.ts";
import { HeldPermit, type PermitHost } from "./permit.ts";
import type { OutcomeKind } from "../learning/sample.ts";

/** The calls of one limiter that are in flight, and how long they last. */
export function createCalls(settings: LimiterSettings, host: PermitHost) {
  const inFlight = new Set<HeldPermit>();
  const inFlightOf = noneOfAny();
  let begun = 0;
  let longestMs = 0;
  let succeeded = 0;

  /** How long the longest call has lasted, of those that ended and of those that haven't. */
  const longest = (): number => {
    for (const { beganMs } of inFlight) return Math.max(longestMs, host.nowMs() - beganMs);
    return longestMs;
  };

  return {
    /** How many there are, of each priority. */
    inFlightOf,
    get size() {
      return inFlight.size;
    },
    /** How many have begun so far. */
    get begun() {
      return begun;
    },

    begin(asked: AcquireOptions, estimate: number, epoch: number, nowMs: number): HeldPermit {
      const priority = asked.priority ?? "batch";
      const start = {
        priority,
        estimate,
        epoch,
        number: ++begun,
        nowMs,
        // Others wait for `callTimeoutMs` before they take over what a pod that is gone had granted.
        timeoutMs: Math.min(asked.timeoutMs ?? Infinity, settings.callTimeoutMs),
        graceMs: settings.graceMs,
      };
      const permit = new HeldPermit(host, start, asked.signal);
      inFlight.add(permit);
      inFlightOf[priority]++;
      return permit;
    },

    /** A call takes over a permit that was given for it some time ago. */
    takeOver(permit: HeldPermit, epoch: number, signal: AbortSignal | undefined): void {
      permit.begin(epoch, ++begun, signal);
      // They stand in the order in which their calls began.
      inFlight.delete(permit);
      inFlight.add(permit);
    },

    ended(permit: HeldPermit, kind: OutcomeKind, nowMs: number): void {
      inFlight.delete(permit);
      inFlightOf[permit.priority]--;
      longestMs = Math.max(longestMs, nowMs - permit.beganMs);
      if (kind === "success") succeeded++;
    },

    /** Ends those whose time is up, and gives when that of the next one will be. */
    expire(nowMs: number): number {
      let nextMs = Infinity;
      for (const permit of inFlight) {
        if (permit.deadlineMs <= nowMs) permit.expire();
        if (!permit.released) nextMs = Math.min(nextMs, permit.deadlineMs);
      }
      return nextMs;
    },

    longestMs: longest,

    /** How long those that are in flight now may still last, for those who can't ask any more. */
    lastMs: (): number => callsLastMs(settings, { succeeded, longestMs: longest() }),
  };
}
