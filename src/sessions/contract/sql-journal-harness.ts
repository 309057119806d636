import { afterAll, beforeAll } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import type { Database, Row } from "../../store/database.ts";
import type { OpenStore, StoreKind } from "../../store/contract/database.ts";
import { migrate } from "../../store/migrate.ts";
import { sql, table } from "../../store/sql.ts";
import type { Journal, LogRecord } from "../log/journal.ts";
import { all, entry, header, record, startedTask, take, turn } from "./journal-harness.ts";
import { createSqlJournal } from "../log/sql-journal.ts";

/** What becomes of the next write: its answer is lost after or before it is stored, or it comes late. */
export type Trouble = "after" | "before" | "late" | undefined;

/** A journal in SQL whose answers can be lost, and a sound one on the same store. */
export function createSqlJournalHarness(kind: StoreKind, ids: Ids) {
  let store: OpenStore;
  let journal: Journal;
  let sound: Journal;
  let late: () => Promise<Row[][]>;
  let logs = 0;

  const troubled = (database: Database): Database => ({
    ...database,
    async write(statements) {
      const { trouble } = scene;
      scene.trouble = undefined;
      scene.sent = statements.length;
      scene.writes++;
      if (trouble === undefined) return database.write(statements);
      if (trouble === "after") await database.write(statements);
      if (trouble === "late") late = () => database.write(statements);
      throw new FlotillaError("unknown_outcome", "the answer was lost");
    },
  });

  beforeAll(async () => {
    store = await kind.open();
    await migrate(store.database);
    journal = createSqlJournal({ database: troubled(store.database), ids });
    sound = createSqlJournal({ database: store.database, ids });
    await sound.create(64);
  });
  afterAll(async () => {
    await store.database.close();
    await store.remove();
  });

  const scene = {
    trouble: undefined as Trouble,
    /** How many statements the last write had. */
    sent: 0,
    /** How many writes there were. */
    writes: 0,
    get store() {
      return store;
    },
    get journal() {
      return journal;
    },
    get sound() {
      return sound;
    },
    nextLog: () => logs++,
    own: (podId?: string) => take(sound, logs++, podId),
    /** Lets the write arrive that is late. */
    land: () => late(),

    usersOf: (sessionId: string) =>
      store.database.read(sql`
        select user_id, tenant, read_seq from ${table("session_user")}
        where session_id = ${sessionId} order by user_id`),

    async metadataOf(sessionId: string): Promise<string | null | undefined> {
      const [row] = await store.database.read(
        sql`select metadata from ${table("session")} where session_id = ${sessionId}`,
      );
      return row?.["metadata"];
    },

    /** The tasks that its records have started. */
    async tasksOf(sessionId: string): Promise<string[]> {
      const found = await store.database.read(sql`
        select task.task_id from ${table("link")} link
        join ${table("task")} task on task.task_id = link.to_id
        where link.from_id = ${sessionId} order by task.task_id`);
      return found.map((row) => row["task_id"] as string);
    },

    everythingOf: async (sessionId: string) => ({
      ...(await all(sound, sessionId)),
      tasks: await scene.tasksOf(sessionId),
      users: await scene.usersOf(sessionId),
      metadata: await scene.metadataOf(sessionId),
    }),
  };
  return scene;
}

/** A record with something of everything. */
export function rich(
  sessionId: string,
  seq: number,
  users: readonly string[] = ["ada"],
): LogRecord {
  const work = turn({ epoch: seq });
  return record({
    entries: [entry(sessionId, seq)],
    headers: [header(sessionId, { lastSeq: seq, epoch: seq, work, users })],
    metadata: [{ sessionId, metadata: `{"seq":${seq}}` }],
    reads: users.map((user) => ({ sessionId, user, seq })),
    checkpoints: [{ sessionId, epoch: seq, attempt: 1, body: `${seq}` }],
    tasks: [startedTask(sessionId, `${sessionId}/task-${seq}`)],
  });
}
