import type { TableName } from "../store/sql.ts";

/**
 * Which pods are alive, and which one leads.
 *
 * A pod is silent when its `beat` has not changed for the limit on the observer's own monotonic
 * clock, counting only time between consecutive committed beats of the observer. After a gap in
 * those (the observer was paused, or could read but not write) every count starts over. So neither
 * a clock step nor an outage makes all pods look dead at once.
 *
 * Two things shorten the wait. A pod whose process is known to be gone is silent at once. A pod whose
 * connection has ended is silent when it has missed the beat that would have come on a new one.
 */
export type PodSeen = {
  readonly podId: string;
  readonly birthMs: number;
  readonly status: "up" | "down";
  /** Grows with every heartbeat. */
  readonly beat: number;
  /** Grows with every recovery pass that the pod finished as leader. */
  readonly passes: number;
  /** The identity of its process, for observers on its machine. */
  readonly host?: string;
  /** The connection that it sent this beat on, where the store shows which are open. */
  readonly connection?: { readonly id: number; readonly isOpen: boolean };
  /** True if its process is known to have ended. */
  readonly gone?: boolean;
  /** True if it is to take no more work. */
  readonly drains?: boolean;
};

export type Observation = {
  /** The observer's monotonic time at which its own beat was committed. */
  readonly atMs: number;
  readonly pods: readonly PodSeen[];
  /** The observer's own connection, where the store shows which are open. */
  readonly connectionId?: number | undefined;
  /** Which of the tables that the heartbeat watches have rows. */
  readonly filledTables?: readonly TableName[];
  /** The store's time at which the pods were read. */
  readonly storeMs?: number;
};

export type LivenessLimits = {
  readonly heartbeatMs: number;
  readonly deadAfterMs: number;
  /** Two own beats further apart than this are a gap. */
  readonly gapMs: number;
};

/** If two beats of this pod are further apart than this, the silence of other pods is counted anew. */
export function gapOf({
  heartbeatMs,
  deadAfterMs,
}: {
  heartbeatMs: number;
  deadAfterMs: number;
}): number {
  return Math.max(heartbeatMs * 2, Math.min(heartbeatMs * 3, deadAfterMs - heartbeatMs));
}

export type WatchedPod = PodSeen & {
  /** Counted time since the beat last changed. */
  readonly silentMs: number;
  /** Counted time since the last finished pass. */
  readonly idleMs: number;
  /** The connection that the observer has seen open, on the connection that it has itself. */
  readonly openedId: number | undefined;
  /** Counted time since that connection was first seen to have ended, without another beat. */
  readonly endedMs: number | undefined;
  /** How often the beat has changed after the process was seen to be gone. */
  readonly returns: number;
};

export type Liveness = {
  readonly lastBeatMs: number | undefined;
  readonly connectionId: number | undefined;
  /** Counted time since the last gap or failed beat; infinite if there was none. */
  readonly steadyMs: number;
  readonly pods: ReadonlyMap<string, WatchedPod>;
};

export const emptyLiveness: Liveness = {
  lastBeatMs: undefined,
  connectionId: undefined,
  steadyMs: Infinity,
  pods: new Map(),
};

// A pod whose connection broke beats on a new one after a heartbeat at most, so the second heartbeat
// is left to it for the way there. The observer's own beats come a little early or late.
const endedBeats = 1.9;

// The last beat of a process may be committed when the process is gone already. A second one means
// that it was mistaken for another process: of a machine that was copied with its ids, say.
const returnsOfTheDead = 1;

/** Pure. The observer's state after one more committed beat of its own. */
export function observe(before: Liveness, seen: Observation, limits: LivenessLimits): Liveness {
  const elapsedMs = before.lastBeatMs === undefined ? 0 : seen.atMs - before.lastBeatMs;
  const gap = elapsedMs > limits.gapMs;
  const { connectionId } = seen;
  const look: Look = {
    // On a new connection, those of other pods may have ended with the observer's former one.
    goesOn: !gap && connectionId !== undefined && connectionId === before.connectionId,
    // Not even a slow beat of the observer counts for two of the other pod.
    countedMs: Math.min(elapsedMs, limits.heartbeatMs),
  };
  const pods = new Map<string, WatchedPod>();
  for (const pod of seen.pods) {
    const known = before.pods.get(pod.podId);
    const quiet = known !== undefined && !gap && known.beat === pod.beat;
    const passed = known === undefined || gap || known.passes !== pod.passes;
    pods.set(pod.podId, {
      ...pod,
      silentMs: quiet ? known.silentMs + elapsedMs : 0,
      idleMs: passed ? 0 : known.idleMs + elapsedMs,
      ...watchConnection(known, pod, look),
      returns: (known?.returns ?? 0) + (known?.gone && known.beat !== pod.beat ? 1 : 0),
    });
  }
  return {
    lastBeatMs: seen.atMs,
    connectionId,
    steadyMs: gap ? 0 : before.steadyMs + elapsedMs,
    pods,
  };
}

/**
 * Pure. The observer's state after a beat of its own that failed. The outage may be over before there
 * is a gap, and results may have been left in an outbox all the same.
 */
export function afterFailedBeat(before: Liveness): Liveness {
  return { ...before, steadyMs: 0 };
}

type Look = { readonly goesOn: boolean; readonly countedMs: number };

function watchConnection(
  known: WatchedPod | undefined,
  { connection, beat }: PodSeen,
  { goesOn, countedMs }: Look,
): Pick<WatchedPod, "openedId" | "endedMs"> {
  if (!connection) return { openedId: undefined, endedMs: undefined };
  if (connection.isOpen) return { openedId: connection.id, endedMs: undefined };
  const openedId = goesOn ? known?.openedId : undefined;
  if (openedId !== connection.id) return { openedId, endedMs: undefined };
  const waits = known?.endedMs !== undefined && known.beat === beat;
  return { openedId, endedMs: waits ? known.endedMs + countedMs : 0 };
}

/** The pods that must be considered dead, with the beat they stopped at. */
export function silentPods(liveness: Liveness, limits: LivenessLimits): WatchedPod[] {
  return [...liveness.pods.values()].filter((pod) => isSilent(pod, liveness, limits));
}

function isSilent(pod: WatchedPod, { steadyMs }: Liveness, limits: LivenessLimits): boolean {
  if (pod.silentMs >= limits.deadAfterMs) return true;
  if (pod.endedMs !== undefined && pod.endedMs >= endedBeats * limits.heartbeatMs) return true;
  // After an outage, a process that was killed in it may have left results in its outbox. The next
  // process there gets as long to send them as if the silence were waited for.
  return pod.gone === true && pod.returns <= returnsOfTheDead && steadyMs >= limits.deadAfterMs;
}

/**
 * How long a former leader had been silent when it was found not to lead any more. Undefined if it
 * still beats, so that nothing had to be detected.
 */
export function silenceOf(podId: string, before: Liveness, after: Liveness): number | undefined {
  const known = before.pods.get(podId);
  const current = after.pods.get(podId);
  if (current?.status === "up") {
    return current.gone || current.silentMs > 0 ? current.silentMs : undefined;
  }
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
        !isSilent(pod, liveness, limits) &&
        // A pod that beats while its main thread is stuck cannot lead.
        (pod.podId === self || pod.idleMs < limits.deadAfterMs),
    )
    .toSorted(byAge)[0]?.podId;
}

function byAge(a: PodSeen, b: PodSeen): number {
  return a.birthMs - b.birthMs || (a.podId < b.podId ? -1 : 1);
}
