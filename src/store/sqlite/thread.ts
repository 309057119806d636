import { parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { FlotillaError, type FlotillaErrorOptions, messageOf } from "../../base/errors.ts";
import type { Query } from "../sql.ts";
import {
  type SqliteConnection,
  type ConnectionOptions,
  openConnection,
  type Table,
} from "./connection.ts";

/**
 * The thread that holds a connection, so that an fsync never blocks the event loop. All requests
 * that arrive during a commit share the next one.
 */
export type ThreadRequest = { id: number } & (
  | { read: Query }
  | { write: readonly Query[]; lossy?: boolean }
  /** Only asks whether others have committed, which every answer to a write says too. */
  | { look: true }
  | { close: true }
);

export type ThreadReply = {
  id: number;
  tables?: Table[];
  error?: { code: FlotillaError["code"]; message: string; options: FlotillaErrorOptions };
  /** How long the connection waited for locks; set on one reply of a batch. */
  contendedMs?: number;
  /** Set on one reply of a batch with a commit or a look. */
  commits?: Commits;
};

/** Who has committed since the last report. */
export type Commits = { readonly own: boolean; readonly others: boolean };

export type ThreadHello =
  | { ready: { jsonbEach: boolean } }
  | { failed: NonNullable<ThreadReply["error"]> };

// Bounds how long the first caller of a commit waits for the last. No requests are added beyond
// this.
const maxSharedCommit = 256;

const port = parentPort;
if (port) serve(port, workerData as ConnectionOptions);

function serve(parent: NonNullable<typeof parentPort>, options: ConnectionOptions): void {
  let connection: SqliteConnection;
  try {
    connection = openConnection(options);
  } catch (error) {
    parent.postMessage({ failed: portable(error) } satisfies ThreadHello);
    parent.close();
    return;
  }
  parent.postMessage({ ready: { jsonbEach: connection.jsonbEach } } satisfies ThreadHello);

  parent.on("message", (first: ThreadRequest[]) => {
    const requests = first;
    while (requests.length < maxSharedCommit) {
      const next = receiveMessageOnPort(parent) as { message: ThreadRequest[] } | undefined;
      if (!next) break;
      requests.push(...next.message);
    }
    parent.postMessage(answer(connection, requests));
    if (requests.some((request) => "write" in request)) connection.touchLog();
    if (requests.some((request) => "close" in request)) {
      connection.close();
      parent.close();
    }
  });
}

function answer(connection: SqliteConnection, requests: ThreadRequest[]): ThreadReply[] {
  const replies: ThreadReply[] = [];
  const writes: { id: number; queries: readonly Query[] }[] = [];
  for (const request of requests) {
    if ("write" in request) writes.push({ id: request.id, queries: request.write });
    else if ("read" in request) replies.push({ id: request.id, ...read(connection, request.read) });
    else replies.push({ id: request.id });
  }
  if (writes.length > 0) {
    // What is committed together is flushed if one of them asks for it.
    const lossy = requests.every((request) => !("write" in request) || request.lossy === true);
    const outcomes = connection.commit(
      writes.map((write) => write.queries),
      { lossy },
    );
    outcomes.forEach((outcome, at) => {
      const { id } = writes[at]!;
      replies.push(
        "error" in outcome
          ? { id, error: portable(outcome.error) }
          : { id, tables: outcome.tables },
      );
    });
  }
  const own = writes.length > 0;
  if (own || requests.some((request) => "look" in request)) {
    replies[0]!.commits = { own, others: connection.othersCommitted() };
  }
  const contendedMs = connection.contendedMs();
  if (contendedMs !== undefined) replies[0]!.contendedMs = contendedMs;
  return replies;
}

function read(connection: SqliteConnection, query: Query): Omit<ThreadReply, "id"> {
  try {
    return { tables: [connection.read(query)] };
  } catch (error) {
    return { error: portable(error) };
  }
}

/** Errors lose their class between threads, so their fields are sent as data. */
function portable(error: unknown): NonNullable<ThreadReply["error"]> {
  if (!(error instanceof FlotillaError)) {
    return { code: "internal", message: messageOf(error), options: {} };
  }
  const options = error.details ? { details: error.details } : {};
  return { code: error.code, message: error.message, options };
}
