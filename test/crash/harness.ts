import process from "node:process";
import { inject, onTestFinished } from "vitest";
import { type Fleet, openFleet } from "./fleet.ts";
import { postgresStore, sqliteStore, type StoreKind } from "./stores.ts";

export type { Fleet, StartOptions } from "./fleet.ts";
export type { StoreKind } from "./stores.ts";

export const storeKinds: readonly StoreKind[] = ["sqlite", "postgres"];

export type FleetOptions = {
  /** Default `sqlite`: a file of its own. `postgres`: a database of its own. */
  on?: StoreKind;
  /** A superuser's URL of the server that the database is made on. Default: this run's own server. */
  server?: string;
};

/** One store, and the processes on it. All gone when the test is over. */
export async function createFleet(options: FleetOptions = {}): Promise<Fleet> {
  const { on = "sqlite", server } = options;
  const fleet = await openFleet((folder) =>
    on === "sqlite" ? sqliteStore(folder) : postgresStore(server ?? inject("postgresUrl")),
  );
  onTestFinished(async () => {
    const keep = Boolean(process.env["FLOTILLA_CRASH_KEEP"]);
    await fleet.close({ keep });
    if (keep) console.log(`kept ${fleet.folder}`);
  });
  return fleet;
}
