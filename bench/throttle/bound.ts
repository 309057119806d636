/**
 * The slack of the bound: a lower one is known to every pod one round of reports and one of shares
 * later, and calls that were granted before go on until they end.
 */
export const slackMs = 3_000;

/** Compares what is in flight with the highest bound that pods may still go by. */
export function watchBound() {
  // The bounds of the last while that no later one exceeds, highest first.
  let bounds: { readonly bound: number; untilMs: number }[] = [];
  let worst = -Infinity;
  return {
    get worst() {
      return worst;
    },
    look(nowMs: number, bound: number, inFlight: number): void {
      bounds = bounds.filter((each) => each.bound > bound && each.untilMs > nowMs);
      bounds.push({ bound, untilMs: nowMs + slackMs });
      worst = Math.max(worst, inFlight - bounds[0]!.bound);
    },
  };
}
