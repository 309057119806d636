import { Worker } from "node:worker_threads";
import { FlotillaError } from "../../base/errors.ts";
import { threadFile } from "../../base/package-files.ts";
import type { Dialect } from "../sql.ts";
import type { ConnectionOptions, Table } from "./connection.ts";
import { sqliteDialect } from "./dialect.ts";
import type { Commits, ThreadHello, ThreadReply, ThreadRequest } from "./thread.ts";

/** The main thread's end of a database thread, whichever thread that is at the time. */
export type ThreadClient = {
  readonly dialect: Dialect;
  request(request: ThreadCall): Promise<Table[]>;
  close(): Promise<void>;
};

type Thread = ThreadClient & {
  /** False once the thread has died, with or without having been asked to. */
  readonly alive: boolean;
};

type ThreadCall = ThreadRequest extends infer Each
  ? Each extends unknown
    ? Omit<Each, "id">
    : never
  : never;

export type ThreadListeners = {
  /** The thread had to wait for others so long. */
  onContended?: (waitMs: number) => void;
  /** It has committed, or was asked to look. */
  onCommits?: (commits: Commits) => void;
};

// With what the thread adds to it, it is also how many share a commit.
const maxSentTogether = 128;

/** A thread that is started anew when it has died. What it was doing then has an unknown outcome. */
export async function createThreadClient(
  options: ConnectionOptions,
  listeners: ThreadListeners = {},
): Promise<ThreadClient> {
  let current = await startThread(options, listeners);
  let starting: Promise<Thread> | undefined;
  let closed = false;
  const restarted = (): Promise<Thread> =>
    (starting ??= startThread({ ...options, create: false }, listeners)
      .then((thread) => (current = thread))
      .finally(() => (starting = undefined)));
  return {
    dialect: current.dialect,
    request(request) {
      if (current.alive || closed) return current.request(request);
      return restarted().then((thread) => thread.request(request));
    },
    async close() {
      closed = true;
      // One that is being started would be nobody's, and hold the file.
      await starting?.catch(() => {});
      await current.close();
    },
  };
}

async function startThread(
  options: ConnectionOptions,
  { onContended, onCommits }: ThreadListeners,
): Promise<Thread> {
  const worker = new Worker(threadFile("sqlite-thread"), {
    workerData: options,
    // Flags of the program, such as --input-type, may make no sense for a file of ours. Node 22
    // would say in each thread that its SQLite is experimental.
    execArgv: ["--disable-warning=ExperimentalWarning"],
  });
  const waiting = new Map<
    number,
    { resolve: (tables: Table[]) => void; reject: (e: Error) => void }
  >();
  let lastId = 0;
  let unsent: ThreadRequest[] = [];
  let gone: FlotillaError | undefined;

  const hello = await new Promise<ThreadHello>((resolve, reject) => {
    worker.once("message", resolve);
    const died = (cause?: unknown) =>
      reject(
        new FlotillaError("store_unavailable", "the database thread couldn't start", { cause }),
      );
    worker.once("error", died);
    worker.once("exit", () => died());
  });
  if ("failed" in hello) {
    await worker.terminate();
    throw new FlotillaError(hello.failed.code, hello.failed.message, hello.failed.options);
  }

  worker.on("message", (replies: ThreadReply[]) => {
    for (const reply of replies) {
      const asked = waiting.get(reply.id);
      waiting.delete(reply.id);
      if (reply.contendedMs !== undefined) onContended?.(reply.contendedMs);
      if (reply.commits !== undefined) onCommits?.(reply.commits);
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

  const send = () => {
    const together = unsent;
    unsent = [];
    for (let from = 0; from < together.length; from += maxSentTogether)
      worker.postMessage(together.slice(from, from + maxSentTogether));
  };
  const ask = (request: ThreadCall): Promise<Table[]> => {
    if (gone) return Promise.reject(gone);
    const id = ++lastId;
    if (waiting.size === 0) worker.ref();
    // What is asked in one breath arrives together, and its writes share a commit.
    if (unsent.push({ id, ...request } as ThreadRequest) === 1) queueMicrotask(send);
    return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
  };
  return {
    dialect: sqliteDialect(hello.ready),
    get alive() {
      return gone === undefined;
    },
    request: ask,
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
