import { createSharedRun } from "../base/semaphore.ts";
import type { Bus } from "../bus/bus.ts";
import { createPermitHolders } from "./permit-holders.ts";
import { createThrottlesClient } from "../throttles/shares/admin.ts";
import { createDocumentShares } from "../throttles/shares/documents.ts";
import { createFleetLearning } from "../throttles/shares/fleet-learning.ts";
import { createShares } from "../throttles/shares/shares.ts";
import { createThrottleRegistry, type ThrottleRegistry } from "../throttles/registry.ts";
import type { ThrottleEvent, PodThrottlesClient, PodParts } from "./pod-parts.ts";
import type { TaskHandler } from "../tasks/model.ts";
import type { AgentSpec } from "../sessions/agents/spec.ts";

export type PodThrottles = {
  readonly registry: ThrottleRegistry;
  readonly client: PodThrottlesClient;
  /** Learns from the reports of all pods. The leader calls it with its beats. */
  learn(): void;
  /** Grants no more permits, and returns the shares for other pods. */
  stop(): Promise<void>;
};

// A little less than a second: pods report every second, and beats are a second apart too.
const learnEveryMs = 900;

/**
 * The throttles of one pod: its permits, its share of the fleet's, and what it learns while it leads.
 * Nothing is written to the store before code on this pod requests a shared permit.
 */
export function createPodThrottles(
  parts: Pick<
    PodParts,
    | "podId"
    | "database"
    | "clock"
    | "random"
    | "ids"
    | "log"
    | "thisProcess"
    | "shareThrottles"
    | "shareDocuments"
  > & {
    onEvent: (event: ThrottleEvent) => void;
    handlers: ReadonlyMap<string, TaskHandler>;
    agents: ReadonlyMap<string, AgentSpec>;
    bus: () => Bus;
  },
): PodThrottles {
  const { clock, random, thisProcess, onEvent, shareDocuments: documents } = parts;
  const store = documents && createDocumentShares({ ...parts, documents });
  const shares = createShares({
    ...parts,
    store,
    ...(thisProcess && { host: thisProcess.host, isGone: thisProcess.isGone }),
  });
  const registry = createThrottleRegistry({
    clock,
    random,
    shared: true,
    onLimiter: shares.add,
    onDropped: shares.drop,
  });
  const learning = createFleetLearning({
    ...parts,
    onBound: (bound) => onEvent({ type: "bound", ...bound }),
  });
  for (const { throttle } of [...parts.handlers.values(), ...parts.agents.values()]) {
    if (throttle) registry.declare(throttle.declared);
  }
  const unshare = parts.shareThrottles?.(registry);
  const passes = createSharedRun(learning.pass);
  let learnedMs = -Infinity;

  return {
    registry,
    client: {
      ...createThrottlesClient(parts),
      ...createPermitHolders(parts),
      here: () => registry.all().map((limiter) => limiter.snapshot()),
    },
    learn() {
      // Beats may be more frequent than reports, and a pass should have a new report of every pod.
      if (clock.monotonic() - learnedMs < learnEveryMs) return;
      learnedMs = clock.monotonic();
      void passes.run();
    },
    async stop() {
      unshare?.();
      registry.close();
      await shares.stop();
      await store?.stop();
      await passes.ended();
    },
  };
}
