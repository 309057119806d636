import pg from "pg";
import type { Watch } from "./system.ts";

/** Counts with one query on a connection of its own. */
export async function countingRows(url: string, query: string): Promise<Watch> {
  const client = new pg.Client(url);
  // The database goes away under it when a round ends.
  client.on("error", () => {});
  await client.connect();
  return {
    async unfinished() {
      const { rows } = await client.query<{ count: string }>(query);
      return Number(rows[0]!.count);
    },
    close: () => client.end(),
  };
}
