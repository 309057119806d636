import { median } from "./statistics.ts";

/** A figure with how far apart its rounds were. */
export type Spread = { readonly value: number; readonly low: number; readonly high: number };

/** One metric of one run, with our ratio against each peer or limit of the same run. */
export type Measure = Spread & {
  readonly metric: string;
  readonly unit: string;
  /** Above 1 we are better. */
  readonly versus: Readonly<Record<string, Spread>>;
};

/** What a bench found: its measures, and the sentences that say under which conditions. */
export type Report = { readonly measures: readonly Measure[]; readonly notes: readonly string[] };

export function spreadOf(values: readonly number[]): Spread {
  return { value: median(values), low: Math.min(...values), high: Math.max(...values) };
}

export type Rounds = {
  readonly metric: string;
  readonly unit: string;
  readonly ours: readonly number[];
  /** The same rounds of others, in the same order. */
  readonly others?: Readonly<Record<string, readonly number[]>>;
  readonly better?: "higher" | "lower";
};

/**
 * The median of the rounds. Ratios are taken within a round, where both had the same machine, and
 * the median of those is what counts.
 */
export function measure({ metric, unit, ours, others = {}, better = "higher" }: Rounds): Measure {
  const versus = Object.entries(others).map(([name, theirs]) => {
    if (theirs.length !== ours.length) {
      throw new Error(`${metric}: ${ours.length} rounds of ours, ${theirs.length} of ${name}`);
    }
    const ratios = ours.map((our, at) =>
      better === "higher" ? our / theirs[at]! : theirs[at]! / our,
    );
    return [name, spreadOf(ratios)] as const;
  });
  return { metric, unit, ...spreadOf(ours), versus: Object.fromEntries(versus) };
}

/** One object per line, for programs. */
export function jsonLines({ measures }: Report): string {
  return measures
    .map(({ metric, value, unit, versus }) => {
      const ratios = Object.entries(versus).map(([name, ratio]) => [name, rounded(ratio.value)]);
      const line = { metric, value: rounded(value), unit, versus: Object.fromEntries(ratios) };
      return `${JSON.stringify(line)}\n`;
    })
    .join("");
}

/** A table for people, with the spread of every figure. */
export function table({ measures, notes }: Report): string {
  const lines = [["metric", "value", "(min – max)", "unit", "versus (above 1 is better)"]];
  for (const each of measures) {
    const versus = Object.entries(each.versus).map(
      ([name, ratio]) =>
        `${name} ${shown(ratio.value)} (${shown(ratio.low)} – ${shown(ratio.high)})`,
    );
    lines.push([
      each.metric,
      shown(each.value),
      `(${shown(each.low)} – ${shown(each.high)})`,
      each.unit,
      versus.join(", "),
    ]);
  }
  const widths = lines[0]!.map((_, column) =>
    Math.max(...lines.map((line) => line[column]!.length)),
  );
  const numeric = [1, 2];
  const rows = lines.map((line) =>
    line
      .map((cell, column) =>
        numeric.includes(column) ? cell.padStart(widths[column]!) : cell.padEnd(widths[column]!),
      )
      .join("  ")
      .trimEnd(),
  );
  return `${[...rows, "", ...notes].join("\n")}\n`;
}

function rounded(value: number): number {
  return Number(value.toPrecision(value >= 1_000 ? 6 : 4));
}

function shown(value: number): string {
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString("en-US");
  return value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
}
