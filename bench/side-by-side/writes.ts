import { setTimeout as wait } from "node:timers/promises";
import pg from "pg";

/** What a phase writes on a Postgres server. */
export type Writes = {
  readonly walBytes: number;
  /** Transactions that wrote; those that only read are not counted. */
  readonly commits: number;
};

/** Starts counting what is written to the server of this database, which nothing else may use. */
export async function countWrites(url: string): Promise<() => Promise<Writes>> {
  const before = await readPosition(url);
  return async () => {
    const after = await readPosition(url);
    return { walBytes: after.walBytes - before.walBytes, commits: after.commits - before.commits };
  };
}

// Connections tell the server's statistics at most once a second.
const statisticsMs = 1_500;

/** How many dead rows the tables of this database have, as the server counts them. */
export async function countDeadRows(url: string): Promise<number> {
  await wait(statisticsMs);
  const row = await ask(url, "select sum(n_dead_tup)::float8 as dead from pg_stat_user_tables");
  return Number(row["dead"]);
}

async function readPosition(url: string): Promise<Writes> {
  const row = await ask(
    url,
    `select (pg_current_wal_insert_lsn() - '0/0')::float8 as bytes,
      pg_snapshot_xmax(pg_current_snapshot())::text::float8 as transactions`,
  );
  return { walBytes: Number(row["bytes"]), commits: Number(row["transactions"]) };
}

async function ask(url: string, text: string): Promise<Record<string, unknown>> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    const { rows } = await client.query<Record<string, unknown>>(text);
    return rows[0]!;
  } finally {
    await client.end();
  }
}
