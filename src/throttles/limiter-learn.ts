import { allowed, type ControllerState, firstState, step } from "./learning/controller.ts";
import type { Learner } from "./limiter/limiter.ts";
import type { Settings } from "./settings.ts";

/** Learns on this pod alone, from what its own calls meet with. */
export function createLearner(settings: Settings): Learner {
  let state: ControllerState = firstState(settings);
  return {
    allowance: () => allowed(settings, state),
    learn(elapsedMs, sample) {
      state = step(settings, state, { elapsedMs, sample });
    },
    state: () => state,
  };
}
