import { FlotillaError } from "../../base/errors.ts";
import { checkWanted, type Database } from "../database.ts";
import { channelListeners } from "../notifications.ts";
import { render, sql } from "../sql.ts";
import {
  type SqliteConnection,
  type ConnectionOptions,
  openConnection,
  toObjects,
} from "./connection.ts";

/**
 * A database on the caller's own thread: for tests and simulations, which control every step, and
 * for threads that have nothing else to do.
 */
export function inlineDatabase(connection: SqliteConnection): Database {
  const listeners = new Set<() => void>();
  const channels = channelListeners();
  let open = true;
  const checkOpen = () => {
    if (!open) throw new FlotillaError("closed", "the database was closed");
  };
  return {
    recordsChanges: true,
    async read(statement, { page = false, signal } = {}) {
      checkOpen();
      if (page) checkWanted(signal);
      return toObjects(connection.read(render(statement, connection.dialect)));
    },
    async write(statements, { notify = false, channels: channelNames } = {}) {
      checkOpen();
      const queries = statements.map((each) => render(each, connection.dialect));
      const outcome = connection.commit([queries])[0]!;
      if ("error" in outcome) throw outcome.error;
      if (notify || channelNames === undefined) for (const listener of listeners) listener();
      if (channelNames !== undefined) channels.notify(channelNames);
      return outcome.tables.map(toObjects);
    },
    subscribe(listener, channel) {
      if (channel !== undefined) return channels.add(channel, listener);
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    within() {
      throw new FlotillaError(
        "invalid_option",
        "`tx`: a store in memory can't be shared with a connection of yours: use a file or Postgres",
      );
    },
    async close() {
      if (!open) return;
      open = false;
      connection.close();
    },
  };
}

/** A store in memory that uses the given clock. It is gone when it is closed. */
export function memoryDatabase(clock: { now(): number }): Database {
  return inlineDatabase(openConnection({ path: ":memory:", nowMs: () => clock.now() }));
}

/** An inline database that reconnects after a failure, so that transient errors pass. */
export function reconnectingInline(options: ConnectionOptions): Database {
  const connect = () => inlineDatabase(openConnection(options));
  let current = connect();
  const replacing = async <Answer>(ask: (database: Database) => Promise<Answer>) => {
    try {
      return await ask(current);
    } catch (error) {
      await current.close().catch(() => {});
      current = connect();
      throw error;
    }
  };
  return {
    read: (statement) => replacing((database) => database.read(statement)),
    write: (statements, options) => replacing((database) => database.write(statements, options)),
    subscribe: (listener, channel) => current.subscribe(listener, channel),
    within: (handle) => current.within(handle),
    close: () => current.close(),
  };
}

/** How many rows the connection has changed so far. */
export async function totalChanges(database: Database): Promise<number> {
  const [row] = await database.read(sql`select total_changes() as changes`);
  return Number(row!["changes"]);
}
