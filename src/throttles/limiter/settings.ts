import type { Reserve } from "./admission.ts";
import type { ControllerSettings } from "../settings.ts";

/** Who decides how many calls a pod may make at once. */
export const throttleModes = ["local", "leader", "hybrid"] as const;

export type ThrottleMode = (typeof throttleModes)[number];

/** What a pod's limiter goes by. All of it is given; defaults are the declaration's business. */
export type LimiterSettings = {
  readonly mode: ThrottleMode;
  /** What the limit is learned by. */
  readonly controller: ControllerSettings;
  readonly callTimeoutMs: number;
  /** How long a call may go on after its signal has fired, before its permit is taken back. */
  readonly graceMs: number;
  /** How many may wait, of each priority. */
  readonly maxWaiting: number;
  readonly reserve: Reserve;
  readonly whenOpen: "wait" | "fail";
  /** What a call is taken to cost in the bucket's unit, where its caller doesn't say. */
  readonly estimate: number;
  /** For how long a pod holds a share of the fleet's permits without renewing it. */
  readonly leaseMs: number;
};

// Calls that last longer than any before them are twice as long at most, as a rule.
const durationHeadroom = 2;
const minDurationMs = 10_000;
// Fewer say too little about how long calls last.
const minCalls = 20;

/**
 * How long calls of a pod that has fallen silent may still last, by the longest that it has made, once
 * it has made some. No call can hold its permit for longer than its timeout and its grace.
 */
export function maxCallDurationMs(
  { callTimeoutMs, graceMs }: Pick<LimiterSettings, "callTimeoutMs" | "graceMs">,
  { succeeded, longestMs }: { succeeded: number; longestMs: number },
): number {
  const maxMs = callTimeoutMs + graceMs;
  if (succeeded < minCalls) return maxMs;
  return Math.min(maxMs, Math.max(minDurationMs, durationHeadroom * longestMs));
}
