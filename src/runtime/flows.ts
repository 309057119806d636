import { FlotillaError } from "../base/errors.ts";
import { isJsonObject, type Json } from "../base/json.ts";
import type { Bus } from "../bus/bus.ts";
import type { FlowCount } from "../flows/counts.ts";
import { whatItDoes } from "../flows/describe.ts";
import { isFlow } from "../flows/drive/drive.ts";
import type { Machine } from "../flows/machine.ts";
import type { Runs } from "../flows/runs.ts";
import type { StuckOptions, StuckRuns } from "../flows/stuck.ts";
import type { SeriesReader } from "../series/series.ts";
import { subjectText } from "../protocol/series-subject.ts";
import type { Flotilla } from "./connect.ts";
import { machineTopic, type MachineView, type PodInfo } from "./pods.ts";
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

/** How long runs were at a transition lately, and how its attempts and waits ended. */
export type StateTimes = {
  readonly at: string;
  /** Such as `completed`, `retry` and `failed`. */
  readonly outcomes: Readonly<Record<string, number>>;
  /** Estimates over attempts and waits that have ended; null if none has. */
  readonly p50Ms: number | null;
  readonly p95Ms: number | null;
};

const noRuns = {
  places: {},
  openByVersion: {},
  placesByVersion: {},
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

/**
 * One flow, with the times of its transitions in the last hour; undefined where neither this program nor a
 * live pod has it, and it has no runs.
 */
export async function readFlow(
  { runs, pods, series }: FlowSources,
  machines: readonly Machine[],
  flow: string,
): Promise<{ readonly flow: FlowView; readonly times: readonly StateTimes[] } | undefined> {
  const machine = machines.find(({ name }) => name === flow) ?? null;
  const [[counts], stuck, all] = await Promise.all([
    runs.counts({ flow }),
    runs.stuck({ flow }),
    pods(),
  ]);
  const workers = flowWorkers(all).get(flow) ?? [];
  const { completed = 0, failed = 0, cancelled = 0, places = {} } = counts ?? {};
  const hasRuns = completed + failed + cancelled > 0 || Object.keys(places).length > 0;
  if (machine === null && workers.length === 0 && !hasRuns) return undefined;
  const names = new Set([...partsOf(machine).map(({ name }) => name), ...Object.keys(places)]);
  const view = { ...(counts ?? { flow, ...noRuns }), machine, workers, stuck };
  return { flow: view, times: await readTimes(series, flow, [...names].slice(0, maxStates)) };
}

type FlowSources = Pick<Flotilla, "pods"> & {
  readonly runs: Pick<Runs, "counts" | "stuck">;
  readonly series: Pick<SeriesReader, "totals">;
};

// A machine has no more parts than this. Runs may stand at names that it doesn't have.
const maxStates = 1_000;

async function readTimes(
  series: Pick<SeriesReader, "totals">,
  flow: string,
  states: readonly string[],
): Promise<StateTimes[]> {
  const subjectOf = (part: string) => subjectText({ kind: "flow", name: flow, part });
  const totals = await series.totals({ subjects: states.map(subjectOf) });
  return states.flatMap((at) => {
    const found = totals.get(subjectOf(at));
    if (found === undefined) return [];
    const { counts: outcomes, run } = found;
    return [{ at, outcomes, p50Ms: run?.p50Ms ?? null, p95Ms: run?.p95Ms ?? null }];
  });
}

function partsOf(machine: Machine | null) {
  return [...(machine?.parts ?? []), ...(machine?.finalizers ?? [])];
}

/** A flow as JSON. Of its machine: the version, the queue and all parts. */
export function flowToJson({ machine, ...rest }: FlowView) {
  const { places = {}, completed = 0, failed = 0, cancelled = 0 } = rest;
  return {
    ...rest,
    places,
    completed,
    failed,
    cancelled,
    machine: machine && machineToJson(machine),
  };
}

export function machineToJson(machine: Machine): MachineView {
  const { version, queue = null } = machine;
  const parts = partsOf(machine).map((part) => {
    return { name: part.name, kind: part.kind, does: whatItDoes(part, machine) };
  });
  return { version, queue, parts };
}

/** Lets others ask this pod what its flows are made of. */
export function serveMachines(bus: Pick<Bus, "serve">, machines: readonly Machine[]): () => void {
  return bus.serve(machineTopic, (body) => {
    const { flow, version } = isJsonObject(body) ? body : {};
    const found = machines.find((each) => each.name === flow && each.version === version);
    if (found) return machineToJson(found) as unknown as Json;
    throw new FlotillaError("not_found", "this pod doesn't have the flow in this version");
  });
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
