import type pg from "pg";
import { FlotillaError } from "../../base/errors.ts";
import type { Durability } from "../database.ts";
import { defaultTimeouts, type PostgresStore, type PostgresTimeouts } from "./config.ts";

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

const bigintOid = 20;

/** Counters and times are far below 2^53, so they come as numbers and not as text. */
export function plainNumbers(driver: typeof pg): pg.CustomTypesConfig {
  return {
    getTypeParser: ((oid: number, format?: "text") =>
      oid === bigintOid ? Number : driver.types.getTypeParser(oid, format)) as never,
  };
}

export function timeoutsOf(store: PostgresTimeouts): Required<PostgresTimeouts> {
  const given = Object.keys(defaultTimeouts).map((name) => [
    name,
    store[name as keyof PostgresTimeouts] ?? defaultTimeouts[name as keyof PostgresTimeouts],
  ]);
  return Object.fromEntries(given) as Required<PostgresTimeouts>;
}

/** What every connection of ours is opened with, whatever is between it and the server. */
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

/** The driver's client; with a password of the store's own, that instead of the URL's. */
export function clientClass(driver: typeof pg, { password }: PostgresStore): typeof pg.Client {
  if (password === undefined) return driver.Client;
  return class extends driver.Client {
    constructor(config?: string | pg.ClientConfig) {
      super(config);
      // The driver lays what a URL says, also an empty password, over the other options.
      this.password = password as string;
    }
  };
}

// A setting that means nothing to the server: where it is missing, ours were left out on the way.
export const sessionMark = "flotilla.session";

/** The settings that a session of ours is begun with. */
export function startUpConfig(store: PostgresTimeouts, durability: Durability): pg.ClientConfig {
  const { statementTimeoutMs, lockTimeoutMs, idleInTransactionTimeoutMs } = timeoutsOf(store);
  const settings = [
    `-c synchronous_commit=${synchronousCommit(durability)}`,
    `-c default_transaction_isolation=read\\ committed`,
    // With a limit that is bound, every claim would be planned anew, which takes longer than it.
    "-c plan_cache_mode=force_generic_plan",
    // Of a transaction that was cut in the middle, the server holds the locks until it knows that nothing
    // more comes. None of the timeouts counts then, and by itself it asks only after two hours.
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

/** Begins a transaction with the same settings, where the session doesn't have them. */
export function beginWithSettings(store: PostgresTimeouts, durability: Durability): string[] {
  const { statementTimeoutMs, lockTimeoutMs, idleInTransactionTimeoutMs } = timeoutsOf(store);
  return [
    "begin isolation level read committed",
    `set local statement_timeout = ${statementTimeoutMs}`,
    `set local lock_timeout = ${lockTimeoutMs}`,
    `set local idle_in_transaction_session_timeout = ${idleInTransactionTimeoutMs}`,
    `set local synchronous_commit = ${synchronousCommit(durability)}`,
    "set local plan_cache_mode = force_generic_plan",
  ];
}

function synchronousCommit(durability: Durability): "on" | "off" {
  return durability === "full" ? "on" : "off";
}
