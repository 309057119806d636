import type pg from "pg";
import type { Clock } from "../../base/clock.ts";
import { FlotillaError, hasCode, tooManyReads } from "../../base/errors.ts";
import { createSemaphore } from "../../base/semaphore.ts";
import type { Logger } from "../../base/log.ts";
import { type Durability, pageTookTooLong, type Row } from "../database.ts";
import type { Query } from "../sql.ts";
import { withoutPool, type PostgresStore } from "./config.ts";
import {
  beginPage,
  beginWithSettings,
  clientClass,
  connectionConfig,
  plainNumbers,
  sessionMark,
  startUpConfig,
  timeoutsOf,
} from "./driver.ts";
import {
  type Engine,
  engineOf,
  engineQuery,
  isMissing,
  isOtherEngine,
  refusalOf,
  sameEngineQuery,
  tryEngine,
  versionQuery,
} from "./engine.ts";
import {
  isStalePlan,
  isTooSlow,
  preparedElsewhere,
  refusesSettings,
  postgresError,
} from "./errors.ts";
import { type TransactOptions, transact } from "./transaction.ts";

/** The connections to the server, and what was detected about poolers in between. */
export type Connections = {
  /** Runs queries in one transaction. `wanted` is called when the turn of a page has come, and may throw. */
  run(kind: Kind, queries: readonly Query[], wanted?: () => void): Promise<Row[][]>;
  /**
   * Whether the end of a connection shows to other sessions. Not behind a pooler, whose connections
   * stay, nor where the server has no view of its connections that this role may read.
   */
  areSeen(): Promise<boolean>;
  /** Finds that out anew, after a transaction that relied on it was refused. */
  forgetSeen(): void;
  /** Rejects cold reads and pages that wait for a connection. Reads in progress continue. */
  refuseWaiting(error: unknown): void;
  /** A client to listen on that is not connected yet; undefined if no notification would arrive. */
  listener(): Promise<pg.Client | undefined>;
  end(): Promise<void>;
};

/** The kinds that have connections of their own; `cold` and `page` as in `ReadOptions`. */
type Kind = "read" | "write" | "cold" | "page";

type Parts = {
  driver: typeof pg;
  store: PostgresStore;
  durability: Durability;
  clock: Clock;
  log: Logger;
};
type Pools = Readonly<Record<Kind, pg.Pool>>;

const defaultConnections = 4;
// For pages of sessions' messages, whose clients can wait a moment: two, so that one long page does
// not block the others.
const maxColdConnections = 2;
// For pages that people look at. They are opened with the first page, and closed 10 seconds after the last.
const maxPageConnections = 2;
// The default of a pool of `pg`.
const defaultPoolMax = 10;

// Each failed try detects something that makes the next one different.
const maxTries = 4;

// A plan for an empty table is very slow on a full one, and a queue may grow from empty to full in
// a second, long before the server analyzes it again. Planning all statements again takes a few
// milliseconds, so plans that are still fast are kept longer.
const plansKeptMs = 2_000;
const fastPlansKeptMs = 60_000;
const fastMs = 5;

/**
 * A direct connection has its settings and prepared statements in the session. A transaction pooler
 * provides no session to rely on. Then the settings are sent with each transaction, in the same
 * round trip, and statements are unnamed if the pooler does not track prepared ones. The first
 * connection shows which it is, and so do later refusals.
 */
export function openConnections(parts: Parts): Connections {
  const { driver, store, durability, clock, log } = parts;
  const { answerTimeoutMs, connectTimeoutMs } = timeoutsOf(store);
  const types = plainNumbers(driver);
  const perTransaction = beginWithSettings(store, durability);
  const perPage = beginPage(store);
  const isDeclaredPooled = store.pooler === "transaction";
  const { unproven = false } = store;
  let begin = store.pool || isDeclaredPooled || unproven ? perTransaction : undefined;
  let prepared: number | undefined = isDeclaredPooled ? undefined : 0;
  let pooled = isDeclaredPooled;
  let direct = false;
  let pools = begin === undefined ? openPools(parts, "session") : openPools(parts, "plain");
  const retired: Pools[] = [];

  const plans = new WeakMap<pg.PoolClient, { madeMs: number; slow: boolean }>();

  const transactOptions = (): TransactOptions => ({
    driver,
    begin,
    prepared,
    types,
    answerTimeoutMs,
  });

  /** True if the plans of this connection are too old. */
  const isStale = (client: pg.PoolClient): boolean => {
    if (prepared === undefined || unproven) return false;
    const nowMs = clock.monotonic();
    const { madeMs, slow } = plans.get(client) ?? { madeMs: -Infinity, slow: false };
    const stale = nowMs - madeMs >= (slow ? plansKeptMs : fastPlansKeptMs);
    if (stale) plans.set(client, { madeMs: nowMs, slow: false });
    return stale;
  };
  const noteSpeed = (client: pg.PoolClient, tookMs: number) => {
    const made = plans.get(client);
    if (made !== undefined && tookMs >= fastMs) made.slow = true;
  };

  const take = async (kind: Kind): Promise<pg.PoolClient> => {
    try {
      return await pools[kind].connect();
    } catch (error) {
      if (!refusesSettings(error)) throw postgresError(error, { sent: false });
      if (begin === undefined) {
        log.info({}, "pooler refuses session settings, sending them with each transaction");
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

  /**
   * Adapts to an error that says that nothing was done. Returns true if another try can succeed.
   */
  const learn = (error: unknown): boolean => {
    const cause = error instanceof FlotillaError ? error.cause : error;
    if (prepared !== undefined && preparedElsewhere(cause)) {
      prepared = undefined;
      log.info({}, "pooler lacks prepared statements, sending unnamed ones");
      return true;
    }
    if (prepared !== undefined && isStalePlan(cause)) {
      prepared++;
      return true;
    }
    return preparedElsewhere(cause);
  };

  /** What the server said of itself when it was last looked at, and the connections that lead to it. */
  let version: string | undefined;
  let known = new WeakSet<pg.PoolClient>();

  const askAlone = async (text: string, { kind, bare = false }: { kind: Kind; bare?: boolean }) => {
    const client = await take(kind);
    const options = { ...transactOptions(), prepared: undefined };
    const [rows] = await transact(client, [{ text, values: [] }], {
      ...options,
      ...(bare && { begin: undefined }),
    });
    return { client, row: rows![0]! };
  };

  /** Refuses a server that can't be used, before anything is made there. */
  const checkEngine = async (engine: Engine): Promise<void> => {
    const isTried = engine.kind === "other" && !unproven;
    const refusal = refusalOf(engine, { unproven, lacks: isTried ? await tryOut() : [] });
    if (refusal) throw refusal;
  };
  const tryOut = async (): Promise<string[]> => {
    const client = await take("read");
    let usable = false;
    try {
      const lacks = await tryEngine(async (text) => (await client.query(text)).rows as Row[]);
      usable = true;
      return lacks;
    } catch (error) {
      throw postgresError(error, { sent: true });
    } finally {
      client.release(!usable);
    }
  };

  const takeAsKnown = async (client: pg.PoolClient, row: Row): Promise<void> => {
    await checkEngine(engineOf({ version: row["version"], hasDsql: row["has_dsql"] }));
    version = row["version"] as string;
    known.add(client);
  };

  /** After an error by which the server lacks something: throws what the server is, if that is why. */
  const explain = async (kind: Kind, error: unknown): Promise<never> => {
    // Not all that resembles Postgres has our functions and settings, but all of it says what it is.
    if (isMissing(error)) {
      const { row } = await askAlone(versionQuery, { kind, bare: true });
      await checkEngine(engineOf({ version: row["version"] }));
    }
    throw error;
  };

  const inspect = async (kind: Kind): Promise<void> => {
    known = new WeakSet();
    const session = `pg_backend_pid() as pid, current_setting('${sessionMark}', true) as mark`;
    const { client, row } = await askAlone(`select ${session}, ${engineQuery}`, { kind }).catch(
      (error: unknown) => explain(kind, error),
    );
    await takeAsKnown(client, row);
    // A pooler that is declared is believed.
    if (isDeclaredPooled) return;
    const { pid, mark } = row;
    const processId = (client as { processID?: number | null }).processID ?? undefined;
    // A pooler invents the process id that a session is cancelled by.
    pooled = processId !== undefined && processId !== pid;
    direct = processId === pid && !unproven;
    if (mark !== "on") begin = perTransaction;
  };
  let inspected: Promise<void> | undefined;
  const inspectOnce = (): Promise<void> | undefined => {
    if (isDeclaredPooled) return undefined;
    return (inspected ??= inspect("read").catch((error: unknown) => {
      inspected = undefined;
      throw error;
    }));
  };

  const findOwn = async (): Promise<boolean> => {
    const text = "select 1 from pg_stat_activity where pid = pg_backend_pid()";
    try {
      const [rows] = await ask("read", [{ text, values: [] }]);
      return rows!.length === 1;
    } catch (error) {
      if (hasCode(error, "store_busy", "store_unavailable", "unknown_outcome")) throw error;
      // The server lacks the view, or refuses it to this role.
      return false;
    }
  };
  let seen: Promise<boolean> | undefined;

  // A semaphore of our own, because a caller's pool serves all kinds and cold reads must not use
  // all of it. They wait as long as for a connection, so that with a silent server waiting reads
  // fail no later than the ones in progress.
  const waits = { clock, waitMs: connectTimeoutMs, late: tooManyReads };
  const cold = createSemaphore(coldConnections(store), waits);
  // Of a caller's pool, pages and cold reads together take no more than cold reads may.
  const page = store.pool ? cold : createSemaphore(maxPageConnections, waits);
  /**
   * Looks at the server by the first transaction of each connection, which may lead to another server than
   * those before, such as after a failover. Then nothing of that transaction is done.
   */
  const lookFor = (client: pg.PoolClient): Query[] => {
    if (version === undefined) return [{ text: `select ${engineQuery}`, values: [] }];
    return known.has(client) ? [] : [sameEngineQuery(version)];
  };
  const ask = async (kind: Kind, queries: readonly Query[]): Promise<Row[][]> => {
    for (let tries = 1; ; tries++) {
      const client = await take(kind);
      const replan = isStale(client);
      const sentMs = clock.monotonic();
      const look = lookFor(client);
      try {
        const begun =
          kind === "page" ? { ...transactOptions(), begin: perPage } : transactOptions();
        const tables = await transact(client, [...look, ...queries], { ...begun, replan });
        if (version === undefined) await takeAsKnown(client, tables[0]![0]!);
        known.add(client);
        // A transaction that plans anew is slow for that.
        if (!replan) noteSpeed(client, clock.monotonic() - sentMs);
        return tables.slice(look.length);
      } catch (error) {
        const cause = error instanceof FlotillaError ? error.cause : error;
        if (version === undefined && isMissing(error)) await explain(kind, error);
        if (tries >= maxTries) throw error;
        if (look.length > 0 && isOtherEngine(cause)) await inspect(kind);
        else if (!learn(error)) throw error;
      }
    }
  };

  const askPage = async (queries: readonly Query[], wanted?: () => void): Promise<Row[][]> => {
    wanted?.();
    try {
      return await ask("page", queries);
    } catch (error) {
      throw error instanceof FlotillaError && isTooSlow(error.cause)
        ? pageTookTooLong(error)
        : error;
    }
  };

  const onError = (error: Error) => log.warn({ error: error.message }, "database connection broke");
  store.pool?.on("error", onError);

  return {
    async run(kind, queries, wanted) {
      await inspectOnce();
      if (kind === "cold") return cold.run(() => ask(kind, queries));
      return kind === "page" ? page.run(() => askPage(queries, wanted)) : ask(kind, queries);
    },
    async areSeen() {
      await inspectOnce();
      if (!direct) return false;
      return (seen ??= findOwn().catch((error: unknown) => {
        seen = undefined;
        throw error;
      }));
    },
    forgetSeen() {
      seen = undefined;
    },
    refuseWaiting(error) {
      cold.refuse(error);
      page.refuse(error);
    },
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
    return { read: pool, write: pool, cold: pool, page: pool };
  }
  const open = (max = store.connections ?? defaultConnections) => {
    const made = new driver.Pool({
      ...connectionConfig(store),
      ...(how === "session" && startUpConfig(store, durability)),
      Client: clientClass(driver, store) as never,
      max,
      allowExitOnIdle: true,
    });
    // Without listeners, a broken connection would end the process, idle or not.
    made.on("error", (error) => log.warn({ error: error.message }, "database connection broke"));
    // The connection may end in the same packet as it begins, before its first use.
    made.on("connect", (client) => client.on("error", () => {}));
    return made;
  };
  const cold = open(coldConnections(store));
  return { read: open(), write: open(), cold, page: open(maxPageConnections) };
}

/** Leaves at least one connection of a caller's pool for other work, if it has more than one. */
function coldConnections({ pool, connections = defaultConnections }: PostgresStore): number {
  if (!pool) return Math.min(connections, maxColdConnections);
  const { max = defaultPoolMax } = (pool.options ?? {}) as { max?: number };
  return Math.max(1, Math.min(max - 1, maxColdConnections));
}
