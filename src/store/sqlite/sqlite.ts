import { Worker } from "node:worker_threads";
import { FlotillaError } from "../../base/errors.ts";
import type { Database, Row } from "../database.ts";
import { type Dialect, render } from "../sql.ts";
import { type ConnectionOptions, toObjects, type Table } from "./connection.ts";
import { sqliteDialect } from "./dialect.ts";
import type { ThreadHello, ThreadReply, ThreadRequest } from "./thread.ts";
import { watchCommits } from "./watch.ts";

/**
 * One SQLite file, shared by any number of processes: a thread that writes, a thread that reads, and
 * a watch on the write-ahead log that tells when any process has committed.
 */
export async function openSqlite(options: ConnectionOptions): Promise<Database> {
  const writer = await startThread(options);
  const reader = await startThread({ ...options, create: false }).catch(async (error: unknown) => {
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

type Thread = {
  readonly dialect: Dialect;
  ask(request: Ask): Promise<Table[]>;
  close(): Promise<void>;
};

type Ask = ThreadRequest extends infer Each
  ? Each extends unknown
    ? Omit<Each, "id">
    : never
  : never;

async function startThread(options: ConnectionOptions): Promise<Thread> {
  const file = import.meta.url.endsWith(".ts") ? "./thread.ts" : "./thread.js";
  const worker = new Worker(new URL(file, import.meta.url), { workerData: options });
  const waiting = new Map<
    number,
    { resolve: (tables: Table[]) => void; reject: (e: Error) => void }
  >();
  let lastId = 0;
  let gone: FlotillaError | undefined;

  const hello = await new Promise<ThreadHello>((resolve, reject) => {
    worker.once("message", resolve);
    worker.once("error", reject);
  });
  if ("failed" in hello) {
    await worker.terminate();
    throw new FlotillaError(hello.failed.code, hello.failed.message, hello.failed.options);
  }

  worker.on("message", (replies: ThreadReply[]) => {
    for (const reply of replies) {
      const asked = waiting.get(reply.id);
      waiting.delete(reply.id);
      if (reply.error) {
        const { code, message, options: rest } = reply.error;
        asked?.reject(new FlotillaError(code, message, rest));
      } else asked?.resolve(reply.tables ?? []);
    }
    // A program that only enqueues should end by itself when its work is done.
    if (waiting.size === 0) worker.unref();
  });
  const fail = (error: FlotillaError) => {
    gone = error;
    for (const asked of waiting.values()) asked.reject(error);
    waiting.clear();
  };
  worker.on("error", (error) =>
    fail(new FlotillaError("unknown_outcome", "the database thread died", { cause: error })),
  );
  worker.on("exit", () => fail(gone ?? new FlotillaError("closed", "the database was closed")));
  worker.unref();

  const ask = (request: Ask): Promise<Table[]> => {
    if (gone) return Promise.reject(gone);
    const id = ++lastId;
    if (waiting.size === 0) worker.ref();
    worker.postMessage({ id, ...request } as ThreadRequest);
    return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
  };
  return {
    dialect: sqliteDialect(hello.ready),
    ask,
    async close() {
      if (gone) return;
      const exited = new Promise((resolve) => worker.once("exit", resolve));
      await ask({ close: true }).catch(() => {});
      gone = new FlotillaError("closed", "the database was closed");
      worker.ref();
      await exited;
    },
  };
}
