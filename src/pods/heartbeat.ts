import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import type { Database } from "../store/database.ts";
import type { TableName } from "../store/sql.ts";
import type { Observation } from "./liveness.ts";
import { beat, readPods, toFilledTables, toPodSeen } from "./sql.ts";

/** Numbers in memory that the main thread and the heartbeat share. */
export type VitalSigns = {
  /** Grows while the main thread runs. */
  aliveCount(): number;
  /** The last abandoned claim call. */
  abandonedUpTo(): number;
};

export type HeartbeatOptions = {
  podId: string;
  database: Database;
  clock: Clock;
  signs: VitalSigns;
  heartbeatMs: number;
  /** Called after every committed beat, with the pods that it read. */
  onBeat: (seen: Observation) => void;
  onError: (message: string) => void;
  /** After this many beats without a sign of the main thread, `onStall` ends the process. */
  stallBeats: number;
  onStall: () => void;
  metadata?: Readonly<Record<string, unknown>>;
  /** The identity of this process, for other processes on the machine. */
  host?: string | undefined;
  /** Each beat reads which of these have rows. */
  watchedTables?: readonly TableName[];
};

export type Heartbeat = {
  /** What the next beats store of the pod, by `encodePulse`. */
  setPulse(pulse: string): void;
  stop(): Promise<void>;
};

/**
 * Raises this pod's beat once per `heartbeatMs`. Runs on its own thread with its own connection, so
 * that neither a busy event loop nor a full pool makes a healthy pod look dead.
 */
export function startHeartbeat(options: HeartbeatOptions): Heartbeat {
  const { podId, database, clock, signs, heartbeatMs, stallBeats, watchedTables } = options;
  const { host = null } = options;
  const metadata = JSON.stringify(options.metadata ?? {});
  let stopped = false;
  let cancel = () => {};
  let beats = 0;
  let hadRow = false;
  let pulse: string | null = null;
  let drains = false;
  let stalledBeats = 0;
  let lastAliveCount = -1;

  const once = async (): Promise<void> => {
    const aliveCount = signs.aliveCount();
    // Counted in beats and not in time, so that a process that was paused is not killed when it
    // resumes.
    stalledBeats = aliveCount === lastAliveCount ? stalledBeats + 1 : 0;
    lastAliveCount = aliveCount;
    if (stalledBeats >= stallBeats) {
      stopped = true;
      return options.onStall();
    }
    try {
      const own = { count: ++beats, host, hadRow, pulse, drains };
      const beating = beat(podId, metadata, signs.abandonedUpTo(), own);
      const [, rows] = await database.write([beating, readPods(watchedTables)]);
      hadRow = true;
      if (stopped) return;
      const pods = rows!.map(toPodSeen);
      const seen = pods.find((pod) => pod.podId === podId);
      drains = seen?.drains === true;
      options.onBeat({
        atMs: clock.monotonic(),
        pods,
        connectionId: seen?.connection?.id,
        filledTables: toFilledTables(rows!),
        storeMs: Number(rows![0]!["at"]),
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
    setPulse(text) {
      pulse = text;
    },
    async stop() {
      stopped = true;
      cancel();
      await running;
    },
  };
}
