import { createServer, connect as dial, type Server, type Socket } from "node:net";
import { once } from "node:events";
import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { movableClock, until } from "../../base/contract/movable-clock.ts";
import type { Database } from "../database.ts";
import { temporaryDatabase } from "../contract/kinds.ts";
import { sql } from "../sql.ts";
import { openPostgres, type PostgresOptions } from "./postgres.ts";

let url: string;
let remove: () => Promise<void>;
const opened: Database[] = [];

beforeEach(async () => {
  ({ url, remove } = await temporaryDatabase());
});
afterEach(async () => {
  await Promise.all(opened.splice(0).map((database) => database.close()));
  await remove();
});

async function open(store: PostgresOptions): Promise<Database> {
  const database = await openPostgres(store);
  opened.push(database);
  return database;
}

describe("a Postgres connection", () => {
  test("outlives a table that was changed under its prepared statements", async () => {
    const database = await open({ url });
    await database.write([sql`create table scratch (id integer)`]);
    await database.write([sql`insert into scratch values (1)`]);
    const read = () => database.read(sql`select * from scratch`);
    expect(await read()).toEqual([{ id: 1 }]);
    await database.write([sql`alter table scratch add column body text`]);
    expect(await read()).toEqual([{ id: 1, body: null }]);
    const both = database.write([sql`select * from scratch`, sql`select 2 as two`]);
    expect(await both).toEqual([[{ id: 1, body: null }], [{ two: 2 }]]);
  });

  test("outlives statements that are deallocated", async () => {
    const database = await open({ url, connections: 1 });
    const read = () => database.read(sql`select ${7}::integer as seven`);
    expect(await read()).toEqual([{ seven: 7 }]);
    await database.read(sql`deallocate all`);
    expect(await read()).toEqual([{ seven: 7 }]);
  });

  test.each([
    ["for two seconds where they have become slow", { tookMs: 5, keptMs: 2_000 }],
    ["for a minute where they are fast", { tookMs: 0, keptMs: 60_000 }],
  ])("keeps the plans that it made for an empty table %s", async (_, { tookMs, keptMs }) => {
    const clock = movableClock();
    const database = await open({ url, connections: 1, clock });
    const holder = new pg.Client(url);
    await holder.connect();
    await holder.query("select pg_advisory_lock(7)");
    await database.write([
      sql`create table scratch (id integer primary key) with (autovacuum_enabled = off)`,
      sql`analyze scratch`,
    ]);
    const lookUps = async () => {
      const [, counted] = await database.write([
        sql`select id from scratch where id = ${7}`,
        sql`select idx_scan from pg_stat_xact_user_tables where relname = 'scratch'`,
      ]);
      return counted?.[0]?.["idx_scan"];
    };
    expect(await lookUps()).toBe(0);
    await database.write([sql`insert into scratch select generate_series(1, 5000)`]);
    const waiting = database.write([sql`select pg_advisory_xact_lock(7)`]);
    const blocked = sql`select 1 from pg_stat_activity
      where datname = current_database() and wait_event = 'advisory'`;
    await until("it to wait", async () => (await database.read(blocked)).length === 1);
    clock.jump(tookMs);
    await holder.end();
    await waiting;
    expect(await lookUps()).toBe(0);
    clock.jump(keptMs - 10);
    expect(await lookUps()).toBe(0);
    clock.jump(10);
    expect(await lookUps()).toBe(1);
  });

  test("is probed by the server, soon and often, whether its client is still there", async () => {
    const database = await open({ url });
    const [settings] = await database.read(sql`
      select current_setting('tcp_keepalives_idle') as idle,
        current_setting('tcp_keepalives_interval') as every,
        current_setting('tcp_keepalives_count') as times`);
    expect(settings).toEqual({ idle: "5", every: "2", times: "3" });
  });

  test("isn't kept by a statement that takes longer than statementTimeoutMs", async () => {
    const database = await open({ url, statementTimeoutMs: 100 });
    await expect(database.read(sql`select pg_sleep(30)`)).rejects.toMatchObject({
      code: "store_busy",
    });
  });

  test("waits for a lock no longer than lockTimeoutMs", async () => {
    const database = await open({ url, lockTimeoutMs: 100 });
    await database.write([sql`create table scratch (id integer)`]);
    const holder = new pg.Client(url);
    await holder.connect();
    await holder.query("begin; lock table scratch");
    await expect(database.write([sql`insert into scratch values (1)`])).rejects.toMatchObject({
      code: "store_busy",
    });
    await holder.end();
  });

  test("that falls silent is given up after answerTimeoutMs, and another is used", async () => {
    const link = await silentLink(url);
    const database = await open({ url: link.url, answerTimeoutMs: 500, connections: 1 });
    const read = () => database.read(sql`select 1 as one`);
    // On a busy machine any answer may take as long as that.
    const answer = () => until("an answer", () => read().catch(() => undefined));
    expect(await answer()).toEqual([{ one: 1 }]);
    link.silence();
    await expect(read()).rejects.toMatchObject({ code: "store_unavailable" });
    expect(await answer()).toEqual([{ one: 1 }]);
    await link.close();
  });

  test("that falls silent doesn't keep the store from being closed", async () => {
    const link = await silentLink(url);
    const database = await openPostgres({ url: link.url });
    let hints = 0;
    database.subscribe(() => hints++);
    await until("listening to begin", () => hints > 0);
    link.silence();
    await database.close();
    await expect(database.read(sql`select 1`)).rejects.toMatchObject({ code: "closed" });
    await link.close();
  });

  test("that can't be opened is given up after connectTimeoutMs", async () => {
    const link = await silentLink(url);
    link.silence();
    const database = await open({ url: link.url, connectTimeoutMs: 200 });
    link.silenceNew();
    await expect(database.read(sql`select 1`)).rejects.toMatchObject({ code: "store_unavailable" });
    await link.close();
  });

  test("that isn't free in time is what the error names", async () => {
    const database = await open({
      url,
      connections: 1,
      connectTimeoutMs: 300,
      lockTimeoutMs: 60_000,
    });
    const holder = new pg.Client(url);
    await holder.connect();
    await holder.query("select pg_advisory_lock(7)");
    // To connect may take as long as that, too.
    await until("a connection", () => database.read(sql`select 1`).catch(() => undefined));
    const slow = database.read(sql`select pg_advisory_xact_lock(7)::text as got`);
    await expect(database.read(sql`select 1`)).rejects.toThrow(/no connection became free in time/);
    await holder.end();
    expect(await slow).toHaveLength(1);
  });
});

/** A way to the server on which the connections that are there can fall silent. */
async function silentLink(target: string) {
  const { hostname, port } = new URL(target);
  const pairs: { client: Socket; server: Socket }[] = [];
  let dead = false;
  const front: Server = createServer((client) => {
    const server = dial(Number(port), hostname);
    for (const socket of [client, server]) socket.on("error", () => {});
    pairs.push({ client, server });
    if (!dead) client.pipe(server).pipe(client);
  });
  front.listen(0, "127.0.0.1");
  await once(front, "listening");
  const { port: frontPort } = front.address() as { port: number };
  return {
    url: target.replace(`:${port}`, `:${frontPort}`),
    silence() {
      for (const { client, server } of pairs) {
        client.unpipe(server);
        server.unpipe(client);
      }
    },
    silenceNew: () => void (dead = true),
    async close() {
      for (const { client, server } of pairs) {
        client.destroy();
        server.destroy();
      }
      front.close();
    },
  };
}
