import { existsSync, mkdirSync, renameSync } from "node:fs";
import { join } from "node:path";
import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { StoredText } from "../../store/codec/codec.ts";
import { DatabaseSync } from "../../store/sqlite/driver.ts";
import { makePrivate } from "../../store/sqlite/private-file.ts";

/** The attempt that a progress value belongs to. */
export type ProgressKey = { readonly taskId: string; readonly token: number };

/** Progress saved on this machine every time, for tasks that save often and must not lose it. */
export type LocalProgress = {
  /** Returns whether the value was saved. */
  save(attempt: ProgressKey, value: string): boolean;
  last(taskId: string): (Pick<ProgressKey, "token"> & { readonly value: string }) | undefined;
  /** Drops the value of a task that has ended or went to another pod. */
  forget(attempt: ProgressKey): void;
  close(): void;
};

// Tasks that ended on other machines leave their progress behind.
const keptMs = 30 * 24 * 60 * 60_000;
// Several processes may share the file; each locks it for a moment.
const busyTimeoutMs = 200;
const damaged = [11, 26];

/**
 * One file for all processes that share a folder, so that any of them can resume a task. A kill
 * loses nothing. A power cut may lose the last saves, because a save does not wait for the disk.
 */
export function localProgress(
  folder: string,
  { clock, log, text }: { clock: Clock; log: Logger; text?: StoredText | undefined },
): LocalProgress {
  const path = join(folder, "progress.db");
  let opened: ReturnType<typeof open> | undefined;
  let failing = false;

  const attempted = <Result>(work: (file: ReturnType<typeof open>) => Result) => {
    try {
      opened ??= openOrSetAside(path, folder, clock.now() - keptMs, log);
      const result = work(opened);
      failing = false;
      return result;
    } catch (error) {
      if (!failing) {
        const fields = { path, error: messageOf(error) };
        log.warn(fields, "local progress failed, kept in the store only");
      }
      failing = true;
      return undefined;
    }
  };

  return {
    save({ taskId, token }, given) {
      const value = text?.encode(given) ?? given;
      return attempted(({ put }) => put.run(taskId, token, value, clock.now())) !== undefined;
    },
    last(taskId) {
      if (!opened && !existsSync(path)) return undefined;
      const row = attempted(({ get }) => get.get(taskId));
      if (!row) return undefined;
      const value = String(row["value"]);
      return { token: Number(row["token"]), value: text?.decode(value) ?? value };
    },
    forget({ taskId, token }) {
      if (!opened) return;
      attempted(({ drop }) => drop.run(taskId, token));
    },
    close() {
      opened?.db.close();
      opened = undefined;
    },
  };
}

function open(path: string, olderThanMs: number) {
  makePrivate(path);
  const db = new DatabaseSync(path, { timeout: busyTimeoutMs });
  try {
    db.exec("pragma journal_mode = wal; pragma synchronous = normal");
    db.exec(`create table if not exists progress (
      task_id text primary key, token integer not null, value text not null, at integer not null)`);
    db.prepare("delete from progress where at < ?").run(olderThanMs);
    return {
      db,
      put: db.prepare(`insert into progress (task_id, token, value, at) values (?, ?, ?, ?)
        on conflict (task_id) do update set token = excluded.token, value = excluded.value,
          at = excluded.at where excluded.token >= progress.token`),
      get: db.prepare("select token, value from progress where task_id = ?"),
      drop: db.prepare("delete from progress where task_id = ? and token <= ?"),
    };
  } catch (error) {
    db.close();
    throw error;
  }
}

/** A damaged file is renamed, and tasks resume from what the store has. */
function openOrSetAside(path: string, folder: string, olderThanMs: number, log: Logger) {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  try {
    return open(path, olderThanMs);
  } catch (error) {
    const code = error instanceof Error && "errcode" in error ? Number(error.errcode) & 0xff : 0;
    if (!damaged.includes(code)) throw error;
    for (const end of ["", "-wal", "-shm"]) {
      if (existsSync(`${path}${end}`)) renameSync(`${path}${end}`, `${path}.damaged${end}`);
    }
    log.warn({ path }, "local progress file damaged and renamed");
    return open(path, olderThanMs);
  }
}
