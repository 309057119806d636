import { createServer, connect as dial, type Socket } from "node:net";
import { once } from "node:events";
import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { until } from "../../base/movable-clock.contract.ts";
import { temporaryDatabase } from "../kinds.contract.ts";
import { sql } from "../sql.ts";
import { plainNumbers } from "./driver.ts";
import { openPostgres } from "./postgres.ts";
import { type Manner, transact } from "./transact.ts";

let url: string;
let remove: () => Promise<void>;
let other: pg.Client;

beforeEach(async () => {
  ({ url, remove } = await temporaryDatabase());
  other = new pg.Client(url);
  await other.connect();
  await other.query("create table scratch (id integer)");
});
afterEach(async () => {
  await other.end();
  await remove();
});

const rows = async () =>
  (await other.query("select id from scratch order by id")).rows as unknown[];

describe("a transaction on Postgres", () => {
  test.each([
    ["", "on a direct connection"],
    ["?pooler=transaction", "with settings sent along"],
  ])("is committed before the first answer has arrived: %s %s", async (parameters) => {
    const link = await heldLink(url);
    const database = await openPostgres({ url: link.url + parameters });
    await database.write([sql`select 1`, sql`select 2`]);
    link.hold();
    const writing = database.write([
      sql`insert into scratch values (1)`,
      sql`insert into scratch values (2)`,
    ]);
    await until("the commit", async () => (await rows()).length === 2);
    link.letGo();
    expect(await writing).toEqual([[], []]);
    await database.close();
    link.close();
  });

  test("that didn't begin has an unknown outcome where its statements were sent along", async () => {
    const pool = new pg.Pool({ connectionString: url, pipeline: true });
    await expect(withoutBegin(pool)).rejects.toMatchObject({ code: "unknown_outcome" });
    expect(await rows()).toEqual([{ id: 1 }, { id: 2 }]);
    await pool.end();
  });

  test("that didn't begin did nothing where its statements were not", async () => {
    const pool = new pg.Pool({ connectionString: url });
    await expect(withoutBegin(pool)).rejects.toMatchObject({ code: "internal" });
    expect(await rows()).toEqual([]);
    await pool.end();
  });
});

async function withoutBegin(pool: pg.Pool): Promise<unknown> {
  const manner: Manner = {
    begin: "nonsense",
    prepared: 0,
    types: plainNumbers(pg),
    answerTimeoutMs: 30_000,
  };
  const inserts = [1, 2].map((id) => ({ text: `insert into scratch values (${id})`, values: [] }));
  return transact(await pool.connect(), inserts, manner);
}

/** A way to the server on which answers can be held back. */
async function heldLink(target: string) {
  const { hostname, port } = new URL(target);
  const pairs: { client: Socket; server: Socket }[] = [];
  const front = createServer((client) => {
    const server = dial(Number(port), hostname);
    for (const socket of [client, server]) socket.on("error", () => {});
    client.pipe(server).pipe(client);
    pairs.push({ client, server });
  });
  front.listen(0, "127.0.0.1");
  await once(front, "listening");
  const { port: frontPort } = front.address() as { port: number };
  return {
    url: target.replace(`:${port}`, `:${frontPort}`),
    hold: () => pairs.forEach(({ client, server }) => server.unpipe(client)),
    letGo: () => pairs.forEach(({ client, server }) => server.pipe(client)),
    close: () => front.close(),
  };
}
