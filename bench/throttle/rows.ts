import type { Wall } from "./downstream.ts";
import { type Figures, figuresOf } from "./figures.ts";
import type { Contender } from "./fleet.ts";
import type { Slice } from "./ledger.ts";
import type { Scenario } from "./scenarios.ts";
import { simulate } from "./simulate.ts";

/** What every contender has to show itself in. */
export type Round = {
  readonly scenario: Scenario;
  readonly capacity: number;
  readonly wall: Wall;
  readonly pods: number;
};

export type Row = Figures & {
  readonly scenario: string;
  readonly capacity: number;
  readonly wall: Wall;
  readonly pods: number;
  readonly contender: string;
  /** How many more were in flight than the bound allowed, at worst; for those that have one. */
  readonly overBound: number | undefined;
  /** How long the run went on after the change, for those that never adapted. */
  readonly restS: number;
};

export type Played = { readonly row: Row; readonly slices: readonly Slice[] };

const usualSeed = 20_261_115;

export async function play(round: Round, contender: Contender, seed = usualSeed): Promise<Played> {
  const { scenario, capacity, wall, pods } = round;
  const { slices, overBound } = await simulate({ ...round, contender, seed });
  const row: Row = {
    scenario: scenario.name,
    capacity,
    wall,
    pods,
    contender: contender.name,
    ...figuresOf(slices, scenario),
    overBound,
    restS: (scenario.endMs - scenario.changedMs) / 1_000,
  };
  return { row, slices };
}

/** For ratios: who never adapted took at least until the end, and nobody is faster than half a second. */
export function adaptedS({ adaptS, restS }: Row): number {
  return Math.max(0.5, adaptS ?? restS);
}

export function sameRound(a: Row, b: Row): boolean {
  return (
    a.scenario === b.scenario && a.capacity === b.capacity && a.wall === b.wall && a.pods === b.pods
  );
}
