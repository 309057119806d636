/** Values of several lines at the same times. */
type Columns = {
  readonly timesMs: readonly number[];
  readonly lines: readonly (readonly (number | null)[])[];
};

/**
 * The same with times that rise: where a clock has stepped back, values are put where they belong, and of
 * two at one time the later one counts. Values that aren't numbers are gaps.
 */
export function rising({ timesMs, lines }: Columns): { timesMs: number[]; lines: Line[] } {
  const lastAt = new Map<number, number>();
  for (const [row, atMs] of timesMs.entries()) if (Number.isFinite(atMs)) lastAt.set(atMs, row);
  const order = [...lastAt].toSorted(([one], [other]) => one - other);
  return {
    timesMs: order.map(([atMs]) => atMs),
    lines: lines.map((values) => order.map(([, row]) => numberIn(values[row]))),
  };
}

type Line = (number | null)[];

function numberIn(value: number | null | undefined): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

/** Heights of bars that stand on one another: each line with all that come after it. */
export function stacked(lines: readonly (readonly (number | null)[])[]): Line[] {
  return lines.map((values, line) =>
    values.map((value, row) =>
      value === null
        ? null
        : lines.slice(line).reduce((sum, each) => sum + Math.max(0, each[row] ?? 0), 0),
    ),
  );
}

/** The rows of values that have a gap on both sides, of which a line shows nothing. */
export function singlesOf(values: readonly (number | null | undefined)[]): number[] {
  return values.flatMap((value, row) =>
    value != null && values[row - 1] == null && values[row + 1] == null ? [row] : [],
  );
}
