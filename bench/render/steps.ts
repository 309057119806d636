import { renderPlaces } from "./places.ts";
import type { Group } from "./tables.ts";

const groups: readonly Group[] = [
  {
    title: "Steps/s, by how many tasks are under way",
    rated: true,
    columns: [
      { title: "1 task", metric: "steps.stored.one_task" },
      { title: "100 tasks", metric: "steps.stored" },
      { title: "1,000 tasks", metric: "steps.stored.thousand_tasks" },
    ],
  },
  {
    title: "One step of a task that is alone, ms",
    rated: true,
    columns: [
      { title: "p50", metric: "steps.step.p50" },
      { title: "p99", metric: "steps.step.p99" },
    ],
  },
  {
    title: "10,000 open tasks with five stored steps taken up again, s",
    rated: true,
    columns: [{ title: "one further step of each", metric: "steps.resume_s" }],
  },
  {
    title: "Long tasks",
    rated: false,
    columns: [
      { title: "steps 901–1,000, times the first 100", metric: "steps.depth" },
      { title: "ms behind 5,000 stored steps", metric: "steps.replay_ms" },
      { title: "bytes a step beside its value", metric: "steps.bytes" },
    ],
  },
  {
    title: "CPU per step with 100 tasks, us",
    rated: false,
    columns: [
      { title: "Node", metric: "steps.stored.cpu" },
      { title: "server", metric: "steps.stored.server_cpu" },
    ],
  },
];

/** Puts what was saved of steps into the documentation, between two marks for each store. */
export function renderSteps(): string[] {
  const places = [
    { name: "steps-postgres", mark: "figures of steps on Postgres" },
    { name: "steps-sqlite", mark: "figures of steps on SQLite" },
  ] as const;
  return renderPlaces(places, groups);
}
