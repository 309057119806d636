import { FlotillaError } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { type PayloadCodec, type StoredText, storedText } from "./codec/codec.ts";
import { transactionWithCodec, withCodec } from "./codec/database.ts";
import {
  type CallerTransaction,
  type Database,
  type Durability,
  observed,
  type OnStoreEvent,
  withoutThrowing,
} from "./database.ts";
import { migrate, type MigrateOptions } from "./migrate.ts";
import {
  type CheckedStore,
  checkStore,
  forThread as postgresForThread,
  type PostgresStore,
  type PostgresTimeouts,
  type ThreadStore,
} from "./postgres/config.ts";
import { postgresTransaction, sqliteTransaction } from "./caller-transaction.ts";

/** The location of a store: a URL or path, or options for Postgres. */
export type Store = string | PostgresStore;

export type StoreOptions = {
  /**
   * `full` (default): a power cut loses nothing that was acknowledged. `relaxed`: it may lose the
   * last moments.
   */
  durability?: Durability;
  /** Whether opening migrates the schema (`auto`, default) or only checks it. */
  migrate?: MigrateOptions["mode"];
  /** Whether a missing file is created. Default: if `migrate` is `auto`. */
  create?: boolean;
  log?: Logger;
  /** Encodes what users put in before it is stored. Default: it is stored as it is. */
  codec?: PayloadCodec;
  /** Called when the store refuses a call or waits for a lock; used for metrics. */
  onEvent?: OnStoreEvent;
};

/** How a process of our own opens a store. */
export type OpenStoreOptions = StoreOptions & {
  /** False if the process wakes others in another way, and the store is not to. Default true. */
  notifies?: boolean;
};

type PostgresLocation = { readonly kind: "postgres"; readonly store: CheckedStore };
export type StoreLocation = { readonly kind: "sqlite"; readonly path: string } | PostgresLocation;

export type StoreKind = StoreLocation["kind"];

// On an overloaded machine, shorter timeouts would only cause more work.
const beatAnswerMs = 2_000;
const beatConnectMs = 5_000;
// Of reasons why stored values can't be decoded, each is logged once, and so many at most.
const maxReasons = 20;
/** Of each codec, because every part of a process that is opened with it meets the same values. */
const loggedReasons = new WeakMap<PayloadCodec, Set<string>>();

/** Opens a store, ready to use. */
export async function openStore(store: Store, options: OpenStoreOptions = {}): Promise<Database> {
  const { migrate: mode = "auto", log } = options;
  const database = await openUnmigrated(store, options);
  try {
    await migrate(database, { mode, ...(log && { log }) });
  } catch (error) {
    await database.close();
    throw error;
  }
  const known = options.onEvent ? observed(database, withoutThrowing(options.onEvent)) : database;
  const text = storedTextOf(options);
  return text ? withCodec(known, text) : known;
}

/** Encodes and decodes by the codec of these options, if they have one. */
export function storedTextOf({
  codec,
  log,
}: {
  codec?: PayloadCodec | undefined;
  log?: Logger | undefined;
}): StoredText | undefined {
  if (!codec) return undefined;
  const logged = loggedReasons.get(codec) ?? new Set<string>();
  loggedReasons.set(codec, logged);
  return storedText(codec, (reason) => {
    if (!log || logged.has(reason) || logged.size >= maxReasons) return;
    logged.add(reason);
    log.error({ reason }, "stored value not decoded");
  });
}

/** Throws if the value cannot be a store; whether it exists shows on opening. */
export function checkedStore(store: unknown): void {
  if (typeof store === "string") return;
  if (typeof store !== "object" || store === null) {
    throw new FlotillaError(
      "invalid_option",
      `store must be a URL, a path or options for Postgres, not ${typeof store}`,
    );
  }
  checkStore(store);
}

/** A store in a form that can be sent to another thread. */
export function storeForThread(store: Store): ThreadStore<Store> {
  return typeof store === "string" ? { store } : postgresForThread(locateStore(store).store);
}

/**
 * The same store for a heartbeat: on the calling thread, with its own connection. Losing a beat in
 * a power cut does no harm, so it does not wait for the disk. Its timeouts are shorter than
 * others', because a beat that is stuck must be sent again before its pod is believed dead.
 */
export async function openForHeartbeat(
  { store, password }: ThreadStore<Store>,
  { heartbeatMs }: { heartbeatMs: number },
): Promise<Database> {
  const location = locateStore(store);
  if (location.kind === "sqlite") {
    const { reconnectingInline } = await import("./sqlite/inline.ts");
    return reconnectingInline({ path: location.path, durability: "relaxed" });
  }
  const { openPostgres } = await import("./postgres/postgres.ts");
  return openPostgres({
    ...location.store,
    ...heartbeatTimeouts(location.store, heartbeatMs),
    durability: "relaxed",
    connections: 1,
    watchesConnections: true,
    ...(password && { password }),
  });
}

/** A caller's transaction on a store, which need not be open. */
export function transactionOn(
  store: Store,
  handle: unknown,
  { text, notifies = true }: { text?: StoredText | undefined; notifies?: boolean } = {},
): CallerTransaction {
  const location = locateStore(store);
  const transaction =
    location.kind === "sqlite"
      ? sqliteTransaction(handle)
      : postgresTransaction(handle, { ...location.store, notifies });
  return text ? transactionWithCodec(transaction, text) : transaction;
}

/** Parses a store: `sqlite:<file>`, a plain path, `postgres://…`, or options for Postgres. */
export function locateStore(store: PostgresStore): PostgresLocation;
export function locateStore(store: Store): StoreLocation;
export function locateStore(store: Store): StoreLocation {
  if (typeof store !== "string") return { kind: "postgres", store: checkStore(store) };
  const url = store;
  const scheme = /^([a-z][a-z0-9+.-]*):/i.exec(url)?.[1]?.toLowerCase();
  if (scheme === "postgres" || scheme === "postgresql") {
    return { kind: "postgres", store: checkStore(url) };
  }
  const path = scheme ? url.slice(scheme.length + 1).replace(/^\/\//, "") : url;
  const isFile = scheme === undefined || scheme === "sqlite" || scheme === "file";
  // A store in memory could not be shared by its threads.
  if (isFile && path !== "" && path !== ":memory:" && !path.includes("?")) {
    return { kind: "sqlite", path };
  }
  throw new FlotillaError(
    "unsupported",
    `the store ${JSON.stringify(withoutSecrets(url))} isn't supported: use sqlite:<file> or postgres://…`,
  );
}

/** A printable store: the part between `//` and the last `@` may be a password. */
export function withoutSecrets(store: Store): string {
  const url = typeof store === "string" ? store : (store.url ?? "a pool of Postgres");
  return url.replace(/\/\/.*@/, "//…@").replace(/\?.*$/, "?…");
}

/** Opens a store as it is: its schema is neither looked at nor changed. */
export async function openUnmigrated(store: Store, options: OpenStoreOptions): Promise<Database> {
  const { durability = "full", migrate: mode = "auto", notifies = true, log } = options;
  const { create = mode === "auto" } = options;
  const events = options.onEvent && { onEvent: withoutThrowing(options.onEvent) };
  const location = locateStore(store);
  if (location.kind === "sqlite") {
    const { openSqlite } = await import("./sqlite/sqlite.ts");
    return openSqlite({ path: location.path, durability, create }, events);
  }
  const { openPostgres } = await import("./postgres/postgres.ts");
  return openPostgres({
    ...location.store,
    notifies,
    durability,
    ...(log && { log }),
    ...events,
  });
}

/** The server's lock timeout comes before ours, because its answer is better than none. */
function heartbeatTimeouts(store: CheckedStore, heartbeatMs: number): PostgresTimeouts {
  const within = (maxMs: number, ms = maxMs) => Math.min(ms, maxMs);
  const answerMs = Math.max(beatAnswerMs, 3 * heartbeatMs);
  return {
    connectTimeoutMs: within(Math.max(beatConnectMs, answerMs), store.connectTimeoutMs),
    answerTimeoutMs: within(answerMs, store.answerTimeoutMs),
    lockTimeoutMs: within(Math.ceil(0.75 * answerMs), store.lockTimeoutMs),
  };
}
