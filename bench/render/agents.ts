import { renderPlaces } from "./places.ts";
import type { Group } from "./tables.ts";

const groups: readonly Group[] = [
  {
    title: "Each call with its tool, ms",
    rated: false,
    columns: [{ title: "what `durable` adds", metric: "agents.call_ms" }],
  },
  {
    title: "A turn of ten calls and ten tools",
    rated: true,
    columns: [
      { title: "alone, ms", metric: "agents.turn_ms" },
      { title: "100 at once, turns/s", metric: "agents.turns" },
    ],
  },
  {
    title: "CPU of the pod per turn with 100 at once, us",
    rated: false,
    columns: [{ title: "Node", metric: "agents.turns.cpu" }],
  },
  {
    title: "The journal of 100 calls under a prompt of 200,000 tokens",
    rated: false,
    columns: [{ title: "times what was said", metric: "agents.bytes" }],
  },
  {
    title: "The process of ten agents is gone in their sixth call",
    rated: true,
    columns: [
      { title: "killed: s to the next new word", metric: "agents.resume_s" },
      { title: "silent: s to the next new word", metric: "agents.resume.silent_s" },
      { title: "calls repeated", metric: "agents.repeated" },
    ],
  },
];

/** Puts what was saved of agents into the documentation, between two marks for each store. */
export function renderAgents(): string[] {
  const places = [
    { name: "agents-sqlite", mark: "figures of agents on SQLite" },
    { name: "agents-postgres", mark: "figures of agents on Postgres" },
  ] as const;
  return renderPlaces(places, groups);
}
