import { describe, expect, test } from "vitest";
import { type ControllerState, firstState, step } from "./controller.ts";
import { addOutcome, emptySample, type OutcomeKind, type Sample } from "./sample.ts";
import { settingsOf } from "./settings.ts";

const seed = settingsOf({ preset: "seed" });

/** Calls that all ran at once, as many as the limit lets, and ended alike. */
function round(state: ControllerState, kind: OutcomeKind, latencyMs = 100): Sample {
  let sample: Sample = { ...emptySample(state.epoch), spanMs: 100, peak: state.limit };
  for (let call = 0; call < state.limit; call++) {
    sample = addOutcome(sample, { kind, latencyMs }, state.epoch);
  }
  return sample;
}

function after(state: ControllerState, sample: Sample): ControllerState {
  return step(seed, state, { elapsedMs: sample.spanMs, sample });
}

describe("the seed's controller", () => {
  test("goes 2, 3, 4, 5, 6, 7, is throttled, and goes on with 3, 4", () => {
    let state = firstState(seed);
    const limits = [state.limit];
    const outcomes: OutcomeKind[] = [
      ...Array<OutcomeKind>(5).fill("success"),
      "throttled",
      "success",
    ];
    for (const kind of outcomes) {
      state = after(state, round(state, kind));
      limits.push(state.limit);
    }
    expect(limits).toEqual([2, 3, 4, 5, 6, 7, 3, 4]);
  });
});
