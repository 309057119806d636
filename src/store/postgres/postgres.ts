import type pg from "pg";
import { contentionMs } from "../../base/backoff.ts";
import { sleep, systemClock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { type Logger, silentLogger } from "../../base/log.ts";
import { systemRandom } from "../../base/random.ts";
import type { Database, Durability, Row } from "../database.ts";
import { type Query, render } from "../sql.ts";
import { postgresDialect } from "./dialect.ts";
import { storeError, wasUndone } from "./errors.ts";
import { listenForHints } from "./listen.ts";

export type PostgresOptions = {
  url: string;
  /** The schema that our tables live in. Default `flotilla`. */
  schema?: string;
  durability?: Durability;
  /** Connections for writes, and as many for reads. Default 4. */
  connections?: number;
  log?: Logger;
};

const connectTimeoutMs = 10_000;
const statementTimeoutMs = 30_000;
const lockTimeoutMs = 10_000;
const idleInTransactionMs = 60_000;
// A socket whose other end is gone says nothing; this is how long we believe in it.
const answerTimeoutMs = 45_000;
const retriesOfUndone = 5;

/** A Postgres database, shared by any number of pods. Needs no state in the session. */
export async function openPostgres(options: PostgresOptions): Promise<Database> {
  const { schema = "flotilla", durability = "full", connections = 4, log = silentLogger } = options;
  checkSchema(schema);
  const driver = await loadDriver();
  const dialect = postgresDialect({ schema });
  const pool = (max: number) => {
    const made = new driver.Pool({
      ...connectionOptions(options.url, durability, max),
      types: plainNumbers(driver),
    });
    // Without listeners, a connection that breaks would end the process, idle or not.
    const onError = (error: Error) =>
      log.warn({ error: error.message }, "a database connection broke");
    made.on("error", onError);
    made.on("connect", (client) => client.on("error", () => {}));
    return made;
  };
  const writers = pool(connections);
  const readers = pool(connections);
  const channel = `${schema}_hint`;
  const hints = listenForHints({ driver, url: options.url, channel, log });
  let closing: Promise<unknown> | undefined;
  const underWay = new Set<Promise<unknown>>();

  /** What was asked before a close is finished; what comes after is refused. */
  const guarded = <Answer>(ask: () => Promise<Answer>): Promise<Answer> => {
    if (closing) return Promise.reject(new FlotillaError("closed", "the database was closed"));
    const answer = ask();
    const settled = answer.catch(() => {});
    underWay.add(settled);
    void settled.then(() => underWay.delete(settled));
    return answer;
  };

  return {
    read: (statement) =>
      guarded(async () => {
        const [rows] = await attempt(readers, [render(statement, dialect)]);
        return rows!;
      }),
    write: (statements, { hint = false } = {}) =>
      guarded(async () => {
        const queries = statements.map((each) => render(each, dialect));
        if (hint) queries.push({ text: "select pg_notify($1, '')", values: [channel] });
        return (await patiently(() => attempt(writers, queries))).slice(0, statements.length);
      }),
    subscribe: hints.subscribe,
    async close() {
      closing ??= Promise.all([hints.close(), ...underWay]).then(() =>
        Promise.all([writers.end(), readers.end()]),
      );
      await closing;
    },
  };
}

/** A transaction that was undone for another's sake is made again. */
async function patiently<Answer>(ask: () => Promise<Answer>): Promise<Answer> {
  for (let tries = 1; ; tries++) {
    try {
      return await ask();
    } catch (error) {
      const undone = error instanceof FlotillaError && wasUndone(error.cause);
      if (!undone || tries >= retriesOfUndone) throw error;
      await sleep(systemClock, contentionMs(tries, systemRandom) / 10);
    }
  }
}

/** Runs queries together or not at all: all are sent at once, so it takes one round trip. */
async function attempt(pool: pg.Pool, queries: readonly Query[]): Promise<Row[][]> {
  let client: pg.PoolClient;
  try {
    client = await pool.connect();
  } catch (error) {
    throw storeError(error, { sent: false });
  }
  const sent: Promise<pg.QueryResult>[] = [];
  const send = (query: string | pg.QueryConfig) => sent.push(client.query(query));
  if (queries.length > 1) send("begin");
  for (const query of queries) send(prepared(query));
  if (queries.length > 1) send("commit");
  const results = await Promise.allSettled(sent);
  const failure = results.find((result) => result.status === "rejected");
  if (failure === undefined) {
    client.release();
    const answers = results.map(
      (result) => (result as PromiseFulfilledResult<pg.QueryResult>).value,
    );
    return (queries.length > 1 ? answers.slice(1, -1) : answers).map(
      (answer) => answer.rows as Row[],
    );
  }
  const error = storeError(failure.reason, { sent: true });
  // A connection in an unknown state isn't given to anybody else.
  client.release(error.code === "unknown_outcome");
  throw error;
}

const bigintOid = 20;

/** Counters and times are far below 2^53, so they come as numbers and not as text. */
function plainNumbers(driver: typeof pg): pg.CustomTypesConfig {
  return {
    getTypeParser: ((oid: number, format?: "text") =>
      oid === bigintOid ? Number : driver.types.getTypeParser(oid, format)) as never,
  };
}

const names = new Map<string, string>();
const namesKept = 500;
const planned = /^\s*(select|insert|update|delete|with)/;

/** Statements keep their plan on the connection, under a name that follows from their text. */
function prepared({ text, values }: Query): pg.QueryConfig {
  if (!planned.test(text)) return { text, values: values as unknown[] };
  let name = names.get(text);
  if (name === undefined && names.size < namesKept)
    names.set(text, (name = `flotilla_${names.size}`));
  return { text, values: values as unknown[], ...(name !== undefined && { name }) };
}

/** What every connection is opened with. Timeouts are the server's own where it has them. */
export function connectionOptions(url: string, durability: Durability, max: number): pg.PoolConfig {
  const settings = [
    `-c synchronous_commit=${durability === "full" ? "on" : "off"}`,
    `-c default_transaction_isolation=read\\ committed`,
  ];
  return {
    connectionString: url,
    max,
    application_name: "flotilla",
    pipeline: true,
    connectionTimeoutMillis: connectTimeoutMs,
    statement_timeout: statementTimeoutMs,
    lock_timeout: lockTimeoutMs,
    idle_in_transaction_session_timeout: idleInTransactionMs,
    query_timeout: answerTimeoutMs,
    keepAlive: true,
    keepAliveInitialDelayMillis: connectTimeoutMs,
    allowExitOnIdle: true,
    options: settings.join(" "),
  } as pg.PoolConfig;
}

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

const schemaPattern = /^[a-z_][a-z0-9_]{0,50}$/;

/** The one name that goes into a statement's text, so it is held to a pattern. */
function checkSchema(schema: string): void {
  if (schemaPattern.test(schema)) return;
  throw new FlotillaError(
    "invalid_option",
    `schema must be a lower-case name of letters, digits and _, not ${JSON.stringify(schema)}`,
  );
}
