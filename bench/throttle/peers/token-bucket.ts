import type { Contender } from "../fleet.ts";
import { type ProcessLimit, separatePods } from "./pods.ts";

const initialPerS = 1;
const leastPerS = 0.1;
const mostSaved = 10;
const stepMs = 1_000;
/** The share of the rate that was refused last by which the rate grows each second. */
const growth = 0.05;

/**
 * A token bucket whose rate adapts, in each pod: the idea of ATB (Farkiani, Liu and Crowley, "Rethinking HTTP API
 * Rate Limiting: A Client-Side Approach", arXiv 2510.04516). From its abstract: clients that share a quota
 * know nothing of one another, hear nothing but 429s, infer congestion from them and time their calls by a
 * bucket of their own. Its pseudocode and numbers weren't at hand. These are chosen in its favour: twice the rate
 * per second until the first 429, half of it on a 429, once a second, and a twentieth more per second from then on.
 */
export const tokenBucket: Contender = {
  name: "token_bucket",
  about:
    "after ATB's abstract, in each pod: a bucket whose rate grows each second without a 429 and is halved on one",
  settles: false,
  open: (surroundings) => separatePods(surroundings, bucketLimit),
};

function bucketLimit(_podId: string, startMs: number): ProcessLimit {
  let perS = initialPerS;
  let tokens = 1;
  let filledMs = startMs;
  let stepAtMs = startMs + stepMs;
  let refusedPerS: number | undefined;
  let decreasedMs = -Infinity;

  function fill(nowMs: number): void {
    tokens = Math.min(mostSaved, tokens + (perS * (nowMs - filledMs)) / 1_000);
    filledMs = nowMs;
  }

  return {
    // Calls per time are all that is limited.
    limit: () => Infinity,
    waitMs(nowMs) {
      fill(nowMs);
      return tokens >= 1 ? 0 : ((1 - tokens) / perS) * 1_000;
    },
    began() {
      tokens--;
    },
    ended({ kind, beganMs, endedMs }) {
      fill(endedMs);
      if (kind === "throttled") {
        // Calls that were in flight together speak of one and the same rate.
        if (beganMs < decreasedMs || endedMs - decreasedMs < stepMs) return;
        refusedPerS = perS;
        perS = Math.max(leastPerS, perS * 0.5);
        decreasedMs = endedMs;
        stepAtMs = endedMs + stepMs;
      } else if (kind === "success" && endedMs >= stepAtMs) {
        perS += refusedPerS === undefined ? perS : refusedPerS * growth;
        stepAtMs = endedMs + stepMs;
      }
    },
  };
}
