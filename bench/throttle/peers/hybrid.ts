import type { Contender } from "../fleet.ts";
import { averageOf } from "./gradient2.ts";
import { type ProcessLimit, separatePods } from "./pods.ts";

const initialLimit = 2;
const tolerance = 1.5;
const mostCut = 0.5;

/**
 * AIMD that also goes by latency, as Obin describes it for calls of language models ("Addressing LLM
 * Availability Constraints with Proactive Congestion Control", 2026): one more per round of successes and half
 * on a 429, and where answers take longer than they should the limit shrinks before there is a 429. Their
 * thresholds weren't at hand. Those of Gradient2 are used: a round's average against a long average, of which
 * half as much again is tolerated.
 */
export const hybrid: Contender = {
  name: "hybrid",
  about:
    "AIMD in each pod, which also shrinks by the gradient of latency before there is a 429, as Obin describes it",
  settles: false,
  open: (surroundings) => separatePods(surroundings, hybridLimit),
};

function hybridLimit(): ProcessLimit {
  let limit = initialLimit;
  const long = averageOf();
  let count = 0;
  let sumMs = 0;
  let decreasedMs = -Infinity;

  function roundEnded(): void {
    const shortMs = sumMs / count;
    const longMs = long.add(shortMs);
    if (longMs / shortMs > 2) long.scale(0.95);
    const gradient = Math.max(mostCut, Math.min(1, (tolerance * longMs) / shortMs));
    limit = gradient < 1 ? Math.max(1, limit * gradient) : limit + 1;
    count = 0;
    sumMs = 0;
  }

  return {
    limit: () => limit,
    ended({ kind, latencyMs, beganMs, endedMs }) {
      if (kind === "success") {
        count++;
        sumMs += latencyMs;
        if (count >= Math.floor(limit)) roundEnded();
      }
      // Calls that were in flight together speak of one and the same limit.
      if ((kind !== "throttled" && kind !== "timeout") || beganMs < decreasedMs) return;
      limit = Math.max(1, limit * 0.5);
      decreasedMs = endedMs;
      count = 0;
      sumMs = 0;
    },
  };
}
