import type { ShownPod } from "../../api.ts";
import { counted } from "../spans.ts";
import { namesIn } from "../verdict.ts";

/** How a pod stands, in a word, with a tone for its mark. */
export type PodStanding = {
  readonly word: string;
  readonly tone: "completed" | "claimed" | "pending" | "cancelled";
};

export function podStanding({ status, drain }: ShownPod): PodStanding {
  if (status === "down") return { word: "down", tone: "cancelled" };
  if (drain === "draining") return { word: "draining", tone: "claimed" };
  if (drain === "drained") return { word: "drained", tone: "pending" };
  return { word: "up", tone: "completed" };
}

/** What a pod that drains has left, and whether it knows already that it is to drain. */
export function drainText({ drain, state, pulse, logs = [] }: ShownPod): string | undefined {
  if (drain === null) return undefined;
  if (drain === "drained") return "nothing is left: it can be stopped";
  if (state?.drain === undefined) return "told with its next heartbeat";
  const left = [
    ...(pulse && pulse.held > 0 ? [counted(pulse.held, "task")] : []),
    ...(logs.length > 0 ? [counted(logs.length, "session log")] : []),
  ];
  return left.length === 0 ? "nearly done" : `${left.join(" and ")} left`;
}

// Pods that stopped longer ago are of no use to a person that looks after those of now.
const goneMs = 3_600_000;

/** The pods to show: those that are up, the oldest first, then those that went down lately. */
export function podsToShow(
  pods: readonly ShownPod[],
  { find = "", nowMs }: { find?: string | undefined; nowMs: number },
): { readonly shown: readonly ShownPod[]; readonly gone: number } {
  const lately = pods.filter(
    ({ status, lastHeartbeatMs }) => status === "up" || nowMs - lastHeartbeatMs < goneMs,
  );
  const wanted = find.toLowerCase();
  const shown = lately
    .filter((pod) => wanted === "" || textsOf(pod).some((text) => text.includes(wanted)))
    .toSorted(
      (a, b) => Number(a.status === "down") - Number(b.status === "down") || a.birthMs - b.birthMs,
    );
  return { shown, gone: pods.length - lately.length };
}

function textsOf({ podId, metadata }: ShownPod): string[] {
  const { host } = metadata;
  const texts = [podId, ...(typeof host === "string" ? [host] : []), ...namesIn(metadata)];
  return texts.map((text) => text.toLowerCase());
}

/** The names that a pod has handlers for, with the versions of those that have one. */
export function versionsIn(
  metadata: ShownPod["metadata"],
): readonly { readonly name: string; readonly version: string | undefined }[] {
  const versions = { ...recordIn(metadata["versions"]), ...recordIn(metadata["flows"]) };
  return namesIn(metadata).map((name) => ({
    name,
    version: Object.hasOwn(versions, name) ? String(versions[name]) : undefined,
  }));
}

function recordIn(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}

export type FleetTotals = {
  readonly up: number;
  readonly held: number;
  readonly holds: number;
  readonly lagMs: number;
  readonly memoryBytes: number;
};

/** What the pods that are up have together; of their lags the largest. */
export function totalsOf(pods: readonly ShownPod[]): FleetTotals {
  const up = pods.filter(({ status }) => status === "up");
  const sum = (of: (pod: ShownPod) => number) => up.reduce((total, pod) => total + of(pod), 0);
  return {
    up: up.length,
    held: sum(({ pulse }) => pulse?.held ?? 0),
    holds: sum(({ state }) => state?.holds ?? 0),
    lagMs: up.reduce((most, { pulse }) => Math.max(most, pulse?.lagMs ?? 0), 0),
    memoryBytes: sum(({ pulse }) => pulse?.memoryBytes ?? 0),
  };
}
