import { bytesText, counted, durationText } from "../spans.ts";
import type { ShownPod } from "./fleet.ts";

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
export function drainText({ drain, state, pulse, logs }: ShownPod): string | undefined {
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

/**
 * The pods to show: those that are up, the oldest first, then those that went down lately, or that a link
 * leads to.
 */
export function podsToShow(
  pods: readonly ShownPod[],
  { find = "", nowMs }: { find?: string | undefined; nowMs: number },
): { readonly shown: readonly ShownPod[]; readonly gone: number } {
  const lately = pods.filter(
    ({ podId, status, lastHeartbeatMs }) =>
      status === "up" || nowMs - lastHeartbeatMs < goneMs || podId === find,
  );
  const wanted = find.toLowerCase();
  const shown = lately
    .filter((pod) => wanted === "" || textsOf(pod).some((text) => text.includes(wanted)))
    .toSorted(
      (a, b) => Number(a.status === "down") - Number(b.status === "down") || a.birthMs - b.birthMs,
    );
  return { shown, gone: pods.length - lately.length };
}

function textsOf({ podId, host, handlers }: ShownPod): string[] {
  const names = handlers?.names.map(({ name }) => name) ?? [];
  return [podId, host ?? "", ...names].map((text) => text.toLowerCase());
}

/** How many tasks a pod holds at most; undefined where it doesn't tell. */
export function holdsOf({ state, holds }: Pick<ShownPod, "state" | "holds">): number | undefined {
  return state?.holds ?? holds ?? undefined;
}

/** A log of sessions on NATS of which the database doesn't have everything yet. */
export type LogBehind = {
  readonly logId: number;
  readonly podId: string;
  readonly bytes: number;
  readonly lagMs: number;
  /** Whether it waits for longer than a database that answers lets it. */
  readonly isLate: boolean;
};

const lateMs = 5_000;

/** The logs that the database is behind, by their ids, those that have waited for longest first. */
export function logsBehind(pods: readonly ShownPod[]): ReadonlyMap<number, LogBehind> {
  const all = pods.flatMap(({ podId, status, logs, pulse }) =>
    // A pod that has lost a log, or is down, had said something of it that no longer holds.
    (status === "up" ? (pulse?.logs ?? []) : [])
      .filter(({ logId }) => logs.includes(logId))
      .map((each) => ({ ...each, podId, isLate: each.lagMs >= lateMs })),
  );
  return new Map(all.toSorted((a, b) => b.lagMs - a.lagMs).map((each) => [each.logId, each]));
}

export function backlogText({ bytes, lagMs }: Pick<LogBehind, "bytes" | "lagMs">): string {
  return `${bytesText(bytes)} not in the database for ${durationText(lagMs)}`;
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
    holds: sum((pod) => holdsOf(pod) ?? 0),
    lagMs: up.reduce((most, { pulse }) => Math.max(most, pulse?.lagMs ?? 0), 0),
    memoryBytes: sum(({ pulse }) => pulse?.memoryBytes ?? 0),
  };
}
