import type { Goal } from "../goals.ts";

export const goals: readonly Goal[] = [
  { metric: "flows.transitions", store: "postgres", versus: "dbos", atLeast: 10 },
  { metric: "flows.transitions", store: "postgres", versus: "restate", atLeast: 2.5 },
  { metric: "flows.transition.p50", store: "postgres", below: 1 },
  { metric: "flows.transition.p50", store: "sqlite", below: 0.5 },
  { metric: "flows.resume_s", store: "postgres", below: 10 },
  { metric: "flows.resume_s", store: "sqlite", below: 10 },
];
