import type { Measure } from "./report.ts";

export type Goal = {
  readonly metric: string;
  readonly store: string;
  /** The other one, where the goal is a ratio. */
  readonly versus?: string;
  readonly atLeast?: number;
  readonly below?: number;
};

/** What is to be reached, and whether it was, for what was measured. */
export function sayGoals(
  goals: readonly Goal[],
  measures: readonly Measure[],
  store: string,
): string[] {
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
