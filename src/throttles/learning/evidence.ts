import type { Counts } from "./sample.ts";

/** What an algorithm decides on: everything that is known of the present limit. */
export type Evidence = {
  readonly limit: number;
  readonly elapsedMs: number;
  /** Calls that began under the present limit were throttled, or too many of them failed otherwise. */
  readonly struck: "throttled" | "errors" | null;
  /** Some call that began under it timed out. */
  readonly timedOut: boolean;
  /** Pods have braked by themselves by now. */
  readonly restrained: boolean;
  /** How the calls of the last seconds ended that began under the present limit. */
  readonly recent: Counts;
  /** A whole round of calls succeeded, at a limit that was really used. */
  readonly whole: boolean;
  /** For a while as many calls succeeded, and none was throttled, whenever they began. */
  readonly calm: boolean;
  /** How many times its usual latency the downstream takes, and how many of that are tolerated. */
  readonly slowness: number | null;
  readonly tolerance: number;
  /** How the share of weighted errors has risen since the window before. */
  readonly errorRise: number;
  /** How many calls the downstream works on at once, as measured. */
  readonly accepted: number | null;
};

export type Move<Memory> = {
  readonly limit: number;
  readonly memory: Memory;
  /** A strike was answered: calls that were in flight with it have been heard by that. */
  readonly reacted?: true;
  /** For how long no call may begin. */
  readonly coolMs?: number;
  /** The latency turned out not to come from our load, and is to be taken for usual. */
  readonly rebase?: true;
};

/** The brake of the seed: what is left of the limit after a strike. */
export const brakeShare = 0.5;

export function braked(limit: number): number {
  return Math.floor(limit * brakeShare);
}

export function isSlow({ slowness, tolerance }: Evidence): boolean {
  return slowness !== null && slowness > tolerance;
}
