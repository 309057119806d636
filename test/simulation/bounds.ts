/**
 * What must happen soon once the faults have stopped: claims of dead pods are recovered though the
 * leader died too, and claims whose answer was lost are given back. The bounds are those that the
 * product states for its default limits, plus what a beat, a poll and a backoff may take.
 */
import type { Checker } from "./checker.ts";
import type { World } from "./world.ts";

// Silence of the leader, then of those whom only it watched; a newcomer has to watch for as long.
const recoveryMs = 15_000;
// A claim is given up after ten seconds, and its release is repeated with a wait of up to five.
const releaseMs = 25_000;
const everyMs = 1_000;

export function watchBounds(world: World, checker: Checker, { fromMs }: { fromMs: number }): void {
  const { scheduler, violate } = world;

  const look = () => {
    const held = new Set<string>();
    for (const run of checker.runs) if (run.active) held.add(`${run.taskId}@${run.token}`);
    for (const [taskId, { state, sinceMs }] of checker.tasks) {
      if (state.status !== "claimed") continue;
      const pod = checker.pods.get(state.claimedBy!);
      const what = `${taskId.slice(-6)}@${state.token} of ${state.claimedBy}`;
      const overdue = (startMs: number, limitMs: number) =>
        scheduler.nowMs - Math.max(fromMs, startMs) > limitMs;
      if (pod?.goneMs !== undefined) {
        if (overdue(Math.max(pod.goneMs, sinceMs), recoveryMs)) {
          violate("L2", `${what}, which is gone, wasn't recovered`);
        }
      } else if (!held.has(`${taskId}@${state.token}`) && overdue(sinceMs, releaseMs)) {
        violate("T12", `${what} is held by nobody`);
      }
    }
    scheduler.after(everyMs, look);
  };
  scheduler.after(fromMs, look);
}
