import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { findResults, type ResultsName } from "../side-by-side/results.ts";
import { type Group, tablesOf } from "./tables.ts";

const page = fileURLToPath(new URL("../../docs/benchmarks.md", import.meta.url));

const groups: readonly Group[] = [
  {
    title: "Transitions/s, by how many runs are under way",
    rated: true,
    columns: [
      { title: "1 run", metric: "flows.transitions.one_run" },
      { title: "100 runs", metric: "flows.transitions" },
      { title: "1,000 runs", metric: "flows.transitions.thousand_runs" },
    ],
  },
  {
    title: "One transition of a run that is alone, ms",
    rated: true,
    columns: [
      { title: "p50", metric: "flows.transition.p50" },
      { title: "p99", metric: "flows.transition.p99" },
    ],
  },
  {
    title: "10,000 open runs taken up again, s",
    rated: true,
    columns: [{ title: "one further transition of each", metric: "flows.resume_s" }],
  },
  {
    title: "CPU per transition with 100 runs, us",
    rated: false,
    columns: [
      { title: "Node", metric: "flows.transitions.cpu" },
      { title: "server", metric: "flows.transitions.server_cpu" },
    ],
  },
];

const places: readonly { readonly name: ResultsName; readonly mark: string }[] = [
  { name: "flows-postgres", mark: "figures of flows on Postgres" },
  { name: "flows-sqlite", mark: "figures of flows on SQLite" },
];

/** Puts what was saved of runs into the documentation, between two marks for each store. */
export function renderFlows(): string[] {
  const written = places.flatMap(({ name, mark }) => {
    const results = findResults(name);
    if (!results) return [];
    const text = readFileSync(page, "utf8");
    const begin = `<!-- ${mark}: made by \`npm run bench -- render\` -->`;
    const from = text.indexOf(begin);
    const to = text.indexOf(`<!-- end of ${mark} -->`);
    if (from === -1 || to < from) throw new Error(`${page} has no place for figures: ${begin}`);
    const before = text.slice(0, from + begin.length);
    writeFileSync(page, `${before}\n\n${tablesOf(results, groups)}\n\n${text.slice(to)}`);
    return [page];
  });
  return [...new Set(written)];
}
