import { Counter, Gauge, Histogram, Registry } from "prom-client";
import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import type { Stats } from "../queue/client.ts";
import type { Pod, PodEvent } from "../runtime/assemble.ts";

/** What `/metrics` says, gathered from what a pod tells and what the store counts. */
export type Metrics = {
  readonly registry: Registry;
  readonly contentType: string;
  /** For `startPod`'s `onEvent`. */
  observe(event: PodEvent): void;
  /** The text of one scrape. */
  collect(parts: { stats: () => Promise<Stats>; clock: Clock; log: Logger }): Promise<string>;
};

export type MetricsOptions = {
  /** The pod of this process, once it has started. */
  pod?: () => Pick<Pod, "podId" | "leader" | "running"> | undefined;
  slots?: number;
};

// Counting walks the table, so a scrape may find a count that is this many times as old as it took.
const countAgeFactor = 20;
const countAgeMinMs = 2_000;
// Names can come from callers, and every name is a series that the scraper keeps for long.
const namesShown = 100;
const otherNames = "(other)";

const taskSeconds = [0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300, 900];
const claimSeconds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5];
const lagSeconds = [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 30];

export function createMetrics({ pod = () => undefined, slots = 0 }: MetricsOptions = {}): Metrics {
  const registry = new Registry();
  const registers = [registry];
  const ended = new Counter({
    name: "flotilla_tasks_ended_total",
    help: "Attempts that ended on this pod, by task and outcome",
    labelNames: ["name", "outcome"],
    registers,
  });
  const took = new Histogram({
    name: "flotilla_task_duration_seconds",
    help: "How long attempts took, from claim to stored ending",
    labelNames: ["name"],
    buckets: taskSeconds,
    registers,
  });
  const claimed = new Counter({
    name: "flotilla_tasks_claimed_total",
    help: "Tasks that this pod has claimed",
    registers,
  });
  const claims = new Histogram({
    name: "flotilla_claim_duration_seconds",
    help: "How long claim calls took",
    buckets: claimSeconds,
    registers,
  });
  const claimFailures = new Counter({
    name: "flotilla_claim_failures_total",
    help: "Claim calls that failed, by error code",
    labelNames: ["code"],
    registers,
  });
  const recovered = new Counter({
    name: "flotilla_tasks_recovered_total",
    help: "Tasks that this pod took back from silent pods",
    registers,
  });
  const lag = new Histogram({
    name: "flotilla_heartbeat_lag_seconds",
    help: "How much later than planned heartbeats were committed",
    buckets: lagSeconds,
    registers,
  });
  const running = new Gauge({
    name: "flotilla_tasks_running",
    help: "Tasks that run on this pod now",
    registers,
  });
  new Gauge({ name: "flotilla_slots", help: "Tasks that this pod could run", registers }).set(
    slots,
  );
  const leads = new Gauge({
    name: "flotilla_is_leader",
    help: "1 on the pod that takes itself for the leader",
    registers,
  });
  const depth = new Gauge({
    name: "flotilla_tasks",
    help: "Tasks in the store, by task and status",
    labelNames: ["name", "status"],
    registers,
  });
  let counting: Promise<void> | undefined;
  let countAgainAtMs = -Infinity;

  const count = async ({ stats, clock, log }: Parameters<Metrics["collect"]>[0]): Promise<void> => {
    const startedMs = clock.monotonic();
    try {
      const { byName } = await stats();
      depth.reset();
      for (const { name, status, tasks } of bounded(byName)) depth.set({ name, status }, tasks);
    } catch (error) {
      // A count that can't be had is missing, rather than wrong; the rest is still worth having.
      depth.reset();
      log.warn({ error: messageOf(error) }, "counting tasks for /metrics failed");
    }
    const nowMs = clock.monotonic();
    countAgainAtMs = nowMs + Math.max(countAgeMinMs, (nowMs - startedMs) * countAgeFactor);
  };

  return {
    registry,
    contentType: registry.contentType,
    observe(event) {
      switch (event.type) {
        case "ended":
          ended.inc({ name: event.name, outcome: event.outcome });
          took.observe({ name: event.name }, event.tookMs / 1_000);
          break;
        case "claimed":
          claimed.inc(event.tasks);
          claims.observe(event.tookMs / 1_000);
          break;
        case "claim_failed":
          claimFailures.inc({ code: event.code });
          break;
        case "recovered":
          recovered.inc(event.tasks);
          break;
        case "beat":
          lag.observe(event.lagMs / 1_000);
          break;
        case "leading":
          // Asked for at each scrape instead, since the first one comes before the pod is known.
          break;
      }
    },
    async collect(parts) {
      const current = pod();
      running.set(current?.running ?? 0);
      leads.set(current !== undefined && current.leader === current.podId ? 1 : 0);
      if (parts.clock.monotonic() >= countAgainAtMs) {
        await (counting ??= count(parts).finally(() => {
          counting = undefined;
        }));
      }
      return registry.metrics();
    },
  };
}

type Depth = { readonly name: string; readonly status: string; readonly tasks: number };

/** The names with the most tasks one by one, the others added up. */
function bounded(byName: Stats["byName"]): Depth[] {
  const names = Object.entries(byName).toSorted(([, a], [, b]) => total(b) - total(a));
  const other = new Map<string, number>();
  const shown: Depth[] = [];
  names.forEach(([name, counts], at) => {
    for (const [status, tasks] of Object.entries(counts)) {
      if (at < namesShown) shown.push({ name, status, tasks });
      else other.set(status, (other.get(status) ?? 0) + tasks);
    }
  });
  return [...shown, ...[...other].map(([status, tasks]) => ({ name: otherNames, status, tasks }))];
}

function total(counts: Readonly<Record<string, number>>): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}
