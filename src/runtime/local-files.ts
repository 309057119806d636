import type { Logger } from "../base/log.ts";
import type { OutboxDisk } from "../tasks/finish/outbox.ts";
import type { Database } from "../store/database.ts";
import { placeOf } from "../store/open.ts";
import type { Settings } from "./config.ts";
import { canBeWritten, dataFolderOf } from "./data-folder.ts";

/**
 * The outbox of a pod whose store is elsewhere. A store in a file is on this machine's disk itself: what
 * ails the one would ail the other.
 */
export async function outboxDiskFor(
  { store, dataDir }: Settings,
  database: Database,
  log: Logger,
): Promise<{ outboxDisk?: OutboxDisk }> {
  if (dataDir === false || placeOf(store).kind === "sqlite") return {};
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
