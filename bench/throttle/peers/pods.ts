import type { Ended } from "../downstream.ts";
import type { Fleet, Surroundings } from "../fleet.ts";

/** How an algorithm of one process sees a call that has ended. */
export type Call = Ended & {
  readonly beganMs: number;
  readonly endedMs: number;
  /** How many of this process were in flight, this one included. */
  readonly inFlight: number;
  /** How often the same call was made before, for those that repeat one. */
  readonly repeats: number;
};

/** A limit that one process learns by itself. */
export type ProcessLimit = {
  limit(): number;
  /** May return after how long the call is repeated. Its place stays taken until then. */
  ended(call: Call): number | void;
  /** For limits per time: how long until a call may begin, and that one has begun. */
  waitMs?(nowMs: number): number;
  began?(): void;
};

type Pod = {
  demand: number;
  inFlight: number;
  heard: boolean;
  waits: boolean;
  readonly limit: ProcessLimit;
};

/** Pods that each have a limit of their own and know nothing of one another. */
export function separatePods(
  { time, call }: Surroundings,
  createLimit: (podId: string, startMs: number) => ProcessLimit,
): Fleet {
  const pods = new Map<string, Pod>();

  function fill(podId: string, pod: Pod): void {
    while (pod.inFlight < pod.demand && pod.inFlight < Math.floor(pod.limit.limit())) {
      const waitMs = pod.limit.waitMs?.(time.monotonic()) ?? 0;
      if (waitMs > 0) return fillLater(podId, pod, waitMs);
      pod.limit.began?.();
      pod.inFlight++;
      begin(podId, pod, 0);
    }
  }

  function fillLater(podId: string, pod: Pod, waitMs: number): void {
    if (pod.waits) return;
    pod.waits = true;
    // Whole milliseconds, because sums of parts of units fall short of what was waited for.
    time.in(Math.ceil(waitMs), () => {
      pod.waits = false;
      if (pod.heard) fill(podId, pod);
    });
  }

  function begin(podId: string, pod: Pod, repeats: number): void {
    const beganMs = time.monotonic();
    call(podId, (how) => {
      if (!pod.heard) return;
      const { inFlight } = pod;
      const endedMs = time.monotonic();
      const againMs = pod.limit.ended({ ...how, beganMs, endedMs, inFlight, repeats });
      if (againMs !== undefined && pod.demand > 0) {
        time.in(againMs, () => {
          if (pod.heard) begin(podId, pod, repeats + 1);
        });
        return;
      }
      pod.inFlight--;
      fill(podId, pod);
    });
  }

  return {
    join(podId, demand) {
      const limit = createLimit(podId, time.monotonic());
      const pod = { demand, inFlight: 0, heard: true, waits: false, limit };
      pods.set(podId, pod);
      fill(podId, pod);
    },
    leave(podId) {
      pods.get(podId)!.demand = 0;
      pods.delete(podId);
    },
    die(podId) {
      pods.get(podId)!.heard = false;
      pods.delete(podId);
    },
    limit: () => [...pods.values()].reduce((sum, pod) => sum + Math.floor(pod.limit.limit()), 0),
  };
}
