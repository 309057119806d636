import { once } from "node:events";
import { connect as dial, createServer, type Server, type Socket } from "node:net";
import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { checkPostgres } from "../../src/cli/doctor/postgres.ts";
import { temporaryDatabase } from "../../src/store/contract/kinds.ts";
import type { Database } from "../../src/store/database.ts";
import { openStore } from "../../src/store/open.ts";
import { sql } from "../../src/store/sql.ts";
import { checkStore } from "../../src/store/postgres/config.ts";
import { engineOf, refusalOf } from "../../src/store/postgres/engine.ts";
import { openPostgres } from "../../src/store/postgres/postgres.ts";

const says = {
  cockroach: "CockroachDB CCL v25.2.1 (x86_64-pc-linux-gnu, built 2025/06/01 00:00:00, go1.23.7)",
  yugabyte:
    "PostgreSQL 15.12-YB-2025.1.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 17.0.6, 64-bit",
  redshift:
    "PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC gcc (GCC) 3.4.2 20041017 (Red Hat 3.4.2-6.fc3), Redshift 1.0.117891",
  debian:
    "PostgreSQL 17.2 (Debian 17.2-1.pgdg120+1) on x86_64-pc-linux-gnu, compiled by gcc (Debian 12.2.0-14) 12.2.0, 64-bit",
  old: "PostgreSQL 14.20 on x86_64-pc-linux-gnu, compiled by gcc (GCC) 8.5.0, 64-bit",
  unheardOf: "Elephantine 3.1, wire-compatible",
};

describe("what a server says of itself", () => {
  test.each([
    [says.debian, "Postgres 17.2"],
    ["PostgreSQL 18.4 on aarch64-unknown-linux-gnu, compiled by gcc", "Postgres 18.4"],
    ["PostgreSQL 19beta1 on x86_64-pc-linux-gnu", "Postgres 19beta1"],
    ["PostgreSQL 16.9 (165f042) on aarch64-unknown-linux-gnu", "Postgres 16.9"],
  ])("is Postgres: %s", (version, name) => {
    const engine = engineOf({ version });
    expect(engine).toMatchObject({ kind: "postgres", name });
    expect(refusalOf(engine, { unproven: false })).toBeUndefined();
  });

  test("is Aurora DSQL where it has that one's tables, which nothing opens", () => {
    const engine = engineOf({ version: "PostgreSQL 16", hasDsql: true });
    for (const unproven of [true, false]) {
      expect(refusalOf(engine, { unproven })).toMatchObject({
        code: "unsupported",
        message: expect.stringContaining("Amazon Aurora DSQL"),
      });
    }
  });
});

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

async function ask(text: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    // Of several statements it gives the answers to all.
    const answers = [await client.query(text)].flat() as pg.QueryResult[];
    return answers.at(-1)!.rows;
  } finally {
    await client.end();
  }
}

/** Has the server say something else of itself, to every session that is opened from now on. */
async function pretend(version: string, more = ""): Promise<void> {
  const name = new URL(url).pathname.slice(1);
  await ask(`
    create schema if not exists fake;
    create or replace function fake.version() returns text language sql as $$ select '${version}'::text $$;
    ${more}
    alter database ${name} set search_path = fake, pg_catalog, public`);
}
const nothingMade = async () =>
  expect(await ask("select to_regnamespace('flotilla') as made")).toEqual([{ made: null }]);

/** What engines of other makers don't have. */
const lackingSettings = `
  create or replace function fake.current_setting(text, boolean) returns text language plpgsql as
    $$ begin raise exception using errcode = '42883', message = 'no such function'; end $$;`;

describe("opening", () => {
  test.each([
    [
      "CockroachDB",
      says.cockroach,
      /CockroachDB 25\.2\.1, .*lacks row addresses \(ctid\).*unproven=1/,
    ],
    ["YugabyteDB", says.yugabyte, /YugabyteDB 2025\.1\.0\.0.*lacks row addresses.*unproven=1/],
    ["Redshift", says.redshift, /Amazon Redshift 1\.0\.117891, .*lacks keys that are enforced/],
    ["a version that is out of support", says.old, /Postgres 14\.20, and 15 is the oldest/],
  ])("refuses %s by name, and makes nothing", async (_, version, message) => {
    await pretend(version);
    for (const pooler of ["", "?pooler=transaction"]) {
      await expect(openStore(`${url}${pooler}`)).rejects.toMatchObject({
        code: "unsupported",
        message: expect.stringMatching(message),
      });
    }
    await nothingMade();
    const checks = await checkPostgres(checkStore(url), "full", {});
    expect(checks).toMatchObject([
      { name: "server", verdict: "fail", message: expect.stringMatching(message) },
    ]);
  });

  test("refuses one by name that lacks what we ask its name with", async () => {
    await pretend(says.redshift, lackingSettings);
    await expect(openStore(url)).rejects.toMatchObject({
      code: "unsupported",
      message: expect.stringContaining("Redshift"),
    });
    await nothingMade();
  });

  test("refuses Redshift though it is said to be unproven", async () => {
    await pretend(says.redshift);
    await expect(openStore(`${url}?unproven=1`)).rejects.toMatchObject({ code: "unsupported" });
    await nothingMade();
  });

  test("by unproven=1 takes those that can be proven, and uses nothing that they lack", async () => {
    await pretend(says.cockroach);
    const sent: string[] = [];
    const link = await changingLink(url, (bytes) => {
      sent.push(bytes.toString("latin1"));
      return bytes;
    });
    database = await openStore(`${link}?unproven=1`);
    await database.write([sql`select 1`], { notify: true, channels: ["a"], lossy: true });
    await database.read(sql`select 1`, { page: true });
    expect(sent.join("")).not.toMatch(
      /ctid|skip locked|returning|pg_notify\(\$|listen |pg_advisory|unlogged|fillfactor|synchronous_commit|plan_cache_mode|enable_seqscan|discard plans/,
    );
  });

  test("tries one that it doesn't know, and takes it if it has everything", async () => {
    await pretend(says.unheardOf);
    database = await openStore(url);
    expect(await ask("select to_regclass('flotilla.task')::text as made")).toEqual([
      { made: "flotilla.task" },
    ]);
  });

  test.each([
    ["row addresses", (text: string) => text.replaceAll("ctid", "ctix")],
    ["locks on rows that skip", (text: string) => text.replaceAll("skip locked", "skip looked")],
    [
      "partial unique indexes",
      // The same length, and no such clause.
      (text: string) => text.replaceAll("where held > 0", "whore held > 0"),
    ],
  ])("refuses one that it doesn't know and that lacks %s", async (lacks, change) => {
    await pretend(says.unheardOf);
    const link = await changingLink(url, (bytes) =>
      Buffer.from(change(bytes.toString("latin1")), "latin1"),
    );
    await expect(openStore(link)).rejects.toMatchObject({
      code: "unsupported",
      message: expect.stringMatching(new RegExp(`Elephantine 3.1, .* but lacks ${lacks}`)),
    });
    await nothingMade();
    expect(await ask("select count(*)::int as left from pg_class where relname ~ 'trial'")).toEqual(
      [{ left: 0 }],
    );
  });
});

describe("after a failover", () => {
  const goneWithinMs = 60_000;
  // They are told to end, and one that hasn't yet would still do what it is asked.
  const cut = () =>
    ask(`select pg_terminate_backend(pid, ${goneWithinMs}) from pg_stat_activity
      where datname = current_database() and pid <> pg_backend_pid()`);
  const insert = () => database!.write([sql`insert into scratch values (1)`]);
  const stored = async () => (await ask("select count(*)::int as count from public.scratch"))[0];
  /** The first use of a connection that was cut fails, and its outcome is unknown. */
  const settle = async () => {
    for (let tries = 0; tries < 20; tries++) {
      const done = await database!.read(sql`select 1`).then(
        () => true,
        (error: { code: string }) => error.code === "unsupported",
      );
      if (done) return;
    }
    throw new Error("the connections don't come back");
  };

  test("another engine is refused, and nothing is written there", async () => {
    await ask("create table public.scratch (id integer)");
    await pretend(says.debian);
    database = await openPostgres({ url, connections: 1 });
    await insert();
    await pretend(says.yugabyte);
    await cut();
    await settle();
    for (let tries = 0; tries < 3; tries++) {
      await expect(insert()).rejects.toMatchObject({
        code: expect.stringMatching(/^unsupported$|^unknown_outcome$/),
      });
    }
    await expect(insert()).rejects.toMatchObject({ code: "unsupported" });
    expect(await stored()).toEqual({ count: 1 });
  });

  test("another version of Postgres is looked at once, and gets what was asked", async () => {
    await ask("create table public.scratch (id integer)");
    await pretend(says.debian);
    database = await openPostgres({ url, connections: 1 });
    await insert();
    await pretend(says.debian.replace("17.2", "18.1"));
    await cut();
    await settle();
    await insert().catch(insert);
    await insert();
    expect(await stored()).toEqual({ count: 3 });
  });
});

test("opening asks no more often than it did without a look at the engine", async () => {
  await (await openStore(url)).close();
  let syncs = 0;
  const link = await changingLink(url, (bytes) => {
    // A round trip of ours ends with a message of this kind.
    if (bytes.includes(Buffer.from("S\0\0\0\u0004", "latin1"))) syncs++;
    return bytes;
  });
  await (await openStore(link)).close();
  // The look at the connection, and the read of the schema's version.
  expect(syncs).toBe(2);
  syncs = 0;
  await (await openStore(`${link}?pooler=transaction`)).close();
  expect(syncs).toBe(1);
});

/** A way to the server on which what we send can be changed or counted. Gives the URL of its near end. */
async function changingLink(target: string, change: (bytes: Buffer) => Buffer): Promise<string> {
  const { hostname, port } = new URL(target);
  const sockets: Socket[] = [];
  const front: Server = createServer((client) => {
    const server = dial(Number(port), hostname);
    for (const socket of [client, server]) socket.on("error", () => {});
    client.on("data", (bytes) => server.write(change(bytes)));
    client.on("end", () => server.end());
    server.pipe(client);
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
