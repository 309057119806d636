import type { Wall } from "./downstream.ts";
import type { Round } from "./rows.ts";
import {
  churn,
  cold,
  doubled,
  halved,
  type Scenario,
  scenarios,
  silentScenarios,
  steady,
  uneven,
} from "./scenarios.ts";

export type Plan = {
  readonly rounds: readonly Round[];
  /** Who stays away from a round because it would only take time. */
  readonly absent: (round: Round) => readonly string[];
};

const changes = [steady, halved, doubled];
const presets = ["flotilla_gradient", "flotilla_aimd"];

function rounds(
  capacity: number,
  wall: Wall,
  pods: number,
  played: readonly Scenario[],
): readonly Round[] {
  return played.map((scenario) => ({ scenario, capacity, wall, pods }));
}

/** Pods that want little look no different in a picture of all of them. */
export const pictured: readonly Scenario[] = silentScenarios.filter((each) => each !== uneven);

/** The rounds that pictures are drawn of. */
export function isPictured({ scenario, capacity, wall, pods }: Round): boolean {
  return pictured.includes(scenario) && capacity === 20 && wall === "hard" && pods === 8;
}

const full: Plan = {
  rounds: [
    ...rounds(20, "hard", 8, silentScenarios),
    ...rounds(20, "soft", 8, silentScenarios),
    ...rounds(20, "hard", 1, changes),
    ...rounds(20, "soft", 1, changes),
    ...rounds(20, "hard", 2, changes),
    ...rounds(20, "hard", 32, [...changes, churn]),
    ...rounds(200, "hard", 8, changes),
    ...rounds(200, "soft", 8, changes),
    ...rounds(200, "hard", 32, [steady]),
    ...[1, 2, 8, 32].flatMap((pods) => rounds(20, "bucket", pods, [cold])),
    ...rounds(20, "window", 8, [cold]),
    ...rounds(200, "bucket", 8, [cold]),
  ],
  absent: ({ capacity, wall, pods }) => [
    ...(capacity === 20 && pods === 8 ? [] : presets),
    // Above a wall of 200 that refuses, these make ten thousands of calls a second that are all refused.
    ...(capacity === 200 && wall !== "soft" ? ["fixed_double", "gradient2", "envoy"] : []),
  ],
};

const quick: Plan = {
  rounds: [
    ...rounds(20, "hard", 8, [...scenarios, uneven]),
    ...rounds(20, "soft", 8, [steady]),
    ...rounds(20, "bucket", 8, [cold]),
  ],
  absent: ({ scenario }) => (changes.includes(scenario) ? [] : presets),
};

export const plans = { full, quick };
