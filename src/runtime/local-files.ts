import type { Clock } from "../base/clock.ts";
import type { Logger } from "../base/log.ts";
import { type IndexFiles, indexFilesIn } from "../dead-letters/index-files.ts";
import type { PayloadCodec } from "../store/codec/codec.ts";
import type { Database } from "../store/database.ts";
import { locateStore, storedTextOf } from "../store/open.ts";
import type { OutboxDisk } from "../tasks/finish/outbox.ts";
import type { LocalProgress } from "../tasks/run/local-progress.ts";
import type { PodSettings } from "./config.ts";
import { canBeWritten, dataFolderOf } from "./data-folder.ts";

type LocalFiles = { outboxDisk?: OutboxDisk; localProgress?: LocalProgress };

/**
 * The outbox of a pod whose store is on another machine. A SQLite store needs none: it is on the same
 * disk, so a disk failure would affect both.
 */
export async function outboxDiskFor(
  settings: PodSettings,
  database: Database,
  log: Logger,
): Promise<Pick<LocalFiles, "outboxDisk">> {
  const dataDir = outboxDirOf(settings, log);
  if (dataDir === undefined) return {};
  return openOutbox(settings, await dataFolderOf(dataDir, database), log);
}

function outboxDirOf({ store, dataDir }: PodSettings, log: Logger): string | undefined {
  if (dataDir === false || locateStore(store).kind === "sqlite") return undefined;
  if (canBeWritten(dataDir)) return dataDir;
  log.warn(
    { dataDir },
    "outbox disabled: dataDir isn't writable, unstored results are kept in memory only",
  );
  return undefined;
}

async function openOutbox(
  { codec }: PodSettings,
  folder: string | Promise<string>,
  log: Logger,
): Promise<Pick<LocalFiles, "outboxDisk">> {
  const { outboxFolder } = await import("../tasks/finish/outbox-files.ts");
  return { outboxDisk: outboxFolder(folder, log, storedTextOf({ codec, log })) };
}

/** The local progress store, if one of the handlers has `progress: "local"`. */
export async function localProgressFor(
  settings: PodSettings,
  database: Database,
  { clock, log }: { clock: Clock; log: Logger },
): Promise<Pick<LocalFiles, "localProgress">> {
  const dataDir = progressDirOf(settings, log);
  if (dataDir === undefined) return {};
  const { localProgress } = await import("../tasks/run/local-progress.ts");
  const folder = await dataFolderOf(dataDir, database);
  const text = storedTextOf({ codec: settings.codec, log });
  return { localProgress: localProgress(folder, { clock, log, text }) };
}

function progressDirOf({ use, dataDir }: PodSettings, log: Logger): string | undefined {
  if (!use.some((each) => "options" in each && each.options.progress === "local")) return undefined;
  if (dataDir !== false && canBeWritten(dataDir)) return dataDir;
  log.warn({ dataDir }, "local progress disabled: there is no writable dataDir");
  return undefined;
}

/**
 * The same files where the store, which names their folder, is away: `known` says which it is before the first
 * task is claimed.
 */
export async function lateFilesFor(
  settings: PodSettings,
  { clock, log }: { clock: Clock; log: Logger },
): Promise<{ files: LocalFiles; known: (database: Pick<Database, "read">) => Promise<void> }> {
  const outboxDir = outboxDirOf(settings, log);
  const progressDir = progressDirOf(settings, log);
  const outboxFolder = Promise.withResolvers<string>();
  const { localProgress } = await import("../tasks/run/local-progress.ts");
  let progress: LocalProgress | undefined;
  const text = storedTextOf({ codec: settings.codec, log });
  return {
    files: {
      ...(outboxDir !== undefined && (await openOutbox(settings, outboxFolder.promise, log))),
      ...(progressDir !== undefined && {
        localProgress: {
          save: (attempt, value) => progress?.save(attempt, value) ?? false,
          last: (taskId) => progress?.last(taskId),
          forget: (attempt) => progress?.forget(attempt),
          close: () => progress?.close(),
        },
      }),
    },
    async known(database) {
      if (outboxDir !== undefined) outboxFolder.resolve(await dataFolderOf(outboxDir, database));
      if (progressDir === undefined) return;
      const folder = await dataFolderOf(progressDir, database);
      progress ??= localProgress(folder, { clock, log, text });
    },
  };
}

/**
 * The files of the dead-letter index: in the data folder, if there is a writable one. It is grouped by the
 * texts of errors, so with a codec it is in memory only.
 */
export function deadLetterViews(
  { dataDir, codec }: { dataDir?: string | false; codec?: PayloadCodec | undefined },
  database: Database,
  log?: Logger,
): IndexFiles {
  const findFolder = async () =>
    dataDir && !codec && canBeWritten(dataDir) ? dataFolderOf(dataDir, database) : undefined;
  return indexFilesIn(findFolder, log);
}
