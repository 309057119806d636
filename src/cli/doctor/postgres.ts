import { systemClock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Durability } from "../../store/database.ts";
import { schemaState } from "../../store/migrate.ts";
import type { CheckedStore, PostgresStore } from "../../store/postgres/config.ts";
import {
  engineOf,
  engineQuery,
  isMissing,
  refusalOf,
  tryEngine,
  versionQuery,
} from "../../store/postgres/engine.ts";
import { openPlain, type PlainConnection } from "../../store/postgres/inspect.ts";
import { openPostgres } from "../../store/postgres/postgres.ts";
import { type Check, failed, ok, warn } from "./check.ts";
import { checkFleet, type FleetOptions } from "./fleet.ts";
import { checkActivity, type ActivityLimits, activityLimits } from "./postgres-activity.ts";
import { attempt, isSchemaOutdated, schemaCheck } from "./schema.ts";
import { checkTables, type TableLimits, tableLimits } from "./tables.ts";

/** Thresholds of warnings. Tests lower them. */
export type ServerLimits = ActivityLimits & TableLimits;

// Tasks become due by the server's clock, so a second's difference is confusing.
const maxClockSkewMs = 1_000;

/** Checks a Postgres server with one unprivileged connection. */
export async function checkPostgres(
  store: CheckedStore,
  durability: Durability,
  options: FleetOptions & Partial<ServerLimits>,
): Promise<Check[]> {
  let connection: PlainConnection;
  try {
    connection = await openPlain(store);
  } catch (error) {
    return [failed("open", messageOf(error))];
  }
  try {
    return await checkServer(connection, store, durability, {
      ...activityLimits,
      ...tableLimits,
      ...options,
    });
  } finally {
    await connection.end();
  }
}

async function checkServer(
  connection: PlainConnection,
  store: CheckedStore,
  durability: Durability,
  limits: FleetOptions & ServerLimits,
): Promise<Check[]> {
  const server = await attempt("server", () => serverCheck(connection, store));
  // Other checks would only find that it isn't Postgres again.
  if (server.verdict === "fail") return [server];
  const checks = [
    server,
    await attempt("writable", () => writableCheck(connection)),
    await attempt("durability", () => durabilityCheck(connection, durability)),
    await attempt("clock", () => clockCheck(connection)),
    await attempt("pooler", () => checkPooler(connection, store)),
    ...(await checkActivity(connection, limits)),
  ];
  const database = await openPostgres({ ...store, connections: 1 });
  try {
    const schema = await attempt("schema", () => schemaCheck(database));
    checks.push(schema);
    if (schema.verdict === "fail") return checks;
    const { version } = await schemaState(database);
    checks.push(...(await checkTables(connection, store.schema, version, limits)));
    if (!isSchemaOutdated(schema)) checks.push(...(await checkFleet(database, limits)));
  } finally {
    await database.close();
  }
  return checks;
}

/** Says what opening says of the server. */
async function serverCheck({ ask }: PlainConnection, store: CheckedStore): Promise<Check> {
  const { unproven = false } = store;
  const rows = await ask(`select ${engineQuery}`).catch((error: unknown) => {
    if (!isMissing(error)) throw error;
    return ask(versionQuery);
  });
  const { version, has_dsql: hasDsql = false } = rows[0]!;
  const engine = engineOf({ version, hasDsql });
  const lacks = engine.kind === "other" && !unproven ? await tryEngine(ask) : [];
  const refusal = refusalOf(engine, { unproven, lacks });
  if (refusal) return failed("server", refusal.message);
  if (unproven) {
    return warn(
      "server",
      `${engine.name}, opened as unproven: by slower statements, found by polling (docs/stores.md)`,
    );
  }
  return ok("server", engine.name);
}

async function writableCheck({ ask }: PlainConnection): Promise<Check> {
  const [row] = await ask(
    "select pg_is_in_recovery() as standby, current_setting('transaction_read_only') as read_only",
  );
  if (row!["standby"]) return failed("writable", "this is a standby: connect to the primary");
  return row!["read_only"] === "on"
    ? failed(
        "writable",
        "transactions are read-only for this role: see default_transaction_read_only",
      )
    : ok("writable", "a primary that takes writes");
}

async function durabilityCheck({ ask }: PlainConnection, durability: Durability): Promise<Check> {
  const [row] = await ask(
    `select current_setting('fsync') as fsync, current_setting('full_page_writes') as pages,
      current_setting('synchronous_commit') as commits,
      current_setting('synchronous_standby_names') as standbys`,
  );
  const { fsync, pages, commits, standbys } = row!;
  if (fsync === "off") {
    return failed("durability", "fsync is off: a crash of the machine may ruin the database");
  }
  if (pages === "off") {
    return failed(
      "durability",
      "full_page_writes is off: a power cut may ruin pages, unless the file system writes whole ones",
    );
  }
  if (durability === "relaxed") {
    return warn(
      "durability",
      "relaxed: synchronous_commit=off, a power cut may lose the last moments",
    );
  }
  if (commits === "off") {
    return warn(
      "durability",
      "synchronous_commit is off for this role: Flotilla's own commits wait for the disk, but your transactions that enqueue tasks don't",
    );
  }
  return ok(
    "durability",
    standbys === ""
      ? "full: a power cut loses nothing acked; the loss of the machine may, as there is no synchronous standby"
      : `full, with synchronous standbys: ${standbys}`,
  );
}

async function clockCheck({ ask }: PlainConnection): Promise<Check> {
  let best = { skewMs: 0, unsureMs: Infinity };
  // The shortest of a few round trips is the most precise.
  for (let tries = 0; tries < 3; tries++) {
    const before = systemClock.now();
    const [row] = await ask("select extract(epoch from clock_timestamp())::float8 * 1000 as ms");
    const after = systemClock.now();
    const unsureMs = (after - before) / 2;
    if (unsureMs < best.unsureMs) best = { skewMs: row!["ms"] - (before + after) / 2, unsureMs };
  }
  const skewMs = Math.abs(best.skewMs);
  if (skewMs - best.unsureMs <= maxClockSkewMs) {
    return ok("clock", "the server's clock agrees with this machine's");
  }
  const side = best.skewMs > 0 ? "ahead of" : "behind";
  return warn(
    "clock",
    `the server's clock is ${(skewMs / 1_000).toFixed(1)} s ${side} this machine's; tasks become due by the server's`,
  );
}

/**
 * Whether there is a pooler between this process and the server, and in which mode. A pooler invents the
 * process id of a session; in transaction mode two sessions may share a process.
 */
async function checkPooler(first: PlainConnection, store: PostgresStore): Promise<Check> {
  const configured = store.pooler;
  const process = await processOf(first);
  if (first.processId === process) {
    return configured === "transaction" || configured === "session"
      ? warn("pooler", `none found, but the store has pooler=${configured}: remove it`)
      : ok("pooler", "none found");
  }
  const second = await openPlain(store);
  try {
    const shared = (await processOf(second)) === process || (await processOf(first)) !== process;
    if (!shared) {
      return configured === "session"
        ? ok("pooler", "found one, apparently in session mode")
        : ok(
            "pooler",
            "found one, apparently in session mode: add pooler=session to the URL to use notifications",
          );
    }
    if (!(await allowsTransactions(second))) {
      return failed(
        "pooler",
        "found one in statement mode: it must be in transaction or session mode",
      );
    }
    return configured === "session" || configured === "none"
      ? warn(
          "pooler",
          `found one in transaction mode, but the store has pooler=${configured}: notifications get lost`,
        )
      : ok(
          "pooler",
          "found one in transaction mode: new tasks are found by polling, not by notifications",
        );
  } finally {
    await second.end();
  }
}

async function processOf({ ask }: PlainConnection): Promise<number> {
  const [row] = await ask("select pg_backend_pid() as pid");
  return row!["pid"];
}

async function allowsTransactions({ ask }: PlainConnection): Promise<boolean> {
  try {
    await ask("begin");
    await ask("commit");
    return true;
  } catch {
    return false;
  }
}
