import { type ErrorCode, FlotillaError } from "../base/errors.ts";
import { now, sql, type Statement, table } from "./sql.ts";

export type Row = Readonly<Record<string, any>>;

/**
 * The shared SQL database, as the rest of the program sees it. Every implementation passes the
 * suite in `contract/database.ts`.
 *
 * A rejected `write` is definite (nothing of it was stored) unless its code is `unknown_outcome`:
 * then it may have been stored, or may still be.
 */
export type Database = {
  /** Reads one statement, without waiting for writes. Where it gets no answer, it is `store_unavailable`. */
  read(statement: Statement, options?: ReadOptions): Promise<Row[]>;
  /** Commits statements in one transaction, and returns the rows of each. */
  write(statements: readonly Statement[], options?: WriteOptions): Promise<Row[][]>;
  /**
   * Calls the listener when a transaction may have committed. Calls can be late, lost or
   * unnecessary. `whose` is `own` only if no other process can have committed since the last call.
   * With a channel, the listener is called for writes that name it, and subscribers without a channel
   * are not, if the store can distinguish the two. The call may carry the payload of the write.
   */
  subscribe(listener: Listener, channel?: string): () => void;
  /**
   * True if a notification is expensive for its sender, so that only pods that are marked idle are
   * notified.
   */
  readonly notifiesOnlyIdle?: boolean;
  /** True if several writes are made at once, so that a write that waits keeps no other from the store. */
  readonly writesAtOnce?: boolean;
  /** True if its triggers can record changes, in the order of their commits. */
  readonly recordsChanges?: boolean;
  /** True if what users put in is stored encoded, so that no statement can look into it. */
  readonly encodesContent?: boolean;
  /** The same store in a transaction of the caller, on the caller's connection. */
  within(handle: unknown): CallerTransaction;
  close(): Promise<void>;
  /** Called by code that retries a write, for metrics. */
  report?(event: StoreEvent): void;
};

export type ReadOptions = {
  /**
   * For reads that may be many and large: they wait for each other, and no other read or write
   * waits for them.
   */
  cold?: boolean;
  /**
   * For pages that people look at: read on connections of their own, and only by indexes where the
   * store can be told so. One that takes longer than `pageReadMs` is refused.
   */
  page?: boolean;
  /** Of a page: drops it, unless it is being read already. */
  signal?: AbortSignal;
};

export type Listener = (whose?: "own", payload?: string) => void;

export type WriteOptions = {
  /**
   * The write makes work for other processes: their subscribers without a channel are notified with
   * the commit.
   */
  notify?: boolean;
  /** Listeners of these channels are notified, and no others. */
  channels?: readonly string[];
  /** What to tell each channel, sent with the notification if the store can carry them. */
  payloads?: ReadonlyMap<string, string>;
  /**
   * A power cut may lose the write, so it does not wait for the disk if the store supports that.
   */
  lossy?: boolean;
};

export type Durability = "full" | "relaxed";

/** Writes are stored if and only if the caller commits. */
export type CallerTransaction = {
  write(statements: readonly Statement[], options?: Pick<WriteOptions, "notify">): Promise<Row[][]>;
};

/** Events of a store, for metrics: errors and waits. */
export type StoreEvent =
  /** A read or a write was refused, or its outcome is unknown. */
  | { readonly type: "store_error"; readonly code: ErrorCode }
  /** Another transaction was in the way. The store retries by itself after the wait. */
  | { readonly type: "contended"; readonly cause: ContentionCause; readonly waitMs: number }
  /** A write that was refused, or whose outcome is unknown, is sent again after the wait. */
  | { readonly type: "resent"; readonly waitMs: number }
  /** A notification's payload was not signed by a pod, and was dropped. */
  | { readonly type: "forged" };

/**
 * `busy`: another transaction held a lock. `deadlock`, `serialization`: the database undid one of
 * two transactions. `race`: two transactions inserted the same key at the same time.
 */
export type ContentionCause = "busy" | "deadlock" | "serialization" | "race";

export type OnStoreEvent = (event: StoreEvent) => void;

/** The same database for reads on behalf of clients, whose number is not bounded. */
export function coldReads(database: Database): Database {
  return { ...database, read: (statement) => database.read(statement, { cold: true }) };
}

/** How long a page may be read. The lists of pages are bounded, and take a small part of this. */
export const pageReadMs = 2_000;

/** The same database for reads of a page, for a caller that may hang up. */
export function pageReads(database: Database, signal?: AbortSignal): Database {
  const options = { page: true, ...(signal && { signal }) };
  return { ...database, read: (statement) => database.read(statement, options) };
}

/** Rejects the read of a page whose caller has hung up before its turn. */
export function checkWanted(signal: AbortSignal | undefined): void {
  if (!signal?.aborted) return;
  throw new FlotillaError("cancelled", "the page was not read, because its caller has hung up");
}

export function pageTookTooLong(cause?: unknown): FlotillaError {
  return new FlotillaError(
    "timeout",
    `the store took longer than ${pageReadMs} ms for this page: narrow it by a name, a status, a tenant or a shorter span of time, or ask for fewer`,
    { cause, details: { pageReadMs } },
  );
}

/** A listener that throws must not fail a write. */
export function withoutThrowing(onEvent: OnStoreEvent): OnStoreEvent {
  return (event) => {
    try {
      onEvent(event);
    } catch {
      // Events are only for metrics, and the write matters more.
    }
  };
}

/** A database that reports every error. */
export function observed(database: Database, onEvent: OnStoreEvent): Database {
  const reportError = (error: unknown): never => {
    const code = error instanceof FlotillaError ? error.code : "internal";
    // Errors after a close are expected.
    if (code !== "closed") onEvent({ type: "store_error", code });
    throw error;
  };
  return {
    ...database,
    read: (statement, options) => database.read(statement, options).catch(reportError),
    write: (statements, options) => database.write(statements, options).catch(reportError),
    report: onEvent,
  };
}

/** A write without effect: if it commits, the store is writable. */
export function writeProbe(): Statement {
  return sql`
    insert into ${table("probe")} (id, at) values (1, ${now})
    on conflict (id) do update set at = excluded.at`;
}
