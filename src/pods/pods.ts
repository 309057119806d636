import type { Database, Row } from "../store/database.ts";
import { parsePulse, type PodPulse } from "./pulse.ts";
import {
  readPulsesOfAll,
  listPods,
  listBriefPods,
  markLeft,
  metadataOf,
  podAges,
  pulsesOf,
} from "./sql.ts";

export { changeDrain } from "./sql.ts";

/** A pod as its row says. */
export type StoredPod = {
  readonly podId: string;
  readonly status: "up" | "down";
  readonly birthMs: number;
  readonly lastHeartbeatMs: number;
  readonly beat: number;
  /** True if it is to take no more work. */
  readonly drains: boolean;
  /** JSON that the pod has written, or anything else that a row may hold. */
  readonly state: unknown;
  /** What it stored with its last heartbeat; null if it stores nothing. */
  readonly pulse: PodPulse | null;
  readonly metadata: Readonly<Record<string, unknown>>;
};

export async function storedPods(database: Pick<Database, "read">): Promise<StoredPod[]> {
  return (await database.read(listPods())).map(toStoredPod);
}

/** The same without metadata, for what looks at them again and again. */
export type BriefPod = Omit<StoredPod, "metadata">;

export async function briefPods(database: Pick<Database, "read">): Promise<BriefPod[]> {
  return (await database.read(listBriefPods())).map(toBriefPod);
}

/** What these pods have written of themselves when they began. It stays as it is. */
export async function readMetadata(
  database: Pick<Database, "read">,
  podIds: readonly string[],
): Promise<Map<string, StoredPod["metadata"]>> {
  const found = podIds.length === 0 ? [] : await database.read(metadataOf(podIds));
  return new Map(found.map((row) => [row["pod_id"] as string, toMetadata(row)]));
}

export function toStoredPod(row: Row): StoredPod {
  return { ...toBriefPod(row), metadata: toMetadata(row) };
}

function toMetadata(row: Row): StoredPod["metadata"] {
  return JSON.parse(row["metadata"] as string) as Record<string, unknown>;
}

function toBriefPod(row: Row): BriefPod {
  return {
    podId: row["pod_id"],
    status: row["status"],
    birthMs: Number(row["started_at"]),
    lastHeartbeatMs: Number(row["last_heartbeat"]),
    beat: Number(row["beat"]),
    drains: Number(row["drain"]) === 1,
    state: row["state"],
    pulse: parsePulse(row["pulse"]),
  };
}

/**
 * The pod that leads, as pods said of themselves with their last heartbeats. A leader that hangs goes on
 * saying so until its process ends, so of two the one that began last is it.
 */
export function leaderAmong(
  pods: readonly Pick<StoredPod, "podId" | "status" | "pulse">[],
): string | undefined {
  const leading = pods.flatMap(({ podId, status, pulse }) => {
    const sinceMs = status === "up" ? pulse?.leadsSinceMs : undefined;
    return typeof sinceMs === "number" ? [{ podId, sinceMs }] : [];
  });
  return leading.toSorted((a, b) => b.sinceMs - a.sinceMs)[0]?.podId;
}

/** How many pods there are, and what they have done in all since they began, by their last heartbeats. */
export type PodCounts = {
  readonly up: number;
  readonly down: number;
  readonly totals: { readonly claimed: number; readonly ended: number };
};

export async function readPodCounts(database: Pick<Database, "read">): Promise<PodCounts> {
  const pods = (await database.read(readPulsesOfAll())).map((row) => ({
    isUp: row["status"] === "up",
    pulse: parsePulse(row["pulse"]),
  }));
  const sumOf = (all: readonly (number | undefined)[]) =>
    all.reduce<number>((total, each) => total + (each ?? 0), 0);
  const up = pods.filter(({ isUp }) => isUp).length;
  return {
    up,
    down: pods.length - up,
    totals: {
      claimed: sumOf(pods.map(({ pulse }) => pulse?.claimed)),
      ended: sumOf(pods.flatMap(({ pulse }) => Object.values(pulse?.ended ?? {}))),
    },
  };
}

/** The pulses of these pods, of those that have one. */
export async function readPulses(
  database: Pick<Database, "read">,
  podIds: readonly string[],
): Promise<PodPulse[]> {
  const found = await database.read(pulsesOf(podIds));
  return found.flatMap((row) => parsePulse(row["pulse"]) ?? []);
}

export type LivePodAge = {
  readonly podId: string;
  readonly ageMs: number;
  readonly beat: number;
  /** The identity of its process, for observers on its machine. */
  readonly host: string | null;
  readonly metadata: string;
};

/** The pods that are up, with the time since their last heartbeat by the database's clock. */
export async function livePodAges(database: Pick<Database, "read">): Promise<LivePodAge[]> {
  return (await database.read(podAges())).map((row) => ({
    podId: row["pod_id"],
    ageMs: Number(row["age_ms"]),
    beat: Number(row["beat"]),
    host: row["host"],
    metadata: row["metadata"],
  }));
}

/** Tells the fleet that a pod has stopped. A failure is made up for by its silence. */
export async function leaveFleet(database: Pick<Database, "write">, podId: string): Promise<void> {
  await database.write([markLeft(podId)]).catch(() => {});
}
