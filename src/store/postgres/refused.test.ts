import { once } from "node:events";
import { connect as dial, createServer, type Socket } from "node:net";
import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Database } from "../database.ts";
import { temporaryDatabase } from "../contract/kinds.ts";
import { openStore } from "../open.ts";
import { sql } from "../sql.ts";
import { openPostgres } from "./postgres.ts";

let url: string;
let remove: () => Promise<void>;
let database: Database | undefined;
const links: { close(): void }[] = [];

beforeEach(async () => {
  ({ url, remove } = await temporaryDatabase());
});
afterEach(async () => {
  await database?.close();
  database = undefined;
  for (const link of links.splice(0)) link.close();
  await remove();
});

describe("an error of the server's", () => {
  test("is a refusal whatever language its message is in", async () => {
    // Czech for ERROR is as long, so the messages stay whole.
    const czech = (bytes: Buffer) =>
      Buffer.from(bytes.toString("latin1").replaceAll("SERROR\0", "SCHYBA\0"), "latin1");
    const link = await changingLink(url, (bytes, client) => client.write(czech(bytes)));
    database = await openStore(link);
    await expect(database.write([sql`nonsense`])).rejects.toMatchObject({ code: "internal" });
  });

  test("leaves the outcome unknown where the connection ends with it", async () => {
    let lost = false;
    const link = await changingLink(url, (bytes, client) => {
      if (lost) client.end(hangUp);
      else client.write(bytes);
    });
    database = await openPostgres({ url: link });
    await database.write([sql`create table scratch (id integer)`]);
    lost = true;
    const writing = database.write([sql`insert into scratch values (1)`]);
    await expect(writing).rejects.toMatchObject({ code: "unknown_outcome" });
    lost = false;
    expect(await database.read(sql`select id from scratch`)).toEqual([{ id: 1 }]);
  });

  test("that undoes a transaction for another's sake, however often, is one that passes", async () => {
    database = await openPostgres({ url });
    const undone = sql`do $$ begin raise exception using errcode = '40P01'; end $$`;
    await expect(database.write([undone])).rejects.toMatchObject({ code: "store_busy" });
  });

  test("that it takes no writes makes us connect again, since another may have become the primary", async () => {
    const setting = (value: "on" | "off") => async (client: pg.Client) =>
      client.query(
        `alter database ${new URL(url).pathname.slice(1)} set default_transaction_read_only = ${value}`,
      );
    const ask = async (work: (client: pg.Client) => Promise<unknown>) => {
      const client = new pg.Client({
        connectionString: url,
        options: "-c default_transaction_read_only=off",
      });
      await client.connect();
      await work(client);
      await client.end();
    };
    await ask((client) => client.query("create table scratch (id integer)"));
    await ask(setting("on"));
    database = await openPostgres({ url, connections: 1 });
    const insert = () => database!.write([sql`insert into scratch values (1)`]);
    await expect(insert()).rejects.toMatchObject({ code: "store_read_only" });
    await ask(setting("off"));
    await insert();
  });
});

/** What a pooler says that has lost the server, before it closes the connection. */
const said = Buffer.from("SERROR\0C08P01\0Mserver conn crashed?\0\0");
const length = Buffer.alloc(4);
length.writeInt32BE(said.length + 4);
const hangUp = Buffer.concat([Buffer.from("E"), length, said]);

/** A way to the server on which its answers can be changed. Gives the URL of its near end. */
async function changingLink(
  target: string,
  pass: (bytes: Buffer, client: Socket) => void,
): Promise<string> {
  const { hostname, port } = new URL(target);
  const sockets: Socket[] = [];
  const front = createServer((client) => {
    const server = dial(Number(port), hostname);
    for (const socket of [client, server]) socket.on("error", () => {});
    client.pipe(server);
    server.on("data", (bytes) => pass(bytes, client));
    server.on("end", () => client.end());
    sockets.push(client, server);
  });
  front.listen(0, "127.0.0.1");
  await once(front, "listening");
  links.push({
    close() {
      for (const socket of sockets) socket.destroy();
      front.close();
    },
  });
  const { port: frontPort } = front.address() as { port: number };
  return target.replace(`:${port}`, `:${frontPort}`);
}
