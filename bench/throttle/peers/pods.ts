import type { Ended } from "../downstream.ts";
import type { Fleet, Surroundings } from "../fleet.ts";

/** How an algorithm of one process sees a call that has ended. */
export type Call = Ended & {
  readonly beganMs: number;
  readonly endedMs: number;
  /** How many of this process were in flight, this one included. */
  readonly inFlight: number;
};

/** A limit that one process learns by itself. */
export type ProcessLimit = { limit(): number; ended(call: Call): void };

type Pod = { demand: number; inFlight: number; heard: boolean; readonly limit: ProcessLimit };

/** Pods that each have a limit of their own and know nothing of one another. */
export function separatePods(
  { time, call }: Surroundings,
  createLimit: (podId: string) => ProcessLimit,
): Fleet {
  const pods = new Map<string, Pod>();

  function fill(podId: string, pod: Pod): void {
    while (pod.inFlight < pod.demand && pod.inFlight < Math.floor(pod.limit.limit())) {
      const beganMs = time.monotonic();
      pod.inFlight++;
      call(podId, (how) => {
        if (!pod.heard) return;
        const { inFlight } = pod;
        pod.inFlight--;
        pod.limit.ended({ ...how, beganMs, endedMs: time.monotonic(), inFlight });
        fill(podId, pod);
      });
    }
  }

  return {
    join(podId, demand) {
      const pod = { demand, inFlight: 0, heard: true, limit: createLimit(podId) };
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
