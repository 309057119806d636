import type { Contender } from "../fleet.ts";
import { type ProcessLimit, separatePods } from "./pods.ts";

const initialLimit = 2;

/** One more after as many successes as the limit is; half of it on a 429 or a timeout. */
export const aimd: Contender = {
  name: "aimd_per_pod",
  about: "+1 per round of successes, × 0.5 on 429 or timeout (once per round), in each pod",
  settles: false,
  open: (surroundings) => separatePods(surroundings, aimdLimit),
};

function aimdLimit(): ProcessLimit {
  let limit = initialLimit;
  let decreasedMs = -Infinity;
  return {
    limit: () => limit,
    ended({ kind, beganMs, endedMs }) {
      if (kind === "success") limit += 1 / limit;
      // Calls that were in flight together speak of one and the same limit.
      const tells = kind === "throttled" || kind === "timeout";
      if (!tells || beganMs < decreasedMs) return;
      limit = Math.max(1, limit * 0.5);
      decreasedMs = endedMs;
    },
  };
}
