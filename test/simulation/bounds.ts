/**
 * What must happen soon once the faults have stopped: claims of dead pods are recovered though the
 * leader died too, claims whose answer was lost are given back, and what is due is claimed while a pod
 * that knows it has nothing to do. The bounds are those that the product states for its default limits,
 * plus what a beat, a poll and a backoff may take.
 */
import type { Checker } from "./checker.ts";
import { permitsBackMs, throttledNames } from "./throttled.ts";
import type { World } from "./world.ts";

// Silence of the leader, then of those whom only it watched; a newcomer has to watch for as long.
const recoveryMs = 15_000;
// A claim is given up after ten seconds, and its release is repeated with a wait of up to five.
const releaseMs = 25_000;
// A poll comes within three seconds, and a claim that hung when the faults stopped is given up after ten.
const idleMs = 20_000;
const everyMs = 1_000;

export type BoundsOptions = {
  readonly fromMs: number;
  /** Whether some names are claimed only with a permit. */
  readonly throttled: boolean;
  /** Whether names may be paused. */
  readonly isPaused: () => boolean;
};

export function watchBounds(world: World, checker: Checker, options: BoundsOptions): void {
  const { scheduler, violate } = world;
  const { fromMs, throttled, isPaused } = options;
  /** Since when each task could have been claimed by a pod that had nothing to do. */
  const passedOverMs = new Map<string, number>();
  const seenMs = new Map<string, number>();

  /** Since when one and the same pod has been watching the others. */
  const watchedSinceMs = (): number => {
    const alive = [...checker.pods.values()].filter((pod) => pod.alive);
    for (const { podId } of alive) {
      if (!seenMs.has(podId)) seenMs.set(podId, scheduler.nowMs);
    }
    return Math.min(scheduler.nowMs, ...alive.map(({ podId }) => seenMs.get(podId)!));
  };

  /** What is due doesn't wait while a pod is idle: T7, T11. */
  const judgeWaiting = () => {
    const busy = new Set<string>();
    let inLine = 0;
    for (const { state, name } of checker.tasks.values()) {
      if (state.status !== "claimed") continue;
      busy.add(state.claimedBy!);
      if (throttledNames.includes(name)) inLine++;
    }
    const idle = [...checker.pods.values()].filter(
      ({ podId, alive, started, stoppingMs }) =>
        alive && started === true && stoppingMs === undefined && !busy.has(podId),
    );
    for (const [taskId, { state, name }] of checker.tasks) {
      const isDue =
        state.status === "pending" &&
        (state.parked === 0 || state.parked === 1) &&
        state.runAtMs <= world.storeClock.now();
      const isThrottled = throttled && throttledNames.includes(name);
      // A pod that has a permit keeps it, and other pods wait for theirs.
      const waits = isPaused() || (isThrottled && inLine > 0);
      if (!isDue || waits || !idle.some(({ names }) => names.includes(name))) {
        passedOverMs.delete(taskId);
        continue;
      }
      const sinceMs = passedOverMs.get(taskId) ?? scheduler.nowMs;
      passedOverMs.set(taskId, sinceMs);
      const limitMs = isThrottled ? idleMs + permitsBackMs : idleMs;
      if (scheduler.nowMs - sinceMs > limitMs) {
        violate("T7", `${name} ${taskId.slice(-6)} is due, and pods that know it are idle`);
      }
    }
  };

  const look = () => {
    const held = new Set<string>();
    for (const run of checker.runs) if (run.active) held.add(`${run.taskId}@${run.token}`);
    const watchedMs = watchedSinceMs();
    for (const [taskId, { state, sinceMs }] of checker.tasks) {
      if (state.status !== "claimed") continue;
      const pod = checker.pods.get(state.claimedBy!);
      const what = `${taskId.slice(-6)}@${state.token} of ${state.claimedBy}`;
      const overdue = (startMs: number, limitMs: number) =>
        scheduler.nowMs - Math.max(fromMs, startMs) > limitMs;
      if (pod?.goneMs !== undefined) {
        // Without its row nothing says that it is gone, and tasks that kill each pod leave none that could
        // see it be silent for long enough.
        const unseenMs = pod.forgotten ? watchedMs : 0;
        if (overdue(Math.max(pod.goneMs, sinceMs, unseenMs), recoveryMs)) {
          violate("L2", `${what}, which is gone, wasn't recovered`);
        }
      } else if (!held.has(`${taskId}@${state.token}`) && overdue(sinceMs, releaseMs)) {
        violate("T12", `${what} is held by nobody`);
      }
    }
    judgeWaiting();
    scheduler.after(everyMs, look);
  };
  scheduler.after(fromMs, look);
}
