import type { Measure } from "./report.ts";

export type Goal = {
  readonly metric: string;
  readonly store: string;
  /** The other one, where the goal is a ratio. */
  readonly versus?: string;
  readonly atLeast?: number;
  readonly below?: number;
  readonly atMost?: number;
};

/** What is to be reached, and whether it was. */
export type SaidGoal = {
  readonly metric: string;
  /** In words, such as `below 4 ms`. */
  readonly wanted: string;
  readonly value: number;
  readonly met: boolean;
};

/** The goals of what was measured, each beside what came out. */
export function checkGoals(
  goals: readonly Goal[],
  measures: readonly Measure[],
  store: string,
): SaidGoal[] {
  return goals.flatMap((goal) => {
    const { metric, versus, atLeast, below, atMost } = goal;
    const found = measures.find((each) => each.metric === metric);
    const value = versus ? found?.versus[versus]?.value : found?.value;
    if (goal.store !== store || found === undefined || value === undefined) return [];
    const isWithin = value < (below ?? Infinity) && value <= (atMost ?? Infinity);
    const limit = atMost === undefined ? `below ${below}` : `at most ${atMost}`;
    const wanted = versus ? `at least ${atLeast} x ${versus}` : `${limit} ${found.unit}`;
    return [{ metric, wanted, value, met: isWithin && value >= (atLeast ?? -Infinity) }];
  });
}

export function sayGoals(...given: Parameters<typeof checkGoals>): string[] {
  return checkGoals(...given).map(
    ({ metric, wanted, value, met }) =>
      `to reach, ${metric} ${wanted}: ${value.toFixed(2)}, ${met ? "met" : "missed"}`,
  );
}
