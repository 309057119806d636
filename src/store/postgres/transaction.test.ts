import { createServer, connect as dial, type Socket } from "node:net";
import { once } from "node:events";
import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { until } from "../../base/contract/movable-clock.ts";
import { temporaryDatabase } from "../contract/kinds.ts";
import { sql } from "../sql.ts";
import { plainNumbers } from "./driver.ts";
import { openPostgres } from "./postgres.ts";
import { type TransactOptions, transact } from "./transaction.ts";

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

  test.each([false, true])("that doesn't begin does nothing, pipeline: %s", async (pipeline) => {
    const pool = new pg.Pool({ connectionString: url, pipeline, max: 1 } as pg.PoolConfig);
    const insert = { text: "insert into scratch values (1)", values: [] };
    const send = async (begin: string[]) =>
      transact(await pool.connect(), [insert, insert], { ...manner, begin });
    await expect(send(["nonsense"])).rejects.toMatchObject({ code: "internal" });
    await expect(send(["begin", "set local nonsense = 1"])).rejects.toMatchObject({
      code: "internal",
    });
    expect(await rows()).toEqual([]);
    // The connection is as good as before, and in no transaction.
    await send(["begin"]);
    expect(await rows()).toEqual([{ id: 1 }, { id: 1 }]);
    await pool.end();
  });

  test("of which one statement is refused has done nothing, and the next is no worse for it", async () => {
    const pool = new pg.Pool({ connectionString: url, max: 1 });
    const insert = (id: string) => ({ text: "insert into scratch values ($1)", values: [id] });
    const send = async (...ids: string[]) =>
      transact(await pool.connect(), ids.map(insert), manner);
    await send("1", "2");
    await expect(send("3", "four", "5")).rejects.toMatchObject({ code: "internal" });
    await send("6");
    expect(await rows()).toEqual([{ id: 1 }, { id: 2 }, { id: 6 }]);
    expect(pool.totalCount).toBe(1);
    await pool.end();
  });

  test("keeps a plan under its name only where the server has really taken it", async () => {
    const pool = new pg.Pool({ connectionString: url, max: 1 });
    const send = async (text: string) =>
      transact(await pool.connect(), [{ text, values: [] }], manner);
    const select = "select id from later";
    await expect(send(select)).rejects.toMatchObject({ code: "store_outdated" });
    await other.query("create table later (id integer)");
    expect(await send(select)).toEqual([[]]);
    const { rows: plans } = await pool.query("select name from pg_prepared_statements");
    expect(plans).toHaveLength(1);
    await pool.end();
  });
});

const manner: TransactOptions = {
  driver: pg,
  begin: undefined,
  prepared: 0,
  types: plainNumbers(pg),
  answerTimeoutMs: 30_000,
};

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
