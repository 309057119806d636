import { type ControllerState, initialState, step } from "../learning/limit-controller.ts";
import { addOutcome, emptySample, type MeasuredOutcome, type Sample } from "../learning/sample.ts";
import type { ControllerSettings } from "../settings.ts";

/** A second's sample of calls that began under the present limit and used it. */
export function calls(
  state: Pick<ControllerState, "epoch" | "limit">,
  ended: Partial<Record<MeasuredOutcome["kind"], number>>,
  outcome: Partial<MeasuredOutcome> = {},
): Sample {
  const spanMs = 1_000;
  let sample: Sample = { ...emptySample(state.epoch), spanMs, peak: state.limit, limited: true };
  for (const [kind, count] of Object.entries(ended) as [MeasuredOutcome["kind"], number][]) {
    for (let call = 0; call < count; call++) {
      sample = addOutcome(sample, { kind, latencyMs: 100, ...outcome }, state.epoch);
    }
  }
  return sample;
}

export function stepped(settings: ControllerSettings, state: ControllerState, sample: Sample) {
  return step(settings, state, { elapsedMs: sample.spanMs, sample });
}

/** A controller that has held a limit for a while: it grew until it was refused above it. */
export function holdingAt(settings: ControllerSettings, limit: number): ControllerState {
  const state = initialState({ ...settings, initial: limit });
  const memory = { algorithm: "ceiling", phase: "holding", quietMs: 0, waitMs: 4_000 } as const;
  const ceiling = { ...memory, shaken: false };
  if (settings.algorithm === "aimd") return state;
  if (settings.algorithm === "ceiling") return { ...state, memory: ceiling };
  return { ...state, memory: { algorithm: "gradient", ceiling, shrunk: null } };
}
