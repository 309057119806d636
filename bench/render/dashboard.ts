import { emptyListNames, pageNames } from "../dashboard/pages.ts";
import { findMeasures, type SavedMeasure } from "../side-by-side/results.ts";
import { spread } from "./alone.ts";
import { writeBetween } from "./places.ts";
import { markdownTable, shown } from "./shown.ts";

const places = [
  { name: "dashboard-sqlite", mark: "figures of the dashboard on SQLite" },
  { name: "dashboard-postgres", mark: "figures of the dashboard on Postgres" },
] as const;

/** Puts what was saved of the dashboard into the documentation, between two marks for each store. */
export function renderDashboard(): string[] {
  const written = places.flatMap(({ name, mark }) => {
    const usual = findMeasures(name);
    if (usual.length === 0) return [];
    return [writeBetween(mark, tablesOf(usual, findMeasures(`${name}-large`)))];
  });
  return [...new Set(written)];
}

function tablesOf(usual: readonly SavedMeasure[], large: readonly SavedMeasure[]): string {
  const cellOf = (measures: readonly SavedMeasure[], metric: string) => {
    const found = measures.find((each) => each.metric === metric);
    return found ? spread(found) : "";
  };
  const isLarge = large.length > 0;
  const row = (name: string, ...metrics: readonly string[]) => [
    name.replaceAll("_", " "),
    ...metrics.flatMap((metric) => [
      cellOf(usual, metric),
      ...(isLarge ? [cellOf(large, metric)] : []),
    ]),
  ];
  const head = (...titles: readonly string[]) => [
    "",
    ...titles.flatMap((title) => [title, ...(isLarge ? [`${title}, ten times the rows`] : [])]),
  ];
  const answers = ["answer p50, ms", "answer p95, ms"] as const;
  const answered = (name: string) =>
    [`dashboard.answer_p50_ms.${name}`, `dashboard.answer_p95_ms.${name}`] as const;
  const days = [...new Set(usual.map(({ day, commit }) => `${day} at ${commit}`))];
  return [
    "**Every page when it is opened**",
    markdownTable([
      head(...answers, "useful, ms"),
      ...pageNames.map((name) => row(name, ...answered(name), `dashboard.useful_ms.${name}`)),
    ]),
    "**Lists by filters that match nothing**",
    markdownTable([
      head(...answers),
      ...emptyListNames.map((name) => row(name, ...answered(name))),
    ]),
    "**Many events, and many watchers**",
    markdownTable([
      head("value"),
      row("a task with 50,000 events, ms to useful", "dashboard.useful_ms.long_task"),
      row("a run with 50,000 events, ms to useful", "dashboard.useful_ms.long_run"),
      row("500 tasks/s: the longest frame, ms", "dashboard.frames.longest_ms"),
      row("500 tasks/s: tasks of the page above 50 ms", "dashboard.frames.long_tasks"),
      row("500 tasks/s: heap at the end / at the beginning", "dashboard.frames.heap_growth"),
      row("drain with 20 tabs that watch, tasks/s", "dashboard.drain"),
    ]),
    `The drain with 20 tabs beside the drain without: ${ratioOf(usual)}. Measured ${days.join(", ")}.`,
  ].join("\n\n");
}

function ratioOf(measures: readonly SavedMeasure[]): string {
  const ratio = measures.find(({ metric }) => metric === "dashboard.drain")?.versus["unwatched"];
  return ratio ? shown(ratio.value) : "not measured";
}
