import { Worker } from "node:worker_threads";
import { FlotillaError } from "../../base/errors.ts";
import { threadFile } from "../../base/package-files.ts";
import type { Dialect } from "../sql.ts";
import type { ConnectionOptions, Table } from "./connection.ts";
import { sqliteDialect } from "./dialect.ts";
import type { Commits, ThreadHello, ThreadReply, ThreadRequest } from "./thread.ts";

/** The main thread's client of a database thread, which may be restarted. */
export type ThreadClient = {
  readonly dialect: Dialect;
  request(request: ThreadCall): Promise<Table[]>;
  close(): Promise<void>;
};

type Thread = ThreadClient & {
  /** False once the thread has died, whether or not it was asked to. */
  readonly alive: boolean;
};

type ThreadCall = ThreadRequest extends infer Each
  ? Each extends unknown
    ? Omit<Each, "id">
    : never
  : never;

export type ThreadListeners = {
  /** The thread waited this long for locks. */
  onContended?: (waitMs: number) => void;
  /** The thread has committed, or was asked to look. */
  onCommits?: (commits: Commits) => void;
};

// Together with `maxSharedCommit` of the thread, this bounds how many share a commit.
const maxSentTogether = 128;

/**
 * A client whose thread is restarted after it has died. Requests in progress then have an unknown
 * outcome.
 */
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
      // A thread that is starting would be left without an owner, and hold the file.
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
    // Flags of the program, such as --input-type, may not fit this file. Node 22 would warn in each
    // thread that its SQLite is experimental.
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
      const pending = waiting.get(reply.id);
      waiting.delete(reply.id);
      if (reply.contendedMs !== undefined) onContended?.(reply.contendedMs);
      if (reply.commits !== undefined) onCommits?.(reply.commits);
      if (reply.error) {
        const { code, message, options: rest } = reply.error;
        pending?.reject(new FlotillaError(code, message, rest));
      } else pending?.resolve(reply.tables ?? []);
    }
    // A program that only enqueues should end by itself when its work is done.
    if (waiting.size === 0) worker.unref();
  });
  const fail = (error: FlotillaError) => {
    gone = error;
    for (const pending of waiting.values()) pending.reject(error);
    waiting.clear();
  };
  worker.on("error", (error) =>
    fail(new FlotillaError("unknown_outcome", "the database thread died", { cause: error })),
  );
  worker.on("exit", () => fail(gone ?? new FlotillaError("closed", "the database was closed")));
  worker.unref();

  const send = () => {
    const batch = unsent;
    unsent = [];
    for (let from = 0; from < batch.length; from += maxSentTogether)
      worker.postMessage(batch.slice(from, from + maxSentTogether));
  };
  const ask = (request: ThreadCall): Promise<Table[]> => {
    if (gone) return Promise.reject(gone);
    const id = ++lastId;
    if (waiting.size === 0) worker.ref();
    // Requests of the same tick arrive together, and their writes share a commit.
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
