import { fraction, type Random } from "../../../src/base/random.ts";
import type { Contender } from "../fleet.ts";
import { type Call, type ProcessLimit, separatePods } from "./pods.ts";

// The published defaults, but for the smallest limit: theirs is 4 per process.
const initialLimit = 20;
const minLimit = 1;
const maxLimit = 100;
const decrease = 0.8;
const increase = 0.05;
const cooldownMs = 15_000;
const leastRound = 4;
const backoffMs = 3_000;
const maxBackoffMs = 1_800_000;

/**
 * The adaptive connections of Inspect, as its documentation describes them ("Model Concurrency"): twice the
 * limit after each round of successes until the first 429, a twentieth more from then on, × 0.8 on a 429 and
 * no other cut for 15 s, or as long as the answer's headers ask for. Successes don't count until that is over.
 * Timeouts and errors don't shrink the limit. A call that fails keeps its connection and is repeated after 3 s,
 * then after twice as long each time; where it succeeds then, it doesn't count. That the connection is kept
 * meanwhile follows from that, and isn't stated; up to 3 s more by chance are added here.
 */
export const inspect: Contender = {
  name: "inspect",
  about:
    "the documented adaptive connections of Inspect in each pod: × 2 per round, then + 5 %; × 0.8 on 429, once in 15 s; what fails is repeated after 3 s, 6 s and so on",
  settles: false,
  open: (surroundings) => separatePods(surroundings, () => inspectLimit(surroundings.random)),
};

function inspectLimit(random: Random): ProcessLimit {
  let limit = initialLimit;
  let successes = 0;
  let wasRefused = false;
  let coolUntilMs = 0;

  function refused(call: Call): void {
    const { endedMs } = call;
    if (endedMs >= coolUntilMs) {
      limit = Math.max(minLimit, Math.floor(limit * decrease));
      wasRefused = true;
      successes = 0;
      coolUntilMs = endedMs + cooldownMs;
    }
    coolUntilMs = Math.max(coolUntilMs, endedMs + askedMs(call));
  }

  function succeeded(): void {
    successes++;
    if (successes < Math.max(leastRound, limit)) return;
    successes = 0;
    const more = wasRefused ? Math.max(1, Math.floor(limit * increase)) : limit;
    limit = Math.min(maxLimit, limit + more);
  }

  return {
    limit: () => limit,
    ended(call) {
      const { kind, endedMs, repeats } = call;
      if (kind === "throttled") refused(call);
      if (kind !== "success") {
        const jitterMs = backoffMs * fraction(random);
        return Math.min(maxBackoffMs, backoffMs * 2 ** repeats + jitterMs);
      }
      if (repeats === 0 && endedMs >= coolUntilMs) succeeded();
      return undefined;
    },
  };
}

/** What is read of an answer: `Retry-After`, or else when the limit on requests is reset. */
function askedMs({ headers }: Call): number {
  const seconds = headers?.["retry-after"] ?? headers?.["x-ratelimit-reset-requests"];
  return seconds === undefined ? 0 : Number.parseFloat(seconds) * 1_000;
}
