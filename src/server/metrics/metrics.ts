import { Registry } from "prom-client";
import { type Clock, systemClock } from "../../base/clock.ts";
import { type Pod, type PodEvent, reasonCodes } from "../../runtime/pod.ts";
import type { ArchiveState } from "../../sessions/log/archive/state.ts";
import type { SessionLoad } from "../../sessions/start.ts";
import type { LimiterSnapshot } from "../../throttles/limiter/stats.ts";
import { createDepthGauges } from "./tasks.ts";
import { createSessionMetrics } from "./sessions.ts";
import { createFlowMetrics, type MetricsFlow } from "./flows.ts";
import { createThrottleMetrics } from "./throttles.ts";
import { instrumentsOf, type ScrapeParts } from "./instruments.ts";
import type { QuotaRefusal } from "../admission/tenant-quotas.ts";
import { quotaNames } from "../../runtime/quota-config.ts";
import type { SocketEvent } from "../socket/sockets.ts";

/** The content of `/metrics`: events of the pod and its store, and counts read from the store. */
export type Metrics = {
  readonly registry: Registry;
  readonly contentType: string;
  /** For the `onEvent` of `startPod` and of `connect`. */
  observe(event: PodEvent | SocketEvent | QuotaRefusal): void;
  /** The text of one scrape. */
  collect(parts: ScrapeParts): Promise<string>;
};

type MetricsPod = Pick<Pod, "podId" | "leader" | "running" | "capacity"> & {
  readonly throttles?: { here(): readonly LimiterSnapshot[] };
  sessionLoad?(): SessionLoad | undefined;
  archiveState?(): ArchiveState | undefined;
};

export type MetricsOptions = {
  /** The pod of this process, once it has started. */
  pod?: () => MetricsPod | undefined;
  slots?: number;
  /** This program's tasks: the only names that become labels. */
  names?: readonly string[];
  /** This program's flows. */
  flows?: readonly MetricsFlow[];
  clock?: Clock;
};

const taskSeconds = [0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300, 900];
const claimSeconds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5];
const waitSeconds = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
const lagSeconds = [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 30];
const silenceSeconds = [0.1, 0.25, 0.5, 1, 2, 4, 5, 6, 7, 8, 10, 15, 30, 60, 300];

export function createMetrics(options: MetricsOptions = {}): Metrics {
  const { pod = () => undefined, slots = 0, names = [], flows = [] } = options;
  const { clock = systemClock } = options;
  const registry = new Registry();
  const make = instrumentsOf(registry);
  const steps = make.counter(
    "flotilla_steps_total",
    "Steps of tasks that were run and stored, or answered from the journal",
    ["name", "outcome"],
  );
  const attempts = make.counter(
    "flotilla_attempts_total",
    "Attempts that ended on this pod, by task and outcome",
    ["name", "outcome"],
  );
  const took = make.histogram(
    "flotilla_task_duration_seconds",
    "How long attempts took, from claim to stored outcome",
    taskSeconds,
    ["name"],
  );
  const claimed = make.counter("flotilla_tasks_claimed_total", "Tasks that this pod has claimed");
  const claims = make.histogram(
    "flotilla_claim_duration_seconds",
    "How long answered claim calls took",
    claimSeconds,
  );
  const claimFailures = make.counter(
    "flotilla_claim_failures_total",
    "Claim calls that failed, by error code",
    ["code"],
  );
  const contention = make.counter(
    "flotilla_contention_total",
    "Reads and writes that conflicted with others, by cause: a held lock (busy), a transaction that the database rolled back (deadlock, serialization), two events of one task at once (race)",
    ["cause"],
  );
  const backoff = make.histogram(
    "flotilla_backoff_wait_seconds",
    "Wait before each retry, by what is retried: a failed claim, a write, a call of the store that conflicted with others",
    waitSeconds,
    ["what"],
  );
  const storeErrors = make.counter(
    "flotilla_store_errors_total",
    "Reads and writes that failed or whose outcome is unknown, by error code",
    ["code"],
  );
  const forged = make.counter(
    "flotilla_forged_notifications_total",
    "Notifications that were dropped because no pod had signed them",
  );
  const lag = make.histogram(
    "flotilla_heartbeat_lag_seconds",
    "How much later than planned heartbeats of this pod were committed",
    lagSeconds,
  );
  const beatFailures = make.counter(
    "flotilla_heartbeat_failures_total",
    "Heartbeats of this pod that couldn't be committed",
  );
  const beatAge = make.gauge(
    "flotilla_heartbeat_age_seconds",
    "How long ago this pod last committed a heartbeat, 0 before the first",
  );
  const detection = make.histogram(
    "flotilla_leader_detection_seconds",
    "From the last heartbeat of a leader that died or left until this pod saw its successor",
    silenceSeconds,
  );
  const recovery = make.histogram(
    "flotilla_recovery_latency_seconds",
    "From the last heartbeat of a dead pod until this pod released its tasks, once per dead pod",
    silenceSeconds,
  );
  const recovered = make.counter(
    "flotilla_tasks_recovered_total",
    "Tasks that this pod recovered from dead pods",
  );
  const fired = make.counter(
    "flotilla_schedules_fired_total",
    "Tasks that this pod, as the leader, enqueued for schedules",
  );
  const missed = make.counter(
    "flotilla_schedules_missed_total",
    "Times of schedules without a task of their own, counted up to a hundred per schedule at once",
  );
  const firingLag = make.histogram(
    "flotilla_schedule_lag_seconds",
    "From a schedule's time until this pod had stored its task, by the store's clock",
    lagSeconds,
  );
  const quotaRefusals = make.counter(
    "flotilla_quota_refusals_total",
    "Requests and frames that this server refused because a quota of their tenant was used up, by quota",
    ["quota"],
  );
  let nats: ReturnType<typeof make.gauge> | undefined;
  const running = make.gauge("flotilla_tasks_running", "Tasks that run on this pod now");
  make.gauge("flotilla_slots", "Tasks that this pod could run at once").set(slots);
  const holds = make.gauge(
    "flotilla_capacity",
    "Tasks that this pod holds at most right now, after all reductions of its target",
  );
  const heldBack = make.gauge(
    "flotilla_held_back",
    "1 for each reason that currently limits this pod's claims",
    ["reason"],
  );
  const leads = make.gauge("flotilla_is_leader", "1 where this pod considers itself the leader");
  const depth = createDepthGauges(make, names);
  const throttles = createThrottleMetrics(make, registry);
  const runs = createFlowMetrics(make, flows);
  const sessions = createSessionMetrics(make);
  let lastBeatMs: number | undefined;

  // Begin with zeros: a missing series looks the same as one that isn't scraped.
  for (const cause of ["busy", "deadlock", "serialization", "race"]) contention.inc({ cause }, 0);
  for (const what of ["claim", "write", "store"]) backoff.zero({ what });
  for (const quota of quotaNames) quotaRefusals.inc({ quota }, 0);

  return {
    registry,
    contentType: registry.contentType,
    observe(event) {
      switch (event.type) {
        case "ended":
          attempts.inc({ name: event.name, outcome: event.outcome });
          took.observe({ name: event.name }, event.tookMs / 1_000);
          break;
        case "step":
          steps.inc({ name: event.name, outcome: event.outcome });
          break;
        case "claimed":
          claimed.inc(event.tasks);
          claims.observe(event.tookMs / 1_000);
          break;
        case "claim_failed":
          claimFailures.inc({ code: event.code });
          backoff.observe({ what: "claim" }, event.waitMs / 1_000);
          break;
        case "contended":
          contention.inc({ cause: event.cause });
          backoff.observe({ what: "store" }, event.waitMs / 1_000);
          break;
        case "resent":
          backoff.observe({ what: "write" }, event.waitMs / 1_000);
          break;
        case "forged":
          forged.inc();
          break;
        case "quota_refused":
          quotaRefusals.inc({ quota: event.quota });
          break;
        case "store_error":
          storeErrors.inc({ code: event.code });
          // The call gave up waiting for a lock of another connection.
          if (event.code === "store_busy") contention.inc({ cause: "busy" });
          break;
        case "recovered":
          recovered.inc(event.tasks);
          for (const silentMs of event.silencesMs) recovery.observe(silentMs / 1_000);
          break;
        case "beat":
          lag.observe(event.lagMs / 1_000);
          lastBeatMs = clock.monotonic();
          break;
        case "fired":
          fired.inc(event.tasks);
          missed.inc(event.skipped);
          if (event.lagMs !== undefined) firingLag.observe(event.lagMs / 1_000);
          break;
        case "beat_failed":
          beatFailures.inc();
          break;
        case "leading":
          // `collect` reads the leader, because the first event comes before the pod is known.
          if (event.silentMs !== undefined) detection.observe(event.silentMs / 1_000);
          break;
        case "transition":
        case "run_begun":
        case "run_ended":
        case "run_set_aside":
          runs.observe(event);
          break;
        case "turn_started":
        case "turn_ended":
        case "tokens":
        case "record":
        case "record_unknown":
        case "record_resent":
        case "record_fenced":
        case "log_taken":
        case "log_owned":
        case "log_lost":
        case "sockets":
        case "socket_cut":
          return sessions.observe(event);
        case "share":
        case "bound":
        case "refused":
          // `collect` reads the limits of throttles, and a pod that was refused ends.
          break;
      }
    },
    async collect(parts) {
      const current = pod();
      running.set(current?.running ?? 0);
      const { holds: held = 0, reasons = [] } = current?.capacity ?? {};
      holds.set(held);
      for (const reason of reasonCodes) {
        heldBack.set({ reason }, reasons.some(({ code }) => code === reason) ? 1 : 0);
      }
      leads.set(current !== undefined && current.leader === current.podId ? 1 : 0);
      beatAge.set(lastBeatMs === undefined ? 0 : (clock.monotonic() - lastBeatMs) / 1_000);
      const natsState = parts.nats?.() ?? null;
      if (natsState !== null) {
        // Without NATS a 0 would look like a fault.
        nats ??= make.gauge("flotilla_nats_connected", "Whether this process can use NATS, 1 or 0");
        nats.set(natsState === "connected" ? 1 : 0);
      }
      sessions.show(current?.sessionLoad?.(), current?.archiveState?.());
      throttles.showPod(current?.throttles?.here() ?? []);
      await Promise.all([depth.refresh(parts), throttles.refresh(parts), runs.refresh(parts)]);
      return registry.metrics();
    },
  };
}
