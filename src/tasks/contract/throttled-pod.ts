import { silentLogger } from "../../base/log.ts";
import { createShares } from "../../throttles/shares/shares.ts";
import { createThrottleRegistry, type ThrottleRegistry } from "../../throttles/registry.ts";
import type { TasksHarness } from "./harness.ts";
import type { Worker, WorkerOptions } from "../run/worker.ts";
import type { TaskHandler } from "../model.ts";

export type ThrottledPod = { readonly worker: Worker; readonly throttles: ThrottleRegistry };

/** Starts a pod's worker with permits, of which it has its part as pods do. */
export async function workThrottled(
  queue: TasksHarness,
  podId: string,
  handlers: readonly TaskHandler[],
  more: Partial<WorkerOptions> = {},
): Promise<ThrottledPod> {
  const { clock, random } = queue;
  const { database = queue.database } = more;
  const shares = createShares({ podId, database, clock, random, log: silentLogger });
  const throttles = createThrottleRegistry({
    clock,
    random,
    shared: true,
    onLimiter: shares.add,
    onDropped: shares.drop,
  });
  const worker = await queue.work(podId, handlers, { throttles, ...more });
  return { worker, throttles };
}

/** Counts calls to a downstream that last until they are let go. */
export function countedCalls(queue: Pick<TasksHarness, "clock">) {
  let now = 0;
  let peak = 0;
  let total = 0;
  return {
    get now() {
      return now;
    },
    get peak() {
      return peak;
    },
    get total() {
      return total;
    },
    /** A call that lasts so long. */
    async call(durationMs = 20): Promise<void> {
      now++;
      total++;
      peak = Math.max(peak, now);
      await new Promise<void>((resolve) => void queue.clock.after(durationMs, resolve));
      now--;
    },
  };
}
