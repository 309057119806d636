import type { Flotilla } from "../runtime/connect.ts";
import { note } from "./output.ts";

// Each is a question to the store, and nobody reads more lines.
const namesMost = 20;

/** Says which of the names that something was stored under no pod which is up works on. */
export async function noteUnheard(
  flotilla: Pick<Flotilla, "hasWorker">,
  names: Iterable<string>,
): Promise<void> {
  for (const name of [...names].slice(0, namesMost)) {
    if (await flotilla.hasWorker(name)) continue;
    const { noWorkerText } = await import("../queue/unheard.ts");
    note(noWorkerText(name));
  }
}
