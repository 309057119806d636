import { renderPlaces } from "./places.ts";
import type { Group } from "./tables.ts";

const groups: readonly Group[] = [
  {
    title: "Requests a second, 32 at once",
    rated: true,
    columns: [
      { title: "a task", metric: "server.requests" },
      { title: "a page of 50 tasks", metric: "server.requests.pages" },
    ],
  },
  {
    title: "CPU of the server per request of a task, us",
    rated: false,
    columns: [{ title: "Node", metric: "server.requests.cpu" }],
  },
  {
    title: "Tasks cancelled a second",
    rated: true,
    columns: [
      { title: "100,000 by one act", metric: "server.bulk" },
      { title: "each by an act of its own, 64 at once", metric: "server.acts" },
    ],
  },
  {
    title: "A page of an audit with 1,000,000 entries, ms",
    rated: false,
    columns: [
      { title: "the newest", metric: "server.audit_page_ms" },
      { title: "the oldest", metric: "server.audit_page_ms.last" },
      { title: "of an actor", metric: "server.audit_page_ms.actor" },
      { title: "of a task", metric: "server.audit_page_ms.subject" },
      { title: "of an actor, of a rare action", metric: "server.audit_page_ms.rare" },
    ],
  },
];

/** Puts what was saved of servers into the documentation, between two marks for each store. */
export function renderServer(): string[] {
  const places = [
    { name: "server-sqlite", mark: "figures of servers on SQLite" },
    { name: "server-postgres", mark: "figures of servers on Postgres" },
  ] as const;
  return renderPlaces(places, groups);
}
