import type { FlowFacts } from "../../asks/flows.ts";

/** A version of a flow that pods have or runs are at. */
export type FlowVersion = {
  /** 0 for runs that no version has advanced yet. */
  readonly version: number;
  readonly pods: number;
  readonly open: number;
  /** It has runs, and no live pod has it or a later one. */
  readonly isUnserved: boolean;
};

/** The versions of a flow, the latest first. */
export function flowVersions({ workers, openByVersion }: FlowFacts): FlowVersion[] {
  const pods = new Map(workers.map((each) => [each.version, each.pods]));
  const open = new Map(
    Object.entries(openByVersion).map(([version, runs]) => [Number(version), runs]),
  );
  const latest = Math.max(-1, ...pods.keys());
  const versions = new Set([...pods.keys(), ...open.keys()]);
  return [...versions]
    .toSorted((one, other) => other - one)
    .map((version) => ({
      version,
      pods: pods.get(version) ?? 0,
      open: open.get(version) ?? 0,
      isUnserved: (open.get(version) ?? 0) > 0 && latest < version,
    }));
}

export type OpenRunCounts = Readonly<
  Record<"running" | "ready" | "retrying" | "waiting" | "setAside", number>
>;

/** The open runs of a flow by what they do, wherever they are. */
export function openCounts({ places }: Pick<FlowFacts, "places">): OpenRunCounts {
  const sums = { running: 0, ready: 0, retrying: 0, waiting: 0, setAside: 0 };
  for (const counts of Object.values(places)) {
    for (const what of Object.keys(sums) as (keyof OpenRunCounts)[])
      sums[what] += counts[what] ?? 0;
  }
  return sums;
}
