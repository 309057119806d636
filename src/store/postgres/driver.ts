import type pg from "pg";
import { FlotillaError } from "../../base/errors.ts";
import { type Durability, pageReadMs } from "../database.ts";
import { defaultTimeouts, type PostgresStore, type PostgresTimeouts } from "./config.ts";

const bigintOid = 20;

// A setting without meaning to the server: if it is missing, a pooler has dropped our settings.
export const sessionMark = "flotilla.session";

export async function loadDriver(): Promise<typeof pg> {
  try {
    const { default: driver } = await import("pg");
    return driver;
  } catch (error) {
    throw new FlotillaError("unsupported", "a postgres:// store needs the driver: npm install pg", {
      cause: error,
    });
  }
}

/** Counters and times are far below 2^53, so they are parsed as numbers and not as text. */
export function plainNumbers(driver: typeof pg): pg.CustomTypesConfig {
  return {
    getTypeParser: ((oid: number, format?: "text") =>
      oid === bigintOid ? Number : driver.types.getTypeParser(oid, format)) as never,
  };
}

export function timeoutsOf(store: PostgresTimeouts): Required<PostgresTimeouts> {
  const entries = Object.keys(defaultTimeouts).map((name) => [
    name,
    store[name as keyof PostgresTimeouts] ?? defaultTimeouts[name as keyof PostgresTimeouts],
  ]);
  return Object.fromEntries(entries) as Required<PostgresTimeouts>;
}

/** The options of every connection, regardless of poolers. */
export function connectionConfig(store: PostgresStore): pg.ClientConfig {
  const { connectTimeoutMs, answerTimeoutMs } = timeoutsOf(store);
  return {
    connectionString: store.url,
    ...(store.ssl !== undefined && { ssl: store.ssl }),
    application_name: "flotilla",
    connectionTimeoutMillis: connectTimeoutMs,
    query_timeout: answerTimeoutMs,
    keepAlive: true,
    keepAliveInitialDelayMillis: defaultTimeouts.connectTimeoutMs,
  };
}

/** The driver's client class; if the store has a password option, it replaces the URL's. */
export function clientClass(driver: typeof pg, { password }: PostgresStore): typeof pg.Client {
  if (password === undefined) return driver.Client;
  return class extends driver.Client {
    constructor(config?: string | pg.ClientConfig) {
      super(config);
      // The driver lets the URL override the other options, even with an empty password.
      this.password = password as string;
    }
  };
}

/** The settings of a session. */
export function startUpConfig(store: PostgresTimeouts, durability: Durability): pg.ClientConfig {
  const { statementTimeoutMs, lockTimeoutMs, idleInTransactionTimeoutMs } = timeoutsOf(store);
  const settings = [
    `-c synchronous_commit=${synchronousCommit(durability)}`,
    `-c default_transaction_isolation=read\\ committed`,
    // With a bound limit, every claim would be planned again, which takes longer than the claim.
    "-c plan_cache_mode=force_generic_plan",
    // After a connection breaks within a transaction, the server keeps its locks until it detects
    // the break. No timeout applies meanwhile, and by default the server probes only after two
    // hours.
    "-c tcp_keepalives_idle=5",
    "-c tcp_keepalives_interval=2",
    "-c tcp_keepalives_count=3",
    `-c ${sessionMark}=on`,
  ];
  return {
    statement_timeout: statementTimeoutMs,
    lock_timeout: lockTimeoutMs,
    idle_in_transaction_session_timeout: idleInTransactionTimeoutMs,
    options: settings.join(" "),
  };
}

/** Begins a transaction with the same settings, for sessions that do not have them. */
export function beginWithSettings(store: PostgresStore, durability: Durability): string[] {
  const { statementTimeoutMs, lockTimeoutMs, idleInTransactionTimeoutMs } = timeoutsOf(store);
  if (store.unproven) return beginReduced(store);
  return [
    "begin isolation level read committed",
    `set local statement_timeout = ${statementTimeoutMs}`,
    `set local lock_timeout = ${lockTimeoutMs}`,
    `set local idle_in_transaction_session_timeout = ${idleInTransactionTimeoutMs}`,
    `set local synchronous_commit = ${synchronousCommit(durability)}`,
    "set local plan_cache_mode = force_generic_plan",
  ];
}

/**
 * The isolation that databases which resemble Postgres give at most or at least, and the settings that they
 * know.
 */
function beginReduced(store: PostgresTimeouts): string[] {
  const { statementTimeoutMs, lockTimeoutMs, idleInTransactionTimeoutMs } = timeoutsOf(store);
  return [
    "begin isolation level serializable",
    `set local statement_timeout = ${statementTimeoutMs}`,
    `set local lock_timeout = ${lockTimeoutMs}`,
    `set local idle_in_transaction_session_timeout = ${idleInTransactionTimeoutMs}`,
  ];
}

/**
 * Begins the read of a page. Where the statistics of a table are off, the server may take reading and
 * sorting all of it for cheaper than the end of an index, which is all that a page needs.
 */
export function beginPage(store: PostgresStore): string[] {
  const { statementTimeoutMs, idleInTransactionTimeoutMs } = timeoutsOf(store);
  if (store.unproven) {
    return beginReduced({
      ...store,
      statementTimeoutMs: Math.min(statementTimeoutMs, pageReadMs),
    });
  }
  return [
    "begin isolation level read committed read only",
    `set local statement_timeout = ${Math.min(statementTimeoutMs, pageReadMs)}`,
    `set local idle_in_transaction_session_timeout = ${idleInTransactionTimeoutMs}`,
    ...pagePlans.map((setting) => `set local ${setting}`),
  ];
}

/** How pages are planned. A plan without a choice counts as very expensive, and must not be compiled for that. */
export const pagePlans = [
  "plan_cache_mode = force_generic_plan",
  "enable_seqscan = off",
  "enable_bitmapscan = off",
  "enable_sort = off",
  "jit = off",
] as const;

function synchronousCommit(durability: Durability): "on" | "off" {
  return durability === "full" ? "on" : "off";
}
