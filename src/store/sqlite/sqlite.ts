import { FlotillaError } from "../../base/errors.ts";
import type { Database, Row } from "../database.ts";
import type { OnStoreEvent } from "../events.ts";
import { mailListeners } from "../mail-hints.ts";
import { render } from "../sql.ts";
import { sqliteTransaction } from "../transaction.ts";
import { type ConnectionOptions, toObjects } from "./connection.ts";
import { keepThread, type KeptThread } from "./thread-client.ts";
import { watchCommits } from "./watch.ts";

/**
 * One SQLite file, shared by any number of processes: a thread that writes, a thread that reads, and
 * a watch on the write-ahead log that tells when any process has committed.
 */
export async function openSqlite(
  options: ConnectionOptions,
  { onEvent }: { onEvent?: OnStoreEvent } = {},
): Promise<Database> {
  const onContended = (waitMs: number) => onEvent?.({ type: "contended", cause: "busy", waitMs });
  const writer = await keepThread(options, onContended);
  const opening = keepThread({ ...options, create: false }, onContended);
  const reader = await opening.catch(async (error: unknown) => {
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
    async write(statements, { mail } = {}) {
      if (closing) throw new FlotillaError("closed", "the database was closed");
      const write = statements.map((each) => render(each, dialect));
      const tables = await hints.around(writer.ask({ write }));
      if (mail !== undefined) hints.mail.tell(mail);
      return tables.map((table): Row[] => toObjects(table));
    },
    subscribe: hints.subscribe,
    within: sqliteTransaction,
    close() {
      hints.close();
      // One after the other: of two that close at once neither is the last, and the last one is who
      // puts the log into the file, so that the file alone is the whole store.
      return (closing ??= reader.close().then(() => writer.close()));
    },
  };
}

/**
 * Tells our own commits from those of others. The version that a connection sees moves with every
 * commit but its own, so the thread that writes is asked, unless it hasn't written.
 */
function hintsOf(writer: KeptThread, commits: ReturnType<typeof watchCommits>) {
  type Listener = (whose?: "own") => void;
  const listeners = new Set<Listener>();
  const mail = mailListeners();
  let watching = false;
  let seen: unknown;
  /** Whether a write of ours was under way since the last hint. */
  let wrote = false;

  const version = (): Promise<unknown> =>
    writer.ask({ read: { text: "pragma data_version", values: [] } }).then(
      ([table]) => table!.rows[0]![0],
      // Not knowing is no reason to keep quiet.
      () => Symbol("unknown"),
    );
  const tell = (whose?: "own") => {
    for (const listener of listeners) listener(whose);
    // Which of our own writes carry letters is known, and whom they are for. Of others' it isn't.
    if (whose !== "own") mail.tell();
  };
  const hint = async (): Promise<void> => {
    // Asked before anybody is told: what a listener then writes can't have seen less than this.
    const asked = version();
    const surelyOthers = !wrote;
    wrote = false;
    if (surelyOthers) tell();
    const current = await asked;
    const own = current === seen;
    seen = current;
    if (!surelyOthers) tell(own ? "own" : undefined);
  };
  return {
    mail,
    subscribe(listener: Listener, mailOf?: string): () => void {
      if (!watching) commits.subscribe(() => void hint());
      watching = true;
      if (mailOf !== undefined) return mail.add(mailOf, listener);
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    around<Answer>(write: Promise<Answer>): Promise<Answer> {
      wrote = true;
      return write.finally(() => {
        wrote = true;
      });
    },
    close() {
      listeners.clear();
      mail.clear();
      commits.close();
    },
  };
}
