import { spawn } from "node:child_process";
import { once } from "node:events";
import process from "node:process";
import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { silentLogger } from "../../base/log.ts";
import { until } from "../../base/contract/movable-clock.ts";
import { task } from "../../tasks/task.ts";
import { startPod } from "../../runtime/start-pod.ts";
import type { Database } from "../database.ts";
import { temporaryDatabase } from "../contract/kinds.ts";
import { migrate } from "../migrate.ts";
import { sql, table } from "../sql.ts";
import { hintChannel, secretChannel } from "./notifications.ts";
import { openPostgres } from "./postgres.ts";

let url: string;
let remove: () => Promise<void>;
let database: Database;
const events: string[] = [];

beforeEach(async () => {
  ({ url, remove } = await temporaryDatabase());
  events.length = 0;
  database = await openPostgres({ url, onEvent: ({ type }) => events.push(type) });
  await migrate(database);
});
afterEach(async () => {
  await database.close();
  await remove();
});

const listening = () =>
  database.read(sql`
    select pid from pg_stat_activity
    where datname = current_database() and query like 'listen%'`);

describe("listening on Postgres", () => {
  test("ends without subscribers, and begins again with the next", async () => {
    for (let round = 0; round < 2; round++) {
      let hints = 0;
      const stop = database.subscribe(() => hints++);
      await until("listening to begin", () => hints > 0);
      expect(await listening()).toHaveLength(1);
      stop();
      const gone = async () => (await listening()).length === 0;
      expect(await until("the connection to be closed", gone)).toBe(true);
    }
  });

  test("goes on when its connection was cut, and notifies of what it has missed", async () => {
    let hints = 0;
    const stop = database.subscribe(() => hints++);
    await until("listening to begin", () => hints > 0);
    const [first] = await listening();
    const before = hints;
    await database.read(sql`select pg_terminate_backend(${first!["pid"]})`);
    await until("a hint after the cut", () => hints > before);
    // The server may still be ending the first.
    const another = async () => (await listening()).some(({ pid }) => pid !== first!["pid"]);
    expect(await until("another connection", another)).toBe(true);
    stop();
  });
});

describe("envelopes on Postgres", () => {
  const tell = (letters: Record<string, string>) =>
    database.write([sql`select 1`], {
      channels: Object.keys(letters),
      payloads: new Map(Object.entries(letters)),
      lossy: true,
    });
  const hearing = async (address: string) => {
    const got: (string | undefined)[] = [];
    const stop = database.subscribe((_, letters) => got.push(letters), address);
    await until(`${address} to be listened to`, () => got.length > 0);
    got.length = 0;
    return { got, stop };
  };

  test("come along with their notification, each to its own address", async () => {
    const alice = await hearing("alice");
    const bob = await hearing('bob "and" \n others');
    await tell({ alice: "one" });
    await tell({ alice: 'it\'s "two"', 'bob "and" \n others': "three ✓", nobody: "four" });
    await until("both", () => alice.got.length === 2 && bob.got.length === 1);
    expect(alice.got).toEqual(["one", 'it\'s "two"']);
    expect(bob.got).toEqual(["three ✓"]);
  });

  test("can't be received by roles that may not read our tables", async () => {
    const { got } = await hearing("alice");
    const [row] = await database.read(sql`
      select query from pg_stat_activity
      where datname = current_database() and query like 'listen flotilla_mail_%'`);
    const [kept] = await database.read(sql`select secret from ${table("bus_secret")}`);
    const key = { schema: "flotilla", secret: String(kept!["secret"]) };
    expect(row!["query"]).toBe(`listen ${secretChannel(key, "alice")}`);
    for (const secret of [undefined, ""]) {
      const guessed = secretChannel({ schema: "flotilla", secret }, "alice");
      await database.read(sql`select pg_notify(${guessed}, 'forged')`);
    }
    await tell({ alice: "true" });
    await until("it", () => got.length > 0);
    expect(got).toEqual(["true"]);
  });

  test("that no pod has signed are dropped and counted, also where their channel is known", async () => {
    const alice = await hearing("alice");
    const bob = await hearing("bob");
    const [kept] = await database.read(sql`select secret from ${table("bus_secret")}`);
    const key = { schema: "flotilla", secret: String(kept!["secret"]) };
    const channel = secretChannel(key, "alice");
    const payloads: string[] = [];
    const spy = new pg.Client(url);
    await spy.connect();
    await spy.query(`listen ${secretChannel(key, "bob")}`);
    spy.on("notification", ({ payload }) => payloads.push(payload!));
    await tell({ bob: "for bob" });
    await until("an envelope", () => payloads.length > 0 && bob.got.length > 0);
    const [forBob] = payloads;
    const forged = ["forged", "", forBob!, forBob!.replace("for bob", "for eve"), "x".repeat(22)];
    for (const payload of forged) await spy.query("select pg_notify($1, $2)", [channel, payload]);
    await spy.query("select pg_notify($1, $2)", [hintChannel("flotilla"), "forged"]);
    await spy.end();
    await tell({ alice: "true" });
    await until("it", () => alice.got.includes("true"));
    // A plain notification carries nothing, so that any role may send one.
    expect(alice.got).toEqual([undefined, "true"]);
    expect(events.filter((type) => type === "forged")).toHaveLength(4);
  });

  test("that are too long for it are only notified of", async () => {
    const { got } = await hearing("alice");
    for (const letters of ["x".repeat(7_977), "x".repeat(7_978), "✓".repeat(2_660)]) {
      await tell({ alice: letters });
    }
    await until("all", () => got.length === 3);
    expect(got).toEqual(["x".repeat(7_977), undefined, undefined]);
  });

  test("aren't listened for at an address without subscribers", async () => {
    const channels = async () => {
      const rows = await database.read(sql`
        select query from pg_stat_activity
        where datname = current_database() and query like 'unlisten %'`);
      return rows.length;
    };
    const alice = await hearing("alice");
    const bob = await hearing("bob");
    bob.stop();
    await until("it to be unheard", async () => (await channels()) === 1);
    await tell({ bob: "one" });
    await tell({ alice: "two" });
    await until("the other", () => alice.got.length === 1);
    expect(bob.got).toEqual([]);
  });
});

describe("a producer on Postgres that has waited for a task", () => {
  test("ends by itself, without a close", async () => {
    const double = task("double", {}, ({ input }: { input: number }) => input * 2);
    await using _pod = await startPod({ store: url, use: [double], log: silentLogger });
    const producer = spawn(
      process.execPath,
      [
        "--conditions=flotilla:source",
        "--input-type=module",
        "--eval",
        `import { connect } from "flotilla";
         const flotilla = connect(${JSON.stringify(url)});
         process.stdout.write(String(await flotilla.waitFor(await flotilla.enqueue("double", 21))));`,
      ],
      { stdio: ["ignore", "pipe", "inherit"], cwd: import.meta.dirname },
    );
    let said = "";
    producer.stdout.on("data", (chunk) => (said += String(chunk)));
    // What it has said may come after its end, and before that of its pipes.
    const [code] = await once(producer, "close");
    expect({ code, said }).toEqual({ code: 0, said: "42" });
  });
});
