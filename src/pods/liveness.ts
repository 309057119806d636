import type { TableName } from "../store/sql.ts";

/**
 * Which pods are alive, and which one leads, judged by beats alone.
 *
 * A pod is silent when its `beat` has not changed for the limit on the observer's own monotonic
 * clock, counting only time between consecutive committed beats of the observer. After a gap in
 * those (the observer was paused, or could read but not write) every count starts over. So neither
 * a clock step nor an outage makes all pods look dead at once.
 */
export type PodSeen = {
  readonly podId: string;
  readonly birthMs: number;
  readonly status: "up" | "down";
  /** Grows with every heartbeat. */
  readonly beat: number;
  /** Grows with every recovery pass that the pod finished as leader. */
  readonly passes: number;
};

export type Observation = {
  /** The observer's monotonic time at which its own beat was committed. */
  readonly atMs: number;
  readonly pods: readonly PodSeen[];
  /** Which of the tables that the heartbeat watches have rows. */
  readonly filledTables?: readonly TableName[];
};

export type LivenessLimits = {
  readonly deadAfterMs: number;
  /** Two own beats further apart than this are a gap. */
  readonly gapMs: number;
};

export type WatchedPod = PodSeen & {
  /** Counted time since the beat last changed. */
  readonly silentMs: number;
  /** Counted time since the last finished pass. */
  readonly idleMs: number;
};

export type Liveness = {
  readonly lastBeatMs: number | undefined;
  readonly pods: ReadonlyMap<string, WatchedPod>;
};

export const emptyLiveness: Liveness = { lastBeatMs: undefined, pods: new Map() };

/** Pure. The observer's state after one more committed beat of its own. */
export function observe(before: Liveness, seen: Observation, limits: LivenessLimits): Liveness {
  const elapsedMs = before.lastBeatMs === undefined ? 0 : seen.atMs - before.lastBeatMs;
  const gap = elapsedMs > limits.gapMs;
  const pods = new Map<string, WatchedPod>();
  for (const pod of seen.pods) {
    const known = before.pods.get(pod.podId);
    const quiet = known !== undefined && !gap && known.beat === pod.beat;
    const passed = known === undefined || gap || known.passes !== pod.passes;
    pods.set(pod.podId, {
      ...pod,
      silentMs: quiet ? known.silentMs + elapsedMs : 0,
      idleMs: passed ? 0 : known.idleMs + elapsedMs,
    });
  }
  return { lastBeatMs: seen.atMs, pods };
}

/** The pods that must be considered dead, with the beat they stopped at. */
export function silentPods(liveness: Liveness, limits: LivenessLimits): WatchedPod[] {
  return [...liveness.pods.values()].filter((pod) => pod.silentMs >= limits.deadAfterMs);
}

/**
 * How long a former leader had been silent when it was found not to lead any more. Undefined if it
 * still beats, so that nothing had to be detected.
 */
export function silenceOf(podId: string, before: Liveness, after: Liveness): number | undefined {
  const known = before.pods.get(podId);
  const current = after.pods.get(podId);
  if (current?.status === "up") return current.silentMs > 0 ? current.silentMs : undefined;
  return known && known.silentMs + (after.lastBeatMs ?? 0) - (before.lastBeatMs ?? 0);
}

/**
 * The oldest pod, by birth then id, that is not silent and has recently finished a recovery pass.
 */
export function leaderOf(
  liveness: Liveness,
  limits: LivenessLimits,
  self: string,
): string | undefined {
  return [...liveness.pods.values()]
    .filter(
      (pod) =>
        pod.status === "up" &&
        pod.silentMs < limits.deadAfterMs &&
        // A pod that beats while its main thread is stuck cannot lead.
        (pod.podId === self || pod.idleMs < limits.deadAfterMs),
    )
    .toSorted(byAge)[0]?.podId;
}

function byAge(a: PodSeen, b: PodSeen): number {
  return a.birthMs - b.birthMs || (a.podId < b.podId ? -1 : 1);
}
