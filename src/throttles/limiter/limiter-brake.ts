/**
 * What a pod does about throttled calls by itself, before those who learn the bound for all pods have
 * heard of them. The first throttled call of an epoch takes one off the pod's share; calls that began
 * after that and are throttled as well halve what is left. A single call at a time that is throttled
 * pauses instead, longer each time, or it would be repeated as fast as it is refused. It is let go by
 * the next epoch, or after a while without one.
 */
export type Brake = {
  readonly cap: number;
  /** Calls with a lower number had begun before the brake was pulled, and tell nothing new. */
  readonly since: number;
  readonly untilMs: number;
  /** No call begins before this. */
  readonly pausedUntilMs: number;
  readonly pauses: number;
};

const heldForMs = 5_000;
const firstPauseMs = 250;
const maxPauseMs = 2_000;

export function pullBrake(
  brake: Brake | undefined,
  { share, call, calls, nowMs }: { share: number; call: number; calls: number; nowMs: number },
): Brake | undefined {
  if (share < 1) return brake;
  if (brake && call <= brake.since) return brake;
  const cap = brake ? Math.floor(Math.min(brake.cap, share) / 2) : share - 1;
  const pauses = (brake?.pauses ?? 0) + (cap < 1 ? 1 : 0);
  const pauseMs = cap < 1 ? Math.min(maxPauseMs, firstPauseMs * 2 ** (pauses - 1)) : 0;
  return {
    cap: Math.max(1, cap),
    since: calls,
    untilMs: nowMs + heldForMs,
    pausedUntilMs: nowMs + pauseMs,
    pauses,
  };
}
