import type { Goal } from "../goals.ts";

export const goals: readonly Goal[] = [
  { metric: "steps.stored", store: "postgres", versus: "dbos", atLeast: 15 },
  { metric: "steps.stored", store: "postgres", versus: "restate", atLeast: 3.5 },
  { metric: "steps.stored", store: "postgres", versus: "absurd", atLeast: 8 },
  { metric: "steps.stored", store: "postgres", versus: "flows", atLeast: 1 },
  { metric: "steps.stored", store: "sqlite", versus: "flows", atLeast: 1 },
  { metric: "steps.step.p50", store: "postgres", below: 1 },
  { metric: "steps.step.p50", store: "sqlite", below: 0.5 },
  // A ratio above 1 is shorter, so that this is at most 1.5 times as long.
  { metric: "steps.resume_s", store: "postgres", versus: "flows", atLeast: 0.67 },
  { metric: "steps.resume_s", store: "sqlite", versus: "flows", atLeast: 0.67 },
  { metric: "steps.depth", store: "postgres", below: 1.2 },
  { metric: "steps.depth", store: "sqlite", below: 1.2 },
  { metric: "steps.replay_ms", store: "postgres", below: 250 },
  { metric: "steps.replay_ms", store: "sqlite", below: 250 },
  { metric: "steps.bytes", store: "postgres", below: 201 },
  { metric: "steps.bytes", store: "sqlite", below: 201 },
];
