import pg from "pg";
import type { Fleet } from "./fleet.ts";
import type { PodProcess } from "./pod-handle.ts";

/** A time in which the store can be read, but nobody can write. */
export type Outage = {
  /** Lets everybody write again but one pod, whose beats stay out for now. */
  end(): Promise<void>;
  /** Lets that one too. */
  endForAll(): Promise<void>;
};

export async function stopWrites(fleet: Fleet, { last }: { last: PodProcess }): Promise<Outage> {
  if (fleet.kind === "sqlite") {
    await fleet.sql("begin immediate");
    return {
      async end() {
        await last.pause();
        await fleet.sql("rollback");
      },
      endForAll: async () => last.resume(),
    };
  }
  // Here the server goes on with what a paused process has sent, so its row is kept from it. Tables
  // come first: a claim that waits for its pod's row would hold them.
  const others = await lockedBy(fleet, [
    "lock table flotilla.step_tracker, flotilla.step_event in exclusive mode",
    `select 1 from flotilla.pod_health where pod_id <> '${last.podId}' for update`,
  ]);
  const row = await lockedBy(fleet, [
    `select 1 from flotilla.pod_health where pod_id = '${last.podId}' for update`,
  ]);
  return { end: others, endForAll: row };
}

/** Begins a transaction that holds its locks until the returned function is called. */
export async function lockedBy(fleet: Fleet, statements: string[]): Promise<() => Promise<void>> {
  const client = new pg.Client(fleet.store);
  // The database may be dropped under it when a test has failed.
  client.on("error", () => {});
  await client.connect();
  for (const statement of ["begin", ...statements]) await client.query(statement);
  return () => client.end();
}
