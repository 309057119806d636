import pg from "pg";
import type { Fleet } from "./fleet.ts";
import type { PodProcess } from "./pod-handle.ts";

/** A time in which the store can be read, but not written. */
export type Outage = {
  /** Lets all pods write again but one, whose beats stay out for now. */
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
  const client = await connectedTo(fleet);
  // A server goes on with what a paused process has sent, so it is paused before it can send anything.
  await last.pause();
  const end = await hold(client, [
    "lock table flotilla.task, flotilla.task_event, flotilla.pod in exclusive mode",
  ]);
  return { end, endForAll: async () => last.resume() };
}

/** Begins a transaction that holds its locks until the returned function is called. */
export async function lockedBy(fleet: Fleet, statements: string[]): Promise<() => Promise<void>> {
  return hold(await connectedTo(fleet), statements);
}

async function hold(client: pg.Client, statements: string[]): Promise<() => Promise<void>> {
  for (const statement of ["begin", ...statements]) await client.query(statement);
  return () => client.end();
}

async function connectedTo(fleet: Fleet): Promise<pg.Client> {
  const client = new pg.Client(fleet.store);
  // The database may be dropped under it when a test has failed.
  client.on("error", () => {});
  await client.connect();
  return client;
}
