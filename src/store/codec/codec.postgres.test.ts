import pg from "pg";
import { afterEach, beforeEach, describe } from "vitest";
import { temporaryDatabase, temporaryFile } from "../contract/kinds.ts";
import { codecContract } from "./contract/codec.ts";

describe("content in Postgres with a codec", () => {
  let place: Awaited<ReturnType<typeof temporaryDatabase>>;
  let disk: ReturnType<typeof temporaryFile>;
  beforeEach(async () => {
    disk = temporaryFile();
    place = await temporaryDatabase();
  });
  afterEach(async () => {
    await place.remove();
    await disk.remove();
  });

  async function withClient<Result>(use: (client: pg.Client) => Promise<Result>): Promise<Result> {
    const client = new pg.Client(place.url);
    await client.connect();
    try {
      return await use(client);
    } finally {
      await client.end();
    }
  }

  codecContract(() => ({
    url: place.url,
    dataDir: disk.folder,
    dump: () =>
      withClient(async (client) => {
        const { rows: tables } = await client.query<{ name: string }>(
          "select tablename as name from pg_tables where schemaname = 'flotilla'",
        );
        const all: string[] = [];
        for (const { name } of tables) {
          const { rows } = await client.query(`select * from flotilla.${name}`);
          all.push(JSON.stringify(rows));
        }
        return all.join("\n");
      }),
    run: (text) =>
      withClient(async (client) => void (await client.query(text((name) => `flotilla.${name}`)))),
  }));
});
