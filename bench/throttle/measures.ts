import { type Measure, measure, spreadOf } from "../report.ts";
import { adaptedS, type Row, sameRound } from "./rows.ts";
import { cold } from "./scenarios.ts";

export const ours = "flotilla";

type Figure = {
  readonly name: string;
  readonly unit: string;
  readonly better: "higher" | "lower";
  readonly of: (row: Row) => number;
  /** What ratios are taken of, where zero is a fine value. */
  readonly ratioOf?: (row: Row) => number;
};

const figures: readonly Figure[] = [
  { name: "use", unit: "share", better: "higher", of: (row) => row.use },
  {
    name: "throttled",
    unit: "share",
    better: "lower",
    of: (row) => row.throttled,
    // Above 1: so many times fewer, to a tenth of a percent.
    ratioOf: (row) => Math.max(0.001, row.throttled),
  },
  { name: "score", unit: "share", better: "higher", of: (row) => row.score },
  { name: "adapt_s", unit: "s", better: "lower", of: adaptedS },
];

/** The measures of each scenario; its rounds are the capacities, walls and numbers of pods. */
export function measuresOf(rows: readonly Row[]): Measure[] {
  const names = [...new Set(rows.map((row) => row.scenario))];
  const each = names.flatMap((scenario) => {
    const played = rows.filter((row) => row.scenario === scenario);
    return figures.flatMap((figure) =>
      measureOf(`throttle.${scenario}.${figure.name}`, figure, played),
    );
  });
  const even = rows.filter((row) => row.scenario === "steady" && row.pods === 8);
  const fairness: Figure = {
    name: "fairness",
    unit: "Jain",
    better: "higher",
    of: (row) => row.fairness,
  };
  const started = rows.filter((row) => row.scenario === cold.name && row.contender === ours);
  const over = rows.flatMap(({ overBound }) => overBound ?? []);
  const peak = { metric: "throttle.peak_over_bound", unit: "calls", versus: {} };
  return [
    ...each,
    ...measureOf("throttle.fairness", fairness, even),
    // The worst round: what is promised holds in each.
    ...worstOf("throttle.cold.refused", started, (row) => row.overall.throttled, Math.max),
    ...worstOf("throttle.cold.used_in_5s", started, (row) => row.first, Math.min),
    ...worstOf("throttle.cold.used_after_5s", started, (row) => row.soon, Math.min),
    // Not the median: one run above the bound is one too many.
    ...(over.length > 0 ? [{ ...peak, ...spreadOf(over), value: Math.max(...over) }] : []),
  ];
}

function worstOf(
  metric: string,
  rows: readonly Row[],
  of: (row: Row) => number,
  worst: (...values: number[]) => number,
): Measure[] {
  if (rows.length === 0) return [];
  const values = rows.map(of);
  return [{ metric, unit: "share", versus: {}, ...spreadOf(values), value: worst(...values) }];
}

function measureOf(metric: string, figure: Figure, rows: readonly Row[]): Measure[] {
  const { unit, better, of, ratioOf = of } = figure;
  const mine = rows.filter((row) => row.contender === ours);
  if (mine.length === 0) return [];
  const others = [...new Set(rows.map((row) => row.contender))].filter((name) => name !== ours);
  const versus = others.flatMap((name) => {
    // Some contenders don't take part in every round.
    const pairs = mine.flatMap((row) => {
      const theirs = rows.find((each) => each.contender === name && sameRound(each, row));
      return theirs ? [[row, theirs] as const] : [];
    });
    if (pairs.length === 0) return [];
    const compared = measure({
      metric,
      unit,
      better,
      ours: pairs.map(([row]) => ratioOf(row)),
      others: { [name]: pairs.map(([, theirs]) => ratioOf(theirs)) },
    });
    return [[name, compared.versus[name]!] as const];
  });
  return [{ metric, unit, ...spreadOf(mine.map(of)), versus: Object.fromEntries(versus) }];
}
