import type { z } from "zod";
import type { fleetSpecs } from "../../../server/api/fleet.schema.ts";

/** The pods in brief, as the route answers and as the topic has them. */
export type FleetAnswer = z.output<(typeof fleetSpecs.fleet.answers)[200]>;
type Summary = FleetAnswer["pods"][number];

/** A pod as pages show it. */
export type ShownPod = Omit<Summary, "handlers" | "lastHeartbeatMs"> & {
  readonly lastHeartbeatMs: number;
  /** Undefined where it doesn't tell. */
  readonly handlers: FleetAnswer["handlers"][string] | undefined;
};

export type ShownFleet = {
  readonly pods: readonly ShownPod[];
  /** How many pods went down more than an hour ago. */
  readonly gone: number;
  /** How many pods the server has left out, because there are too many. */
  readonly more: number;
};

/** Gives each pod its handlers, which are sent once for all pods that have the same. */
export function shownFleet({ pods, handlers, newestBeatMs, gone, more }: FleetAnswer): ShownFleet {
  return {
    pods: pods.map(({ handlers: key, lastHeartbeatMs, ...pod }) => ({
      ...pod,
      // All pods that are up beat once a second.
      lastHeartbeatMs: lastHeartbeatMs ?? newestBeatMs ?? 0,
      handlers: key !== null && Object.hasOwn(handlers, key) ? handlers[key] : undefined,
    })),
    gone,
    more,
  };
}
