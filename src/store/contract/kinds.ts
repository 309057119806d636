import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { inject } from "vitest";
import { movableClock, until } from "../../base/contract/movable-clock.ts";
import { storedText } from "../codec/codec.ts";
import { withCodec } from "../codec/database.ts";
import { encryption } from "../codec/encryption.ts";
import type { Database } from "../database.ts";
import type { CallerConnection, OpenStore, StoreKind } from "./database.ts";
import { openReduced } from "./reduced-postgres.ts";
import { type CheckedStore, checkStore } from "../postgres/config.ts";
import { openPlain } from "../postgres/inspect.ts";
import { openPostgres } from "../postgres/postgres.ts";
import { sql, table, type TableName } from "../sql.ts";
import { memoryDatabase } from "../sqlite/inline.ts";
import { openSqlite } from "../sqlite/sqlite.ts";

export const memoryKind: StoreKind = {
  name: "memory",
  async open() {
    const clock = movableClock();
    return { database: memoryDatabase(clock), clock, remove: async () => {} };
  },
};

const sqliteKind: StoreKind = {
  name: "a SQLite file",
  callers: true,
  async open() {
    const { path, remove } = temporaryFile();
    return {
      database: await openSqlite({ path, create: true }),
      again: () => openSqlite({ path }),
      caller: async () => sqliteCaller(path),
      commits: () => commitsIn(path),
      remove,
    };
  },
};

const postgresKind: StoreKind = {
  name: "Postgres",
  callers: true,
  async open() {
    const { url, remove } = await temporaryDatabase();
    const open = () => openPostgres({ url });
    const database = await open();
    return {
      database,
      empty: (tables) => emptyPostgres(database, tables),
      again: open,
      caller: () => postgresCaller(url),
      remove,
    };
  },
};

const reducedPostgresKind: StoreKind = {
  name: "a reduced Postgres",
  callers: true,
  async open() {
    const { url, remove } = await temporaryDatabase();
    const open = () => openReduced(url);
    const database = await open();
    return {
      database,
      async empty(tables) {
        await database.settled();
        await emptyPostgres(database, tables);
      },
      again: open,
      caller: () => postgresCaller(url),
      hints: false,
      remove,
    };
  },
};

/** A file of which all content is encrypted: every promise holds there too. */
const encryptedKind: StoreKind = {
  name: "an encrypted SQLite file",
  encrypts: true,
  callers: true,
  async open() {
    const { path, remove } = temporaryFile();
    const text = storedText(encryption({ keys: { test: "07".repeat(32) } }), () => {});
    const open = async (create: boolean) => withCodec(await openSqlite({ path, create }), text);
    return {
      database: await open(true),
      again: () => open(false),
      caller: async () => sqliteCaller(path),
      commits: () => commitsIn(path),
      remove,
    };
  },
};

/** What `npm run test:store` marks the schemas with that it makes, and drops again. */
export const schemaMark = "made by `npm run test:store` of Flotilla, and dropped by its next run";

let schemas = 0;
// Stores of suites need few, and a server that is named may have few to give.
const connectionsOfNamed = 2;

/**
 * A server that `npm run test:store` was given: each store is a schema of its own there, and nothing else
 * of it is touched. Callers' own transactions are left out, since their tables would be elsewhere.
 */
function namedKind(url: string): StoreKind {
  const given = checkStore(url);
  return {
    name: "the server that was named",
    async open() {
      const schema = `flotilla_test_${process.pid}_${++schemas}`;
      const open = () => openPostgres({ ...given, schema, connections: connectionsOfNamed });
      await onNamed(given, [
        `create schema ${schema}`,
        `comment on schema ${schema} is '${schemaMark.replaceAll("'", "''")}'`,
      ]);
      return {
        database: await open(),
        again: open,
        // Through a pooler, and without notifications, only polling finds a commit.
        ...(process.env["FLOTILLA_TEST_HINTS"] === "no" && { hints: false as const }),
        remove: () => onNamed(given, [`drop schema ${schema} cascade`]),
      };
    },
  };
}

async function onNamed(given: CheckedStore, texts: readonly string[]): Promise<void> {
  const { ask, end } = await openPlain(given);
  try {
    for (const text of ["begin", ...texts, "commit"]) await ask(text);
  } finally {
    await end();
  }
}

const named = process.env["FLOTILLA_TEST_STORE"];
const every = process.env["FLOTILLA_STORES"] === "all";
/** A file takes longer, for threads that start and for flushes. */
const inMemoryAlone = process.env["FLOTILLA_STORES"] === "memory";
/** The project of vitest that runs this file says so: what needs no server, or what runs on Postgres. */
const onPostgres = process.env["FLOTILLA_TEST_KINDS"] === "postgres";
const onMachine = [
  memoryKind,
  ...(inMemoryAlone ? [] : [sqliteKind]),
  ...(every ? [encryptedKind] : []),
];
const onServer = named
  ? [namedKind(named)]
  : [postgresKind, ...(every ? [reducedPostgresKind] : [])];

/** Every kind of store there is. A new one is added here and passes all the suites. */
export const storeKinds: readonly StoreKind[] = onPostgres ? onServer : onMachine;

/**
 * For suites of statements, and of what reaches the store through them: a file gets the very statements
 * of memory, on which all simulations run. `FLOTILLA_STORES=all` runs them on all kinds.
 */
export const usualKinds: readonly StoreKind[] = storeKinds.filter(
  (kind) => every || inMemoryAlone || kind !== memoryKind,
);

/** Takes away what earlier tests have left in a store that they share. */
export async function emptyTables(store: OpenStore, tables: readonly TableName[]): Promise<void> {
  if (store.empty) return store.empty(tables);
  await store.database.write(tables.map((name) => sql`delete from ${table(name)}`));
}

const leftBytes = 64 * 1_024;

/**
 * Deleting is quick, but deleted rows stay until they are vacuumed, and every search steps over them. So
 * tables that have grown by it are made anew.
 */
async function emptyPostgres(database: Database, names: readonly TableName[]): Promise<void> {
  const grown = await database.read(sql`
    select relname as name from pg_class
    where relnamespace = 'flotilla'::regnamespace and relkind = 'r'
      and pg_relation_size(oid) > ${leftBytes}`);
  const isGrown = (name: TableName) => grown.some((row) => row["name"] === name);
  await database.write(
    names.map((name) =>
      isGrown(name) ? sql`truncate ${table(name)}` : sql`delete from ${table(name)}`,
    ),
  );
}

function sqliteCaller(path: string): CallerConnection {
  const handle = new DatabaseSync(path, { timeout: 30_000 });
  return {
    handle,
    begin: async () => handle.exec("begin immediate"),
    exec: async (text) => handle.exec(text),
    all: async (text) => handle.prepare(text).all(),
    close: async () => handle.close(),
  };
}

async function postgresCaller(url: string): Promise<CallerConnection> {
  const handle = new pg.Client(url);
  await handle.connect();
  const exec = async (text: string) => void (await handle.query(text));
  return {
    handle,
    begin: () => exec("begin"),
    exec,
    all: async (text) => (await handle.query(text)).rows,
    close: () => handle.end(),
  };
}

/** Selects the connections to its database that wait for a lock. */
export const lockWaits = `select pid from pg_stat_activity
  where datname = current_database() and wait_event_type = 'Lock'`;

/** Those on Postgres that wait for a lock, as a transaction sees them. */
export async function waitsBehind(caller: CallerConnection): Promise<unknown[]> {
  // Within a transaction every look would show what the first has seen.
  await caller.exec("select pg_stat_clear_snapshot()");
  return caller.all(lockWaits);
}

let databases = 0;
const looksMost = 100;
/** What Postgres says of a database that has connections. */
const inUse = "55006";

/** A database of its own on the server that this run has started. */
export async function temporaryDatabase() {
  const server = inject("postgresUrl");
  const name = `flotilla_${process.pid}_${++databases}`;
  const ask = async (text: string) => {
    const client = new pg.Client(server);
    await client.connect();
    const { rows } = await client.query(text);
    await client.end();
    return rows;
  };
  const others = async () => {
    const [row] = await ask(
      `select count(*)::integer as left from pg_stat_activity where datname = '${name}'`,
    );
    return row.left as number;
  };
  await ask(`create database ${name}`);
  // Connections that are cut by that are waited for, but only for some seconds.
  const drop = async () => {
    await until(`the end of ${name}`, async () => {
      try {
        await ask(`drop database ${name} with (force)`);
        return true;
      } catch (error) {
        if ((error as { code?: string }).code !== inUse) throw error;
        return false;
      }
    });
  };
  return {
    url: server.replace(/postgres$/, name),
    /** A pool's end doesn't wait for its connections, and one that is cut off meanwhile complains. */
    async remove() {
      for (let looks = 0; looks < looksMost && (await others()) > 0; looks++) {
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      await drop();
    },
    /** The same without waiting, where a pooler keeps its connections anyway. */
    drop,
  };
}

/** A path in a folder of its own, where nothing is yet. */
export function temporaryFile(name = "flotilla.db") {
  const folder = mkdtempSync(join(tmpdir(), "flotilla-store-"));
  return {
    path: join(folder, name),
    folder,
    remove: async () => rmSync(folder, { recursive: true, force: true }),
  };
}

const walHeaderBytes = 32;
const frameHeaderBytes = 24;

/** Counts the frames of the write-ahead log that end a transaction. */
export function commitsIn(path: string): number {
  if (!existsSync(`${path}-wal`)) return 0;
  const wal = readFileSync(`${path}-wal`);
  if (wal.length < walHeaderBytes) return 0;
  const frameBytes = frameHeaderBytes + wal.readUInt32BE(8);
  let commits = 0;
  for (let at = walHeaderBytes; at + frameBytes <= wal.length; at += frameBytes) {
    // The size of the database after the commit; zero in every other frame.
    if (wal.readUInt32BE(at + 4) !== 0) commits++;
  }
  return commits;
}
