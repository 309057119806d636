import { goals } from "../cluster/goals.ts";
import { checkGoals } from "../goals.ts";
import { reportOf } from "../side-by-side/report.ts";
import { findResults, type Results } from "../side-by-side/results.ts";
import { writeBetween } from "./places.ts";
import { markdownTable, shown } from "./shown.ts";
import { type Group, tablesOf } from "./tables.ts";

const rates = [500, 2_000];

const groups: readonly Group[] = [
  ...rates.map((rate) => ({
    title: `A message to its ack, ${rate.toLocaleString("en-US")}/s, ms`,
    rated: true,
    columns: [
      { title: "p50", metric: `cluster.append.p50_at_${rate}` },
      { title: "p95", metric: `cluster.append.p95_at_${rate}` },
      { title: "p99", metric: `cluster.append.p99_at_${rate}` },
    ],
  })),
  {
    title: "As much as it takes, in records of 50 messages",
    rated: true,
    columns: [
      { title: "acked messages/s", metric: "cluster.acked" },
      { title: "16 logs over 4, x", metric: "cluster.scale" },
    ],
  },
  {
    title: "A log read from its beginning, MB/s",
    rated: true,
    columns: [{ title: "read", metric: "cluster.replay" }],
  },
  {
    title: "Across two pods, 500 messages/s, ms",
    rated: true,
    columns: [
      { title: "p50", metric: "cluster.hop.p50_at_500" },
      { title: "p95", metric: "cluster.hop.p95_at_500" },
    ],
  },
  {
    title: "Without an ack, s, p95 of all logs and rounds",
    rated: false,
    columns: [
      { title: "pod killed", metric: "cluster.failover.pod_p95_s" },
      { title: "pod paused", metric: "cluster.failover.paused_p95_s" },
      { title: "server killed", metric: "cluster.failover.server_p95_s" },
      { title: "both killed", metric: "cluster.failover.both_p95_s" },
    ],
  },
  {
    title: "Errors that callers got in all of that",
    rated: false,
    columns: [{ title: "calls", metric: "cluster.failover.errors" }],
  },
  {
    title: "Postgres behind the ack, 500 messages/s, ms",
    rated: false,
    columns: [{ title: "p95", metric: "cluster.archive.lag_p95_ms" }],
  },
  {
    title: "Three pods replaced one after the other",
    rated: false,
    columns: [
      { title: "failed calls and turns", metric: "cluster.deploy.failed" },
      { title: "turns begun again", metric: "cluster.deploy.restarted_turns" },
      { title: "longest without an ack, ms", metric: "cluster.deploy.gap_ms" },
    ],
  },
  {
    title: "Three pods and three servers, idle, % of a core",
    rated: false,
    columns: [{ title: "CPU", metric: "cluster.idle.cpu" }],
  },
];

/** Puts what was saved of logs on NATS into the documentation, and what was to be reached beside it. */
export function renderCluster(): string[] {
  const results = findResults("cluster-postgres");
  if (!results) return [];
  const parts = [tablesOf(results, groups), "**To reach**", goalTable(results)];
  return [writeBetween("figures of logs on NATS", parts.join("\n\n"))];
}

function goalTable(results: Results): string {
  const { measures } = reportOf(results.works, results);
  const lines = checkGoals(goals, measures, "postgres").map(({ metric, wanted, value, met }) => [
    `\`${metric}\``,
    wanted,
    shown(value),
    met ? "met" : "missed",
  ]);
  return markdownTable([["", "to reach", "measured", ""], ...lines]);
}
