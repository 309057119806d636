import type { Contender } from "../fleet.ts";

type Pod = { readonly podId: string; readonly demand: number; inFlight: number };

/**
 * A limit that somebody has set for the whole fleet, as a multiple of the true capacity of each
 * moment. Pods share it perfectly and without delay, which no fleet can: the right one is the mark
 * that others are held against.
 */
export function fixed(name: string, multiple: number): Contender {
  return {
    name,
    about: `${multiple} × the true capacity at every moment, shared between pods without delay`,
    settles: false,
    open({ capacity, call }) {
      let pods: Pod[] = [];
      let inFlight = 0;
      let turn = 0;
      const limit = () => Math.max(1, Math.floor(capacity() * multiple));

      const next = () => {
        for (let looked = 0; looked < pods.length; looked++) {
          const pod = pods[turn++ % pods.length]!;
          if (pod.inFlight < pod.demand) return pod;
        }
        return undefined;
      };

      function fill(): void {
        while (inFlight < limit()) {
          const pod = next();
          if (!pod) return;
          pod.inFlight++;
          inFlight++;
          call(pod.podId, () => {
            // A limiter that knows everything also knows at once what a dead pod had.
            inFlight--;
            pod.inFlight--;
            fill();
          });
        }
      }

      const drop = (podId: string) => {
        pods = pods.filter((pod) => pod.podId !== podId);
      };
      return {
        join(podId, demand) {
          pods.push({ podId, demand, inFlight: 0 });
          fill();
        },
        leave: drop,
        die: drop,
        limit,
      };
    },
  };
}
