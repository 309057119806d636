import { silentLogger } from "../base/log.ts";
import type { ConnectOptions, Flotilla } from "../runtime/connect.ts";
import type { StoreFlags } from "./flags.ts";
import { loadPlace } from "./settings.ts";

/**
 * Runs a command on the store. A command that looks or enqueues never makes a file and never changes
 * the schema: a wrong path must not become an empty store.
 */
export async function onStore<Result>(
  flags: StoreFlags,
  work: (flotilla: Flotilla) => Promise<Result>,
  options: Pick<ConnectOptions, "maxPayloadBytes" | "privateAgents"> = {},
): Promise<Result> {
  const { canBeWritten } = await import("../runtime/data-folder.ts");
  const { connect } = await import("../runtime/connect.ts");
  const { store, dataDir } = await loadPlace(flags);
  await using flotilla = connect(store, {
    ...options,
    // Whoever only looks may be somebody who may not write there.
    dataDir: dataDir !== false && canBeWritten(dataDir) && dataDir,
    create: false,
    migrate: "check",
    // What is worth saying the command says itself.
    log: silentLogger,
  });
  return await work(flotilla);
}
