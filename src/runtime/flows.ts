import type { FlowCount } from "../flows/counts.ts";
import { isFlow } from "../flows/drive/drive.ts";
import type { Machine } from "../flows/machine.ts";
import type { Runs } from "../flows/runs.ts";
import type { StuckOptions, StuckRuns } from "../flows/stuck.ts";
import type { Flotilla } from "./connect.ts";
import type { PodInfo } from "./pods.ts";
import type { Usable } from "./handlers.ts";

/** A flow in the whole fleet. */
export type FlowView = FlowCount & {
  /** Its machine, where this program has it; null where only other programs do. */
  readonly machine: Machine | null;
  /** The versions of it that live pods have. */
  readonly workers: readonly FlowWorkers[];
  readonly stuck: readonly StuckRuns[];
};

export type FlowWorkers = {
  readonly version: number;
  readonly pods: number;
  /** The latest heartbeat of these pods. */
  readonly lastHeartbeatMs: number;
};

const noRuns = {
  places: {},
  openByVersion: {},
  completed: 0,
  failed: 0,
  cancelled: 0,
  atLeast: false,
};

export function machinesOf(use: readonly Usable[]): Machine[] {
  return use.filter(isFlow) as readonly unknown[] as Machine[];
}

/** All flows that have runs, that this program has, or that live pods have, ordered by name. */
export async function readFlows(
  { runs, pods }: Pick<Flotilla, "pods"> & { runs: Pick<Runs, "counts" | "stuck"> },
  machines: readonly Machine[],
  options: StuckOptions = {},
): Promise<FlowView[]> {
  const [counts, stuck, all] = await Promise.all([runs.counts(), runs.stuck(options), pods()]);
  const workers = flowWorkers(all);
  const byName = new Map(counts.map((each) => [each.flow, each]));
  const own = new Map(machines.map((machine) => [machine.name, machine]));
  const names = new Set([...byName.keys(), ...own.keys(), ...workers.keys()]);
  return [...names].toSorted().map((flow) => ({
    ...(byName.get(flow) ?? { flow, ...noRuns }),
    machine: own.get(flow) ?? null,
    workers: workers.get(flow) ?? [],
    stuck: stuck.filter((each) => each.flow === flow),
  }));
}

/** A flow as JSON. Of its machine: the version, the queue and the names of all parts. */
export function flowToJson({ machine, ...rest }: FlowView) {
  const { places = {}, completed = 0, failed = 0, cancelled = 0 } = rest;
  const parts = [...(machine?.parts ?? []), ...(machine?.finalizers ?? [])];
  return {
    ...rest,
    places,
    completed,
    failed,
    cancelled,
    machine: machine && {
      version: machine.version,
      queue: machine.queue ?? null,
      parts: parts.map(({ name, kind }) => ({ name, kind })),
    },
  };
}

/** Counts live pods by flow and version, from their metadata. */
function flowWorkers(pods: readonly PodInfo[]): Map<string, FlowWorkers[]> {
  const found = new Map<string, FlowWorkers[]>();
  for (const { status, metadata, lastHeartbeatMs } of pods) {
    const { flows } = metadata;
    if (status !== "up" || typeof flows !== "object" || flows === null) continue;
    for (const [flow, version] of Object.entries(flows)) {
      if (typeof version !== "number") continue;
      const workers = found.get(flow) ?? [];
      const same = workers.find((each) => each.version === version);
      const others = workers.filter((each) => each !== same);
      const latestMs = Math.max(lastHeartbeatMs, same?.lastHeartbeatMs ?? 0);
      const joined = { version, pods: (same?.pods ?? 0) + 1, lastHeartbeatMs: latestMs };
      found.set(
        flow,
        [...others, joined].toSorted((one, other) => one.version - other.version),
      );
    }
  }
  return found;
}
