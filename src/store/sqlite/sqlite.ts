import type { Database, Row } from "../database.ts";
import { render } from "../sql.ts";
import { type ConnectionOptions, toObjects } from "./connection.ts";
import { keepThread } from "./thread-client.ts";
import { watchCommits } from "./watch.ts";

/**
 * One SQLite file, shared by any number of processes: a thread that writes, a thread that reads, and
 * a watch on the write-ahead log that tells when any process has committed.
 */
export async function openSqlite(options: ConnectionOptions): Promise<Database> {
  const writer = await keepThread(options);
  const reader = await keepThread({ ...options, create: false }).catch(async (error: unknown) => {
    await writer.close();
    throw error;
  });
  const commits = watchCommits(options.path);
  const { dialect } = writer;
  let closing: Promise<void> | undefined;

  return {
    async read(statement) {
      const [table] = await reader.ask({ read: render(statement, dialect) });
      return toObjects(table!);
    },
    async write(statements) {
      const tables = await writer.ask({ write: statements.map((each) => render(each, dialect)) });
      return tables.map((table): Row[] => toObjects(table));
    },
    subscribe: commits.subscribe,
    close() {
      commits.close();
      return (closing ??= Promise.all([reader.close(), writer.close()]).then(() => {}));
    },
  };
}
