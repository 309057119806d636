import type { Metric, Registry } from "prom-client";
import { messageOf } from "../../base/errors.ts";
import type { Histogram } from "../../throttles/learning/histogram.ts";
import type { LimiterSnapshot } from "../../throttles/limiter/stats.ts";
import type { ThrottleView } from "../../throttles/shares/admin.ts";
import { createScrapeCache } from "./scrape-cache.ts";
import type { Instruments, ScrapeParts } from "./instruments.ts";

const labelNames = ["throttle", "key"];
const breakerStates = ["closed", "half_open", "open"] as const;
// Callers choose keys, and each is a series that the scraper keeps for long.
const maxLabels = 100;
const others = { throttle: "other", key: "other" };
// Ends of the limiter's own buckets, so that each count is exact: 8 ms to 9 minutes.
const perDoubling = 8;
const ends = Array.from({ length: 17 }, (_, at) => 3 + at);

type Labels = { readonly throttle: string; readonly key: string };

/** Throttles of this pod, and of the fleet. */
export function createThrottleMetrics(make: Instruments, registry: Registry) {
  const pod = gaugesOf(make, "flotilla_throttle", "this pod");
  const fleet = gaugesOf(make, "flotilla_fleet_throttle", "all pods together, as they reported");
  const braked = make.gauge(
    "flotilla_throttle_braked",
    "1 where this pod stays below its share because calls were throttled",
    labelNames,
  );
  const pinned = make.gauge(
    "flotilla_fleet_throttle_pinned",
    "1 where the limit is pinned, by an operator or by its options",
    labelNames,
  );
  const p95 = make.gauge(
    "flotilla_fleet_throttle_p95_seconds",
    "The 95th percentile of recent successful calls of all pods",
    labelNames,
  );
  const durations = registerDurations(registry);
  const podLabels = createLabels();
  const fleetLabels = createLabels();

  const showFleet = (views: readonly ThrottleView[]): void => {
    fleet.reset();
    pinned.reset();
    p95.reset();
    for (const view of views) {
      const labels = fleetLabels(view);
      fleet.add(labels, { ...view, limit: view.bound });
      // Percentiles of several throttles don't add up.
      if (view.p95Ms !== undefined && labels !== others) p95.set(labels, view.p95Ms / 1_000);
      pinned.inc(labels, (view.pinned ?? view.settings.pinned) === null ? 0 : 1);
    }
  };

  const { refresh } = createScrapeCache(async ({ throttles: read, log }: ScrapeParts) => {
    try {
      showFleet((await read?.()) ?? []);
    } catch (error) {
      showFleet([]);
      log.warn({ error: messageOf(error) }, "reading throttles for /metrics failed");
    }
  });

  return {
    /** Sets the gauges of this pod, without reading the store. */
    showPod(snapshots: readonly LimiterSnapshot[]): void {
      pod.reset();
      braked.reset();
      durations.reset();
      for (const snapshot of snapshots) {
        const labels = podLabels(snapshot);
        const waiting = snapshot.waiting + snapshot.blockedTasks;
        pod.add(labels, { ...snapshot, waiting });
        braked.inc(labels, snapshot.braked ? 1 : 0);
        durations.add(labels, snapshot.durations);
      }
    },
    refresh,
  };
}

type ThrottleFigures = Pick<
  LimiterSnapshot,
  "limit" | "inFlight" | "waiting" | "breaker" | "outcomes"
>;

/** The gauges that this pod and the fleet share. */
function gaugesOf(make: Instruments, prefix: string, scope: string) {
  const limit = make.gauge(
    `${prefix}_limit`,
    `Calls that may be in flight at once, by ${scope}`,
    labelNames,
  );
  const inFlight = make.gauge(`${prefix}_in_flight`, `Calls in flight, by ${scope}`, labelNames);
  const waiting = make.gauge(
    `${prefix}_waiting`,
    `Calls that wait for a permit and tasks that aren't claimed for lack of one, by ${scope}`,
    labelNames,
  );
  const calls = make.counter(`${prefix}_calls_total`, `Calls that have ended, by ${scope}`, [
    ...labelNames,
    "outcome",
  ]);
  const breaker = make.gauge(
    `${prefix}_breaker`,
    `1 for the state of the circuit breaker, for ${scope}`,
    [...labelNames, "state"],
  );
  return {
    reset(): void {
      for (const each of [limit, inFlight, waiting, calls, breaker]) each.reset();
    },
    add(labels: Labels, figures: ThrottleFigures): void {
      limit.inc(labels, figures.limit);
      inFlight.inc(labels, figures.inFlight);
      waiting.inc(labels, figures.waiting);
      for (const [outcome, count] of Object.entries(figures.outcomes)) {
        calls.inc({ ...labels, outcome }, count);
      }
      for (const state of breakerStates) {
        breaker.inc({ ...labels, state }, figures.breaker === state ? 1 : 0);
      }
    },
  };
}

/** Gives the first `maxLabels` throttles and keys labels of their own, for ever; the rest are `other`. */
function createLabels() {
  const known = new Map<string, Labels>();
  return ({ name, key }: { name: string; key: string }): Labels => {
    const at = JSON.stringify([name, key]);
    const found = known.get(at);
    if (found || known.size >= maxLabels) return found ?? others;
    const labels = { throttle: name, key };
    known.set(at, labels);
    return labels;
  };
}

type Durations = { readonly counts: Histogram; readonly sumMs: number };

/**
 * A histogram of durations that limiters have already counted. The client library's own histogram would
 * have to observe each duration.
 */
function registerDurations(registry: Registry) {
  const name = "flotilla_throttle_call_duration_seconds";
  const help = "How long successful calls of this pod took, from their permit to their end";
  const byLabels = new Map<Labels, Durations>();
  const values = (labels: Labels, { counts, sumMs }: Durations) => {
    const upTo = (bucket: number) => sum(counts.slice(0, bucket + 1));
    const bucketName = `${name}_bucket`;
    return [
      ...ends.map((end) => ({
        labels: { le: 2 ** end / 1_000, ...labels },
        value: upTo(end * perDoubling),
        metricName: bucketName,
      })),
      { labels: { le: "+Inf", ...labels }, value: sum(counts), metricName: bucketName },
      { labels, value: sumMs / 1_000, metricName: `${name}_sum` },
      { labels, value: sum(counts), metricName: `${name}_count` },
    ];
  };
  const metric = {
    name,
    help,
    type: "histogram",
    aggregator: "sum",
    get: async () => ({
      name,
      help,
      type: "histogram",
      aggregator: "sum",
      values: [...byLabels].flatMap(([labels, of]) => values(labels, of)),
    }),
    reset: () => byLabels.clear(),
  };
  registry.registerMetric(metric as unknown as Metric);
  return {
    reset: metric.reset,
    add(labels: Labels, { counts, sumMs }: Durations): void {
      const before = byLabels.get(labels) ?? { counts: [], sumMs: 0 };
      byLabels.set(labels, {
        counts: added(before.counts, counts),
        sumMs: before.sumMs + sumMs,
      });
    },
  };
}

function added(a: Histogram, b: Histogram): Histogram {
  const length = Math.max(a.length, b.length);
  return Array.from({ length }, (_, bucket) => (a[bucket] ?? 0) + (b[bucket] ?? 0));
}

function sum(counts: Histogram): number {
  return counts.reduce((all, count) => all + count, 0);
}
