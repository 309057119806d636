import { type MovableClock, movableClock } from "../../base/contract/movable-clock.ts";
import { uuidv7 } from "../../base/ids.ts";
import { silentLogger } from "../../base/log.ts";
import { seededRandom } from "../../base/random.ts";
import { startHeartbeat } from "../../pods/heartbeat.ts";
import type { Database } from "../../store/database.ts";
import { migrate } from "../../store/migrate.ts";
import { memoryDatabase } from "../../store/sqlite/inline.ts";
import { type Config, resolveConfig } from "../config.ts";
import { assemblePod, type Pod } from "../pod.ts";
import type { PodParts } from "../pod-parts.ts";

type StartOptions = Partial<PodParts> & {
  /** What is between the pod and the store. Its heartbeat has a connection of its own. */
  readonly through?: Database;
};

type VirtualPodsOptions = {
  clock?: MovableClock;
  /** How far the clock is moved at once. */
  stepMs?: number;
  /** What is between the store and all pods, heartbeats included. */
  watch?: (memory: Database) => Database;
};

/** Pods on one store in memory, and on one clock that tests move. */
export async function virtualPods(options: VirtualPodsOptions = {}) {
  const { clock = movableClock(), stepMs = 100, watch = (memory) => memory } = options;
  const memory = memoryDatabase(clock);
  await migrate(memory);
  const database = watch(memory);
  const random = seededRandom(1);
  const ids = uuidv7(clock, random);
  const pods: Pod[] = [];

  /** What a promise comes to, with time passing. */
  const outcome = async <Value>(promise: Promise<Value>): Promise<Value> => {
    let isSettled = false;
    void promise.catch(() => {}).finally(() => (isSettled = true));
    while (!isSettled) await clock.advance(stepMs);
    return promise;
  };

  return {
    clock,
    memory,
    database,
    outcome,
    async start(config: Config, { through = database, ...parts }: StartOptions = {}) {
      const pod = await outcome(
        assemblePod(resolveConfig({ log: silentLogger, ...config }), {
          podId: ids.next(),
          database: through,
          clock,
          random,
          ids,
          log: silentLogger,
          startHeartbeat: (hooks) =>
            startHeartbeat({
              ...hooks,
              database,
              clock,
              signs: { aliveCount: () => clock.monotonic(), abandonedUpTo: () => 0 },
              onStall: () => {},
            }),
          reportAlive: () => {},
          abandonCallsUpTo: () => {},
          ...parts,
        }),
      );
      pods.push(pod);
      return pod;
    },
    async stop(): Promise<void> {
      for (const pod of pods) await outcome(pod.stop());
      await memory.close();
    },
  };
}
