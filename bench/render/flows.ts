import { renderPlaces } from "./places.ts";
import type { Group } from "./tables.ts";

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

/** Puts what was saved of runs into the documentation, between two marks for each store. */
export function renderFlows(): string[] {
  const places = [
    { name: "flows-postgres", mark: "figures of flows on Postgres" },
    { name: "flows-sqlite", mark: "figures of flows on SQLite" },
  ] as const;
  return renderPlaces(places, groups);
}
