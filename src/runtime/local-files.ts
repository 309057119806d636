import type { Clock } from "../base/clock.ts";
import type { Logger } from "../base/log.ts";
import { type IndexFiles, indexFilesIn } from "../dead-letters/index-files.ts";
import type { Database } from "../store/database.ts";
import { locateStore } from "../store/open.ts";
import type { OutboxDisk } from "../tasks/finish/outbox.ts";
import type { LocalProgress } from "../tasks/run/local-progress.ts";
import type { PodSettings } from "./config.ts";
import { canBeWritten, dataFolderOf } from "./data-folder.ts";

/**
 * The outbox of a pod whose store is elsewhere. A store in a file is on this machine's disk itself: what
 * ails the one would ail the other.
 */
export async function outboxDiskFor(
  { store, dataDir }: PodSettings,
  database: Database,
  log: Logger,
): Promise<{ outboxDisk?: OutboxDisk }> {
  if (dataDir === false || locateStore(store).kind === "sqlite") return {};
  if (!canBeWritten(dataDir)) {
    log.warn(
      { dataDir },
      "no outbox: the folder can't be written, so results that can't be stored are kept in memory only",
    );
    return {};
  }
  const { outboxFolder } = await import("../tasks/finish/outbox-files.ts");
  return { outboxDisk: outboxFolder(await dataFolderOf(dataDir, database), log) };
}

/** Where this machine keeps progress, if one of the handlers asks for that. */
export async function localProgressFor(
  { use, dataDir }: PodSettings,
  database: Database,
  { clock, log }: { clock: Clock; log: Logger },
): Promise<{ localProgress?: LocalProgress }> {
  if (!use.some((each) => "options" in each && each.options.progress === "local")) return {};
  if (dataDir === false || !canBeWritten(dataDir)) {
    log.warn({ dataDir }, "progress isn't kept on this machine: it has no folder for it");
    return {};
  }
  const { localProgress } = await import("../tasks/run/local-progress.ts");
  return { localProgress: localProgress(await dataFolderOf(dataDir, database), { clock, log }) };
}

/** Where this machine keeps its view of failed tasks: in its folder, if it has one that can be written. */
export function deadLetterViews(
  dataDir: string | false | undefined,
  database: Database,
  log?: Logger,
): IndexFiles {
  const findFolder = async () =>
    dataDir && canBeWritten(dataDir) ? dataFolderOf(dataDir, database) : undefined;
  return indexFilesIn(findFolder, log);
}
