import type { ControllerSettings } from "../settings.ts";
import type { Reserve } from "./priority.ts";

/** Who decides how many calls a pod may make at once. */
export const throttleModes = ["local", "leader", "hybrid"] as const;

export type ThrottleMode = (typeof throttleModes)[number];

/** The settings of a pod's limiter, complete: `declareThrottle` fills in the defaults. */
export type LimiterSettings = {
  readonly mode: ThrottleMode;
  /** How the limit is learned. */
  readonly controller: ControllerSettings;
  readonly callTimeoutMs: number;
  /** How long a call may still run after its signal has fired, before its permit is taken back. */
  readonly graceMs: number;
  /** How many calls may wait, of each priority. */
  readonly maxWaiting: number;
  readonly reserve: Reserve;
  readonly whenOpen: "wait" | "fail";
  /** The cost of a call in the bucket's unit, where its caller gives no estimate. */
  readonly estimate: number;
  /** For how long a pod holds a share of the fleet's permits without renewing it. */
  readonly leaseMs: number;
};

// A call that lasts longer than any before it is rarely more than twice as long.
const durationHeadroom = 2;
const minDurationMs = 10_000;
// Fewer calls say too little about how long calls last.
const minCalls = 20;

/**
 * How long calls of a pod that has fallen silent may still last, estimated from its longest call once
 * enough have succeeded. No call can hold its permit for longer than its timeout and its grace.
 */
export function maxCallDurationMs(
  { callTimeoutMs, graceMs }: Pick<LimiterSettings, "callTimeoutMs" | "graceMs">,
  { succeeded, longestMs }: { succeeded: number; longestMs: number },
): number {
  const maxMs = callTimeoutMs + graceMs;
  if (succeeded < minCalls) return maxMs;
  return Math.min(maxMs, Math.max(minDurationMs, durationHeadroom * longestMs));
}
