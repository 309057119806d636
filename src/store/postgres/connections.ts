import type pg from "pg";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { createSemaphore } from "../../base/semaphore.ts";
import type { Logger } from "../../base/log.ts";
import type { Durability, Row } from "../database.ts";
import type { Query } from "../sql.ts";
import { withoutPool, type PostgresStore } from "./config.ts";
import {
  beginWithSettings,
  clientClass,
  connectionConfig,
  plainNumbers,
  sessionMark,
  startUpConfig,
  timeoutsOf,
} from "./driver.ts";
import { isStalePlan, preparedElsewhere, refusesSettings, postgresError } from "./errors.ts";
import { type TransactOptions, transact } from "./transaction.ts";

/** The ways to the server, and what is known about what stands in between. */
export type Connections = {
  /** Runs queries together or not at all. */
  run(kind: Kind, queries: readonly Query[]): Promise<Row[][]>;
  /** Rejects cold reads that wait for their turn. What is under way goes on. */
  refuseWaiting(error: unknown): void;
  /** A client to listen on that has yet to connect, or undefined where no hint would arrive. */
  listener(): Promise<pg.Client | undefined>;
  end(): Promise<void>;
};

/** What has connections of its own: `cold` is `ReadOptions`' word. */
type Kind = "read" | "write" | "cold";

type Parts = {
  driver: typeof pg;
  store: PostgresStore;
  durability: Durability;
  clock: Clock;
  log: Logger;
};
type Pools = Readonly<Record<Kind, pg.Pool>>;

const defaultConnections = 4;
// Pages of what was said, for clients that can wait a moment: enough that one long page isn't all.
const maxColdConnections = 2;
// As many as a pool of `pg` has unless told.
const defaultPoolMax = 10;

// Each time something is learnt that makes the next try different.
const maxTries = 4;

// What was planned for an empty table is a disaster for a full one, and a queue may go from the one to
// the other in a second, long before the server looks at it again. To plan all our statements anew
// takes a few milliseconds.
const plansKeptMs = 2_000;

/**
 * A direct connection has its settings and prepared statements in the session. A pooler that deals
 * out connections per transaction gives no session to rely on: settings then travel with each
 * transaction, in the same round trip, and statements go without a name where the pooler doesn't
 * keep track of them. Which it is shows with the first connection, and in what is refused later.
 */
export function openConnections(parts: Parts): Connections {
  const { driver, store, durability, clock, log } = parts;
  const { answerTimeoutMs, connectTimeoutMs } = timeoutsOf(store);
  const types = plainNumbers(driver);
  const perTransaction = beginWithSettings(store, durability);
  const isDeclaredPooled = store.pooler === "transaction";
  let begin = store.pool || isDeclaredPooled ? perTransaction : undefined;
  let prepared: number | undefined = isDeclaredPooled ? undefined : 0;
  let pooled = isDeclaredPooled;
  let pools = begin === undefined ? openPools(parts, "session") : openPools(parts, "plain");
  const retired: Pools[] = [];

  const plannedMs = new WeakMap<pg.PoolClient, number>();

  const transactOptions = (): TransactOptions => ({
    driver,
    begin,
    prepared,
    types,
    answerTimeoutMs,
  });

  /** Whether what this connection has planned is too old. */
  const isStale = (client: pg.PoolClient): boolean => {
    if (prepared === undefined) return false;
    const nowMs = clock.monotonic();
    const sinceMs = plannedMs.get(client) ?? -Infinity;
    const stale = nowMs - sinceMs >= plansKeptMs;
    if (stale) plannedMs.set(client, nowMs);
    return stale;
  };

  const take = async (kind: Kind): Promise<pg.PoolClient> => {
    try {
      return await pools[kind].connect();
    } catch (error) {
      if (!refusesSettings(error)) throw postgresError(error, { sent: false });
      if (begin === undefined) {
        log.info({}, "something between us and the database takes no settings; sending them along");
        begin = perTransaction;
        retired.push(pools);
        pools = openPools(parts, "plain");
      }
      try {
        return await pools[kind].connect();
      } catch (again) {
        throw postgresError(again, { sent: false });
      }
    }
  };

  /** Whether an answer that says that nothing was done also says how it would be done. */
  const learn = (error: unknown): boolean => {
    const cause = error instanceof FlotillaError ? error.cause : error;
    if (prepared !== undefined && preparedElsewhere(cause)) {
      prepared = undefined;
      log.info({}, "a pooler doesn't know prepared statements; sending them whole");
      return true;
    }
    if (prepared !== undefined && isStalePlan(cause)) {
      prepared++;
      return true;
    }
    return preparedElsewhere(cause);
  };

  const inspect = async (): Promise<void> => {
    const client = await take("read");
    const ask = `select pg_backend_pid() as pid, current_setting('${sessionMark}', true) as mark`;
    const processId = (client as { processID?: number | null }).processID ?? undefined;
    const [rows] = await transact(client, [{ text: ask, values: [] }], {
      ...transactOptions(),
      prepared: undefined,
    });
    const { pid, mark } = rows![0]!;
    // A pooler makes up the number by which a session can be cancelled.
    pooled = processId !== undefined && processId !== pid;
    if (mark !== "on") begin = perTransaction;
  };
  let inspected: Promise<void> | undefined;
  const inspectOnce = (): Promise<void> | undefined => {
    if (isDeclaredPooled) return undefined;
    return (inspected ??= inspect().catch((error: unknown) => {
      inspected = undefined;
      throw error;
    }));
  };

  // In a line of our own, since a pool of the caller's is one for all kinds, which cold reads mustn't take
  // all of. They wait there for as long as for a connection, so that those behind others that a silent
  // server holds up are told no later than these.
  const cold = createSemaphore(coldConnections(store), { clock, waitMs: connectTimeoutMs });
  const ask = async (kind: Kind, queries: readonly Query[]): Promise<Row[][]> => {
    for (let tries = 1; ; tries++) {
      const client = await take(kind);
      try {
        return await transact(client, queries, { ...transactOptions(), replan: isStale(client) });
      } catch (error) {
        if (tries >= maxTries || !learn(error)) throw error;
      }
    }
  };

  const onError = (error: Error) =>
    log.warn({ error: error.message }, "a database connection broke");
  store.pool?.on("error", onError);

  return {
    async run(kind, queries) {
      await inspectOnce();
      return kind === "cold" ? cold.run(() => ask(kind, queries)) : ask(kind, queries);
    },
    refuseWaiting: cold.refuse,
    async listener() {
      await inspectOnce();
      const keepsSessions = store.pooler === "session" || store.pooler === "none";
      if (pooled && !keepsSessions) return undefined;
      const own = withoutPool(store);
      return new (clientClass(driver, own))(connectionConfig(own));
    },
    async end() {
      (store.pool as pg.Pool | undefined)?.off("error", onError);
      if (store.pool) return;
      const all = [pools, ...retired].flatMap((each) => Object.values(each));
      await Promise.all(all.map((pool) => pool.end()));
    },
  };
}

function openPools({ driver, store, durability, log }: Parts, how: "session" | "plain"): Pools {
  if (store.pool) {
    const pool = store.pool as pg.Pool;
    return { read: pool, write: pool, cold: pool };
  }
  const open = (max = store.connections ?? defaultConnections) => {
    const made = new driver.Pool({
      ...connectionConfig(store),
      ...(how === "session" && startUpConfig(store, durability)),
      Client: clientClass(driver, store) as never,
      max,
      allowExitOnIdle: true,
    });
    // Without listeners, a connection that breaks would end the process, idle or not.
    made.on("error", (error) => log.warn({ error: error.message }, "a database connection broke"));
    // Its end may come in the same piece as its beginning, before anybody has got to use it.
    made.on("connect", (client) => client.on("error", () => {}));
    return made;
  };
  return { read: open(), write: open(), cold: open(coldConnections(store)) };
}

/** Of a pool of the caller's, one at least is left for the rest, where it has more than one. */
function coldConnections({ pool, connections = defaultConnections }: PostgresStore): number {
  if (!pool) return Math.min(connections, maxColdConnections);
  const { max = defaultPoolMax } = (pool.options ?? {}) as { max?: number };
  return Math.max(1, Math.min(max - 1, maxColdConnections));
}
