import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Spread } from "../report.ts";
import { findMeasures, type MeasuresName, type SavedMeasure } from "../side-by-side/results.ts";
import { markdownTable, shown } from "./shown.ts";

const page = fileURLToPath(new URL("../../docs/benchmarks.md", import.meta.url));
const places: readonly { readonly name: MeasuresName; readonly mark: string }[] = [
  { name: "tasks-sqlite", mark: "figures of tasks on SQLite" },
  { name: "tasks-postgres-alone", mark: "figures of ours alone on Postgres" },
];

/** Puts measures that have no other system beside them into the documentation. */
export function renderAlone(): string[] {
  const written = places.flatMap(({ name, mark }) => {
    const measures = findMeasures(name);
    if (measures.length === 0) return [];
    const text = readFileSync(page, "utf8");
    const begin = `<!-- ${mark}: made by \`npm run bench -- render\` -->`;
    const from = text.indexOf(begin);
    const to = text.indexOf(`<!-- end of ${mark} -->`);
    if (from === -1 || to < from) throw new Error(`${page} has no place for figures: ${begin}`);
    const before = text.slice(0, from + begin.length);
    writeFileSync(page, `${before}\n\n${tableOf(measures)}\n\n${text.slice(to)}`);
    return [page];
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

function spread({ value, low, high }: Spread): string {
  return low === high ? shown(value) : `${shown(value)} (${shown(low)}–${shown(high)})`;
}
