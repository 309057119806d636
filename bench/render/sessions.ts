import { renderPlaces } from "./places.ts";
import type { Group } from "./tables.ts";

const rates = [500, 2_000, 5_000];

const groups: readonly Group[] = [
  {
    title: "20 clients with 5 messages each under way",
    rated: true,
    columns: [
      { title: "acked messages/s", metric: "sessions.acked" },
      { title: "p50, ms", metric: "sessions.acked.p50" },
      { title: "p99, ms", metric: "sessions.acked.p99" },
    ],
  },
  {
    title: "One message alone, ms",
    rated: true,
    columns: [
      { title: "p50", metric: "sessions.append.p50" },
      { title: "p95", metric: "sessions.append.p95" },
      { title: "p99", metric: "sessions.append.p99" },
    ],
  },
  ...rates.map((rate) => ({
    title: `${rate.toLocaleString("en-US")} messages/s, ms`,
    rated: true,
    columns: [
      { title: "p50", metric: `sessions.append.p50_at_${rate}` },
      { title: "p95", metric: `sessions.append.p95_at_${rate}` },
      { title: "p99", metric: `sessions.append.p99_at_${rate}` },
    ],
  })),
  {
    title: "Across two pods, 500 messages/s, ms",
    rated: false,
    columns: [
      { title: "p50", metric: "sessions.pods.p50" },
      { title: "p95", metric: "sessions.pods.p95" },
      { title: "p99", metric: "sessions.pods.p99" },
    ],
  },
  {
    title: "Two and four pods on one Postgres, all writing, acked messages/s",
    rated: true,
    columns: [
      { title: "two", metric: "sessions.pods.acked_by_2" },
      { title: "four", metric: "sessions.pods.acked_by_4" },
    ],
  },
  {
    title: "Acked messages/s, by how many sessions are in use",
    rated: false,
    columns: [100, 1_000, 10_000].map((count) => ({
      title: count.toLocaleString("en-US"),
      metric: `sessions.growth.acked_in_${count}`,
    })),
  },
  {
    title: "Memory of the server, MiB, by how many sessions are in use",
    rated: false,
    columns: [100, 1_000, 10_000].map((count) => ({
      title: count.toLocaleString("en-US"),
      metric: `sessions.growth.memory_of_${count}`,
    })),
  },
  {
    title: "One message to 1,000 subscribers, ms until the last has it",
    rated: true,
    columns: [
      { title: "p50", metric: "sessions.fanout.p50" },
      { title: "p99", metric: "sessions.fanout.p99" },
      { title: "server CPU", metric: "sessions.fanout.cpu" },
    ],
  },
  {
    title: "A session of 10,000 messages from the start",
    rated: false,
    columns: [
      { title: "s", metric: "sessions.replay_s" },
      { title: "MB/s", metric: "sessions.replay" },
    ],
  },
  {
    title: "100 answers at once, each of 50 chunks/s, ms from the agent to its client",
    rated: false,
    columns: [
      { title: "p50", metric: "sessions.turns.p50" },
      { title: "p99", metric: "sessions.turns.p99" },
      { title: "CPU per chunk with the agents, us", metric: "sessions.turns.cpu" },
    ],
  },
  {
    title: "Server killed and started again, 100,000 sessions, s",
    rated: false,
    columns: [
      { title: "to the first ack", metric: "sessions.restart_s" },
      { title: "to listening", metric: "sessions.restart.listening_s" },
      { title: "Node alone", metric: "sessions.restart.node_s" },
    ],
  },
  {
    title: "15,000 idle sockets, bytes each",
    rated: true,
    columns: [{ title: "RSS", metric: "sessions.idle_socket_bytes" }],
  },
  {
    title: "CPU per acked message, us",
    rated: false,
    columns: [
      { title: "server process", metric: "sessions.acked.cpu" },
      { title: "clients", metric: "sessions.acked.client_cpu" },
      { title: "store's processes", metric: "sessions.acked.server_cpu" },
    ],
  },
];

/** Puts what was saved of sessions into the documentation, between two marks for each store. */
export function renderSessions(): string[] {
  const places = [
    { name: "sessions-sqlite", mark: "figures of sessions on SQLite" },
    { name: "sessions-postgres", mark: "figures of sessions on Postgres" },
  ] as const;
  return renderPlaces(places, groups);
}
