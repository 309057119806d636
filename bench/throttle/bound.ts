/**
 * The slack of the bound: a lower one is known to every pod one round of reports and one of shares
 * later, and calls that were granted before go on until they end.
 */
export const slackMs = 3_000;

/** Compares what is in flight with the highest bound that pods may still go by. */
export function watchBound() {
  let present = 0;
  let past: { readonly bound: number; readonly untilMs: number }[] = [];
  let worst = -Infinity;
  return {
    get worst() {
      return worst;
    },
    look(nowMs: number, bound: number, inFlight: number): void {
      if (bound < present) past.push({ bound: present, untilMs: nowMs + slackMs });
      present = bound;
      past = past.filter(({ untilMs }) => untilMs > nowMs);
      let allowed = bound;
      for (const each of past) allowed = Math.max(allowed, each.bound);
      worst = Math.max(worst, inFlight - allowed);
    },
  };
}
