import { declareThrottle } from "../../../src/throttles/declaration.ts";

// All times are short beside what goes wrong, so that shares are lost, taken over and won back in a
// run of a minute.
export const leaseMs = 6_000;
export const callTimeoutMs = 2_000;
export const graceMs = 200;
export const longestMs = callTimeoutMs + graceMs;

export const place = { name: "api", key: "" };

export const declared = declareThrottle(place.name, {
  leaseMs,
  callTimeoutMs,
  graceMs,
  initial: 4,
  max: 60,
  breaker: { coolMs: 500, maxCoolMs: 2_000 },
});
