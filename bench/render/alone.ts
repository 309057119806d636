import type { Spread } from "../report.ts";
import { findMeasures, type MeasuresName, type SavedMeasure } from "../side-by-side/results.ts";
import { writeBetween } from "./places.ts";
import { markdownTable, shown } from "./shown.ts";

const places: readonly { readonly name: MeasuresName; readonly mark: string }[] = [
  { name: "tasks-sqlite", mark: "figures of tasks on SQLite" },
  { name: "tasks-postgres-alone", mark: "figures of ours alone on Postgres" },
];

/** Puts measures that have no other system beside them into the documentation. */
export function renderAlone(): string[] {
  const written = places.flatMap(({ name, mark }) => {
    const measures = findMeasures(name);
    if (measures.length === 0) return [];
    return [writeBetween(mark, tableOf(measures))];
  });
  return [...new Set(written)];
}

function tableOf(measures: readonly SavedMeasure[]): string {
  const head = ["metric", "value", "beside what, above 1 is better", "measured"];
  const lines = measures.map((measure) => [
    `\`${measure.metric}\`, ${measure.unit}`,
    spread(measure),
    Object.entries(measure.versus)
      .map(([name, ratio]) => `${name} ${spread(ratio)}`)
      .join("; "),
    `${measure.day}, ${measure.commit}`,
  ]);
  return markdownTable([head, ...lines]);
}

/** A figure, and between which others it is the middle. */
export function spread({ value, low, high }: Spread): string {
  return low === high ? shown(value) : `${shown(value)} (${shown(low)}–${shown(high)})`;
}
