import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Database } from "../store/database.ts";
import type { Observation } from "./liveness.ts";
import { beat, readPods, toPodSeen } from "./sql.ts";

/** What the main thread and the heartbeat share: numbers in memory that both can see. */
export type Pulse = {
  /** Rises while the main thread runs. */
  aliveCount(): number;
  /** The last claim call that was given up. */
  abandonedUpTo(): number;
};

export type HeartbeatOptions = {
  podId: string;
  database: Database;
  clock: Clock;
  pulse: Pulse;
  heartbeatMs: number;
  /** Told after every committed beat, with what it saw. */
  onBeat: (seen: Observation) => void;
  onError: (message: string) => void;
  /** The main thread hasn't breathed for this many beats: end the process. */
  stallBeats: number;
  onStall: () => void;
  metadata?: Readonly<Record<string, unknown>>;
};

export type Heartbeat = { stop(): Promise<void> };

/**
 * Raises this pod's beat once per `heartbeatMs`. Runs on a thread of its own with a connection of
 * its own, so that neither a busy event loop nor a full pool makes a healthy pod look dead.
 */
export function startHeartbeat(options: HeartbeatOptions): Heartbeat {
  const { podId, database, clock, pulse, heartbeatMs, stallBeats } = options;
  const metadata = JSON.stringify(options.metadata ?? {});
  let stopped = false;
  let cancel = () => {};
  let beats = 0;
  let stalledBeats = 0;
  let lastAliveCount = -1;

  const once = async (): Promise<void> => {
    const aliveCount = pulse.aliveCount();
    // Counted in beats and not in time, so that a process that was paused isn't killed on waking.
    stalledBeats = aliveCount === lastAliveCount ? stalledBeats + 1 : 0;
    lastAliveCount = aliveCount;
    if (stalledBeats >= stallBeats) {
      stopped = true;
      return options.onStall();
    }
    try {
      const beating = beat(podId, metadata, pulse.abandonedUpTo(), ++beats);
      const [, pods] = await database.write([beating, readPods()]);
      if (stopped) return;
      const hasThrottleReports = pods!.some((row) => Boolean(row["throttled"]));
      const hasSessions = pods!.some((row) => Boolean(row["talked"]));
      options.onBeat({
        atMs: clock.monotonic(),
        pods: pods!.map(toPodSeen),
        hasThrottleReports,
        hasSessions,
      });
    } catch (error) {
      options.onError(messageOf(error));
    }
  };

  const loop = async (): Promise<void> => {
    const startedMs = clock.monotonic();
    await once();
    if (stopped) return;
    const spentMs = clock.monotonic() - startedMs;
    cancel = clock.after(Math.max(heartbeatMs / 4, heartbeatMs - spentMs), run);
  };
  let running = Promise.resolve();
  const run = () => {
    running = loop();
  };
  run();

  return {
    async stop() {
      stopped = true;
      cancel();
      await running;
    },
  };
}
