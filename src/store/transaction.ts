import { FlotillaError, messageOf } from "../base/errors.ts";
import type { CallerTransaction } from "./database.ts";
import { render } from "./sql.ts";
import { sqliteDialect } from "./sqlite/dialect.ts";

/** What we need of the caller's SQLite connection; `node:sqlite` and `better-sqlite3` both fit. */
export type SqliteHandle = {
  prepare(text: string): { all(...values: (string | number | null)[]): unknown[] };
};

/**
 * The caller's own connection as a place to write: what is written there commits or vanishes with
 * the rest of the caller's transaction.
 */
export function callerTransaction(handle: unknown): CallerTransaction {
  if (!isSqliteHandle(handle)) {
    throw new FlotillaError(
      "invalid_option",
      "`tx` must be an open SQLite connection (node:sqlite or better-sqlite3) on the same file",
    );
  }
  // The caller's SQLite may be older than ours, so the spelling that every version knows is used.
  const dialect = sqliteDialect({ jsonbEach: false });
  return {
    async run(statement) {
      const { text, values } = render(statement, dialect);
      try {
        return handle.prepare(text).all(...values) as Record<string, unknown>[];
      } catch (error) {
        throw new FlotillaError(
          "store_unavailable",
          `\`tx\` refused the write: ${messageOf(error)}`,
          {
            cause: error,
          },
        );
      }
    },
  };
}

function isSqliteHandle(handle: unknown): handle is SqliteHandle {
  return typeof handle === "object" && handle !== null && "prepare" in handle;
}
