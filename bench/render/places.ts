import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { findResults, type ResultsName } from "../side-by-side/results.ts";
import { type Group, tablesOf } from "./tables.ts";

const page = fileURLToPath(new URL("../../docs/benchmarks.md", import.meta.url));

/** Results, and the words of the two marks in the documentation between which they are shown. */
export type FiguresPlace = { readonly name: ResultsName; readonly mark: string };

/** Puts what was saved into the documentation, wherever there is something. */
export function renderPlaces(places: readonly FiguresPlace[], groups: readonly Group[]): string[] {
  const written = places.flatMap(({ name, mark }) => {
    const results = findResults(name);
    if (!results) return [];
    return [writeBetween(mark, tablesOf(results, groups))];
  });
  return [...new Set(written)];
}

/** Puts figures between their two marks in the documentation, and returns its path. */
export function writeBetween(mark: string, figures: string): string {
  const text = readFileSync(page, "utf8");
  const begin = `<!-- ${mark}: made by \`npm run bench -- render\` -->`;
  const from = text.indexOf(begin);
  const to = text.indexOf(`<!-- end of ${mark} -->`);
  if (from === -1 || to < from) throw new Error(`${page} has no place for figures: ${begin}`);
  writeFileSync(page, `${text.slice(0, from + begin.length)}\n\n${figures}\n\n${text.slice(to)}`);
  return page;
}
