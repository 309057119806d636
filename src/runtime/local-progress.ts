import { type Clock } from "../base/clock.ts";
import type { Logger } from "../base/log.ts";
import type { LocalProgress } from "../tasks/run/local-progress.ts";
import type { Database } from "../store/database.ts";
import type { Settings } from "./config.ts";
import { canBeWritten, dataFolderOf } from "./data-folder.ts";

/** Where this machine keeps progress, if one of the handlers asks for that. */
export async function localProgressFor(
  { use, dataDir }: Settings,
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
