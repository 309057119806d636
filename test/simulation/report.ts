import type { Scenario } from "./scenarios.ts";
import type { Violation, World } from "./world.ts";

/** What has come of one seed. */
export type Report = {
  readonly seed: number;
  readonly violations: readonly Violation[];
  /** Of all that happened, in order. */
  readonly hash: string;
  readonly trace: readonly string[];
  readonly counts: ReadonlyMap<string, number>;
  readonly virtualMs: number;
};

/** What came of a seed, without what it did on the way. */
export type Outcome = Omit<Report, "trace">;

/** Closes the store of a world that has ended, and reports. */
export async function reportOn(seed: number, world: World): Promise<Report> {
  const { scheduler, violations, counts, store } = world;
  await store.database.close();
  return {
    seed,
    violations,
    hash: scheduler.trace.hash(),
    trace: scheduler.trace.lines,
    counts,
    virtualMs: scheduler.nowMs,
  };
}

export const shownViolations = ({ violations }: Pick<Outcome, "violations">): string =>
  violations.map(({ invariant, what }) => `${invariant}: ${what}`).join("; ");

export const replayOf = (scenario: Scenario, seed: number): string =>
  `npx node --conditions=flotilla:source test/simulation/replay.ts ${scenario} ${seed}`;
