import type { Goal } from "../goals.ts";

const store = "postgres";

/** What is to be reached on two cores. Where there is no bare figure, by itself. */
export const goals: readonly Goal[] = [
  { metric: "cluster.append.p50_at_500", store, below: 4 },
  { metric: "cluster.append.p50_at_500", store, versus: "bare", atLeast: 0.4 },
  { metric: "cluster.append.p95_at_500", store, below: 14 },
  { metric: "cluster.append.p95_at_500", store, versus: "bare", atLeast: 0.4 },
  { metric: "cluster.append.p99_at_2000", store, below: 150 },
  { metric: "cluster.acked", store, versus: "bare", atLeast: 0.5 },
  { metric: "cluster.scale", store, versus: "bare", atLeast: 0.9 },
  { metric: "cluster.hop.p50_at_500", store, versus: "rows", atLeast: 2 },
  { metric: "cluster.replay", store, versus: "bare", atLeast: 0.5 },
  { metric: "cluster.failover.pod_p95_s", store, below: 2 },
  { metric: "cluster.failover.paused_p95_s", store, below: 3 },
  { metric: "cluster.failover.server_over_bare_s", store, atMost: 1 },
  { metric: "cluster.failover.both_over_bare_s", store, atMost: 1 },
  { metric: "cluster.failover.errors", store, atMost: 0 },
  { metric: "cluster.archive.lag_p95_ms", store, below: 500 },
  { metric: "cluster.deploy.failed", store, atMost: 0 },
  { metric: "cluster.deploy.restarted_turns", store, atMost: 0 },
  { metric: "cluster.deploy.gap_ms", store, below: 500 },
  { metric: "cluster.away.failed", store, atMost: 0 },
  { metric: "cluster.away.catchup_s", store, below: 15 },
  { metric: "promote.pause_s", store, below: 2 },
  { metric: "cluster.idle.cpu", store, below: 10 },
];
