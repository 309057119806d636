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

/**
 * The outbox of a pod whose store is on another machine. A SQLite store needs none: it is on the same
 * disk, so a disk failure would affect both.
 */
export async function outboxDiskFor(
  { store, dataDir, codec }: PodSettings,
  database: Database,
  log: Logger,
): Promise<{ outboxDisk?: OutboxDisk }> {
  if (dataDir === false || locateStore(store).kind === "sqlite") return {};
  if (!canBeWritten(dataDir)) {
    log.warn(
      { dataDir },
      "outbox disabled: dataDir isn't writable, unstored results are kept in memory only",
    );
    return {};
  }
  const { outboxFolder } = await import("../tasks/finish/outbox-files.ts");
  const folder = await dataFolderOf(dataDir, database);
  return { outboxDisk: outboxFolder(folder, log, storedTextOf({ codec, log })) };
}

/** The local progress store, if one of the handlers has `progress: "local"`. */
export async function localProgressFor(
  { use, dataDir, codec }: PodSettings,
  database: Database,
  { clock, log }: { clock: Clock; log: Logger },
): Promise<{ localProgress?: LocalProgress }> {
  if (!use.some((each) => "options" in each && each.options.progress === "local")) return {};
  if (dataDir === false || !canBeWritten(dataDir)) {
    log.warn({ dataDir }, "local progress disabled: there is no writable dataDir");
    return {};
  }
  const { localProgress } = await import("../tasks/run/local-progress.ts");
  const folder = await dataFolderOf(dataDir, database);
  const text = storedTextOf({ codec, log });
  return { localProgress: localProgress(folder, { clock, log, text }) };
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
