import type { Database, Row } from "../database.ts";
import { render } from "../sql.ts";
import { type ConnectionOptions, toObjects } from "./connection.ts";
import { keepThread, type Thread } from "./thread-client.ts";
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
  const hints = hintsOf(writer, commits);
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
    subscribe: hints.subscribe,
    close() {
      hints.close();
      return (closing ??= Promise.all([reader.close(), writer.close()]).then(() => {}));
    },
  };
}

/**
 * Tells our own commits from those of others: the version that a connection sees moves with every
 * commit but its own, so the thread that writes is asked.
 */
function hintsOf(writer: Thread, commits: ReturnType<typeof watchCommits>) {
  type Listener = (whose?: "own") => void;
  const listeners = new Set<Listener>();
  let stop: (() => void) | undefined;
  let seen: unknown;

  const version = (): Promise<unknown> =>
    writer.ask({ read: { text: "pragma data_version", values: [] } }).then(
      ([table]) => table!.rows[0]![0],
      // Not knowing is no reason to keep quiet.
      () => Symbol("unknown"),
    );
  const hint = async (): Promise<void> => {
    const current = await version();
    const own = current === seen;
    seen = current;
    for (const listener of listeners) listener(own ? "own" : undefined);
  };
  return {
    subscribe(listener: Listener): () => void {
      stop ??= commits.subscribe(() => void hint());
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    close() {
      listeners.clear();
      commits.close();
    },
  };
}
