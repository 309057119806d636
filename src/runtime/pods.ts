import { type ActParts, beginAct, writeAct } from "../audit/act.ts";
import { FlotillaError } from "../base/errors.ts";
import { changeDrain, storedPods, type StoredPod, toStoredPod } from "../pods/pods.ts";
import type { PodPulse } from "../pods/pulse.ts";
import { untilKnown } from "../store/retry.ts";
import type { DrainState, PodState } from "../tasks/run/pod-status.ts";

/** A pod as its row shows it. */
export type PodInfo = {
  readonly podId: string;
  readonly status: "up" | "down";
  readonly birthMs: number;
  readonly lastHeartbeatMs: number;
  readonly beat: number;
  /** Set while it is to take no more work: `drained` once nothing that it had begun is left. */
  readonly drain: DrainState | null;
  /** How many tasks it may hold and why no more, as it last reported; null before its first report. */
  readonly state: PodState | null;
  /** What it stored of itself with its last heartbeat; null where it stores nothing. */
  readonly pulse: PodPulse | null;
  readonly metadata: Readonly<Record<string, unknown>>;
};

/** The pods of a store, and what operators do to them. */
export type PodActs = {
  pods(): Promise<PodInfo[]>;
  /**
   * Lets a pod take no more work: it claims nothing, lets what it has begun end, and hands its logs of
   * sessions on. Resolves when that is stored; the pod reads it with its next heartbeat.
   */
  drainPod(podId: string): Promise<PodInfo>;
  /** Lets it take work again. */
  undrainPod(podId: string): Promise<PodInfo>;
};

export function createPodActs(parts: ActParts): PodActs {
  const change = async (podId: string, drains: boolean): Promise<PodInfo> => {
    const action = drains ? "pods.drain" : "pods.undrain";
    const act = await beginAct(parts, { action, subject: podId });
    const { tables } = await writeAct(
      parts,
      act,
      { statements: (_, entry) => changeDrain(podId, drains, entry) },
      untilKnown,
    );
    const [row] = tables.at(-1)!;
    if (!row) throw new FlotillaError("not_found", `there is no pod ${podId.slice(0, 80)}`);
    const pod = toPodInfo(toStoredPod(row));
    if (pod.status === "up") return pod;
    throw new FlotillaError("conflict", `pod ${podId} is down: it takes no work anyway`);
  };

  return {
    pods: async () => (await storedPods(parts.database)).map(toPodInfo),
    drainPod: (podId) => change(podId, true),
    undrainPod: (podId) => change(podId, false),
  };
}

function toPodInfo({ drains, state: reported, ...pod }: StoredPod): PodInfo {
  const state = stateOf(reported);
  return { ...pod, drain: drains ? (state?.drain ?? "draining") : null, state };
}

/** A row may hold anything; listing pods must still work. */
function stateOf(text: unknown): PodState | null {
  if (typeof text !== "string") return null;
  try {
    return JSON.parse(text) as PodState;
  } catch {
    return null;
  }
}
