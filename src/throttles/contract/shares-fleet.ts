import { FlotillaError } from "../../base/errors.ts";
import { silentLogger as log } from "../../base/log.ts";
import {
  type MovableClock,
  movableClock,
  eventLoopTurns,
  until,
} from "../../base/contract/movable-clock.ts";
import { uuidv7 } from "../../base/ids.ts";
import { seededRandom } from "../../base/random.ts";
import type { OpenStore, StoreKind } from "../../store/contract/database.ts";
import type { Database } from "../../store/database.ts";
import { migrate } from "../../store/migrate.ts";
import { sql, table } from "../../store/sql.ts";
import { declareThrottle, type ThrottleOptions } from "../declaration.ts";
import type { Permit } from "../limiter/permit.ts";
import { createThrottleRegistry } from "../registry.ts";
import { createFleetLearning, type FleetLearning } from "../shares/fleet-learning.ts";
import { getShares, type ShareEntries as StoredShares, toSharedRow } from "../shares/sql.ts";
import { createShares } from "../shares/shares.ts";

export const leaseMs = 3_000;
export const callTimeoutMs = 10_000;

/** What may happen to a pod's way to the store. */
export type Way = "well" | "cut off" | "lost before" | "lost after" | "late";

export type FleetPod = ReturnType<Fleet["join"]>;
export type Fleet = Awaited<ReturnType<typeof openFleet>>;

const changeStatements = 2;

const opened = new Map<StoreKind, OpenStore>();

export async function closeFleets(): Promise<void> {
  for (const store of opened.values()) {
    await store.database.close();
    await store.remove();
  }
  opened.clear();
}

async function emptyStore(kind: StoreKind): Promise<OpenStore> {
  let store = opened.get(kind);
  if (!store) {
    store = await kind.open();
    opened.set(kind, store);
    await migrate(store.database);
  }
  await store.database.write([
    sql`delete from ${table("throttle")}`,
    sql`delete from ${table("throttle_report")}`,
    sql`delete from ${table("throttle_event")}`,
  ]);
  return store;
}

/** Pods on one store, whose time only moves when they have nothing more to do. */
export async function openFleet(kind: StoreKind, options: ThrottleOptions = {}) {
  const store = await emptyStore(kind);
  const { database } = store;
  const clock: MovableClock = store.clock ?? movableClock();
  const throttleId = { name: "api", key: "" };
  const declared = declareThrottle(throttleId.name, {
    leaseMs,
    callTimeoutMs,
    graceMs: 0,
    initial: 8,
    ...options,
  });
  const pods = new Set<{ leave(): Promise<void> }>();
  const late: (() => Promise<unknown>)[] = [];
  let underWay = 0;
  let writes = 0;

  const wayOf = (state: { way: Way; lost: number }): Database => {
    const count = async <Answer>(ask: () => Promise<Answer>): Promise<Answer> => {
      underWay++;
      try {
        if (state.way === "cut off") throw new FlotillaError("store_unavailable", "cut off");
        return await ask();
      } finally {
        underWay--;
      }
    };
    return {
      ...database,
      read: (statement) => count(() => database.read(statement)),
      write: (statements) =>
        count(async () => {
          writes++;
          // Of a change alone, since what is asked with a report isn't in doubt.
          const way = statements.length === changeStatements ? state.way : "well";
          if (way !== "well") state.lost++;
          if (way === "late") late.push(() => database.write(statements));
          if (way === "lost before" || way === "late")
            throw new FlotillaError("unknown_outcome", "lost");
          const tables = await database.write(statements);
          if (way === "lost after") throw new FlotillaError("unknown_outcome", "lost");
          return tables;
        }),
    };
  };

  /** Lets time pass, and everything be done that falls due. */
  const pass = async (durationMs: number): Promise<void> => {
    const stepMs = 50;
    for (let passedMs = 0; passedMs < durationMs; passedMs += stepMs) {
      await clock.advance(Math.min(stepMs, durationMs - passedMs));
      while (underWay > 0) {
        await until("the store's answers", () => underWay === 0);
        await eventLoopTurns();
      }
    }
  };

  const rowNow = async () => {
    const [row] = await database.read(getShares([throttleId]));
    return row && toSharedRow(row);
  };

  const random = seededRandom(1);
  return {
    database,
    clock,
    random,
    ids: uuidv7(clock, random),
    place: throttleId,
    declared,
    pass,
    rowNow,
    /** What the row says that pods hold. */
    async shares(): Promise<Record<string, number>> {
      const shares: StoredShares = (await rowNow())?.shares ?? {};
      return Object.fromEntries(Object.entries(shares).map(([id, { share }]) => [id, share]));
    },
    get writes() {
      return writes;
    },
    /** How many writes are late. */
    get late() {
      return late.length;
    },
    /** Lets them arrive. */
    async land(): Promise<void> {
      for (const arrive of late.splice(0)) await arrive();
    },
    async close(): Promise<void> {
      let over = false;
      const leaving = Promise.all([...pods].map((pod) => pod.leave())).finally(() => {
        over = true;
      });
      // A pod that met others at the row pauses before it tries again, and only then sees that it is over.
      while (!over) {
        await clock.advance(50);
        await eventLoopTurns();
      }
      await leaving;
    },
    lead(): FleetLearning {
      return createFleetLearning({ database: wayOf({ way: "well", lost: 0 }), clock, log });
    },
    join(podId: string, isGone?: (host: string) => boolean) {
      const state = { way: "well" as Way, lost: 0 };
      const shares = createShares({
        podId,
        database: wayOf(state),
        clock,
        random: seededRandom(podId.length),
        log,
        host: `host of ${podId}`,
        isGone,
      });
      const limiter = createThrottleRegistry({
        clock,
        random: seededRandom(1),
        shared: true,
        onLimiter: (made) => shares.add(made),
      }).of(declared);
      const permits: Permit[] = [];
      const waiting = new AbortController();
      const pod = {
        podId,
        limiter,
        shares,
        permits,
        state,
        /** Asks for so many permits, and keeps what it gets. */
        ask(count: number): void {
          for (let nth = 0; nth < count; nth++) {
            void limiter.acquire({ signal: waiting.signal }).then(
              (permit) => permits.push(permit),
              () => {},
            );
          }
        },
        /** Ends all calls, and waits for no more. */
        rest(): void {
          waiting.abort();
          for (const permit of permits.splice(0)) permit.release("success");
        },
        get held() {
          return permits.filter((permit) => !permit.released).length;
        },
        async leave(): Promise<void> {
          state.way = "cut off";
          pod.rest();
          limiter.close();
          await shares.stop();
        },
      };
      pods.add(pod);
      return pod;
    },
  };
}
