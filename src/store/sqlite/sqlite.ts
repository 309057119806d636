import { systemClock } from "../../base/clock.ts";
import { FlotillaError, tooManyReads } from "../../base/errors.ts";
import { createSemaphore } from "../../base/semaphore.ts";
import { sqliteTransaction } from "../caller-transaction.ts";
import type { Database, OnStoreEvent, Row } from "../database.ts";
import { render } from "../sql.ts";
import { type ConnectionOptions, toObjects } from "./connection.ts";
import { createCommitNotifications, watchCommits } from "./notifications.ts";
import { createPageReader } from "./page-reader.ts";
import { createThreadClient } from "./thread-client.ts";

const coldWaitMs = 30_000;

/**
 * One SQLite file, shared by any number of processes: a thread that writes, a thread that reads, one
 * more while pages are read, and a watch on the write-ahead log that reports commits of any process.
 */
export async function openSqlite(
  options: ConnectionOptions,
  { onEvent }: { onEvent?: OnStoreEvent } = {},
): Promise<Database> {
  const onContended = (waitMs: number) => onEvent?.({ type: "contended", cause: "busy", waitMs });
  const notifications = createCommitNotifications();
  const writer = await createThreadClient(options, { onContended, onCommits: notifications.seen });
  const opening = createThreadClient({ ...options, create: false }, { onContended });
  const reader = await opening.catch(async (error: unknown) => {
    await writer.close();
    throw error;
  });
  const pages = createPageReader({
    open: () => createThreadClient({ ...options, create: false }, { onContended }),
  });
  const commits = watchCommits(options.path, notifications.holdMs);
  const { dialect } = writer;
  const askThread = () =>
    void writer.request({ look: true }).catch(() => {
      // If the thread fails, assume that others have committed.
      notifications.seen({ own: false, others: true });
    });
  // One thread reads, in the order of calls: with one cold read in its queue at a time, no other
  // read waits for more than that.
  const cold = createSemaphore(1, { clock: systemClock, waitMs: coldWaitMs, late: tooManyReads });
  let watching = false;
  let closing: Promise<void> | undefined;

  return {
    recordsChanges: true,
    async read(statement, options = {}) {
      const query = render(statement, dialect);
      if (options.page) {
        if (closing) throw closedError();
        return toObjects(await pages.read(query, options.signal));
      }
      const ask = () => reader.request({ read: query });
      const [table] = await (options.cold ? cold.run(ask) : ask());
      return toObjects(table!);
    },
    async write(statements, { channels, lossy = false } = {}) {
      if (closing) throw closedError();
      const write = statements.map((each) => render(each, dialect));
      const tables = await notifications.around(writer.request({ write, lossy }));
      if (channels !== undefined) notifications.channels.notify(channels);
      return tables.map((table): Row[] => toObjects(table));
    },
    subscribe(listener, channel) {
      if (!watching) commits.subscribe(() => notifications.changed(askThread));
      watching = true;
      return notifications.subscribe(listener, channel);
    },
    within: sqliteTransaction,
    close() {
      notifications.close();
      commits.close();
      cold.refuse(closedError());
      // One after the other: of two that close at once neither is the last, and the last one
      // checkpoints the log into the file, so that the file alone is the whole store.
      return (closing ??= pages
        .close(closedError())
        .then(() => reader.close())
        .then(() => writer.close()));
    },
  };
}

function closedError(): FlotillaError {
  return new FlotillaError("closed", "the database was closed");
}
