import type { Measure } from "../report.ts";

type Goal = {
  readonly metric: string;
  readonly store: string;
  /** The other one, where the goal is a ratio. */
  readonly versus?: string;
  readonly atLeast?: number;
  readonly below?: number;
};

const goals: readonly Goal[] = [
  { metric: "flows.transitions", store: "postgres", versus: "dbos", atLeast: 10 },
  { metric: "flows.transitions", store: "postgres", versus: "restate", atLeast: 2.5 },
  { metric: "flows.transition.p50", store: "postgres", below: 1 },
  { metric: "flows.transition.p50", store: "sqlite", below: 0.5 },
  { metric: "flows.resume_s", store: "postgres", below: 10 },
  { metric: "flows.resume_s", store: "sqlite", below: 10 },
];

/** What is to be reached, and whether it was, for what was measured. */
export function goalsOf(measures: readonly Measure[], store: string): string[] {
  return goals.flatMap((goal) => {
    const found = measures.find(({ metric }) => metric === goal.metric);
    const value = goal.versus ? found?.versus[goal.versus]?.value : found?.value;
    if (goal.store !== store || found === undefined || value === undefined) return [];
    const { versus, atLeast = -Infinity, below = Infinity } = goal;
    const met = value >= atLeast && value < below;
    const wanted = versus ? `at least ${atLeast} x ${versus}` : `below ${below} ${found.unit}`;
    return [`to reach, ${goal.metric} ${wanted}: ${value.toFixed(2)}, ${met ? "met" : "missed"}`];
  });
}
