import { accessSync, constants, existsSync, statSync, utimesSync } from "node:fs";
import { FlotillaError } from "../../base/errors.ts";
import type { Durability, Row } from "../database.ts";
import type { Dialect, Query, Value } from "../sql.ts";
import { sqliteDialect } from "./dialect.ts";
import { isBusy, isTooWide, sqliteError } from "./errors.ts";
import { DatabaseSync, type StatementSync } from "./driver.ts";
import { makePrivate } from "./private-file.ts";

/** The rows of one statement, as arrays because thousands may cross threads. */
export type Table = { readonly columns: readonly string[]; readonly rows: readonly Value[][] };

export type CommitOutcome = { readonly tables: Table[] } | { readonly error: unknown };

/** One synchronous connection to one file. Lives on a thread of its own, or inline in tests. */
export type SqliteConnection = {
  readonly dialect: Dialect;
  /** True if this SQLite has `jsonb_each`, which unpacks rows faster. */
  readonly jsonbEach: boolean;
  read(query: Query): Table;
  /**
   * One commit for all requests; a request that fails does not affect the others. A `lossy` commit
   * does not wait for the disk, and reaches it with the next one that does.
   */
  commit(requests: readonly (readonly Query[])[], options?: { lossy: boolean }): CommitOutcome[];
  /**
   * Touches the log, so that watchers check again, if anything was committed since the last call.
   */
  touchLog(): void;
  /** True if another connection has committed since the last call, or if that is unknown. */
  othersCommitted(): boolean;
  /** How long it waited for locks since the last call; undefined if it did not. */
  contendedMs(): number | undefined;
  close(): void;
};

export type ConnectionOptions = {
  /** A file, or `:memory:`. */
  path: string;
  durability?: Durability;
  readOnly?: boolean;
  /**
   * Whether a missing file is created. Default false: a wrong path must not become an empty store.
   */
  create?: boolean;
  /** Replaces the database's clock, for tests. */
  nowMs?: () => number;
  /** Functions that statements and triggers of tests call. */
  functions?: Readonly<Record<string, (...values: Value[]) => Value>>;
};

// How long a write waits for other processes' writes before it is refused.
const busyLimitMs = 30_000;
// How many texts a generation of statements has; there are two.
const statementsKept = 500;
// A write-ahead log of at most 16 MiB between checkpoints: a larger one makes reads slow.
const checkpointPages = 4_000;
const cacheKib = 32_768;
const pause = new Int32Array(new SharedArrayBuffer(4));

/** Opens a connection, and fails early if the file is missing, damaged or not writable. */
export function openConnection(options: ConnectionOptions): SqliteConnection {
  const { path, durability = "full", readOnly = false, create = false, nowMs } = options;
  const { functions = {} } = options;
  const inMemory = path === ":memory:";
  if (!inMemory) checkFile(path, { readOnly, create });
  let db: DatabaseSync;
  try {
    if (!inMemory && create) makePrivate(path);
    db = new DatabaseSync(path, { readOnly });
  } catch (error) {
    throw sqliteError(error, path);
  }
  // Two generations, the used ones moving to the younger: to prepare a statement costs more than to run it,
  // and what is used again and again outlives texts that are used once, such as filters.
  let statements = new Map<string, StatementSync>();
  let older = new Map<string, StatementSync>();
  const forgetStatements = () => {
    statements.clear();
    older.clear();
  };
  let waitedMs: number | undefined;
  const waiting = <Result>(action: () => Result): Result =>
    waitForOthers(action, (ms) => (waitedMs = (waitedMs ?? 0) + ms));
  // An integer that a number cannot hold makes the whole statement fail, and with it every claim
  // that reads such a row. Reading BigInts is slower, so it begins with the first such integer.
  let wide = false;
  const widened = (error: unknown): boolean => {
    if (wide || !isTooWide(error)) return false;
    forgetStatements();
    return (wide = true);
  };

  const prepare = (text: string): StatementSync => {
    const known = statements.get(text);
    if (known) return known;
    const statement = older.get(text) ?? db.prepare(text);
    statement.setReturnArrays(true);
    statement.setReadBigInts(wide);
    if (statements.size >= statementsKept) [older, statements] = [statements, new Map()];
    statements.set(text, statement);
    return statement;
  };

  const run = (query: Query): Table => {
    const statement = prepare(query.text);
    let rows = statement.all(...(query.values as Value[])) as unknown as Value[][];
    if (wide) rows = rows.map((row) => row.map(narrow));
    return { columns: rows.length > 0 ? columnsOf(statement) : [], rows };
  };

  const columnNames = new WeakMap<StatementSync, string[]>();
  const columnsOf = (statement: StatementSync): string[] => {
    let names = columnNames.get(statement);
    if (!names) columnNames.set(statement, (names = statement.columns().map((each) => each.name)));
    return names;
  };

  const read = (query: Query): Table => {
    try {
      return waiting(() => run(query));
    } catch (error) {
      if (widened(error)) return read(query);
      throw sqliteError(error, path);
    }
  };

  let touchedAt = 0;
  const totalChanges = () =>
    Number((prepare("select total_changes()").get() as unknown as [number])[0]);

  // It changes with every commit except those of this connection.
  let version: unknown;
  const dataVersion = (): unknown =>
    (prepare("pragma data_version").get() as unknown as [unknown])[0];

  const undo = () => {
    if (db.isTransaction) db.exec("rollback");
  };

  const begin = () => waiting(() => db.exec("begin immediate"));

  let flushes = durability === "full";
  /** Sets whether commits wait for the disk. Not within a transaction, where it changes nothing. */
  const setFlushes = (wanted: boolean) => {
    if (wanted === flushes || durability !== "full") return;
    db.exec(`pragma synchronous = ${wanted ? "full" : "normal"}`);
    flushes = wanted;
  };

  const commitTogether = (requests: readonly (readonly Query[])[]): CommitOutcome[] => {
    try {
      const outcomes = requests.map((queries) => ({ tables: queries.map(run) }));
      waiting(() => db.exec("commit"));
      return outcomes;
    } catch (error) {
      undo();
      throw error;
    }
  };

  try {
    waiting(() => db.exec("pragma busy_timeout = 0"));
    if (!readOnly) {
      waiting(() => db.exec("pragma journal_mode = wal"));
      db.exec(`pragma synchronous = ${durability === "full" ? "full" : "normal"}`);
      db.exec(`pragma wal_autocheckpoint = ${checkpointPages}`);
    }
    db.exec(`pragma cache_size = -${cacheKib}; pragma temp_store = memory`);
    // Reads the file, so that a damaged one is detected here and not in the middle of work.
    waiting(() => db.prepare("select count(*) from sqlite_schema").get());
  } catch (error) {
    db.close();
    throw sqliteError(error, path);
  }
  if (nowMs) db.function("flotilla_now", nowMs);
  for (const [name, call] of Object.entries(functions)) {
    db.function(name, { varargs: true }, call as (...values: unknown[]) => Value);
  }

  const jsonbEach = hasJsonbEach(db);

  return {
    dialect: sqliteDialect({ jsonbEach, ...(nowMs && { now: "flotilla_now()" }) }),
    jsonbEach,
    read,
    commit(requests, { lossy } = { lossy: false }) {
      try {
        setFlushes(!lossy);
        begin();
      } catch (error) {
        return requests.map(() => ({ error: sqliteError(error, path) }));
      }
      try {
        return commitTogether(requests);
      } catch (error) {
        if (!widened(error) && requests.length === 1) return [{ error: sqliteError(error, path) }];
      }
      // One request was refused: each gets its own transaction, so that they do not fail together.
      return requests.map((request) => {
        try {
          begin();
          return commitTogether([request])[0]!;
        } catch (error) {
          return { error: sqliteError(error, path) };
        }
      });
    },
    touchLog() {
      if (inMemory) return;
      const changes = totalChanges();
      if (changes === touchedAt) return;
      touchedAt = changes;
      // The log is written before its commit is visible, so watchers have checked too early.
      const at = new Date();
      try {
        utimesSync(`${path}-wal`, at, at);
      } catch {
        // Watchers check again a little later by themselves.
      }
    },
    othersCommitted() {
      const before = version;
      try {
        version = dataVersion();
      } catch {
        version = undefined;
      }
      return version === undefined || version !== before;
    },
    contendedMs() {
      const sinceThen = waitedMs;
      waitedMs = undefined;
      return sinceThen;
    },
    close() {
      forgetStatements();
      db.close();
    },
  };
}

export function toObjects(result: Table): Row[] {
  const { columns, rows } = result;
  return rows.map((values) => {
    const row: Record<string, Value> = {};
    for (let at = 0; at < columns.length; at++) row[columns[at]!] = values[at]!;
    return row;
  });
}

function checkFile(
  path: string,
  { readOnly, create }: { readOnly: boolean; create: boolean },
): void {
  if (!existsSync(path)) {
    if (create) return;
    throw new FlotillaError(
      "store_missing",
      `there is no database file at ${path}: check the path, or run \`flotilla migrate\` to make it`,
    );
  }
  if (statSync(path).isDirectory()) {
    throw new FlotillaError("store_missing", `${path} is a folder: name a file in it`);
  }
  if (readOnly) return;
  try {
    accessSync(path, constants.R_OK | constants.W_OK);
  } catch (error) {
    throw new FlotillaError(
      "store_read_only",
      `the database file ${path} can't be written: check the permissions of the file and of its folder`,
      { cause: error },
    );
  }
}

function narrow(value: Value | bigint): Value {
  return typeof value === "bigint" ? Number(value) : value;
}

function hasJsonbEach(db: DatabaseSync): boolean {
  const { version } = db.prepare("select sqlite_version() as version").get() as { version: string };
  const [major = 0, minor = 0] = version.split(".").map(Number);
  return major > 3 || (major === 3 && minor >= 51);
}

/** Waits for another process's lock instead of failing. The waits are short and random. */
function waitForOthers<Result>(action: () => Result, onWaited: (ms: number) => void): Result {
  const startedMs = performance.now();
  const deadline = startedMs + busyLimitMs;
  for (let tries = 0; ; tries++) {
    try {
      const result = action();
      if (tries > 0) onWaited(performance.now() - startedMs);
      return result;
    } catch (error) {
      if (!isBusy(error) || performance.now() > deadline) throw error;
      const ceilingMs = Math.min(8, 0.25 * 2 ** Math.min(tries, 7));
      Atomics.wait(pause, 0, 0, ceilingMs * (0.5 + Math.random() / 2));
    }
  }
}
