import type { Clock } from "../../base/clock.ts";
import { FlotillaError, messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { DoingCounts } from "../../flows/counts.ts";
import type { Machine } from "../../flows/machine.ts";
import type { Flotilla } from "../../runtime/connect.ts";
import type { PodCounts } from "../../pods/pods.ts";
import type { Depth } from "../../tasks/inspect/depth.ts";
import { createScrapeCache } from "../metrics/scrape-cache.ts";

/** Counts of the store, at a cost that doesn't grow with it: no number is exact beyond 10,000. */
export type Overview = {
  readonly tasks: Readonly<Record<(typeof taskStates)[number], number>>;
  readonly runs: Readonly<Record<(typeof runStates)[number], number>>;
  readonly sessions: { readonly all: number; readonly busy: number };
  readonly pods: Omit<PodCounts, "totals">;
  /** Runs that wait for a signal, such as a person's approval. */
  readonly waiting: readonly WaitingRun[];
};

export type WaitingRun = {
  readonly runId: string;
  readonly flow: string;
  readonly signal: string;
};

export type OverviewParts = {
  flotilla: Flotilla;
  machines?: readonly Machine[] | undefined;
  clock: Clock;
  log: Logger;
};

const taskStates = [
  "ready",
  "running",
  "delayed",
  "waiting",
  "blocked",
  "alone",
  "failed",
] as const;
const runStates = [
  "running",
  "ready",
  "retrying",
  "delayed",
  "sleeping",
  "waiting_for_signal",
  "waiting_for_children",
  "waiting_for_others",
  "waiting_for_room",
  "set_aside",
] as const;

// `flotilla runs` finds the rest.
const maxFlowsRead = 20;
const maxRunsRead = 50;
const maxWaitingShown = 5;

/** Reads the store when the page is requested: once for concurrent requests, and then cached. */
export function createOverview(
  parts: OverviewParts,
): () => Promise<Overview | { trouble: string }> {
  const { log } = parts;
  let last: Overview | { trouble: string };
  const cache = createScrapeCache(async () => {
    try {
      last = await readOverview(parts);
    } catch (error) {
      const trouble = error instanceof FlotillaError ? error.code : "internal";
      log.warn({ code: trouble, error: messageOf(error) }, "overview for / failed");
      last = { trouble };
    }
  });
  return async () => {
    await cache.refresh(parts);
    return last;
  };
}

async function readOverview({ flotilla, machines = [] }: OverviewParts): Promise<Overview> {
  const flows = [...new Set(machines.map(({ name }) => name))];
  const [depth, doing, sessions, pods, waiting] = await Promise.all([
    flotilla.pages.depth(),
    flotilla.pages.doing(),
    flotilla.pages.sessionCounts(),
    flotilla.pages.podCounts(),
    waitingRuns(flotilla, flows.slice(0, maxFlowsRead)),
  ]);
  return { ...countsOf({ depth, doing, pods }), sessions, waiting };
}

/** Sums up what was counted by name. The flows are those that `doing` has. */
export function countsOf({
  depth,
  doing,
  pods,
}: {
  depth: Depth;
  doing: DoingCounts;
  pods: PodCounts;
}): Pick<Overview, "tasks" | "runs" | "pods"> {
  const tasks = [...depth].flatMap(([name, counts]) => (doing.has(name) ? [] : [counts]));
  return {
    tasks: summed(taskStates, tasks),
    runs: summed(runStates, [...doing.values()]),
    pods: { up: pods.up, down: pods.down },
  };
}

/** Reads only the newest runs of each flow, so that old ones cost nothing. */
async function waitingRuns({ runs }: Flotilla, flows: readonly string[]): Promise<WaitingRun[]> {
  const pages = await Promise.all(flows.map((flow) => runs.list({ flow, limit: maxRunsRead })));
  const found = pages.flatMap((page) =>
    page.runs.flatMap(({ runId, flow, doing }) =>
      doing?.type === "waiting_for_signal" ? [{ runId, flow, signal: doing.name }] : [],
    ),
  );
  return found.slice(0, maxWaitingShown);
}

function summed<State extends string>(
  states: readonly State[],
  counts: readonly Readonly<Record<State, number>>[],
): Record<State, number> {
  const sum = (state: State) => counts.reduce((total, each) => total + each[state], 0);
  return Object.fromEntries(states.map((state) => [state, sum(state)])) as Record<State, number>;
}
