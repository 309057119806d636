import type { Logger } from "../base/log.ts";
import { type Views, viewsIn } from "../dead-letters/index-files.ts";
import type { Database } from "../store/database.ts";
import { canBeWritten, dataFolderOf } from "./data-folder.ts";

/** Where this machine keeps its view of failed tasks: in its folder, if it has one that can be written. */
export function failedViews(
  dataDir: string | false | undefined,
  database: Database,
  log?: Logger,
): Views {
  const findFolder = async () =>
    dataDir && canBeWritten(dataDir) ? dataFolderOf(dataDir, database) : undefined;
  return viewsIn(findFolder, log);
}
