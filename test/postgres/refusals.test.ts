import { once } from "node:events";
import { connect as dial, createServer, type Server, type Socket } from "node:net";
import process from "node:process";
import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { until } from "../../src/base/contract/movable-clock.ts";
import { checkPostgres } from "../../src/cli/doctor/postgres.ts";
import { temporaryDatabase } from "../../src/store/contract/kinds.ts";
import { openStore } from "../../src/store/open.ts";
import { checkStore } from "../../src/store/postgres/config.ts";
import { migrations } from "../../src/store/schema.ts";
import { startPgBouncer } from "./pgbouncer.ts";
import { startPostgres } from "./server.ts";

let url: string;
let remove: () => Promise<void>;
const links: { close(): void }[] = [];

beforeEach(async () => {
  ({ url, remove } = await temporaryDatabase());
});
afterEach(async () => {
  for (const link of links.splice(0)) link.close();
  await remove();
});

async function ask(text: string, at = url): Promise<Record<string, unknown>[]> {
  const client = new pg.Client(at);
  await client.connect();
  try {
    return (await client.query(text)).rows;
  } finally {
    await client.end();
  }
}
const made = async (at = url) => (await ask("select to_regnamespace('flotilla') as made", at))[0];
const nothing = { made: null };

/** A way to the server that passes on what it is sent when it is let. Gives the URL of its near end. */
async function heldLink(
  pass: (bytes: Buffer, on: (bytes: Buffer) => void, cut: () => void) => void,
): Promise<string> {
  const { hostname, port } = new URL(url);
  const sockets: Socket[] = [];
  const front: Server = createServer((client) => {
    const server = dial(Number(port), hostname);
    for (const socket of [client, server]) socket.on("error", () => {});
    const cut = () => {
      client.destroy();
      server.destroy();
    };
    client.on("data", (bytes) => pass(bytes, (each) => server.write(each), cut));
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
  return url.replace(`:${port}`, `:${(front.address() as { port: number }).port}`);
}

describe("opening a store", () => {
  test.each(["", "?unproven=1"])(
    "as a role that may not create a schema says so, and makes nothing%s",
    async (how) => {
      const role = `visitor_${process.pid}`;
      await ask(`create role ${role} login`);
      try {
        const theirs = url.replace("//postgres@", `//${role}@`);
        await expect(openStore(`${theirs}${how}`)).rejects.toMatchObject({
          code: "store_read_only",
          message: expect.stringMatching(/this role may not do that.*docs\/postgres\.md, Roles/),
        });
        expect(await made()).toEqual(nothing);
      } finally {
        await ask(`drop role ${role}`);
      }
    },
  );

  test("on an instance that is suspended waits for connectTimeoutMs, and says what to raise", async () => {
    const held: (() => void)[] = [];
    let awake = false;
    const link = await heldLink((bytes, on) => {
      if (awake) on(bytes);
      else held.push(() => on(bytes));
    });
    await expect(openStore(`${link}?connectTimeoutMs=200`)).rejects.toMatchObject({
      code: "store_unavailable",
      message: expect.stringMatching(/didn't answer within `connectTimeoutMs`: raise that/),
    });
    expect(await made()).toEqual(nothing);
    const checks = await checkPostgres(checkStore(`${link}?connectTimeoutMs=200`), "full", {});
    expect(checks).toMatchObject([
      { name: "open", verdict: "fail", message: expect.stringContaining("connectTimeoutMs") },
    ]);

    // With time enough it is opened whole when it has woken.
    held.length = 0;
    const opening = openStore(`${link}?connectTimeoutMs=60000`);
    await until("a connection to be asked for", () => held.length > 0);
    awake = true;
    for (const on of held.splice(0)) on();
    await (await opening).close();
    expect(await ask("select to_regclass('flotilla.session')::text as made")).toEqual([
      { made: "flotilla.session" },
    ]);
  });

  test("whose connection is cut within the first migration leaves nothing there to be in the way", async () => {
    let cuts = 0;
    const link = await heldLink((bytes, on, cut) => {
      if (cuts > 0 || !bytes.includes("create table flotilla.")) return on(bytes);
      on(bytes.subarray(0, bytes.length / 2));
      cuts++;
      cut();
    });
    // It is made again, and refuses a schema that holds half of it.
    await (await openStore(link)).close();
    expect(cuts).toBe(1);
    const [row] = await ask("select count(*)::integer as count from flotilla.migration");
    expect(row).toEqual({ count: migrations.length });
  });

  test("through a pooler that takes no settings makes all of it", async () => {
    const settings = { ignore_startup_parameters: "" };
    const pooler = await startPgBouncer({ server: url, settings });
    try {
      await (await openStore(pooler.through(url))).close();
      expect(await ask("select to_regclass('flotilla.session')::text as made")).toEqual([
        { made: "flotilla.session" },
      ]);
    } finally {
      await pooler.stop();
    }
  });
});

test("a standby is named at opening and by the doctor, until it is the primary", async () => {
  const primary = await startPostgres({ settings: { fsync: "off", full_page_writes: "off" } });
  try {
    const standby = await primary.startStandby();
    try {
      for (const how of ["", "?unproven=1", "?pooler=transaction"]) {
        await expect(openStore(`${standby.url}${how}`)).rejects.toMatchObject({
          code: "store_read_only",
          message: expect.stringMatching(/as a standby is: connect to the primary/),
        });
      }
      const checks = await checkPostgres(checkStore(standby.url), "full", {});
      expect(checks).toContainEqual(expect.objectContaining({ name: "writable", verdict: "fail" }));
      expect(await made(standby.url)).toEqual(nothing);
      await standby.promote();
      await until("the standby to be the primary", async () => {
        const [row] = await ask("select pg_is_in_recovery() as standby", standby.url);
        return row!["standby"] === false;
      });
      await (await openStore(standby.url)).close();
    } finally {
      await standby.stop();
    }
  } finally {
    await primary.stop();
  }
});
