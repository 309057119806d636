import type { Flotilla } from "../runtime/connect.ts";
import { note } from "./output.ts";

// A reader takes in no more lines.
const namesMost = 20;

/**
 * Says which of the names that something was stored under no pod which is up works on. What was stored
 * stays the answer where the store can't say so.
 */
export async function noteNoWorker(
  flotilla: Pick<Flotilla, "noWorker">,
  names: Iterable<string>,
): Promise<void> {
  const found = await flotilla.noWorker([...names]).catch(() => []);
  if (found.length === 0) return;
  const { noWorkerWarning } = await import("../tasks/inspect/blocked-by.ts");
  for (const name of found.slice(0, namesMost)) note(noWorkerWarning(name));
}
