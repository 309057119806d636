import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { movableClock, type MovableClock, until } from "../../base/contract/movable-clock.ts";
import { beat } from "../../pods/sql.ts";
import type { Database } from "../../store/database.ts";
import { temporaryDatabase } from "../../store/contract/kinds.ts";
import { openStore } from "../../store/open.ts";
import { sql, table } from "../../store/sql.ts";
import { type IdleAnnouncer, announceIdle } from "./claim-loop.ts";

let url: string;
let database: Database;
let remove: () => Promise<void>;
let clock: MovableClock;
let announcing: IdleAnnouncer;
let looks = 0;

beforeEach(async () => {
  ({ url, remove } = await temporaryDatabase());
  database = await openStore(url);
  await database.write([beat("pod", "{}", 0)]);
  clock = movableClock();
  looks = 0;
  announcing = announceIdle({ podId: "pod", database, clock, onIdle: () => looks++ });
});
afterEach(async () => {
  announcing.stop();
  await database.close();
  await remove();
});

const waiting = async () =>
  (await database.read(sql`select waiting from ${table("pod")}`))[0]!["waiting"] === 1;
/** Whether a write that makes tasks ready notifies listeners. */
const callsOut = async () => {
  const heard: string[] = [];
  const client = new pg.Client(url);
  await client.connect();
  client.on("notification", ({ payload }) => heard.push(payload ?? ""));
  await client.query("listen flotilla_hint");
  await database.write([sql`select 1`], { notify: true });
  // They arrive in the order in which they were committed.
  await client.query("notify flotilla_hint, 'last'");
  await until("the last of them", () => heard.includes("last"));
  await client.end();
  return heard.length > 1;
};

describe("a pod that waits for work", () => {
  test("announces it, and polls again for what was committed before it had", async () => {
    expect(await callsOut()).toBe(false);
    announcing.set(true);
    await until("the announcement", waiting);
    await until("another look", () => looks === 1);
    await clock.advance(100);
    expect(looks).toBe(2);
    expect(await callsOut()).toBe(true);
  });

  test("polls again although its first poll keeps it busy for a moment", async () => {
    announcing.stop();
    announcing = announceIdle({
      podId: "pod",
      database,
      clock,
      onIdle() {
        looks++;
        announcing.set(false);
        announcing.set(true);
      },
    });
    announcing.set(true);
    await until("another look", () => looks === 1);
    await clock.advance(100);
    expect(looks).toBe(2);
  });

  test("announces that it is busy only after it has been for a while", async () => {
    announcing.set(true);
    await until("another look", () => looks === 1);
    for (let task = 0; task < 5; task++) {
      announcing.set(false);
      await clock.advance(500);
      announcing.set(true);
      await clock.advance(500);
    }
    expect(await waiting()).toBe(true);
    announcing.set(false);
    await clock.advance(1_000);
    await until("the announcement", async () => !(await waiting()));
    expect(await callsOut()).toBe(false);
  });
});
