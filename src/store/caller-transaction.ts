import { FlotillaError, hasCode, messageOf } from "../base/errors.ts";
import type { CallerTransaction, Row } from "./database.ts";
import { postgresDialect, type PostgresDialectOptions } from "./postgres/dialect.ts";
import { notifyQuery } from "./postgres/notifications.ts";
import { type Dialect, type Query, renderAll, type Value } from "./sql.ts";
import { sqliteDialect } from "./sqlite/dialect.ts";

export function sqliteTransaction(handle: unknown): CallerTransaction {
  // The caller's SQLite may be older than ours, so use the form that every version supports.
  return callerTransaction(handle, { dialect: sqliteDialect({ jsonbEach: false }) });
}

export function postgresTransaction(
  handle: unknown,
  { notifies = true, ...options }: PostgresDialectOptions & { notifies?: boolean },
): CallerTransaction {
  return callerTransaction(handle, {
    dialect: postgresDialect(options),
    ...(notifies && !options.unproven && { notification: notifyQuery(options.schema) }),
  });
}

/**
 * Writes on the caller's own connection: they commit or roll back with the rest of the caller's
 * transaction. `notification` notifies other processes, if the database can, when the caller commits.
 */
function callerTransaction(
  handle: unknown,
  { dialect, notification }: { dialect: Dialect; notification?: Query },
): CallerTransaction {
  const send = senderOf(handle);
  return {
    async write(statements, { notify = false } = {}) {
      const { queries, answerAt } = renderAll(statements, dialect);
      if (notify && notification) queries.push(notification);
      const tables: Row[][] = [];
      try {
        for (const query of queries) tables.push((await send(query)) as Row[]);
      } catch (error) {
        if (hasCode(error, "invalid_option")) throw error;
        const message = `\`tx\` refused the write: ${reasonOf(error)}`;
        throw new FlotillaError("store_unavailable", message, { cause: error });
      }
      return answerAt.map((at) => tables[at]!);
    },
  };
}

type Send = (query: Query) => Promise<unknown[]>;

/** Recognises each kind of handle by the fewest methods that identify it. */
function senderOf(handle: unknown): Send {
  if (typeof handle === "object" && handle !== null) {
    if (has(handle, "prepare")) return sqliteSender(handle);
    if (has(handle, "executeQuery")) return kyselySender(handle);
    if (has(handle, "execute")) return drizzleSender(handle);
    if (has(handle, "query")) return pgSender(handle);
  }
  throw new FlotillaError(
    "invalid_option",
    "`tx` must be a transaction on the same database, of pg, Drizzle or Kysely, or a connection of node:sqlite or better-sqlite3",
  );
}

function has<Name extends string>(handle: object, name: Name): handle is Handle<Name> {
  return typeof (handle as Record<string, unknown>)[name] === "function";
}

type Handle<Name extends string> = Record<Name, (...given: any[]) => any>;

/** `node:sqlite` and `better-sqlite3`, which have the same methods. */
function sqliteSender(handle: Handle<"prepare">): Send {
  return async ({ text, values }) => handle.prepare(text).all(...(values as Value[]));
}

/** A client of `pg`. A pool would run each statement on any of its connections. */
function pgSender(handle: Handle<"query">): Send {
  if (has(handle, "connect") && "totalCount" in handle) {
    throw notATransaction("the pool of pg", "the client that you began the transaction on");
  }
  const isIdle = () => has(handle, "getTransactionStatus") && handle.getTransactionStatus() === "I";
  return async ({ text, values }) => {
    // A `begin` may still be in flight. Once a later query is answered, it is not.
    if (isIdle()) await handle.query("");
    if (isIdle()) {
      throw notATransaction("a client of pg without a transaction", "it after you sent `begin`");
    }
    return rowsOf(await handle.query(text, values));
  };
}

/** A transaction of Kysely, without the plugins that would rename result columns. */
function kyselySender(handle: Handle<"executeQuery">): Send {
  if (!("isTransaction" in handle) || handle.isTransaction !== true) {
    throw notATransaction("Kysely itself", "the `trx` of its transaction()");
  }
  const plain = has(handle, "withoutPlugins")
    ? (handle.withoutPlugins() as Handle<"executeQuery">)
    : handle;
  return async ({ text, values }) =>
    rowsOf(
      await plain.executeQuery({
        sql: text,
        parameters: values,
        query: { kind: "RawNode", sqlFragments: [text], parameters: [] },
        queryId: { queryId: "flotilla" },
      }),
    );
}

/** A transaction of Drizzle. It accepts any object that returns a text and values. */
function drizzleSender(handle: Handle<"execute">): Send {
  if (!has(handle, "rollback")) {
    throw notATransaction("Drizzle itself", "the `tx` of its transaction()");
  }
  return async ({ text, values }) => {
    const asDrizzle = { toQuery: () => ({ sql: text, params: values }) };
    return rowsOf(await handle.execute({ getSQL: () => asDrizzle }));
  };
}

function rowsOf(answer: unknown): unknown[] {
  return Array.isArray(answer) ? answer : (answer as { rows: unknown[] }).rows;
}

function notATransaction(what: string, instead: string): FlotillaError {
  return new FlotillaError(
    "invalid_option",
    `\`tx\` is ${what}, which is no transaction: give ${instead}`,
  );
}

/** Some libraries wrap the driver's error in one that quotes the whole statement. */
function reasonOf(error: unknown): string {
  const cause = error instanceof Error ? error.cause : undefined;
  return messageOf(cause instanceof Error ? cause : error);
}
