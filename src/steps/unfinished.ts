import type { Json } from "../base/json.ts";
import type { Step } from "./model.ts";

/**
 * What steps that have not ended have made so far. An owner that keeps it gives it to its next attempt, in
 * case this one is lost. It may be older than what was made, and only the row of an ended step counts.
 */
export type Unfinished = {
  /** What the attempts before have kept of this step. */
  kept(key: string): Json | undefined;
  /** Keeps what this returns, whenever the owner stores it; undefined: nothing from now on. */
  keep(key: string, make: (() => Json | undefined) | undefined): void;
  /** What was kept of this step is shown again, or isn't wanted. */
  settle(key: string): void;
};

const unfinished = new WeakMap<Step, Unfinished>();

export function setUnfinished(step: Step, its: Unfinished): void {
  unfinished.set(step, its);
}

/** Undefined where the owner of these steps keeps nothing: in tasks, and within other steps. */
export function unfinishedOf(step: Step): Unfinished | undefined {
  return unfinished.get(step);
}
