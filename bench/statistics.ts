/** The middle one, or between the two in the middle, so that one disturbed round doesn't move the figure. */
export function median(values: readonly number[]): number {
  const negated = values.map((value) => -value);
  return (percentile(values, 0.5) - percentile(negated, 0.5)) / 2;
}

/** The smallest value that at least this share of the values doesn't exceed. */
export function percentile(values: readonly number[], share: number): number {
  if (values.length === 0) throw new Error("there is nothing to take a percentile of");
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)]!;
}

/** The rise per step of the straight line that fits best. */
export function slope(values: readonly number[]): number {
  const middle = (values.length - 1) / 2;
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  let above = 0;
  let below = 0;
  values.forEach((value, at) => {
    above += (at - middle) * (value - mean);
    below += (at - middle) ** 2;
  });
  return below === 0 ? 0 : above / below;
}
