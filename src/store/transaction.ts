import { FlotillaError, messageOf } from "../base/errors.ts";
import type { CallerTransaction, Row } from "./database.ts";
import { postgresDialect } from "./postgres/dialect.ts";
import { type Dialect, type Query, render, type Value } from "./sql.ts";
import { sqliteDialect } from "./sqlite/dialect.ts";

/** What we need of the caller's SQLite connection; `node:sqlite` and `better-sqlite3` both fit. */
export type SqliteHandle = {
  prepare(text: string): { all(...values: (string | number | null)[]): unknown[] };
};

/** What we need of the caller's Postgres client; `pg`'s fits, in a transaction of the caller's. */
export type PostgresHandle = {
  query(text: string, values: unknown[]): Promise<{ rows: unknown[] }>;
};

/**
 * The caller's own connection as a place to write: what is written there commits or vanishes with
 * the rest of the caller's transaction.
 */
export function callerTransaction(
  handle: unknown,
  { schema = "flotilla" } = {},
): CallerTransaction {
  if (isSqliteHandle(handle)) {
    // The caller's SQLite may be older than ours, so the spelling that every version knows is used.
    const dialect = sqliteDialect({ jsonbEach: false });
    return runner(dialect, async ({ text, values }) =>
      handle.prepare(text).all(...(values as Value[])),
    );
  }
  if (isPostgresHandle(handle)) {
    const dialect = postgresDialect({ schema });
    return runner(dialect, async ({ text, values }) => (await handle.query(text, values)).rows);
  }
  throw new FlotillaError(
    "invalid_option",
    "`tx` must be an open connection to the same database: node:sqlite, better-sqlite3 or pg",
  );
}

function runner(dialect: Dialect, send: (query: Query) => Promise<unknown[]>): CallerTransaction {
  return {
    async run(statement) {
      try {
        return (await send(render(statement, dialect))) as Row[];
      } catch (error) {
        const message = `\`tx\` refused the write: ${messageOf(error)}`;
        throw new FlotillaError("store_unavailable", message, { cause: error });
      }
    },
  };
}

function isSqliteHandle(handle: unknown): handle is SqliteHandle {
  return typeof handle === "object" && handle !== null && "prepare" in handle;
}

function isPostgresHandle(handle: unknown): handle is PostgresHandle {
  return typeof handle === "object" && handle !== null && "query" in handle;
}
