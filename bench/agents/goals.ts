import type { Goal } from "../goals.ts";

const onBoth = (goal: Omit<Goal, "store">): Goal[] => [
  { ...goal, store: "sqlite" },
  { ...goal, store: "postgres" },
];

export const goals: readonly Goal[] = [
  ...onBoth({ metric: "agents.call_ms", below: 3 }),
  // At most twice what was said.
  ...onBoth({ metric: "agents.bytes", below: 2.005 }),
  ...onBoth({ metric: "agents.resume_s", below: 1 }),
  { metric: "agents.resume.silent_s", store: "postgres", below: 7 },
  // One call at most.
  ...onBoth({ metric: "agents.repeated", below: 2 }),
];
