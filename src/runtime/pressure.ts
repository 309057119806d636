import { totalmem } from "node:os";
import { monitorEventLoopDelay } from "node:perf_hooks";
import process from "node:process";
import { getHeapStatistics } from "node:v8";
import type { Pressure } from "../tasks/claim/capacity.ts";

export type PressureGauge = {
  /** What was seen since the last look. */
  read(): Pressure;
  stop(): void;
};

const resolutionMs = 20;
const nsPerMs = 1e6;

/** Looks at this process: how late its event loop is, and how much of its memory is used. */
export function createPressureGauge(): PressureGauge {
  const gaps = monitorEventLoopDelay({ resolution: resolutionMs });
  gaps.enable();
  let before = sumsOf({ count: 0, mean: 0, stddev: 0 });
  return {
    read() {
      // Not reset between looks: that would forget the gap that is under way, which may be the long one.
      const now = sumsOf(gaps);
      const lateMs = lateness(before, now);
      before = now;
      return { lateMs, memory: memoryUsed() };
    },
    stop: () => void gaps.disable(),
  };
}

/** Of gaps between turns of the event loop: their sum, and the sum of their squares. */
type Sums = { readonly totalMs: number; readonly squares: number };

function sumsOf({ count, mean, stddev }: { count: number; mean: number; stddev: number }): Sums {
  if (count === 0) return { totalMs: 0, squares: 0 };
  const [meanMs, deviationMs] = [mean / nsPerMs, (count > 1 ? stddev : 0) / nsPerMs];
  return { totalMs: meanMs * count, squares: (meanMs ** 2 + deviationMs ** 2) * count };
}

/**
 * How long the gap is that a moment since the last look falls into, on average. A long gap holds more
 * moments than a short one, so that one long block counts for more than many short waits beside it.
 */
export function lateness(before: Sums, now: Sums): number {
  const totalMs = now.totalMs - before.totalMs;
  if (!(totalMs > 0)) return 0;
  return Math.max(0, (now.squares - before.squares) / totalMs - resolutionMs);
}

/** By the heap's own limit, and by that of the container where there is one. */
function memoryUsed(): number {
  const { used_heap_size: used, heap_size_limit: most } = getHeapStatistics();
  const allowed = process.constrainedMemory();
  // Where nobody has set a limit, the system gives a number that no machine has.
  const isLimited = allowed > 0 && allowed < totalmem();
  const ofContainer = isLimited ? process.memoryUsage.rss() / allowed : 0;
  return Math.max(used / most, ofContainer);
}
