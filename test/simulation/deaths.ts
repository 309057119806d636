/**
 * What pods can know of each other's deaths besides silence. In some seeds they share a machine, which
 * knows the processes that are gone; in others the store shows which connections are open, as Postgres
 * does; in the rest there is nothing but beats.
 */
import type { Observation } from "../../src/pods/liveness.ts";
import type { ThisProcess } from "../../src/runtime/process.ts";
import type { PodFacts } from "./checker.ts";
import type { World } from "./world.ts";

export type Deaths = {
  processOf(podId: string): ThisProcess | undefined;
  /** The connection of a pod's heartbeat, if connections are seen. */
  connectionOf(podId: string): SimConnection | undefined;
  /** How long a pod must have been without a beat to be given up. */
  patienceMs(pod: PodFacts): number;
};

export type SimConnection = {
  /** It ends, with its pod or alone. The next beat is on another one. */
  end(): void;
  /** What a beat that is answered shows. */
  show(seen: Observation): Observation;
};

export type DeathsOptions = {
  seed: number;
  heartbeatMs: number;
  deadAfterMs: number;
  pods: () => ReadonlyMap<string, PodFacts>;
};

export function createDeaths(world: World, options: DeathsOptions): Deaths {
  const { seed, heartbeatMs, deadAfterMs, pods } = options;
  // By the seed alone: what else a seed draws stays as it is.
  const shareMachine = seed % 3 === 0;
  const showsConnections = seed % 3 === 1;
  const open = new Map<string, { id: number; isOpen: boolean }>();
  let made = 0;

  return {
    processOf(podId) {
      if (!shareMachine) return undefined;
      return {
        host: podId,
        isGone(host) {
          const gone = pods().get(host)?.alive === false;
          if (gone) world.count("death: process gone");
          return gone;
        },
      };
    },
    connectionOf(podId) {
      if (!showsConnections) return undefined;
      const renew = () => open.set(podId, { id: ++made, isOpen: true });
      return {
        end() {
          const connection = open.get(podId);
          if (connection) connection.isOpen = false;
        },
        show(seen) {
          if (!open.get(podId)?.isOpen) renew();
          const shown = seen.pods.map((pod) => {
            const connection = open.get(pod.podId);
            if (connection?.isOpen === false) world.count("death: connection ended");
            return connection ? { ...pod, connection: { ...connection } } : pod;
          });
          return { ...seen, pods: shown, connectionId: open.get(podId)!.id };
        },
      };
    },
    patienceMs(pod) {
      if (shareMachine && !pod.alive) return 0;
      return open.get(pod.podId)?.isOpen === false ? 1.9 * heartbeatMs : deadAfterMs;
    },
  };
}
