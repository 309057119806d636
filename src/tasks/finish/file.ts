import { existsSync, renameSync } from "node:fs";
import { hasCode } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { render, rows, sql, type Statement } from "../../store/sql.ts";
import { toObjects } from "../../store/sqlite/connection.ts";
import { keepThread, type KeptThread } from "../../store/sqlite/thread-client.ts";
import type { Finish } from "../sql/finish.ts";
import type { Entry, EntryKey } from "./disk.ts";

/** One file of kept endings. Whoever opens it holds its lock. */
export type OutboxFile = {
  all(): Promise<Entry[]>;
  write(kept: readonly Entry[], dropped: readonly EntryKey[]): Promise<void>;
  close(): Promise<void>;
};

/**
 * Opens a file on a thread of its own, since every write waits for the disk. One that is damaged is
 * set aside for people to look at: the tasks in it are run again, as if the disk had been lost.
 */
export async function openOutboxFile(path: string, log: Logger): Promise<OutboxFile> {
  try {
    return await open(path);
  } catch (error) {
    if (!hasCode(error, "store_corrupt") || !existsSync(path)) throw error;
    const aside = firstFree(path);
    for (const end of ["", "-wal", "-shm"]) {
      if (existsSync(`${path}${end}`)) renameSync(`${path}${end}`, `${aside}${end}`);
    }
    log.warn({ path, aside }, "an outbox was damaged and set aside: what it held is done again");
    return open(path);
  }
}

function firstFree(path: string): string {
  for (let number = 1; ; number++) {
    const aside = `${path}.damaged-${number}`;
    if (!existsSync(aside)) return aside;
  }
}

async function open(path: string): Promise<OutboxFile> {
  const thread = await keepThread({ path, durability: "full", create: true });
  const write = (statements: readonly Statement[]) =>
    thread.ask({ write: statements.map((each) => render(each, thread.dialect)) });
  try {
    await write([
      sql`create table if not exists finish (
        task_id text not null, token integer not null, pod_id text not null, finish text not null,
        primary key (task_id, token))`,
    ]);
    await check(thread);
  } catch (error) {
    await thread.close();
    throw error;
  }
  return {
    async all() {
      const select = sql`select pod_id, finish from finish order by task_id, token`;
      const [table] = await thread.ask({ read: render(select, thread.dialect) });
      return toObjects(table!).map((row) => ({
        podId: row["pod_id"] as string,
        finish: JSON.parse(row["finish"] as string) as Finish,
      }));
    },
    async write(kept, dropped) {
      await write([
        ...(dropped.length > 0 ? [forget(dropped)] : []),
        ...(kept.length > 0 ? [keep(kept)] : []),
      ]);
    },
    close: () => thread.close(),
  };
}

/** A page that is damaged shows only when somebody reads it, and that must not be in an outage. */
async function check(thread: KeptThread): Promise<void> {
  await thread.ask({ read: render(sql`select sum(length(finish)) from finish`, thread.dialect) });
}

function keep(entries: readonly Entry[]): Statement {
  const fresh = rows(
    { task_id: "text", token: "integer", pod_id: "text", finish: "text" },
    entries.map(({ podId, finish }) => [
      finish.taskId,
      finish.token,
      podId,
      JSON.stringify(finish),
    ]),
  );
  return sql`
    insert into finish (task_id, token, pod_id, finish)
    select task_id, token, pod_id, finish from ${fresh} fresh where true
    on conflict (task_id, token) do update set pod_id = excluded.pod_id, finish = excluded.finish`;
}

function forget(keys: readonly EntryKey[]): Statement {
  const gone = rows(
    { task_id: "text", token: "integer" },
    keys.map(({ taskId, token }) => [taskId, token]),
  );
  return sql`
    delete from finish where (task_id, token) in (select task_id, token from ${gone} gone)`;
}
