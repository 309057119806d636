import type { Goal } from "../goals.ts";

/** What is to be reached on two cores. */
export const goals: readonly Goal[] = [
  { metric: "sessions.acked", store: "sqlite", versus: "limit", atLeast: 0.6 },
  { metric: "sessions.acked", store: "postgres", versus: "limit", atLeast: 0.5 },
  { metric: "sessions.append.p50", store: "sqlite", below: 1 },
  { metric: "sessions.append.p99_at_5000", store: "sqlite", below: 20 },
  { metric: "sessions.idle_socket_bytes", store: "sqlite", below: 15_000 },
  { metric: "sessions.restart_s", store: "sqlite", below: 1 },
  { metric: "sessions.fork_ms", store: "sqlite", below: 10 },
  { metric: "sessions.fork_ms", store: "postgres", below: 10 },
  // 1 / 1.3.
  { metric: "sessions.fork.read", store: "sqlite", versus: "limit", atLeast: 0.77 },
  { metric: "sessions.fork.read", store: "postgres", versus: "limit", atLeast: 0.77 },
  { metric: "sessions.pods.p95", store: "postgres", below: 14 },
];
