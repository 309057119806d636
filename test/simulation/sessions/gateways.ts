/**
 * Where clients reach sessions: the pods that are up, and programs that are none. What is asked and what
 * is answered takes time, and a client waits for so long and no longer.
 */
import { createFiles } from "../../../src/files/files.ts";
import { FlotillaError } from "../../../src/base/errors.ts";
import { uuidv7 } from "../../../src/base/ids.ts";
import { silentLogger } from "../../../src/base/log.ts";
import { createStoreBus } from "../../../src/bus/store-bus.ts";
import { createLocalSessions } from "../../../src/sessions/start.ts";
import { createSqlJournal } from "../../../src/sessions/log/sql-journal.ts";
import type { SessionService } from "../../../src/sessions/service.ts";
import type { Database } from "../../../src/store/database.ts";
import { createLane, laneClock } from "../lane.ts";
import type { Network } from "../link.ts";
import type { SimPod } from "../pod.ts";
import { startOfTimeMs, type World } from "../world.ts";

export type Gateway = {
  readonly name: string;
  readonly alive: boolean;
  readonly service: SessionService;
  enter(happen: () => void): void;
};

export type Gateways = {
  /** One of those that are up, or that one if it is; undefined while there is none. */
  any(at?: string): Gateway | undefined;
  /** How long something takes from a client to a gateway, or back. */
  delayMs(): number;
  /** Asks somewhere. Rejects with `timeout` where no answer came. */
  ask<Answer>(request: Request<Answer>): Promise<Answer>;
  close(): Promise<void>;
};

export type Request<Answer> = {
  ask: (service: SessionService) => Promise<Answer>;
  /** Looks at the answer in the moment in which it is given. */
  judge?: (answer: Answer, gateway: Gateway) => void;
  timeoutMs?: number;
  /** Where, if that is up. Default: anywhere. */
  at?: string | undefined;
};

export type GatewaysOptions = {
  pods: () => readonly SimPod[];
  programs: number;
  logs: number;
  through: (database: Database) => Database;
  /** What programs read first comes seconds later. */
  slowAtFirst: boolean;
};

/** So many reads take long where the first ones do. */
const firstReads = 2;

export function createGateways(
  world: World,
  network: Network,
  { pods, programs, logs, through, slowAtFirst }: GatewaysOptions,
): Gateways {
  const { scheduler } = world;
  const delayMs = () => world.between(1, 1 + Math.min(50, world.troubles.delayMs));

  const made = Array.from({ length: programs }, (_, at) => {
    const name = `g${at + 1}`;
    const lane = createLane(scheduler);
    const wallMs = () => startOfTimeMs + scheduler.nowMs;
    const clock = laneClock(scheduler, lane, { wallMs, startMs: world.between(0, 1_000_000) });
    const random = world.fork();
    const connected = through(network.connect({ who: name, lane }));
    const database = slowAtFirst ? slowly(world, connected) : connected;
    const shared = { database, clock, random, log: silentLogger };
    const ids = uuidv7(clock, random);
    const here = createLocalSessions({
      ...shared,
      ids,
      logs,
      maxPayloadBytes: 256 * 1024,
      files: createFiles({ ...shared, ids }),
      journal: createSqlJournal({ database, ids, clock }),
      bus: createStoreBus({ ...shared, address: name }),
    });
    const gateway: Gateway = { name, alive: true, service: here.service, enter: lane.enter };
    return { gateway, here };
  });

  const ofPod = (pod: SimPod): Gateway[] => {
    const service = pod.running?.sessionService;
    if (!pod.alive || !service) return [];
    return [
      {
        name: pod.podId,
        get alive() {
          return pod.alive;
        },
        service,
        enter: pod.enter,
      },
    ];
  };

  const any = (at?: string): Gateway | undefined => {
    const all = [...pods().flatMap(ofPod), ...made.map(({ gateway }) => gateway)];
    const wanted = at === undefined ? undefined : all.find(({ name }) => name === at);
    if (wanted) return wanted;
    return all.length > 0 ? world.pick(all) : undefined;
  };

  return {
    any,
    delayMs,
    ask: ({ ask, judge, timeoutMs = 6_000, at }) =>
      new Promise((resolve, reject) => {
        const gateway = any(at);
        if (!gateway) return reject(new FlotillaError("unavailable", "no pod is up"));
        const cancel = scheduler.after(timeoutMs, () =>
          reject(new FlotillaError("timeout", `${gateway.name} hasn't answered`)),
        );
        const answer = (settle: () => void) => {
          scheduler.after(delayMs(), () => {
            cancel();
            settle();
          });
        };
        scheduler.after(delayMs(), () =>
          gateway.enter(() => {
            // A service that throws instead of rejecting is a pod's that has stopped.
            const asked = async () => ask(gateway.service);
            asked().then(
              (value) => {
                judge?.(value, gateway);
                answer(() => resolve(value));
              },
              (error: unknown) => answer(() => reject(error as Error)),
            );
          }),
        );
      }),
    async close() {
      await Promise.all(made.map(({ here }) => here.stop({ waitMs: 0 })));
    },
  };
}

function slowly(world: World, database: Database): Database {
  let left = firstReads;
  return {
    ...database,
    async read(statement) {
      const rows = await database.read(statement);
      if (left-- > 0) {
        const lateMs = world.between(1_000, 4_000);
        await new Promise<void>((resolve) => void world.scheduler.after(lateMs, resolve));
      }
      return rows;
    },
  };
}
