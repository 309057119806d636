import type { LimiterSnapshot } from "../throttles/limiter/stats.ts";
import type { TaskHandler } from "../tasks/task.ts";
import type { AgentSpec } from "../sessions/agents/agent.ts";
import { createThrottlesClient, type ThrottlesClient } from "../throttles/shares/admin.ts";
import { createFleetLearning } from "../throttles/shares/fleet-learning.ts";
import { createShares, type ShareEvent } from "../throttles/shares/shares.ts";
import { createThrottleRegistry, type ThrottleRegistry } from "../throttles/registry.ts";
import type { PodParts } from "./pod-parts.ts";

/** What a pod tells of its throttles. */
export type ThrottleEvent =
  | ShareEvent
  | {
      /** This pod leads, and has learned that all pods together may make more or fewer calls at once. */
      readonly type: "bound";
      readonly name: string;
      readonly key: string;
      readonly bound: number;
      readonly epoch: number;
    };

export type PodThrottlesClient = ThrottlesClient & {
  /** What every throttle and key in use looks like on this pod. */
  here(): LimiterSnapshot[];
};

export type PodThrottles = {
  readonly registry: ThrottleRegistry;
  readonly client: PodThrottlesClient;
  /** Learns from what pods have reported. For the pod that leads, with its beats. */
  learn(): void;
  /** Gives nothing out any more, and gives back what others may have instead. */
  stop(): Promise<void>;
};

// A little less than the second after which pods report, since beats are a second apart too.
const learnEveryMs = 900;

/**
 * The throttles of one pod: its permits, its part of the fleet's, and what it learns while it leads.
 * Nothing is sent to the store before somebody here asks for a permit that pods share.
 */
export function createPodThrottles(
  parts: Pick<
    PodParts,
    "podId" | "database" | "clock" | "random" | "log" | "thisProcess" | "enlist"
  > & {
    onEvent: (event: ThrottleEvent) => void;
    handlers: ReadonlyMap<string, TaskHandler>;
    agents: ReadonlyMap<string, AgentSpec>;
  },
): PodThrottles {
  const { clock, random, thisProcess, onEvent } = parts;
  const shares = createShares({
    ...parts,
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
  const unshare = parts.enlist?.(registry);
  let passing: Promise<void> | undefined;
  let learnedMs = -Infinity;

  return {
    registry,
    client: {
      ...createThrottlesClient(parts),
      here: () => registry.all().map((limiter) => limiter.snapshot()),
    },
    learn() {
      // Beats may come more often than reports, of which each pass should have one of every pod.
      if (clock.monotonic() - learnedMs < learnEveryMs) return;
      learnedMs = clock.monotonic();
      passing ??= learning.pass().finally(() => {
        passing = undefined;
      });
    },
    async stop() {
      unshare?.();
      registry.close();
      await shares.stop();
      await passing;
    },
  };
}
