import type { FlowCount } from "../flows/counts.ts";
import { isFlow } from "../flows/drive/drive.ts";
import type { Machine } from "../flows/machine.ts";
import type { StuckOptions, StuckRuns } from "../flows/stuck.ts";
import type { Flotilla, PodInfo } from "./connect.ts";
import type { Usable } from "./handlers.ts";

/** A flow as the whole fleet knows it. */
export type FlowView = FlowCount & {
  /** Its machine, where this program has it; null where only others do. */
  readonly machine: Machine | null;
  /** The versions of it that pods which are up work with. */
  readonly workers: readonly FlowWorkers[];
  readonly stuck: readonly StuckRuns[];
};

export type FlowWorkers = {
  readonly version: number;
  readonly pods: number;
  /** When the one of them was heard of that was heard of last. */
  readonly lastHeartbeatMs: number;
};

export function machinesOf(use: readonly Usable[]): Machine[] {
  return use.filter(isFlow) as readonly unknown[] as Machine[];
}

/** All flows that have runs, that this program has, or that pods say they work on, in order of their names. */
export async function readFlows(
  { runs, pods }: Pick<Flotilla, "runs" | "pods">,
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

/** The same without functions: of its machine the version, the parts and the finalizers. */
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

const noRuns = { places: {}, openByVersion: {}, completed: 0, failed: 0, cancelled: 0 };

/** By flow and version, by what pods say of themselves. */
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
      const heardMs = Math.max(lastHeartbeatMs, same?.lastHeartbeatMs ?? 0);
      const joined = { version, pods: (same?.pods ?? 0) + 1, lastHeartbeatMs: heardMs };
      found.set(
        flow,
        [...others, joined].toSorted((one, other) => one.version - other.version),
      );
    }
  }
  return found;
}
