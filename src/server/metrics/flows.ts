import { messageOf } from "../../base/errors.ts";
import type { DoingCounts } from "../../flows/counts.ts";
import type { Machine } from "../../flows/machine.ts";
import { createScrapeCache } from "./scrape-cache.ts";
import type { WorkerEvent } from "../../tasks/model.ts";
import type { Instruments, ScrapeParts } from "./instruments.ts";

/** The parts of a flow that create its series before anything has happened. */
export type MetricsFlow = Pick<Machine, "name"> & {
  readonly parts: readonly { readonly name: string }[];
  readonly finalizers: readonly { readonly name: string }[];
};

// A transition may take a millisecond, or wait days for a signal.
const transitionSeconds = [0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 86_400];
const runSeconds = [0.01, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 21_600, 86_400, 604_800];
const outcomes = ["completed", "retry", "failed"] as const;
const statuses = ["completed", "failed", "cancelled"] as const;
const reasons = ["unreadable", "unknown_transition", "invalid_input", "step_changed"] as const;

type FlowEvent = Extract<
  WorkerEvent,
  { type: "transition" | "run_begun" | "run_ended" | "run_set_aside" }
>;

/** Transitions and runs on this pod, and open runs in the store. Labels are names that flows declare. */
export function createFlowMetrics(make: Instruments, flows: readonly MetricsFlow[]) {
  const transitions = make.counter(
    "flotilla_transitions_total",
    "Transitions and finalizers on this pod by stored outcome: one per attempt, and one per wait that began or ended. Only `lost` isn't stored, because another pod has the run",
    ["flow", "transition", "outcome"],
  );
  const took = make.histogram(
    "flotilla_transition_duration_seconds",
    "Time until a transition's outcome was stored; for a wait that ended, its length",
    transitionSeconds,
    ["flow", "transition", "outcome"],
  );
  const begun = make.counter("flotilla_runs_begun_total", "Runs first written by this pod", [
    "flow",
  ]);
  const ended = make.counter("flotilla_runs_ended_total", "Runs that ended on this pod", [
    "flow",
    "status",
  ]);
  const lasted = make.histogram(
    "flotilla_run_duration_seconds",
    "From the start of a run until its outcome was stored, by the store's clock",
    runSeconds,
    ["flow", "status"],
  );
  const setAside = make.counter(
    "flotilla_runs_set_aside_total",
    "Runs that this pod couldn't read and has set aside for an operator",
    ["flow", "reason"],
  );
  const open = make.gauge(
    "flotilla_runs_open",
    "Open runs in the store, by flow and by what they do. Counted up to 10,000 rows per state, at most every 2 seconds",
    ["flow", "doing"],
  );

  for (const { name: flow, parts, finalizers } of flows) {
    begun.inc({ flow }, 0);
    for (const status of statuses) ended.inc({ flow, status }, 0);
    for (const reason of reasons) setAside.inc({ flow, reason }, 0);
    for (const { name: transition } of [...parts, ...finalizers]) {
      for (const outcome of outcomes) transitions.inc({ flow, transition, outcome }, 0);
    }
  }

  const show = (counts: DoingCounts): void => {
    open.reset();
    for (const [flow, of] of counts) {
      for (const [doing, runs] of Object.entries(of)) open.set({ flow, doing }, runs);
    }
  };
  const names = flows.map(({ name }) => name);

  return {
    observe(event: FlowEvent): void {
      const { flow } = event;
      switch (event.type) {
        case "transition": {
          const { transition, outcome, tookMs } = event;
          transitions.inc({ flow, transition, outcome });
          took.observe({ flow, transition, outcome }, tookMs / 1_000);
          break;
        }
        case "run_begun":
          begun.inc({ flow });
          break;
        case "run_ended": {
          const { status, tookMs } = event;
          ended.inc({ flow, status });
          lasted.observe({ flow, status }, tookMs / 1_000);
          break;
        }
        case "run_set_aside":
          setAside.inc({ flow, reason: event.reason });
          break;
      }
    },
    ...createScrapeCache(async ({ doing: read, log }: ScrapeParts) => {
      try {
        show((await read?.(names)) ?? new Map());
      } catch (error) {
        // Missing series are better than wrong ones.
        open.reset();
        log.warn({ error: messageOf(error) }, "reading runs for /metrics failed");
      }
    }),
  };
}
