/**
 * The throttle gate. In some seeds tasks of these names are claimed only with a permit, and pods share the
 * permits: tasks that wait for permits are counted by a read of their own and reported as demand, and are
 * claimed when a share has come, all of it over a store that fails in every way.
 */
import { FlotillaError } from "../../src/base/errors.ts";
import { countReady } from "../../src/tasks/sql/inspect.ts";
import type { ThrottleOfHandler } from "../../src/tasks/claim/throttle.ts";
import type { Database } from "../../src/store/database.ts";
import { throttle } from "../../src/throttles/throttle.ts";
import type { Payload } from "./workload.ts";
import type { World } from "./world.ts";

const leaseMs = 6_000;
const callTimeoutMs = 8_000;
const graceMs = 500;
/** By then the permits of a pod that died are free for others. */
export const permitsBackMs = 2 * (leaseMs + callTimeoutMs + graceMs);

const api = throttle("api", {
  leaseMs,
  callTimeoutMs,
  graceMs,
  initial: 2,
  max: 3,
  latency: false,
  breaker: { coolMs: 500, maxCoolMs: 2_000 },
});

const throttles: Readonly<Record<string, ThrottleOfHandler<Payload>>> = {
  quick: api,
  flaky: api,
  // Before the others in the same line.
  broken: { use: api, priority: "interactive" },
  // Which permit it needs is known only once it was claimed.
  polite: { use: api, key: ({ op }) => `account ${Math.abs(op) % 2}` },
};

export const throttledNames = Object.keys(throttles);

/** What a pod reads to know how many tasks wait behind a throttle without permits. */
const look = countReady([""], 1).strings;

export type LooksOptions = {
  readonly untilMs: number;
  /** Runs this on the pod's main thread. */
  readonly enter: (happen: () => void) => void;
};

/** The way of a pod to the store, on which the answers of these reads are late and stale, or lost. */
export function staleLooks(
  world: World,
  database: Database,
  { untilMs, enter }: LooksOptions,
): Database {
  const { scheduler } = world;
  return {
    ...database,
    async write(statements, options) {
      const tables = await database.write(statements, options);
      const at = statements.findIndex(({ strings }) => strings === look);
      if (at < 0) return tables;
      world.count("throttle: looked behind the gate");
      const isWaiting = tables[at]!.some(({ ready }) => Number(ready) > 0);
      if (isWaiting) world.count("throttle: found tasks behind the gate");
      if (scheduler.nowMs >= untilMs) return tables;
      if (world.chance(0.15)) {
        world.count("fault: look lost");
        throw new FlotillaError("unknown_outcome", "simulated: the answer of a look was lost");
      }
      if (world.chance(0.2)) {
        world.count("fault: look stale");
        const lateMs = world.between(300, 5_000);
        await new Promise<void>((resolve) => {
          scheduler.after(lateMs, () => enter(resolve));
        });
      }
      return tables;
    },
  };
}

export const throttleOf = (name: string): ThrottleOfHandler<Payload> | undefined => throttles[name];
