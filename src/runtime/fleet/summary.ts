import { createHash } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import { isJsonObject } from "../../base/json.ts";
import { leaderAmong, readMetadata, type BriefPod, briefPods } from "../../pods/pods.ts";
import type { PodPulse } from "../../pods/pulse.ts";
import type { Head } from "../../sessions/log/journal.ts";
import { logsByOwner } from "../../sessions/log/sql-journal.ts";
import type { Database } from "../../store/database.ts";
import { drainOf, type PodInfo } from "../pods.ts";

/** A pod as far as pages show it, small enough that hundreds of them can be sent each second. */
export type PodSummary = Pick<PodInfo, "podId" | "status" | "birthMs" | "drain" | "state"> & {
  readonly leads: boolean;
  /** Its last heartbeat, of a pod that is down: of one that is up it changes each second. */
  readonly lastHeartbeatMs: number | null;
  readonly pulse: PulseSummary | null;
  readonly host: string | null;
  readonly pid: number | null;
  /** How many tasks it holds at most; null where it doesn't tell. */
  readonly holds: number | null;
  /** The key of its handlers in the summary; null where it doesn't tell them. */
  readonly handlers: string | null;
  readonly logs: readonly number[];
};

type PulseSummary = Pick<
  PodPulse,
  "lagMs" | "memoryBytes" | "held" | "throttles" | "running" | "logs"
>;

/** What a pod has handlers for. Pods of one deploy have the same. */
export type HandlerSet = {
  readonly names: readonly { readonly name: string; readonly version: string | null }[];
  /** How many were left out for lack of room. */
  readonly more: number;
};

export type FleetSummary = {
  /** Those that are up, the oldest first, then those that went down within the hour, the latest first. */
  readonly pods: readonly PodSummary[];
  readonly handlers: Readonly<Record<string, HandlerSet>>;
  /** The last heartbeat of a pod that is up, which tells the store's time; null where none is. */
  readonly newestBeatMs: number | null;
  /** How many pods went down longer ago. */
  readonly gone: number;
  /** How many were left out for lack of room. */
  readonly more: number;
};

/** What a pod has written of itself, as far as pages show it. */
export type PodDescription = Pick<PodSummary, "host" | "pid" | "holds"> & {
  readonly handlers: { readonly key: string; readonly names: HandlerSet["names"] } | null;
};

/** A pod that was read, with what the summary says of it. */
export type DescribedPod = Omit<BriefPod, "beat"> & {
  readonly description: PodDescription;
  readonly logs: readonly number[];
};

// More than a fleet has, and less than a stream of one topic may hold.
const maxPods = 1_000;
// Pods that went down before are of no use to a person that looks after those of now.
const goneMs = 3_600_000;
// For the handlers of all pods together: sets are many only where pods differ.
const maxHandlerChars = 400_000;
// What JSON puts around a name and its version.
const aroundChars = 26;

/** Reads the fleet again and again. What a pod has written of itself may be long, and is read once. */
export function createFleetReader({
  database,
  clock,
  heads,
}: {
  database: Database;
  clock: Clock;
  heads: () => Promise<readonly Head[]>;
}): () => Promise<FleetSummary> {
  let known = new Map<string, PodDescription>();
  return async () => {
    const [seen, found] = await Promise.all([briefPods(database), heads()]);
    const logs = logsByOwner(found);
    const unknown = seen.filter((pod) => !known.has(lifeOf(pod))).map(({ podId }) => podId);
    const metadata = await readMetadata(database, unknown);
    const before = known;
    known = new Map(
      seen.map((pod) => [
        lifeOf(pod),
        before.get(lifeOf(pod)) ?? describePod(metadata.get(pod.podId) ?? {}),
      ]),
    );
    const pods = seen.map((pod) => ({
      ...pod,
      description: known.get(lifeOf(pod))!,
      logs: logs.get(pod.podId) ?? [],
    }));
    return summarizeFleet(pods, clock.now());
  };
}

/** A pod that was deleted and comes back writes anew. */
function lifeOf({ podId, birthMs }: BriefPod): string {
  return `${birthMs} ${podId}`;
}

export function summarizeFleet(pods: readonly DescribedPod[], nowMs: number): FleetSummary {
  const up = pods.filter(({ status }) => status === "up");
  const lately = pods
    .filter(({ status, lastHeartbeatMs }) => status === "down" && nowMs - lastHeartbeatMs < goneMs)
    .toSorted((a, b) => b.lastHeartbeatMs - a.lastHeartbeatMs);
  const shown = [...up.toSorted((a, b) => a.birthMs - b.birthMs), ...lately].slice(0, maxPods);
  const leader = leaderAmong(pods);
  const sets = new Map(
    shown.flatMap(({ description: { handlers } }) =>
      handlers ? [[handlers.key, handlers.names]] : [],
    ),
  );
  const chars = Math.floor(maxHandlerChars / Math.max(1, sets.size));
  return {
    pods: shown.map((pod) => summaryOf(pod, leader)),
    handlers: Object.fromEntries([...sets].map(([key, names]) => [key, fitted(names, chars)])),
    newestBeatMs: up.length === 0 ? null : Math.max(...up.map((pod) => pod.lastHeartbeatMs)),
    gone: pods.length - up.length - lately.length,
    more: up.length + lately.length - shown.length,
  };
}

function summaryOf(pod: DescribedPod, leader: string | undefined): PodSummary {
  const { podId, status, birthMs, lastHeartbeatMs, pulse, logs } = pod;
  const { handlers, ...description } = pod.description;
  const { drain, state } = drainOf(pod);
  const isUp = status === "up";
  return {
    podId,
    status,
    birthMs,
    lastHeartbeatMs: isUp ? null : lastHeartbeatMs,
    leads: podId === leader,
    drain,
    // What a pod said before it went down says nothing of now.
    state: isUp ? state : null,
    pulse: isUp && pulse ? pulseOf(pulse) : null,
    ...description,
    handlers: handlers?.key ?? null,
    logs,
  };
}

/** Without totals since its start, which change each second and are on no page. */
function pulseOf({ lagMs, memoryBytes, held, throttles, running, logs }: PodPulse): PulseSummary {
  return { lagMs, memoryBytes, held, throttles, running: running.slice(0, 1), logs };
}

/** A row may hold anything. */
export function describePod(metadata: PodInfo["metadata"]): PodDescription {
  const { host, pid, holds } = metadata;
  const names = handlersIn(metadata);
  return {
    host: typeof host === "string" ? host : null,
    pid: typeof pid === "number" ? pid : null,
    holds: typeof holds === "number" ? holds : null,
    handlers: names ? { key: keyOf(names), names } : null,
  };
}

function handlersIn(metadata: PodInfo["metadata"]): HandlerSet["names"] | undefined {
  const { names } = metadata;
  if (!Array.isArray(names)) return undefined;
  const versions = new Map(
    ["versions", "flows"].flatMap((field) => {
      const found = metadata[field];
      return isJsonObject(found) ? Object.entries(found) : [];
    }),
  );
  return names
    .filter((name) => typeof name === "string")
    .map((name) => ({ name, version: versions.has(name) ? String(versions.get(name)) : null }));
}

/** The same for the same handlers, also after other pods have come and gone. */
function keyOf(names: HandlerSet["names"]): string {
  return createHash("sha256").update(JSON.stringify(names)).digest("base64url").slice(0, 12);
}

function fitted(names: HandlerSet["names"], chars: number): HandlerSet {
  let left = chars;
  const kept = names.filter(({ name, version }) => {
    left -= name.length + (version?.length ?? 0) + aroundChars;
    return left >= 0;
  });
  return { names: kept, more: names.length - kept.length };
}
