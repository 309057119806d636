import { existsSync, mkdirSync, readdirSync, renameSync } from "node:fs";
import { join } from "node:path";
import { FlotillaError, hasCode, messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { parseStored, type StoredText } from "../../store/codec/codec.ts";
import { encodeContent, render, rows, sql, type Statement } from "../../store/sql.ts";
import { toObjects } from "../../store/sqlite/connection.ts";
import { DatabaseSync } from "../../store/sqlite/driver.ts";
import { isBusy } from "../../store/sqlite/errors.ts";
import { makePrivate } from "../../store/sqlite/private-file.ts";
import { createThreadClient, type ThreadClient } from "../../store/sqlite/thread-client.ts";
import type { TaskStep } from "../sql/steps.ts";
import {
  isKeptStep,
  type Kept,
  type OutboxDisk,
  type OutboxEntry,
  type OutboxKey,
} from "./outbox.ts";

/** One file of kept outcomes. Its opener holds the lock. */
export type OutboxFile = {
  all(): Promise<OutboxEntry[]>;
  write(kept: readonly OutboxEntry[], dropped: readonly OutboxKey[]): Promise<void>;
  close(): Promise<void>;
};

type Own = { readonly number: number; readonly file: OutboxFile; release(): void };

// More processes on one folder than this is a mistake, and scanning all files takes time.
const maxFiles = 100;

/**
 * Outboxes in a folder that several processes may share. Each live process has its own file and
 * holds its lock. The next process that starts takes over the files of dead ones.
 */
export function outboxFolder(
  /** A promise where the store says later which folder it is. */
  given: string | Promise<string>,
  log: Logger,
  text?: StoredText,
): OutboxDisk {
  let own: Promise<Own> | undefined;

  const take = async (folder: string, number: number): Promise<Own | undefined> => {
    const path = join(folder, `outbox-${number}.db`);
    const lock = lockFile(join(folder, `outbox-${number}.lock`));
    if (!lock) return undefined;
    try {
      return { number, file: await openOutboxFile(path, log, text), release: lock.release };
    } catch (error) {
      lock.release();
      throw error;
    }
  };

  const closeFile = async ({ file, release }: Own): Promise<void> => {
    await file.close();
    release();
  };

  const openOwn = async (): Promise<Own> => {
    const folder = await given;
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    for (let number = 1; number <= maxFiles; number++) {
      const taken = await take(folder, number);
      if (taken) return taken;
    }
    throw new FlotillaError(
      "overloaded",
      `${maxFiles} processes already keep results in ${folder}: give some of them another dataDir`,
    );
  };

  const opened = (): Promise<Own> =>
    (own ??= openOwn().catch((error: unknown) => {
      own = undefined;
      throw error;
    }));

  /**
   * Moves the entries of a dead process to this process's file. A crash in between leaves them in
   * both files.
   */
  const adopt = async (folder: string, number: number, into: OutboxFile): Promise<void> => {
    const left = await take(folder, number);
    if (!left) return;
    try {
      const entries = await left.file.all();
      if (entries.length === 0) return;
      await into.write(entries, []);
      await left.file.write(
        [],
        entries.map(({ finish }) => finish),
      );
    } finally {
      await closeFile(left);
    }
  };

  return {
    async takeOver(): Promise<OutboxEntry[]> {
      const folder = await given;
      const numbers = filesIn(folder);
      if (numbers.length === 0) return [];
      const { number: ours, file } = await opened();
      for (const number of numbers) {
        if (number === ours) continue;
        await adopt(folder, number, file).catch((error: unknown) => {
          log.warn({ folder, number, error: messageOf(error) }, "outbox takeover failed");
        });
      }
      return file.all();
    },
    async write(kept, dropped) {
      const { file } = await opened();
      await file.write(kept, dropped);
    },
    async close() {
      const opened = await own?.catch(() => undefined);
      own = undefined;
      if (opened) await closeFile(opened);
    },
  };
}

/**
 * Opens a file on its own thread, because every write waits for the disk. A damaged file is renamed
 * and kept for inspection. Its tasks run again, as if the disk had been lost.
 */
export async function openOutboxFile(
  path: string,
  log: Logger,
  text?: StoredText,
): Promise<OutboxFile> {
  try {
    return await open(path, text);
  } catch (error) {
    if (!hasCode(error, "store_corrupt") || !existsSync(path)) throw error;
    const aside = firstFree(path);
    for (const end of ["", "-wal", "-shm"]) {
      if (existsSync(`${path}${end}`)) renameSync(`${path}${end}`, `${aside}${end}`);
    }
    log.warn({ path, aside }, "outbox file damaged and renamed, its tasks run again");
    return open(path, text);
  }
}

/**
 * Locks a file for the lifetime of this process; undefined if another process holds it. SQLite's
 * lock ends with the process, however that ends, so no process has to guess whether another is
 * alive.
 */
export function lockFile(path: string): { release(): void } | undefined {
  makePrivate(path);
  const db = new DatabaseSync(path, { timeout: 0 });
  try {
    db.exec("begin exclusive");
  } catch (error) {
    db.close();
    if (isBusy(error)) return undefined;
    throw error;
  }
  return { release: () => db.close() };
}

function filesIn(folder: string): number[] {
  if (!existsSync(folder)) return [];
  const numbers = readdirSync(folder).map((name) => /^outbox-(\d+)\.db$/.exec(name)?.[1]);
  return numbers
    .flatMap((number) => (number === undefined ? [] : [Number(number)]))
    .toSorted((one, other) => one - other);
}

function firstFree(path: string): string {
  for (let number = 1; ; number++) {
    const aside = `${path}.damaged-${number}`;
    if (!existsSync(aside)) return aside;
  }
}

async function open(path: string, text: StoredText | undefined): Promise<OutboxFile> {
  const thread = await createThreadClient({ path, durability: "full", create: true });
  const encoded = (each: Statement) => (text ? encodeContent(each, text.encode) : each);
  const write = (statements: readonly Statement[]) =>
    thread.request({ write: statements.map((each) => render(encoded(each), thread.dialect)) });
  try {
    await write([
      sql`create table if not exists finish (
        task_id text not null, token integer not null, pod_id text not null, finish text not null,
        primary key (task_id, token))`,
      sql`create table if not exists step (
        task_id text not null, token integer not null, seq integer not null, pod_id text not null,
        step text not null, primary key (task_id, token, seq))`,
    ]);
    await check(thread);
  } catch (error) {
    await thread.close();
    throw error;
  }
  return {
    async all() {
      const decoded = (stored: string) => text?.decode(stored) ?? stored;
      const select = sql`
        select pod_id, step as finish from (
          select pod_id, step from step order by task_id, token, seq)
        union all
        select pod_id, finish from (select pod_id, finish from finish order by task_id, token)`;
      const [table] = await thread.request({ read: render(select, thread.dialect) });
      return toObjects(table!).map((row) => ({
        podId: row["pod_id"] as string,
        finish: parseStored(decoded(row["finish"] as string)) as Kept,
      }));
    },
    async write(kept, dropped) {
      const finishes = kept.filter(({ finish }) => !isKeptStep(finish));
      const steps = kept.filter(({ finish }) => isKeptStep(finish));
      await write([
        ...(dropped.length > 0 ? forget(dropped) : []),
        ...(finishes.length > 0 ? [keep(finishes)] : []),
        ...(steps.length > 0 ? [keepSteps(steps)] : []),
      ]);
    },
    close: () => thread.close(),
  };
}

/** A damaged page is detected only when it is read, and that must not happen during an outage. */
async function check(thread: ThreadClient): Promise<void> {
  await thread.request({
    read: render(
      sql`select sum(length(finish)), (select sum(length(step)) from step) from finish`,
      thread.dialect,
    ),
  });
}

function keep(entries: readonly OutboxEntry[]): Statement {
  const fresh = rows(
    { task_id: "text", token: "integer", pod_id: "text", finish: "content" },
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

function keepSteps(entries: readonly OutboxEntry[]): Statement {
  const fresh = rows(
    { task_id: "text", token: "integer", seq: "integer", pod_id: "text", step: "content" },
    entries.map(({ podId, finish: kept }) => {
      const { taskId, token, step } = kept as TaskStep;
      return [taskId, token, step.seq, podId, JSON.stringify(kept)];
    }),
  );
  return sql`
    insert into step (task_id, token, seq, pod_id, step)
    select task_id, token, seq, pod_id, step from ${fresh} fresh where true
    on conflict (task_id, token, seq) do update set pod_id = excluded.pod_id, step = excluded.step`;
}

function forget(keys: readonly OutboxKey[]): Statement[] {
  const finishes = rows(
    { task_id: "text", token: "integer" },
    keys.filter(({ step }) => !step).map(({ taskId, token }) => [taskId, token]),
  );
  const steps = rows(
    { task_id: "text", token: "integer", seq: "integer" },
    keys.flatMap(({ taskId, token, step }) => (step ? [[taskId, token, step.seq]] : [])),
  );
  return [
    sql`delete from finish where (task_id, token) in (select task_id, token from ${finishes} gone)`,
    sql`
      delete from step
      where (task_id, token, seq) in (select task_id, token, seq from ${steps} gone)`,
  ];
}
