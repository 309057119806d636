import { type ErrorCode, FlotillaError } from "../base/errors.ts";
import type { Database } from "./database.ts";

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
export function quiet(onEvent: OnStoreEvent): OnStoreEvent {
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
  const tell = (error: unknown): never => {
    const code = error instanceof FlotillaError ? error.code : "internal";
    // To be refused after a close is what a close is for.
    if (code !== "closed") onEvent({ type: "store_error", code });
    throw error;
  };
  return {
    ...database,
    read: (statement) => database.read(statement).catch(tell),
    write: (statements, options) => database.write(statements, options).catch(tell),
    report: onEvent,
  };
}
