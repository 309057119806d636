import type { Database, Row } from "../store/database.ts";
import { parsePulse, type PodPulse } from "./pulse.ts";
import { listPods, markLeft, podAges, pulsesOf } from "./sql.ts";

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

export function toStoredPod(row: Row): StoredPod {
  return {
    podId: row["pod_id"],
    status: row["status"],
    birthMs: Number(row["started_at"]),
    lastHeartbeatMs: Number(row["last_heartbeat"]),
    beat: Number(row["beat"]),
    drains: Number(row["drain"]) === 1,
    state: row["state"],
    pulse: parsePulse(row["pulse"]),
    metadata: JSON.parse(row["metadata"]) as Record<string, unknown>,
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

/** The pods that are up, with the time since their last heartbeat by the database's clock. */
export async function livePodAges(
  database: Pick<Database, "read">,
): Promise<{ podId: string; ageMs: number; metadata: string }[]> {
  return (await database.read(podAges())).map((row) => ({
    podId: row["pod_id"],
    ageMs: Number(row["age_ms"]),
    metadata: row["metadata"],
  }));
}

/** Tells the fleet that a pod has stopped. A failure is made up for by its silence. */
export async function leaveFleet(database: Pick<Database, "write">, podId: string): Promise<void> {
  await database.write([markLeft(podId)]).catch(() => {});
}
