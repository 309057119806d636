/** What one system did in one round. */
export type Figure = {
  readonly value: number;
  /** It was stopped with the backlog still deep, and counts with what it had done by then. */
  readonly cut?: boolean;
};

/** One kind of work, and what every system that did it came to, round by round. */
export type Work = {
  readonly metric: string;
  readonly unit: string;
  readonly better: "higher" | "lower";
  readonly figures: Readonly<Record<string, readonly Figure[]>>;
};

/** Collects figures while rounds go by. */
export function collect(metric: string, unit: string, better: Work["better"] = "higher") {
  const figures: Record<string, Figure[]> = {};
  return {
    work: { metric, unit, better, figures } satisfies Work,
    add(key: string, figure: Figure): void {
      (figures[key] ??= []).push(figure);
    },
  };
}
