import type { LearnedAllowance as Learned } from "./controller.ts";

export type BreakerState = Learned["breaker"];

/** What a pod may do of one throttle at present, learned by itself or together with others. */
export type Allowance = Learned & {
  /** Until when it holds, by the pod's monotonic clock, where it comes from outside. */
  readonly untilMs?: number;
};
