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
  /** Reads one statement, without waiting for writes. */
  read(statement: Statement, options?: ReadOptions): Promise<Row[]>;
  /** Commits statements together or not at all, and gives the rows that each returned. */
  write(statements: readonly Statement[], options?: WriteOptions): Promise<Row[][]>;
  /**
   * Calls back when somebody may have committed something. A hint: calls can be late, lost or vain.
   * It says `own` only where nobody but this object can have committed since the last hint.
   * With an address it is called for letters to that address, which those who look for work aren't
   * told of where the store can tell the two apart. It may bring what `letters` gave with the write.
   */
  subscribe(listener: Listener, channel?: string): () => void;
  /** True where hints cost those who send them, so that those who wait for one must say so. */
  readonly notifiesOnlyIdle?: boolean;
  /** The same store in a transaction of the caller's, on a connection of the caller's. */
  within(handle: unknown): CallerTransaction;
  close(): Promise<void>;
  /** For whoever sends a write again, to say so to those who count. */
  report?(event: StoreEvent): void;
};

type ReadOptions = {
  /**
   * It may be one of very many, and large: it waits for others like it, and no other read or write does
   * for any of them.
   */
  cold?: boolean;
};

/** The same database for what clients ask to see, whose number nothing here bounds. */
export function coldReads(database: Database): Database {
  return { ...database, read: (statement) => database.read(statement, { cold: true }) };
}

export type Listener = (whose?: "own", payload?: string) => void;

export type WriteOptions = {
  /** There is something new to claim: those who subscribe elsewhere should be told with the commit. */
  hint?: boolean;
  /** Letters were written or taken: whoever listens at these addresses should be told, and nobody else. */
  channels?: readonly string[];
  /** What was left at an address: told along with the hint, where the store can carry it. */
  payloads?: ReadonlyMap<string, string>;
  /** A power cut may take it back, so it needn't wait for the disk where the store can do without. */
  lossy?: boolean;
};

export type Durability = "full" | "relaxed";

/** What is written here is stored when, and only when, the caller commits. */
export type CallerTransaction = {
  write(statements: readonly Statement[], options?: Pick<WriteOptions, "hint">): Promise<Row[][]>;
};

/** What a store tells those who count: what it refused, and what it had to wait for. */
export type StoreEvent =
  /** A read or a write was refused, or its outcome isn't known. */
  | { readonly type: "store_error"; readonly code: ErrorCode }
  /** Somebody else was in the way. The store tries again by itself after the wait. */
  | { readonly type: "contended"; readonly cause: ContentionCause; readonly waitMs: number }
  /** A write that was refused, or whose outcome isn't known, is sent again after the wait. */
  | { readonly type: "resent"; readonly waitMs: number }
  /** A notification that claims to bring letters isn't signed by a pod, and was dropped. */
  | { readonly type: "forged" };

/**
 * `busy`: a lock that another held. `deadlock`, `serialization`: the database undid one of two
 * transactions. `race`: two notes about one task were made at the same time.
 */
export type ContentionCause = "busy" | "deadlock" | "serialization" | "race";

export type OnStoreEvent = (event: StoreEvent) => void;

/** A listener that throws must not take a write with it. */
export function withoutThrowing(onEvent: OnStoreEvent): OnStoreEvent {
  return (event) => {
    try {
      onEvent(event);
    } catch {
      // It is told for counting only, and the write is worth more than the count.
    }
  };
}

/** A database that tells of everything it refuses. */
export function observed(database: Database, onEvent: OnStoreEvent): Database {
  const reportError = (error: unknown): never => {
    const code = error instanceof FlotillaError ? error.code : "internal";
    // To be refused after a close is what a close is for.
    if (code !== "closed") onEvent({ type: "store_error", code });
    throw error;
  };
  return {
    ...database,
    read: (statement) => database.read(statement).catch(reportError),
    write: (statements, options) => database.write(statements, options).catch(reportError),
    report: onEvent,
  };
}

/** A write that changes nothing anybody reads: if it commits, the store can really be written. */
export function writeProbe(): Statement {
  return sql`
    insert into ${table("probe")} (id, at) values (1, ${now})
    on conflict (id) do update set at = excluded.at`;
}
