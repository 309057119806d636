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
import { decodeDocument } from "../shares/document.ts";
import {
  createDocumentShares,
  type DocumentWrite,
  type ShareDocuments,
} from "../shares/documents.ts";
import { createFleetLearning, type FleetLearning } from "../shares/fleet-learning.ts";
import { getShares, type ShareEntries as StoredShares, toSharedRow } from "../shares/sql.ts";
import { createShares } from "../shares/shares.ts";

/** Where shares are: in the rows of a store, or in documents beside it. */
export type SharesKind = StoreKind & {
  /** Opens documents that are empty. The store has the limits. */
  readonly openDocuments?: () => Promise<ShareDocuments>;
};

export const leaseMs = 3_000;
export const callTimeoutMs = 10_000;

/** What may happen to a pod's way to its shares. `no database`: it has only the documents. */
export type Way = "well" | "cut off" | "no database" | "lost before" | "lost after" | "late";

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
export async function openFleet(kind: SharesKind, options: ThrottleOptions = {}) {
  const store = await emptyStore(kind);
  const documents = await kind.openDocuments?.();
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

  type State = { way: Way; lost: number };
  const count = async <Answer>(isCut: boolean, ask: () => Promise<Answer>): Promise<Answer> => {
    underWay++;
    try {
      if (isCut) throw new FlotillaError("store_unavailable", "cut off");
      return await ask();
    } finally {
      underWay--;
    }
  };

  const documentsOf = (state: State, { read, write, announce, onAnnounced }: ShareDocuments) => {
    const isCut = () => state.way === "cut off";
    // With an answer the reads are lost that would tell what became of it.
    const isUnread = () => isCut() || (state.lost > 0 && state.way.startsWith("lost"));
    return {
      read: (id) => count(isUnread(), () => read(id)),
      write: (id, rev, text) =>
        count(isCut(), async (): Promise<DocumentWrite> => {
          writes++;
          const { way } = state;
          const isTrouble = way === "late" || way === "lost before" || way === "lost after";
          const lost = { type: "unknown", why: "lost" } as const;
          if (isTrouble) state.lost++;
          if (way === "late") late.push(() => write(id, rev, text));
          if (way === "lost before" || way === "late") return lost;
          const answer = await write(id, rev, text);
          return isTrouble ? lost : answer;
        }),
      announce: (text) => {
        if (isCut()) return;
        underWay++;
        announce(text);
      },
      onAnnounced: (listener) => onAnnounced((text) => void (isCut() || listener(text))),
    } satisfies ShareDocuments;
  };

  const wayOf = (state: State): Database => {
    const counted = <Answer>(ask: () => Promise<Answer>) =>
      count(state.way === "cut off" || state.way === "no database", ask);
    return {
      ...database,
      read: (statement) => counted(() => database.read(statement)),
      write: (statements) =>
        counted(async () => {
          writes++;
          // Of a change alone, since what is asked with a report isn't in doubt.
          const isChange = !documents && statements.length === changeStatements;
          const way = isChange ? state.way : "well";
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

  const stopListening = documents?.onAnnounced(() => void underWay--);

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
    if (documents) {
      const stored = await documents.read(throttleId);
      const document = stored && decodeDocument(stored.text);
      return document && toSharedRow({ ...document, rev: stored.rev, now_at: 0 });
    }
    return rowInStore();
  };
  const rowInStore = async () => {
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
    rowInStore,
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
      stopListening?.();
    },
    lead(): FleetLearning {
      return createFleetLearning({ database: wayOf({ way: "well", lost: 0 }), clock, log });
    },
    join(podId: string, isGone?: (host: string) => boolean) {
      const state = { way: "well" as Way, lost: 0 };
      const own = wayOf(state);
      const store =
        documents &&
        createDocumentShares({
          podId,
          documents: documentsOf(state, documents),
          database: own,
          clock,
          log,
        });
      const shares = createShares({
        podId,
        database: own,
        store,
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
          await store?.stop();
        },
      };
      pods.add(pod);
      return pod;
    },
  };
}
