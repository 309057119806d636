import type { Wall } from "./downstream.ts";
import type { Round } from "./rows.ts";
import { churn, doubled, halved, type Scenario, scenarios, steady, uneven } from "./scenarios.ts";

export type Plan = {
  readonly rounds: readonly Round[];
  /** Who stays away from a round because it would only take time. */
  readonly absent: (round: Round) => readonly string[];
};

const walls: readonly Wall[] = ["hard", "soft"];

function each(played: readonly Scenario[], options: Omit<Round, "scenario" | "wall">): Round[] {
  return walls.flatMap((wall) => played.map((scenario) => ({ ...options, wall, scenario })));
}

const changes = [steady, halved, doubled];

/** The rounds that pictures are drawn of. */
export function isPictured({ capacity, wall, pods }: Round): boolean {
  return capacity === 20 && wall === "hard" && pods === 8;
}

const full: Plan = {
  rounds: [
    ...each([...scenarios, churn, uneven], { capacity: 20, pods: 8 }),
    ...each(changes, { capacity: 20, pods: 1 }),
    ...each(changes, { capacity: 20, pods: 2 }),
    ...each([...changes, churn], { capacity: 20, pods: 32 }),
    ...each(changes, { capacity: 200, pods: 8 }),
    ...each([steady], { capacity: 200, pods: 32 }),
  ],
  // Above a hard wall of 200 these make ten thousands of calls a second that are all refused.
  absent: ({ capacity, wall }) =>
    capacity === 200 && wall === "hard" ? ["fixed_double", "gradient2", "envoy"] : [],
};

const quick: Plan = {
  rounds: [
    ...scenarios.map((scenario) => ({ scenario, capacity: 20, wall: "hard", pods: 8 }) as const),
    { scenario: steady, capacity: 20, wall: "soft", pods: 8 },
    { scenario: uneven, capacity: 20, wall: "hard", pods: 8 },
  ],
  absent: () => [],
};

export const plans = { full, quick };
